//! Small files and directories inside their inode (feature inline_data).
//!
//! ```text
//!               i_block, 60 bytes        attribute system.data (in the inode)
//!   file:       bytes 0..60              bytes 60..
//!   directory:  le32 parent │ entries    entries    two chains of entries, no "." and ".."
//! ```
//!
//! The flag INLINE_DATA says so, and the attribute exists even if its value is empty. A file's
//! value is exactly as long as the file needs. A directory's value starts empty, and grows to all
//! the room there is when the first chain is full; its size is 60 plus the length of the value.
//!
//! The attribute competes with others for the room in the inode: what fits depends on the inode
//! ([`max_size`]). Contents that do not fit the caller moves to a block: read, [`clear`] or
//! [`dir_drop`], then write as any file.
//!
//! Functions change only `node.raw`, which the caller writes in the transaction of its operation.

#[cfg(test)]
mod tests;

use extol_ondisk::inode::I_BLOCK_LEN;
use extol_ondisk::xattr::{self as format, XattrEntry, index};
use extol_ondisk::{FileType, Incompat, InodeFlags, InodeNr, dirent};
use extol_vfs::{FsError, Result};

use crate::error;
use crate::map;
use crate::node::Node;
use crate::volume::Volume;
use crate::xattr;

/// Name of the attribute, in name space [`index::SYSTEM`].
const DATA: &[u8] = b"data";
/// Bytes before the entries of a directory: its parent.
const PARENT_LEN: usize = 4;

/// True if the contents of the file or directory are inside its inode.
pub(crate) fn is_inline(node: &Node) -> bool {
    node.raw.flags.contains(InodeFlags::INLINE_DATA)
}

fn corrupt(node: &Node, what: &'static str) -> FsError {
    FsError::corrupt(what).in_inode(node.ino.0.into())
}

/// The inode's other attributes, and the value of `system.data` if it is there.
fn split(node: &Node) -> Result<(Vec<XattrEntry>, Option<Vec<u8>>)> {
    let mut entries = xattr::body(node)?;
    let data = entries.iter().position(|e| e.is(index::SYSTEM, DATA)).map(|at| entries.remove(at));
    match data {
        Some(e) if e.value_inum != 0 => Err(corrupt(node, "inline contents outside the inode")),
        data => Ok((entries, data.map(|e| e.value))),
    }
}

/// Second part of the contents of an inode that has the flag.
fn second(node: &Node) -> Result<Vec<u8>> {
    split(node)?.1.ok_or_else(|| corrupt(node, "inline contents without their attribute"))
}

/// Stores `system.data` with the other attributes; false if there is no room.
fn join(node: &mut Node, others: &[XattrEntry], value: &[u8]) -> bool {
    let mut entries = vec![XattrEntry::new(index::SYSTEM, DATA, value)];
    entries.extend_from_slice(others);
    xattr::put_body(node, &entries)
}

/// Longest value that `system.data` can have beside the others; `None` if not even an empty one
/// fits.
fn room(node: &Node, others: &[XattrEntry]) -> Option<usize> {
    let mut entries = vec![XattrEntry::new(index::SYSTEM, DATA, b"")];
    entries.extend_from_slice(others);
    (node.raw.tail.len() & !3).checked_sub(format::ibody_space(&entries))
}

/// Most bytes of contents that the inode can hold; 0 if none.
pub(crate) fn max_size(vol: &Volume, node: &Node) -> usize {
    if !vol.geo.incompat().contains(Incompat::INLINE_DATA) || node.raw.extra_isize == 0 {
        return 0;
    }
    split(node)
        .ok()
        .and_then(|(others, _)| room(node, &others))
        .map_or(0, |room| I_BLOCK_LEN + room)
}

/// Contents of a file or symbolic link: as many bytes as there are, at most its size. (What a
/// larger size covers beyond them reads as zeros: old kernels let inline files grow by truncate.)
pub(crate) fn read(node: &Node) -> Result<Vec<u8>> {
    let mut all = node.raw.i_block.to_vec();
    all.extend(second(node)?);
    all.truncate(usize::try_from(node.raw.size).unwrap_or(usize::MAX));
    Ok(all)
}

/// Makes `data` the contents of a file that has no blocks, inside the inode; false, and nothing
/// changed, if it does not fit. The size is the caller's to set.
pub(crate) fn write(vol: &Volume, node: &mut Node, data: &[u8]) -> Result<bool> {
    if data.len() > max_size(vol, node) {
        return Ok(false);
    }
    let (others, _) = split(node)?;
    let (first, rest) = data.split_at(data.len().min(I_BLOCK_LEN));
    if !join(node, &others, rest) {
        return Ok(false);
    }
    node.raw.i_block = [0; I_BLOCK_LEN];
    if let Some(part) = node.raw.i_block.get_mut(..first.len()) {
        part.copy_from_slice(first);
    }
    node.raw.flags.insert(InodeFlags::INLINE_DATA);
    node.raw.flags.remove(InodeFlags::EXTENTS);
    Ok(true)
}

