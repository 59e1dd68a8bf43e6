//! The inode numbers that stand in the blocks of a directory, whatever its form.
//!
//! An inode that gets another number takes its names along: each block that has one is changed in
//! place. No name moves, so no hash and no index node changes.

use extol_jbd2::Handle;
use extol_ondisk::htree::DxKind;
use extol_ondisk::{FileType, InodeNr, dirent};
use extol_vfs::Result;

use super::blocks::{self, Blocks};
use super::shape::{BlockKind, Shape};
use crate::inline;
use crate::node::Node;
use crate::volume::Volume;

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number<'a> {
    /// The block of the directory that has it; 0 if it is inside the inode.
    pub lblk: u32,
    /// `.` and `..` as well. (A directory inside its inode has no `.`.)
    pub name: &'a [u8],
    pub ino: InodeNr,
    /// Where the volume records types.
    pub kind: Option<FileType>,
}

/// Calls `f` for each entry, block by block. Ends at damage.
pub(crate) fn numbers(vol: &Volume, dir: &Node, f: &mut dyn FnMut(Number<'_>)) -> Result<()> {
    if inline::is_inline(dir) {
        let ino = inline::checked_parent(vol, dir)?;
        f(Number { lblk: 0, name: b"..", ino, kind: Some(FileType::Directory) });
        let (entries, problem) = inline::list_entries(vol, dir)?;
        for entry in &entries {
            f(Number { lblk: 0, name: &entry.name, ino: entry.ino, kind: entry.kind });
        }
        return problem.map_or(Ok(()), Err);
    }
    let mut blocks = Blocks::new(vol, dir);
    let mut at = 0;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        let Some((buf, kind)) = blocks.any(lblk)? else { continue };
        let bytes = buf.data();
        for entry in dirent::iter(entries(&blocks.shape, kind, &bytes)) {
            let entry = entry.map_err(|e| blocks.shape.bad(e))?;
            if entry.is_used() {
                let (name, kind) = (entry.name, entry.file_type);
                f(Number { lblk, name, ino: blocks.shape.inode(entry.ino)?, kind });
            }
        }
    }
    Ok(())
}

/// The part of a block that has entries of names: an index node has none, the root has the dots.
fn entries<'b>(shape: &Shape<'_>, kind: BlockKind, bytes: &'b [u8]) -> &'b [u8] {
    match kind {
        BlockKind::Leaf => shape.area(bytes),
        BlockKind::Index(DxKind::Root) => bytes,
        BlockKind::Index(DxKind::Node) => &[],
    }
}

/// The block of the device that [`renumber`] changes: it has block `lblk` of the directory, or the
/// inode that has all of it.
pub(crate) fn place(vol: &Volume, dir: &Node, lblk: u32) -> Result<u64> {
    if inline::is_inline(dir) {
        return Ok(vol.inode_buf(dir.ino)?.0.nr().0);
    }
    let mut blocks = Blocks::new(vol, dir);
    let found = blocks.any(lblk)?;
    found.map(|(buf, _)| buf.nr().0).ok_or_else(|| blocks.shape.corrupt("a block is gone"))
}

/// Makes all entries of inode `old` in one block of a directory lead to `new`: one credit. If the
/// directory is inside its inode, only `dir` changes, which the caller writes.
pub(crate) fn renumber(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    lblk: u32,
    (old, new): (InodeNr, InodeNr),
) -> Result<()> {
    let shape = Shape::of(vol, dir);
    let none = || shape.corrupt("an entry is gone");
    // (A dentry says where a name leads: DC-2.)
    let forget = |name: &[u8]| vol.dentries.remove(shape.ino.0, name);
    if inline::is_inline(dir) {
        let (listed, _) = inline::list_entries(vol, dir)?;
        listed.iter().filter(|entry| entry.ino == old).for_each(|entry| forget(&entry.name));
        let changed = inline::dir_renumber(dir, old, new)?;
        return changed.then_some(()).ok_or_else(none);
    }
    let (buf, kind) = Blocks::new(vol, dir).any(lblk)?.ok_or_else(none)?;
    let its = |entry: &dirent::Entry<'_>| entry.is_used() && entry.ino == old;
    dirent::iter(entries(&shape, kind, &buf.data()))
        .flatten()
        .filter(its)
        .for_each(|entry| forget(entry.name));
    let changed = blocks::modify(h, &shape, &buf, kind, |bytes| {
        dirent::renumber(shape.entries_mut(kind, bytes), old, new)
    })?;
    if changed.map_err(|e| shape.bad(e))? == 0 { Err(none()) } else { Ok(()) }
}
