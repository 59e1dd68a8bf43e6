//! Extended attributes in the inode, behind its extra fields.

use super::area::{build, parse, renumber};
use super::entry::{ENTRY_LEN, XattrEntry, entry_space};
use super::{END_LEN, MAGIC};
use crate::bytes::{get8, get32, put32};
use crate::error::Result;
use crate::ids::InodeNr;

/// Header of the area in an inode.
pub const IBODY_HEADER_LEN: usize = 4;

/// Bytes that entries take in an inode's area, with header and end mark.
#[must_use]
pub fn ibody_space(entries: &[XattrEntry]) -> usize {
    IBODY_HEADER_LEN + END_LEN + entries.iter().map(XattrEntry::space).sum::<usize>()
}

/// Attributes in an inode's tail: none if it has no attribute header.
///
/// # Errors
/// Entries or values that leave the area.
pub fn parse_ibody(tail: &[u8]) -> Result<Vec<XattrEntry>> {
    if tail.len() < IBODY_HEADER_LEN + END_LEN || get32(tail, 0) != MAGIC {
        return Ok(Vec::new());
    }
    parse(tail, IBODY_HEADER_LEN, IBODY_HEADER_LEN)
}

/// True if an attribute in an inode's tail has its value in another inode.
#[must_use]
pub fn ibody_names_inodes(tail: &[u8]) -> bool {
    if tail.len() < IBODY_HEADER_LEN + END_LEN || get32(tail, 0) != MAGIC {
        return false;
    }
    let mut at = IBODY_HEADER_LEN;
    while at + ENTRY_LEN <= tail.len() && get32(tail, at) != 0 {
        if get32(tail, at + 4) != 0 {
            return true;
        }
        at += entry_space(usize::from(get8(tail, at)));
    }
    false
}

/// Values in inode `numbers.0` are in inode `numbers.1` now.
pub fn renumber_ibody(tail: &mut [u8], numbers: (InodeNr, InodeNr)) {
    if tail.len() >= IBODY_HEADER_LEN + END_LEN && get32(tail, 0) == MAGIC {
        renumber(tail, IBODY_HEADER_LEN, numbers);
    }
}

/// The attribute area of an inode: `space` bytes, or `None` if the entries do not fit. No entries
/// give zeros.
#[must_use]
pub fn build_ibody(entries: &[XattrEntry], space: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; space];
    if entries.is_empty() {
        return Some(out);
    }
    if ibody_space(entries) > space & !3 {
        return None;
    }
    put32(&mut out, 0, MAGIC);
    build(&mut out, IBODY_HEADER_LEN, IBODY_HEADER_LEN, entries, false);
    Some(out)
}
