//! Extent trees.
//!
//! ```text
//!   inode (60 bytes)        index block           leaf block
//!  ┌──────────────────┐    ┌────────────────┐    ┌───────────────────────────────┐
//!  │ header, depth 2  │ ┌─►│ header, 1      │ ┌─►│ header, 0                     │
//!  │ key 0 ─────────────┘  │ key 0 ───────────┘  │ 0 + 120 at 5000               │
//!  │ key 9000 ───► …  │    │ key 4100 ─► …  │    │ 200 + 7 at 5300, unwritten    │
//!  └──────────────────┘    └────────────────┘    └───────────────────────────────┘
//! ```
//!
//! An extent maps up to 32768 blocks (32767 if unwritten, which reads as zeros). A node's first key
//! is always the key in its parent. The tree below the root may be five levels deep; a node is
//! never joined with its neighbour, but goes when it is empty, and the tree loses levels when the
//! root can hold what its only child holds.
//!
//! Files: `node` bytes of a node, `path` the checked path to a leaf, `edit` the one primitive that
//! changes trees, `change` insert and convert, `remove` unmapping, `shift` collapse and insert
//! range.

mod change;
mod edit;
pub(super) mod node;
mod path;
mod remove;
mod shift;
#[cfg(test)]
mod tests;

/// A few extents: a window of a leaf has mostly three.
type Few<T> = smallvec::SmallVec<[T; 4]>;

pub(super) use change::{convert, insert, relocate};
pub(super) use remove::remove;
pub(super) use shift::shift;

use extol_block::BlockNr;
use extol_vfs::Result;

use super::store::{Store, StoreMut};
use super::{MappedRun, Mapping, Root};
use edit::Editor;
use path::Path;

/// What `lblk` is mapped to.
pub(super) fn lookup<S: Store>(io: &S, root: &Root, lblk: u32) -> Result<Mapping> {
    let path = Path::descend(io, root, lblk)?;
    let leaf = path.leaf();
    if leaf.at > 0 {
        let run = leaf.extent(io, root, leaf.at - 1)?;
        if run.end() > u64::from(lblk) {
            let run = run.tail(lblk);
            return Ok(Mapping::Mapped { pblk: run.pblk, len: run.len, unwritten: run.unwritten });
        }
    }
    let next = match leaf.key_or_end(root, leaf.at) {
        end if end >= u64::from(node::END_OF_SPACE) => 1 << 32,
        next => next,
    };
    Ok(Mapping::Hole { len: next.saturating_sub(u64::from(lblk)).max(1) })
}

/// The last extent that begins before `lblk`, in its leaf.
pub(super) fn before<S: Store>(io: &S, root: &Root, lblk: u32) -> Result<Option<MappedRun>> {
    let Some(last) = lblk.checked_sub(1) else { return Ok(None) };
    let path = Path::descend(io, root, last)?;
    let leaf = path.leaf();
    if leaf.at == 0 {
        return Ok(None);
    }
    leaf.extent(io, root, leaf.at - 1).map(Some)
}

/// Moves the tree blocks between the root and `lblk` that lie at or behind `limit`. Gives how many,
/// and the first block of the file behind their leaf.
pub(super) fn relocate_nodes<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    lblk: u32,
    limit: BlockNr,
) -> Result<(u32, u64)> {
    let path = Path::descend(io, root, lblk)?;
    let next = path.leaf().hi;
    Ok((Editor::new(io, root).relocate_nodes(path, limit)?, next))
}

/// Levels below the root, from the inode.
pub(super) fn depth(root: &[u8]) -> u32 {
    u32::from(node::View(root).depth().min(node::MAX_DEPTH))
}

/// Extents of a tree without levels.
pub(super) fn count_in_root(root: &[u8]) -> Option<usize> {
    let root = node::View(root);
    (root.depth() == 0).then(|| root.count())
}

/// The first block behind the last extent of a tree without levels; `u32::MAX` if it has some.
pub(super) fn end(root: &[u8]) -> u32 {
    let root = node::View(root);
    match (root.depth(), root.count().checked_sub(1)) {
        (0, Some(last)) => u32::try_from(root.extent(last).end()).unwrap_or(u32::MAX),
        (0, None) => 0,
        _ => u32::MAX,
    }
}

/// An empty tree.
pub(super) fn init(root: &mut [u8; 60]) {
    node::write(root, 0, &[]);
}
