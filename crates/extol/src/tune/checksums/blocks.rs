//! The checksums of blocks that belong to inodes: leaves of directories, extent blocks and
//! attribute blocks. (Those of the orphan file change in the last transaction.)

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::extent::{self, Entries, Node as ExtentNode};
use extol_ondisk::{Geometry, InodeFlags, InodeNr, InodeSeed, xattr};
use extol_vfs::{FsError, Result};

use super::inodes::{each, each_directory};
use super::step;
use crate::dir;
use crate::error;
use crate::fast_commit::eligibility::Change;
use crate::mounted::MountedFs;
use crate::node::Node;

/// Blocks in one transaction.
const STEP: usize = 64;
/// Deepest extent tree.
const DEEPEST: u16 = 5;

/// A block that gets a checksum.
#[derive(Clone, Copy)]
enum Block {
    Extents(BlockNr, InodeSeed),
    Attributes(BlockNr),
}

/// Writes all of them.
pub(super) fn write(fs: &MountedFs, new: &Geometry) -> Result<()> {
    let mut dirs = Vec::new();
    each_directory(fs, &mut |dir| {
        dirs.push(dir.ino);
        Ok(())
    })?;
    for ino in dirs {
        directory(fs, ino, new)?;
    }
    let mut todo = Vec::new();
    each(fs, &mut |node| {
        let seed = new.fs_seed.inode(node.ino, node.raw.generation);
        let by_extents = node.raw.flags.contains(InodeFlags::EXTENTS)
            && !node.raw.flags.contains(InodeFlags::INLINE_DATA);
        if by_extents && let Ok(root) = ExtentNode::decode(&node.raw.i_block, &fs.vol.geo) {
            extent_blocks(fs, &root, seed, &mut todo)?;
        }
        if node.raw.file_acl != 0 {
            todo.push(Block::Attributes(BlockNr(node.raw.file_acl)));
        }
        while todo.len() >= STEP {
            let rest = todo.split_off(STEP);
            put(fs, &std::mem::replace(&mut todo, rest), new)?;
        }
        Ok(())
    })?;
    put(fs, &todo, new)
}

/// Makes room in the leaves of a directory, and writes their tails.
fn directory(fs: &MountedFs, ino: InodeNr, new: &Geometry) -> Result<()> {
    let vol = &fs.vol;
    let mut node = Node { ino, raw: vol.read_inode(ino)? };
    let mut spill = None;
    let (_, leaves) = dir::parts(vol, &node)?;
    for lblk in leaves {
        // (The halves of a leaf may lack it still: its names are long.)
        while dir::lacks_room(vol, &node, lblk)? {
            step(fs, dir::credits_add(vol, &node) + 2, |h| {
                dir::make_room(vol, h, &mut node, lblk, &mut spill)?;
                vol.write_inode(h, ino, &node.raw, Change { data: true, ..Change::default() })
            })?;
        }
    }
    let seed = new.fs_seed.inode(ino, node.raw.generation);
    let (_, leaves) = dir::parts(vol, &node)?;
    for some in leaves.chunks(STEP) {
        step(fs, STEP as u32, |h| {
            some.iter().try_for_each(|lblk| dir::add_tail(vol, h, &node, *lblk, seed))
        })?;
    }
    Ok(())
}

fn extent_blocks(
    fs: &MountedFs,
    node: &ExtentNode,
    seed: InodeSeed,
    todo: &mut Vec<Block>,
) -> Result<()> {
    let Entries::Index(all) = &node.entries else { return Ok(()) };
    if node.depth > DEEPEST {
        return Err(FsError::corrupt("extent tree that is too deep"));
    }
    for index in all {
        let block = BlockNr(index.leaf);
        let buf = fs.vol.journal.read(block).map_err(error::journal)?;
        let below = ExtentNode::decode(&buf.data(), &fs.vol.geo).map_err(error::ondisk)?;
        if below.depth + 1 != node.depth {
            return Err(FsError::corrupt("extent block of another depth"));
        }
        todo.push(Block::Extents(block, seed));
        extent_blocks(fs, &below, seed, todo)?;
    }
    Ok(())
}

fn put(fs: &MountedFs, blocks: &[Block], new: &Geometry) -> Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    step(fs, blocks.len() as u32, |h| {
        blocks.iter().try_for_each(|block| put_one(fs, h, *block, new))
    })
}

fn put_one(fs: &MountedFs, h: &mut Handle, block: Block, new: &Geometry) -> Result<()> {
    let (Block::Extents(nr, _) | Block::Attributes(nr)) = block;
    let buf = fs.vol.journal.read(nr).map_err(error::journal)?;
    h.modify(&buf, |bytes| match block {
        Block::Extents(_, seed) => extent::set_csum(bytes, seed),
        Block::Attributes(_) => xattr::set_csum(bytes, nr, new.fs_seed),
    })
    .map_err(error::journal)
}
