//! What the files of a tree need, whatever the size of the volume: inode numbers, blocks of
//! directories and of long links, and where attributes go. Whatever cannot be stored is refused
//! here.

use super::dirs::Shape;
use super::maps;
use super::verity;
use super::xattrs::{self, Refused, Stored, Values};
use crate::error::{BuildError, Result};
use crate::mkfs::inodes::{LOST_AND_FOUND, lost_and_found_blocks};
use crate::mkfs::plan::Plan;
use crate::mkfs::quota::Usage;
use crate::tree::{Kind, NodeId, Tree, XattrSetId};
use extol_ondisk::dirent::NewEntry;
use extol_ondisk::inode::I_BLOCK_LEN;
use extol_ondisk::{Compat, FileType, Geometry, Incompat, InodeNr, RoCompat};
use std::collections::HashMap;

/// The name of the directory that the checker puts files into.
const LOST_AND_FOUND_NAME: &[u8] = b"lost+found";
/// Links of an inode, as Linux counts them at most.
const MOST_LINKS: u32 = 65_000;
/// The most remarks about attributes.
const MOST_NOTES: usize = 20;

/// The inode number of each file.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// Inode of node 1, if that is not lost+found.
    first: u32,
    /// lost+found, if the tree has one.
    lost_and_found: Option<NodeId>,
    /// The last inode in use.
    last: u32,
}

impl Numbers {
    /// `first`: the first inode that the volume does not take for itself.
    pub(super) fn new(tree: &Tree, first: u32) -> Result<Self> {
        let lost_and_found = tree.child(tree.root(), LOST_AND_FOUND_NAME);
        if lost_and_found.is_some_and(|id| !tree.node(id).kind.is_dir()) {
            return Err(BuildError::entry(
                LOST_AND_FOUND_NAME,
                "must be a directory: the checker puts files into it",
            ));
        }
        let others = tree.len() - 1 - usize::from(lost_and_found.is_some());
        let last = u32::try_from(others).ok().and_then(|others| (first - 1).checked_add(others));
        let Some(last) = last else {
            return Err(BuildError::Refused("the source has more files than ext4 can hold".into()));
        };
        Ok(Self { first, lost_and_found, last })
    }

    pub(super) fn ino(&self, id: NodeId) -> InodeNr {
        match self.lost_and_found {
            _ if id == NodeId::ROOT => InodeNr::ROOT,
            Some(lost) if id == lost => LOST_AND_FOUND,
            Some(lost) if id > lost => InodeNr(self.first + id.0 - 2),
            _ => InodeNr(self.first + id.0 - 1),
        }
    }

    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// lost+found, if the tree has one.
    pub(super) fn lost_and_found(&self) -> Option<NodeId> {
        self.lost_and_found
    }
}

/// The type of a file in a directory entry.
pub(super) fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::Dir => FileType::Directory,
        Kind::File { .. } => FileType::Regular,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Char(_) => FileType::CharDevice,
        Kind::Block(_) => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

/// The entries of a directory, with their inodes.
pub(super) fn entries<'t>(
    tree: &'t Tree,
    numbers: &Numbers,
    geo: &Geometry,
    dir: NodeId,
) -> Vec<NewEntry<'t>> {
    let typed = geo.incompat().contains(Incompat::FILETYPE);
    let mut all: Vec<NewEntry<'t>> = tree
        .children(dir)
        .map(|(name, id)| NewEntry {
            name,
            ino: numbers.ino(id),
            file_type: typed.then(|| file_type(&tree.node(id).kind)),
            hash: None,
        })
        .collect();
    if dir == NodeId::ROOT && numbers.lost_and_found.is_none() {
        let at = all.partition_point(|entry| entry.name < LOST_AND_FOUND_NAME);
        let file_type = typed.then_some(FileType::Directory);
        let (name, ino) = (LOST_AND_FOUND_NAME, LOST_AND_FOUND);
        all.insert(at, NewEntry { name, ino, file_type, hash: None });
    }
    all
}