/// Takes the contents out of the inode and leaves it without contents and without a map. The size
/// stays.
pub(crate) fn clear(node: &mut Node) -> Result<()> {
    let (others, _) = split(node)?;
    xattr::put_body(node, &others);
    node.raw.i_block = [0; I_BLOCK_LEN];
    node.raw.flags.remove(InodeFlags::INLINE_DATA);
    Ok(())
}

/// A directory inside its inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InlineDir {
    /// Where `..` leads.
    pub parent: InodeNr,
    /// Everything else.
    pub entries: Vec<InlineEntry>,
}

/// An entry of such a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InlineEntry {
    /// Inode.
    pub ino: InodeNr,
    /// Its type.
    pub kind: FileType,
    /// Name.
    pub name: Vec<u8>,
}

/// The two chains of entries of a directory, to work on.
struct Chains {
    others: Vec<XattrEntry>,
    first: [u8; I_BLOCK_LEN - PARENT_LEN],
    second: Vec<u8>,
}

impl Chains {
    fn load(node: &Node) -> Result<Self> {
        let (others, data) = split(node)?;
        let second =
            data.ok_or_else(|| corrupt(node, "inline contents without their attribute"))?;
        let mut first = [0; I_BLOCK_LEN - PARENT_LEN];
        first.copy_from_slice(&node.raw.i_block[PARENT_LEN..]);
        Ok(Self { others, first, second })
    }

    /// Stores them; false, and nothing changed, if there is no room.
    fn store(self, node: &mut Node) -> bool {
        if !join(node, &self.others, &self.second) {
            return false;
        }
        node.raw.i_block[PARENT_LEN..].copy_from_slice(&self.first);
        node.raw.size = (I_BLOCK_LEN + self.second.len()) as u64;
        true
    }

    /// Gives the second chain all the room that the inode has: its last entry grows, or the first
    /// one appears. False if there is too little to be of use.
    fn grow(&mut self, node: &Node) -> extol_ondisk::Result<bool> {
        let old = self.second.len();
        let new = room(node, &self.others).unwrap_or(0);
        if new < old + dirent::entry_len(1) {
            return Ok(false);
        }
        let mut grown = vec![0; new - old];
        dirent::init_area(&mut grown);
        let last = dirent::iter(&self.second).last().transpose()?.map(|e| (e.offset, e.rec_len));
        self.second.extend_from_slice(&grown);
        if let Some((at, len)) = last {
            // Its length now covers the new bytes, which are no entry of their own.
            let len = u16::try_from(len + grown.len()).unwrap_or(u16::MAX);
            self.second[at + 4..at + 6].copy_from_slice(&len.to_le_bytes());
            self.second[old..].fill(0);
        }
        Ok(true)
    }
}

fn bad_chain(node: &Node) -> impl Fn(extol_ondisk::OnDiskError) -> FsError + use<> {
    let ino = u64::from(node.ino.0);
    move |e| error::ondisk(e).in_inode(ino)
}

/// The type as entries of this volume record it.
fn stored_type(vol: &Volume, kind: FileType) -> Option<FileType> {
    vol.geo.incompat().contains(Incompat::FILETYPE).then_some(kind)
}

/// Where `..` leads.
fn parent(node: &Node) -> InodeNr {
    let [a, b, c, d, ..] = node.raw.i_block;
    InodeNr(u32::from_le_bytes([a, b, c, d]))
}

/// Where `..` leads.
pub(crate) fn checked_parent(vol: &Volume, dir: &Node) -> Result<InodeNr> {
    let parent = parent(dir);
    if !vol.geo.is_valid_inode(parent) {
        return Err(corrupt(dir, "directory with an impossible parent"));
    }
    Ok(parent)
}

/// All entries, checked.
pub(crate) fn dir_entries(vol: &Volume, dir: &Node) -> Result<InlineDir> {
    let parent = checked_parent(vol, dir)?;
    let (listed, problem) = list_entries(vol, dir)?;
    if let Some(problem) = problem {
        return Err(problem);
    }
    let entries = listed.into_iter().map(|Listed { ino, kind, name }| {
        let kind = match kind {
            Some(kind) => Some(kind),
            None => vol.read_inode(ino)?.kind(),
        };
        let kind = kind.ok_or_else(|| corrupt(dir, "entry for no file"))?;
        Ok(InlineEntry { ino, kind, name })
    });
    Ok(InlineDir { parent, entries: entries.collect::<Result<_>>()? })
}

/// An entry for a listing.
pub(crate) struct Listed {
    /// Inode, as it stands there.
    pub ino: InodeNr,
    /// Type, if it is recorded.
    pub kind: Option<FileType>,
    /// Name.
    pub name: Vec<u8>,
}

