//! An inode that an operation works on, with the inode's lock held.

use extol_ondisk::{Inode, InodeNr};

/// Number and decoded contents of an inode. Modules change `raw`; the operation writes it back
/// once, at its end.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Which inode.
    pub ino: InodeNr,
    /// Its contents.
    pub raw: Inode,
}