/// The shape of a directory.
pub(super) fn shape(
    tree: &Tree,
    numbers: &Numbers,
    geo: &Geometry,
    dir: NodeId,
    entries: &[NewEntry<'_>],
) -> Result<Shape> {
    if numbers.lost_and_found == Some(dir) {
        return Ok(Shape::linear(geo, entries, lost_and_found_blocks(geo) as u32));
    }
    Shape::new(geo, entries).map_err(|_| {
        BuildError::entry(
            &tree.path(dir),
            "too many names for the index of a directory: use larger blocks (-b), or -O large_dir",
        )
    })
}

/// See the module.
#[derive(Debug)]
pub(super) struct Needs {
    pub(super) numbers: Numbers,
    /// Blocks of each node that are not data of a file.
    pub(super) blocks: Vec<u32>,
    pub(super) sets: HashMap<XattrSetId, Stored>,
    /// Values of attributes in inodes of their own.
    pub(super) values: Values,
    /// What was left out.
    pub(super) notes: Vec<String>,
    more_notes: u64,
}

impl Needs {
    pub(super) fn new(tree: &Tree, plan: &Plan) -> Result<Self> {
        let geo = &plan.geo;
        let numbers = Numbers::new(tree, plan.first_file())?;
        let mut needs = Self {
            values: Values::behind(numbers.last()),
            numbers,
            blocks: vec![0; tree.len()],
            sets: HashMap::new(),
            notes: Vec::new(),
            more_notes: 0,
        };
        for (id, node) in tree.nodes() {
            let blocks = needs.blocks_of(tree, geo, id)?;
            if let Some(place) = needs.blocks.get_mut(id.0 as usize) {
                *place = blocks;
            }
            needs.check_links(tree, geo, id, blocks)?;
            needs.add_xattrs(tree, geo, id, node.meta.xattrs)?;
        }
        if needs.more_notes > 0 {
            needs.notes.push(format!("{} more attributes are left out", needs.more_notes));
        }
        Ok(needs)
    }

    /// The last inode in use.
    pub(super) fn last_inode(&self) -> u32 {
        self.numbers.last().saturating_add(self.values.len())
    }

    fn blocks_of(&self, tree: &Tree, geo: &Geometry, id: NodeId) -> Result<u32> {
        let block_len = geo.block_len();
        match tree.node(id).kind {
            Kind::Dir => {
                let entries = entries(tree, &self.numbers, geo, id);
                Ok(shape(tree, &self.numbers, geo, id, &entries)?.blocks())
            }
            Kind::Symlink(target) => match tree.bytes(target).len() {
                len if len < I_BLOCK_LEN => Ok(0),
                len if len < block_len => Ok(1),
                len => Err(BuildError::entry(
                    &tree.path(id),
                    format_args!(
                        "its target of {len} bytes is too long for blocks of {block_len} bytes: \
                         use larger blocks (-b)"
                    ),
                )),
            },
            Kind::File { size, .. } => {
                let most = maps::most_blocks(geo).saturating_mul(block_len as u64);
                if size > most || verity::end(tree, id, geo) > most {
                    return Err(BuildError::entry(
                        &tree.path(id),
                        format_args!("its {size} bytes are more than the {most} that a file has"),
                    ));
                }
                // The passes over data know nothing of empty files.
                let behind = verity::behind(tree, id, geo).filter(|_| size == 0);
                Ok(behind.map_or(0, |(_, len)| len))
            }
            _ => Ok(0),
        }
    }

    fn check_links(&self, tree: &Tree, geo: &Geometry, id: NodeId, blocks: u32) -> Result<()> {
        let node = tree.node(id);
        let links = self.links(tree, id);
        let uncounted = node.kind.is_dir()
            && is_indexed(&self.numbers, geo, id, blocks)
            && geo.ro_compat.contains(RoCompat::DIR_NLINK);
        if links <= MOST_LINKS || uncounted {
            return Ok(());
        }
        let why = if node.kind.is_dir() {
            format!("{} subdirectories need the features dir_index and dir_nlink", links - 2)
        } else {
            format!("{links} hard links are more than the {MOST_LINKS} that ext4 counts")
        };
        Err(BuildError::entry(&tree.path(id), why))
    }

    /// Links of an inode, with that from a lost+found that the tree does not have.
    fn links(&self, tree: &Tree, id: NodeId) -> u32 {
        let made = id == NodeId::ROOT && self.numbers.lost_and_found.is_none();
        tree.node(id).nlink.saturating_add(u32::from(made))
    }

    /// Links as they are stored: 1 in a directory that has too many to count.
    pub(super) fn stored_links(&self, tree: &Tree, id: NodeId) -> u16 {
        let links = self.links(tree, id);
        if links > MOST_LINKS { 1 } else { links as u16 }
    }

    fn add_xattrs(
        &mut self,
        tree: &Tree,
        geo: &Geometry,
        id: NodeId,
        set: XattrSetId,
    ) -> Result<()> {
        if set == XattrSetId::NONE {
            return Ok(());
        }
        if let Some(stored) = self.sets.get_mut(&set) {
            stored.users += 1;
            return Ok(());
        }
        let mut all = Vec::new();
        for (name, value) in tree.xattrs(set) {
            let what = match xattrs::entry(name, value) {
                Ok(entry) => {
                    all.extend(entry);
                    continue;
                }
                Err(Refused::Acl) => "is not an access control list",
                Err(_) => "has a name that ext4 cannot hold",
            };
            if self.notes.len() >= MOST_NOTES {
                self.more_notes += 1;
                continue;
            }
            let entry = crate::error::shown(&tree.path(id));
            let name = crate::error::shown(name);
            self.notes.push(format!("{entry}: the attribute {name} is left out: it {what}"));
        }
        let block = geo.block_len();
        let mut stored = Stored::new(geo, all, &mut self.values).map_err(|_| {
            let large = tree.xattrs(set).iter().find(|(_, value)| value.len() + 60 > block);
            let why = match large {
                Some((name, value)) => format!(
                    "the attribute {} cannot be stored: its {} bytes are too large for blocks of \
                     {block} bytes: use larger blocks (-b), or -O ea_inode for up to 65536 bytes",
                    crate::error::shown(name),
                    value.len()
                ),
                None => format!(
                    "all attributes of a file must fit into one block of {block} bytes: use \
                     larger blocks (-b), or -O ea_inode"
                ),
            };
            BuildError::entry(&tree.path(id), why)
        })?;
        stored.users = 1;
        self.sets.insert(set, stored);
        Ok(())
    }
}

/// The owners of all files, and that of a lost+found that the tree does not have.
pub(super) fn owners(tree: &Tree) -> Usage {
    let mut usage = Usage::default();
    if tree.child(tree.root(), LOST_AND_FOUND_NAME).is_none() {
        usage.expect(0, 0);
    }
    tree.nodes().for_each(|(_, node)| usage.expect(node.meta.uid, node.meta.gid));
    usage
}

/// True for a directory with an index.
pub(super) fn is_indexed(numbers: &Numbers, geo: &Geometry, dir: NodeId, blocks: u32) -> bool {
    blocks > 1 && geo.compat().contains(Compat::DIR_INDEX) && numbers.lost_and_found != Some(dir)
}