/// All entries that can be read, and what is wrong with the others.
pub(crate) fn list_entries(vol: &Volume, dir: &Node) -> Result<(Vec<Listed>, Option<FsError>)> {
    let chains = Chains::load(dir)?;
    let mut entries = Vec::new();
    let mut problem = None;
    for entry in dirent::iter(&chains.first).chain(dirent::iter(&chains.second)) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                problem.get_or_insert(bad_chain(dir)(error));
                continue;
            }
        };
        if !entry.is_used() {
            continue;
        }
        let nameable = dirent::is_legal_name(entry.name) && !entry.is_dot();
        if !nameable || !vol.geo.is_valid_inode(entry.ino) {
            problem.get_or_insert(corrupt(dir, "directory entry with an impossible name or inode"));
        }
        if nameable {
            let name = entry.name.to_vec();
            entries.push(Listed { ino: entry.ino, kind: entry.file_type, name });
        }
    }
    Ok((entries, problem))
}

/// Makes an inode without contents an empty directory. `NoSpace` if the inode has no room for the
/// attribute ([`max_size`] is 0).
pub(crate) fn dir_init(dir: &mut Node, parent: InodeNr) -> Result<()> {
    let (others, _) = split(dir)?;
    let mut chains = Chains { others, first: [0; I_BLOCK_LEN - PARENT_LEN], second: Vec::new() };
    dirent::init_area(&mut chains.first);
    if !chains.store(dir) {
        return Err(FsError::NoSpace);
    }
    dir_set_dotdot(dir, parent);
    dir.raw.flags.insert(InodeFlags::INLINE_DATA);
    dir.raw.flags.remove(InodeFlags::EXTENTS);
    Ok(())
}

/// Adds an entry; false, and nothing changed, if there is no room. The caller knows that the name
/// is new.
pub(crate) fn dir_add(
    vol: &Volume,
    dir: &mut Node,
    name: &[u8],
    ino: InodeNr,
    kind: FileType,
) -> Result<bool> {
    let mut chains = Chains::load(dir)?;
    let kind = stored_type(vol, kind);
    let bad = bad_chain(dir);
    let added = dirent::add(&mut chains.first, name, ino, kind).map_err(&bad)?
        || dirent::add(&mut chains.second, name, ino, kind).map_err(&bad)?
        || (chains.grow(dir).map_err(&bad)?
            && dirent::add(&mut chains.second, name, ino, kind).map_err(&bad)?);
    Ok(added && chains.store(dir))
}

/// Removes an entry and gives the inode it led to. [`FsError::NotFound`] if it is not there.
pub(crate) fn dir_remove(dir: &mut Node, name: &[u8]) -> Result<InodeNr> {
    change_entry(dir, |chain| dirent::remove(chain, name))
}

/// Lets a name lead to another inode and gives the one it led to. [`FsError::NotFound`] if it is
/// not there.
pub(crate) fn dir_replace(
    vol: &Volume,
    dir: &mut Node,
    name: &[u8],
    ino: InodeNr,
    kind: FileType,
) -> Result<InodeNr> {
    let kind = stored_type(vol, kind);
    change_entry(dir, |chain| dirent::replace(chain, name, ino, kind))
}

/// Lets all that leads to an inode lead to another one: entries, and `..`. False: there was none.
pub(crate) fn dir_renumber(dir: &mut Node, old: InodeNr, new: InodeNr) -> Result<bool> {
    let mut chains = Chains::load(dir)?;
    let bad = bad_chain(dir);
    let mut places = dirent::renumber(&mut chains.first, old, new).map_err(&bad)?;
    places += dirent::renumber(&mut chains.second, old, new).map_err(&bad)?;
    if !chains.store(dir) {
        return Err(corrupt(dir, "inline contents do not fit"));
    }
    if parent(dir) == old {
        dir_set_dotdot(dir, new);
        places += 1;
    }
    Ok(places > 0)
}

/// Changes an entry in the chain that has it; `change` gives the inode it led to.
fn change_entry(
    dir: &mut Node,
    change: impl Fn(&mut [u8]) -> extol_ondisk::Result<Option<InodeNr>>,
) -> Result<InodeNr> {
    let mut chains = Chains::load(dir)?;
    let bad = bad_chain(dir);
    let old = match change(&mut chains.first).map_err(&bad)? {
        Some(old) => Some(old),
        None => change(&mut chains.second).map_err(&bad)?,
    };
    let old = old.ok_or(FsError::NotFound)?;
    if chains.store(dir) { Ok(old) } else { Err(corrupt(dir, "inline contents do not fit")) }
}

/// Lets `..` lead to another directory.
pub(crate) fn dir_set_dotdot(dir: &mut Node, parent: InodeNr) {
    dir.raw.i_block[..PARENT_LEN].copy_from_slice(&parent.0.to_le_bytes());
}

/// Takes the entries out of the inode. An empty file with an empty map stays, which is to become a
/// directory with blocks.
pub(crate) fn dir_drop(vol: &Volume, dir: &mut Node) -> Result<()> {
    clear(dir)?;
    map::init(&vol.geo, &mut dir.raw);
    dir.raw.size = 0;
    Ok(())
}
