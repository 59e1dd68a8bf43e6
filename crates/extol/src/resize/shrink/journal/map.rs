//! The map of a file, made of its blocks in order. Arithmetic only: what is in use for what is the
//! caller's.

use extol_ondisk::extent::{self, Entries, Extent, ExtentIndex, Node};
use extol_ondisk::inode::I_BLOCK_LEN;
use extol_ondisk::{Geometry, InodeSeed};

/// Entries that an inode has room for.
pub(crate) const IN_INODE: usize = 4;
/// Blocks that an inode names without a map block.
const DIRECT: u64 = 12;

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    pub i_block: [u8; I_BLOCK_LEN],
    /// Map blocks, with their places.
    pub nodes: Vec<(u64, Vec<u8>)>,
}

/// Neighbouring blocks: the first one, and how many.
pub(crate) type Blocks = (u64, u32);

/// Extents of at most one level below the inode, in map blocks `nodes`, all of which are used.
/// `None` if they do not fit.
pub(crate) fn by_extents(
    blocks: &[Blocks],
    nodes: &[u64],
    geo: &Geometry,
    seed: InodeSeed,
) -> Option<Map> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut at: u32 = 0;
    for (start, len) in blocks {
        let mut done = 0;
        while done < *len {
            let n = (len - done).min(u32::from(extent::MAX_LEN));
            let start = start + u64::from(done);
            extents.push(Extent { block: at, len: n as u16, start, unwritten: false });
            at = at.checked_add(n)?;
            done += n;
        }
    }
    let mut made = Vec::new();
    let (depth, entries) = if nodes.is_empty() {
        (0, Entries::Leaf(extents))
    } else {
        let max = extent::block_max(geo);
        let each = extents.len().div_ceil(nodes.len());
        if each == 0 || each > usize::from(max) || extents.chunks(each).count() != nodes.len() {
            return None;
        }
        let mut index = Vec::new();
        for (part, place) in extents.chunks(each).zip(nodes) {
            let mut bytes = vec![0; geo.block_len()];
            let entries = Entries::Leaf(part.to_vec());
            Node { max, depth: 0, generation: 0, entries }.encode_into(&mut bytes);
            if geo.has_metadata_csum() {
                extent::set_csum(&mut bytes, seed);
            }
            index.push(ExtentIndex { block: part.first()?.block, leaf: *place });
            made.push((*place, bytes));
        }
        (1, Entries::Index(index))
    };
    let root = Node { max: IN_INODE as u16, depth, generation: 0, entries };
    let mut i_block = [0; I_BLOCK_LEN];
    (root.len() <= IN_INODE).then(|| root.encode_into(&mut i_block))?;
    Some(Map { i_block, nodes: made })
}

/// How many map blocks the old map of so many blocks has; `per`: numbers in a map block.
pub(crate) fn indirect_nodes(blocks: u64, per: u64) -> u64 {
    let mut left = blocks.saturating_sub(DIRECT);
    let mut nodes = 0;
    for level in 1..=3 {
        let here = left.min(per.saturating_pow(level));
        nodes += (1..=level).map(|l| here.div_ceil(per.saturating_pow(l))).sum::<u64>();
        left -= here;
    }
    nodes
}

/// The old map, in map blocks `nodes`, all of which are used. `None` if they do not fit.
pub(crate) fn by_blocks(blocks: &[Blocks], nodes: &[u64], block_len: usize) -> Option<Map> {
    let count: u64 = blocks.iter().map(|(_, len)| u64::from(*len)).sum();
    if indirect_nodes(count, block_len as u64 / 4) != nodes.len() as u64 {
        return None;
    }
    let each = |(start, len): &Blocks| *start..*start + u64::from(*len);
    let mut data = blocks.iter().flat_map(each).peekable();
    let mut places = nodes.iter().copied();
    let mut made = Vec::new();
    let mut i_block = [0; I_BLOCK_LEN];
    for (slot, word) in i_block.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        if data.peek().is_none() {
            break;
        }
        let level = slot.saturating_sub(11);
        *word = subtree(level, &mut data, &mut places, block_len, &mut made)?.to_le_bytes();
    }
    data.peek().is_none().then_some(Map { i_block, nodes: made })
}

/// Maps as much as fits below a pointer of this level (0: a block of data, at most 3).
fn subtree(
    level: usize,
    data: &mut std::iter::Peekable<impl Iterator<Item = u64>>,
    places: &mut impl Iterator<Item = u64>,
    block_len: usize,
    made: &mut Vec<(u64, Vec<u8>)>,
) -> Option<u32> {
    if level == 0 {
        return u32::try_from(data.next()?).ok();
    }
    let place = places.next()?;
    let mut bytes = vec![0; block_len];
    for word in bytes.as_chunks_mut::<4>().0 {
        if data.peek().is_none() {
            break;
        }
        *word = subtree(level - 1, data, places, block_len, made)?.to_le_bytes();
    }
    made.push((place, bytes));
    u32::try_from(place).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_the_old_map() {
        for (blocks, nodes) in [
            (0, 0),
            (12, 0),
            (13, 1),
            (268, 1),
            (269, 3),
            (524, 3),
            (525, 4),
            (12 + 256 + 65536, 258),
        ] {
            assert_eq!(indirect_nodes(blocks, 256), nodes, "{blocks}");
        }
        assert_eq!(indirect_nodes(12 + 256 + 65536 + 1, 256), 258 + 3);
    }

    #[test]
    fn the_old_map() {
        let nodes = [500, 501, 502, 503];
        assert!(by_blocks(&[(1000, 524)], &nodes, 1024).is_none(), "one map block too many");
        assert!(by_blocks(&[(1 << 32, 5)], &[], 1024).is_none(), "numbers have 32 bits");
        let map = by_blocks(&[(1000, 520), (2000, 5)], &nodes, 1024).unwrap();
        let word =
            |bytes: &[u8], at: usize| u32::from_le_bytes(*bytes[at * 4..].first_chunk().unwrap());
        let node = |nr| &map.nodes.iter().find(|(place, _)| *place == nr).unwrap().1;
        assert_eq!((word(&map.i_block, 0), word(&map.i_block, 11)), (1000, 1011));
        assert_eq!((word(&map.i_block, 12), word(&map.i_block, 13)), (500, 501));
        assert_eq!((word(node(500), 0), word(node(500), 255)), (1012, 1267));
        assert_eq!((word(node(501), 0), word(node(501), 1), word(node(501), 2)), (502, 503, 0));
        assert_eq!((word(node(503), 0), word(node(503), 1)), (2004, 0));
    }
}
