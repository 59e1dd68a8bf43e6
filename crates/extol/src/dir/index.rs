//! Reading index nodes in place: a search reads a few words of each node and copies nothing.
//! [`extol_ondisk::htree`] describes the format, and decodes and encodes nodes for changes.
//!
//! Entry *i* leads to the names whose hashes lie between key *i* and key *i* + 1. The lowest bit of
//! a key says that names with this hash are also behind the entry before it. Reads outside of a
//! node give zero.

use extol_ondisk::htree::DxKind;

use super::shape::Shape;

/// Bytes of an entry.
const ENTRY: usize = 8;
/// A block number has 28 bits.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

fn get16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..) {
        Some([a, b, ..]) => u16::from_le_bytes([*a, *b]),
        _ => 0,
    }
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..) {
        Some([a, b, c, d, ..]) => u32::from_le_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

/// Checks limit and count, and gives the count. `Err` says why the index cannot be used.
pub(super) fn count(bytes: &[u8], kind: DxKind, shape: &Shape<'_>) -> Result<usize, &'static str> {
    let at = kind.count_at();
    let (limit, count) = (get16(bytes, at), get16(bytes, at + 2));
    if limit != shape.limit(kind) {
        return Err("limit of a directory index node does not match the block size");
    }
    if count == 0 || count > limit {
        return Err("count of a directory index node is out of range");
    }
    Ok(usize::from(count))
}

/// Key of entry `i`; 0 for the first.
pub(super) fn key(bytes: &[u8], kind: DxKind, i: usize) -> u32 {
    if i == 0 { 0 } else { get32(bytes, kind.count_at() + i * ENTRY) }
}

/// Block that entry `i` leads to.
pub(super) fn block(bytes: &[u8], kind: DxKind, i: usize) -> u32 {
    get32(bytes, kind.count_at() + i * ENTRY + 4) & BLOCK_MASK
}

/// The last of `count` entries whose key is not above `hash`.
pub(super) fn search(bytes: &[u8], kind: DxKind, count: usize, hash: u32) -> usize {
    let (mut low, mut high) = (1, count.max(1));
    while low < high {
        let mid = low + (high - low) / 2;
        if key(bytes, kind, mid) > hash {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    low - 1
}

/// True if a block looks like an inner node: one unused entry that fills it.
pub(super) fn looks_like_node(bytes: &[u8]) -> bool {
    let len = usize::from(get16(bytes, 4));
    get32(bytes, 0) == 0
        && (len == bytes.len() || (bytes.len() > 0xFFFF && matches!(len, 0 | 0xFFFF)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_the_last_key_not_above() {
        let keys = [0u32, 10, 20, 21, 21, 30];
        let kind = DxKind::Node;
        let mut bytes = vec![0; 1024];
        for (i, key) in keys.iter().enumerate() {
            let at = kind.count_at() + i * ENTRY;
            bytes[at..at + 4].copy_from_slice(&key.to_le_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&(0xF000_0000 | i as u32).to_le_bytes());
        }
        for hash in 0..40 {
            let at = search(&bytes, kind, keys.len(), hash);
            assert_eq!(at, keys.iter().rposition(|key| *key <= hash).unwrap());
            assert_eq!(block(&bytes, kind, at), at as u32);
        }
        assert_eq!(search(&bytes, kind, 1, u32::MAX), 0);
        // Numbers that lead outside of the block are harmless.
        assert_eq!((key(&bytes, kind, 5000), block(&bytes, kind, 5000)), (0, 0));
        search(&bytes, kind, 5000, 7);
    }

    #[test]
    fn nodes_are_recognised() {
        let mut bytes = vec![0; 1024];
        bytes[4..6].copy_from_slice(&1024u16.to_le_bytes());
        assert!(looks_like_node(&bytes));
        bytes[0] = 1;
        assert!(!looks_like_node(&bytes));
        let mut large = vec![0; 65536];
        assert!(looks_like_node(&large));
        large[4..6].copy_from_slice(&[0xFF, 0xFF]);
        assert!(looks_like_node(&large));
        large[4..6].copy_from_slice(&[0xFC, 0xFF]);
        assert!(!looks_like_node(&large));
    }
}
