//! Directories: names and the inodes they lead to.
//!
//! A directory is a file whose blocks hold entries. It exists in three forms:
//!
//! ```text
//!   inside the inode ──full──► linear: a block of  ──full──► indexed (dir_index): root (block 0),
//!   (inline_data)              entries in a row              nodes, leaves; names found by hash
//!                                                  ──full──► without dir_index: more blocks
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `search`, `change` | finding and changing names in any form |
//! | `linear`, `htree` | the forms: finding and adding |
//! | `sought`, `hashes` | the name that is looked for, and its hash |
//! | `misplaced` | names that are not where their hash says |
//! | `place` | where a name is, or could be put |
//! | `shape` | what all blocks of a directory have in common |
//! | `blocks` | reading blocks checked, changing them with their checksum, appending |
//! | `leaf`, `index`, `index_path` | a block of entries, an index node, the nodes above a leaf |
//! | `dentry_cache` | names that were looked up or made |
//! | `known` | which of them it may have |
//! | `names` | names in encrypted directories |
//! | `numbers` | the inode numbers in a directory, for inodes that get another one |
//! | `readdir`, `batch` | listing with cookies that stay valid |
//!
//! Invariants
//! - DR-1: the caller holds the directory's inode lock (exclusive for changes) and passes the inode
//!   in a [`Node`](crate::node::Node). What changes in it (size, flags, block map) the caller
//!   writes back, once, in the same handle, also after an error.
//! - DR-2: a change that fails for want of space changes nothing (`blocks::append` takes all blocks
//!   first). `.` and `..` are not ordinary names: only [`init`] and [`set_dotdot`] write them.
//! - DR-3: one bad block, entry or node hides only itself: listings and searches go on behind it,
//!   and then end with the error if something is missing (`linear::find`, `readdir::iterate`). What
//!   adds or tests for emptiness stops at the damage.
//! - DR-4: a directory whose index makes no sense is still read, from one end to the other. Names
//!   can then be removed. They can be added only without metadata_csum (the index is given up, as
//!   an implementation without it would do): with it the volume must be repaired first
//!   (`change::add`).
//! - DR-5: holes are read as blocks without entries, and filled when a name is added.
//! - DR-6: on a volume with fast commits a leaf is divided when it is three quarters full
//!   (`leaf::Scan::is_filled`). The replay of a fast commit puts names into the leaves as the last
//!   full commit left them, so names that outgrow those leaves cost a full commit. Without space
//!   for another leaf, names fill the rest (`htree::add`, `linear::add`).
//! - DR-7: in a casefolded directory names are compared and hashed by their folded form, and an
//!   entry is changed by the name that it has, not the one that was asked for. No name of such a
//!   directory is in the dentry cache: a change of one name changes where others lead.
//! - DR-8: in a directory that is casefolded and encrypted the hash that the index has of a name
//!   stands behind it. It moves with its entry, and is computed only where a name is made or looked
//!   for with the key. Without it nothing is added, and every other change leaves it as it is.
//! - DR-9: a casefolded directory that may have misplaced names takes no name that one of them is
//!   (`misplaced`); none of them is made.

mod batch;
mod blocks;
mod change;
pub(crate) mod dentry_cache;
mod hashes;
mod htree;
mod index;
mod index_path;
mod known;
mod leaf;
mod linear;
pub(crate) mod looked_through;
mod misplaced;
mod names;
mod numbers;
mod place;
mod readdir;
mod search;
mod shape;
mod sought;
mod tails;
#[cfg(test)]
mod tests;

pub(crate) use batch::kind_of;
pub(crate) use change::{
    REMOVE_CREDITS, add, add_at, credits_add, init, leave_inode, remove, remove_at, replace,
    set_dotdot,
};
pub(crate) use dentry_cache::{Dentry, DentryCache};
pub(crate) use known::{is_known_missing, note_found, note_missing};
pub(crate) use numbers::{Number, numbers, place, renumber};
pub(crate) use readdir::iterate;
pub(crate) use search::{Spot, is_empty, lookup, lookup_stored, places, seek};
pub(crate) use tails::{IndexNode, add_tail, lacks_room, make_room, parts};
