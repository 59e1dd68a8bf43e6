//! Fast commits on disk: the records inside the journal's fast-commit area, from bytes and back.
//!
//! ```text
//!   block 0                  block 1                     block 2
//!   | HEAD | TAIL | zeros |  | record | record | PAD |   | record | … | TAIL | zeros |
//!   └ the first of a         └ the next one     └ ends the block
//!     transaction: empty
//! ```
//!
//! A *tag* is a number, a length and a value: HEAD and TAIL frame a fast commit, PAD fills a block,
//! and all others are *records* of what changed ([`FcRecord`]). All numbers are little-endian,
//! unlike the rest of the journal. A tag is never split between blocks. Four bytes are always kept
//! at the end of a block, so that the header of a PAD fits; PAD and TAIL end exactly where the
//! block ends. The sum in a TAIL covers everything from the first tag of its fast commit, PADs with
//! their zeros, up to the sum itself.
//!
//! This is the only definition of the format: the journal writes and reads fast commits with it and
//! never looks into a record, the file system makes and replays records with it.
//!
//! | file | part |
//! | --- | --- |
//! | `record` | the records |
//! | `tags` | reading tags, block by block |
//! | `chain` | writing tags into blocks |
//! | `data` | checksums of file data, in the value of a PAD |

mod chain;
mod data;
mod record;
mod tags;
#[cfg(test)]
mod tests;

pub use chain::{FcChain, FcWriter};
pub use data::DataChecksum;
pub use record::{FcEntry, FcRecord, FcRecords, FcUnwritable};
pub use tags::{FcError, FcReader, FcTag};

/// Bytes of a tag's number and length.
const TL_SIZE: usize = 4;
const MAX_NAME: usize = 255;
const MIN_INODE: usize = 128;
/// Longest extent; an unwritten one is a block shorter.
const MAX_EXTENT: u32 = 32768;

/// Numbers of the tags.
mod number {
    pub const ADD_RANGE: u16 = 1;
    pub const DEL_RANGE: u16 = 2;
    pub const CREAT: u16 = 3;
    pub const LINK: u16 = 4;
    pub const UNLINK: u16 = 5;
    pub const INODE: u16 = 6;
    pub const PAD: u16 = 7;
    pub const TAIL: u16 = 8;
    pub const HEAD: u16 = 9;
}
