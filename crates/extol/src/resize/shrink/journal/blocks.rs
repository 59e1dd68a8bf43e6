//! Which blocks the file of a journal has: data, and those of its map.

use extol_block::BlockNr;
use extol_ondisk::extent::{Entries, Node as ExtentNode};
use extol_ondisk::{InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use crate::alloc::Run;
use crate::error;
use crate::map;
use crate::node::Node;
use crate::volume::Volume;

/// Map blocks that a journal can have: more is damage.
const MOST_NODES: usize = 1 << 16;

/// True if its map has extents.
pub(super) fn has_extents(node: &Node) -> bool {
    node.raw.flags.contains(InodeFlags::EXTENTS)
}

/// Its data, in order.
pub(super) fn runs(vol: &Volume, node: &Node) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    map::iterate(vol, node, 0, u32::MAX, &mut |run| {
        runs.push(Run { start: run.pblk, len: run.len });
        true
    })?;
    Ok(runs)
}

/// The blocks of its map: each in front of those below it.
pub(super) fn nodes(vol: &Volume, node: &Node) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    if has_extents(node) {
        extent_nodes(vol, &node.raw.i_block, u16::MAX, &mut found)?;
    } else {
        let words = node.raw.i_block.as_chunks::<4>().0.iter().skip(12);
        for (word, level) in words.zip(1..) {
            indirect_nodes(vol, u32::from_le_bytes(*word), level, &mut found)?;
        }
    }
    Ok(found)
}

fn extent_nodes(vol: &Volume, bytes: &[u8], above: u16, found: &mut Vec<u64>) -> Result<()> {
    let node = ExtentNode::decode(bytes, &vol.geo).map_err(error::ondisk)?;
    let Entries::Index(children) = node.entries else { return Ok(()) };
    if node.depth >= above || found.len() + children.len() > MOST_NODES {
        return Err(damaged());
    }
    for child in children {
        found.push(child.leaf);
        let bytes = vol.journal.read(BlockNr(child.leaf)).map_err(error::journal)?.data();
        extent_nodes(vol, &bytes, node.depth, found)?;
    }
    Ok(())
}

fn indirect_nodes(vol: &Volume, nr: u32, level: u32, found: &mut Vec<u64>) -> Result<()> {
    if nr == 0 {
        return Ok(());
    }
    if found.len() >= MOST_NODES {
        return Err(damaged());
    }
    found.push(nr.into());
    if level > 1 {
        let nr = BlockNr(nr.into());
        let bytes = vol.journal.read(nr).map_err(error::journal)?.data();
        for word in bytes.as_chunks::<4>().0 {
            indirect_nodes(vol, u32::from_le_bytes(*word), level - 1, found)?;
        }
    }
    Ok(())
}

/// All blocks of the file with this number, sorted; neighbours are one run.
pub(in crate::resize::shrink) fn all(vol: &Volume, ino: InodeNr) -> Result<Vec<Run>> {
    let node = Node { ino, raw: vol.read_inode(ino)? };
    let mut found: Vec<(u64, u64)> =
        runs(vol, &node)?.iter().map(|run| (run.start.0, run.end().0)).collect();
    found.extend(nodes(vol, &node)?.iter().map(|nr| (*nr, *nr + 1)));
    found.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in found {
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            Some(last) if last.1 > start => return Err(damaged()),
            _ => joined.push((start, end)),
        }
    }
    let run = |(start, end): (u64, u64)| {
        let len = u32::try_from(end - start).map_err(|_| damaged())?;
        Ok(Run { start: BlockNr(start), len })
    };
    joined.into_iter().map(run).collect()
}

/// What of these sorted runs is not in the other ones.
pub(super) fn without(runs: &[Run], mut others: Vec<(u64, u32)>) -> Vec<Run> {
    others.sort_unstable();
    let mut rest = Vec::new();
    let mut others = others.into_iter().map(|(at, len)| (at, at + u64::from(len))).peekable();
    for run in runs {
        let (mut at, end) = (run.start.0, run.end().0);
        while at < end {
            while others.next_if(|(_, behind)| *behind <= at).is_some() {}
            let (start, behind) = others.peek().copied().unwrap_or((u64::MAX, u64::MAX));
            let to = start.clamp(at, end);
            if at < to {
                rest.push(Run { start: BlockNr(at), len: (to - at) as u32 });
            }
            at = if to < end { behind } else { end };
        }
    }
    rest
}

pub(super) fn damaged() -> FsError {
    FsError::corrupt("the journal's map makes no sense")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_others() {
        let run = |start, len| Run { start: BlockNr(start), len };
        let runs = [run(10, 10), run(30, 5), run(100, 1)];
        let rest = |others: &[(u64, u32)]| without(&runs, others.to_vec());
        assert_eq!(rest(&[]), runs);
        assert_eq!(rest(&[(5, 200)]), []);
        assert_eq!(rest(&[(34, 66), (12, 3)]), [run(10, 2), run(15, 5), run(30, 4), run(100, 1)]);
        assert_eq!(rest(&[(0, 10), (19, 12), (101, 9)]), [run(10, 9), run(31, 4), run(100, 1)]);
        assert_eq!(rest(&[(10, 1), (11, 1), (13, 1)]), {
            [run(12, 1), run(14, 6), run(30, 5), run(100, 1)]
        });
    }
}
