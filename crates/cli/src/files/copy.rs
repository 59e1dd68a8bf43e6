//! State of `extol put`, and the size of pieces.

use std::collections::HashMap;

use extol_cli_common::progress::{self, ProgressBar};

/// Bytes moved at a time.
pub(super) const CHUNK: usize = 1 << 20;

/// Extended attributes that are worth copying: all but those which security modules set on their
/// own.
pub(super) fn is_copied(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"trusted.")
        || name.starts_with(b"system.posix_acl_")
        || name == b"security.capability"
}

/// A copy under way: the names already made of files with several, and the bar.
pub(super) struct Copy<Key, DestDir> {
    /// Where the first name of a file with several was put.
    pub(super) made: HashMap<Key, DestDir>,
    pub(super) bar: ProgressBar,
    pub(super) buffer: Vec<u8>,
}

impl<Key, DestDir> Copy<Key, DestDir> {
    pub(super) fn new() -> Self {
        Self { made: HashMap::new(), bar: progress::bytes("copying"), buffer: vec![0; CHUNK] }
    }
}
