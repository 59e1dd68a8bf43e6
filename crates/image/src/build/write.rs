//! Writes the metadata of a filled volume: directories, maps, attributes, inodes.
//!
//! It comes after the data, when the UUID is known, which all checksums begin with. Inodes are
//! numbered in the order of the tree, so their tables are written from start to end; the blocks of
//! a table behind the last inode are never touched.

use super::dirs::Dir;
use super::layout::{Blocks, Layout};
use super::maps;
use super::needs::{self, Needs};
use super::xattrs::Stored;
use crate::error::Result;
use crate::mkfs::inodes::{LOST_AND_FOUND, lost_and_found_blocks};
use crate::mkfs::plan::Plan;
use crate::mkfs::quota::Usage;
use crate::mkfs::write::Output;
use crate::tree::{Kind, Meta, Node, NodeId, Tree, XattrSetId};
use extol_block::BlockNr;
use extol_ondisk::inode::I_BLOCK_LEN;
use extol_ondisk::{
    FileType, Geometry, GroupNr, Incompat, Inode, InodeFlags, InodeNr, InodeSeed, Time, xattr,
};
use std::collections::{BTreeMap, HashMap};

/// Bytes that are collected before they are written.
const COLLECTED: usize = 1 << 20;

/// Collects blocks that lie side by side.
struct Collected {
    bytes: Vec<u8>,
    start: u64,
}

impl Collected {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(COLLECTED), start: 0 }
    }

    fn put(&mut self, out: &mut Output<'_>, at: u64, block: &[u8]) -> Result<()> {
        let next = self.start + self.bytes.len() as u64 / out.block_len;
        if next != at || self.bytes.len() + block.len() > COLLECTED {
            self.write(out)?;
            self.start = at;
        }
        self.bytes.extend_from_slice(block);
        Ok(())
    }

    fn write(&mut self, out: &mut Output<'_>) -> Result<()> {
        if !self.bytes.is_empty() {
            out.write(BlockNr(self.start), &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// Writes inode tables from their first inode on.
struct Tables<'p> {
    plan: &'p Plan,
    /// Inodes so far.
    done: u32,
    block: Vec<u8>,
    collected: Collected,
}

impl<'p> Tables<'p> {
    fn new(plan: &'p Plan) -> Self {
        let block = vec![0; plan.geo.block_len()];
        Self { plan, done: 0, block, collected: Collected::new() }
    }

    /// The inode behind the last one.
    fn put(&mut self, out: &mut Output<'_>, inode: &Inode) -> Result<()> {
        let geo = &self.plan.geo;
        self.done += 1;
        let (group, index) = geo.group_of_inode(InodeNr(self.done));
        let per_block = geo.inodes_per_block();
        let len = usize::from(geo.inode_size);
        let at = (index % per_block) as usize * len;
        inode.encode_into(&mut self.block[at..at + len], InodeNr(self.done), geo);
        let ends = (index + 1).is_multiple_of(per_block) || index + 1 == geo.inodes_per_group;
        if ends {
            self.end_block(out, group, index / per_block)?;
        }
        Ok(())
    }

    fn end_block(&mut self, out: &mut Output<'_>, group: GroupNr, nr: u32) -> Result<()> {
        let table = self.plan.places.get(group.0 as usize).map_or(0, |place| place.inode_table);
        self.collected.put(out, table + u64::from(nr), &self.block)?;
        self.block.fill(0);
        Ok(())
    }

    fn end(mut self, out: &mut Output<'_>) -> Result<()> {
        let geo = &self.plan.geo;
        let (group, index) = geo.group_of_inode(InodeNr(self.done));
        let per_block = geo.inodes_per_block();
        let ended = (index + 1).is_multiple_of(per_block) || index + 1 == geo.inodes_per_group;
        if self.done > 0 && !ended {
            self.end_block(out, group, index / per_block)?;
        }
        self.collected.write(out)
    }
}

/// Everything that the metadata comes from.
pub(super) struct Sealed<'a> {
    pub(super) tree: &'a Tree,
    pub(super) needs: &'a Needs,
    pub(super) layout: &'a Layout,
    pub(super) plan: &'a Plan,
}

/// What is written at the moment.
struct Writing<'a, 'o, 'd> {
    all: &'a Sealed<'a>,
    geo: &'a Geometry,
    out: &'o mut Output<'d>,
    blocks: Collected,
    /// How many users of each set of attributes there were so far.
    users: HashMap<XattrSetId, u64>,
    parents: Vec<NodeId>,
    /// What the inodes so far use.
    usage: Usage,
}

impl Sealed<'_> {
    /// Writes all of it. Gives what the inodes use.
    pub(super) fn write(&self, out: &mut Output<'_>) -> Result<Usage> {
        let mut parents = vec![NodeId::ROOT; self.tree.len()];
        for (dir, _) in self.tree.nodes().filter(|(_, node)| node.kind.is_dir()) {
            for (_, child) in self.tree.children(dir) {
                if let Some(parent) = parents.get_mut(child.0 as usize) {
                    *parent = dir;
                }
            }
        }
        let mut writing = Writing {
            all: self,
            geo: &self.plan.geo,
            out,
            blocks: Collected::new(),
            users: HashMap::new(),
            parents,
            usage: Usage::default(),
        };
        let numbers = &self.needs.numbers;
        // The first inodes, which are not numbered in the order of the tree.
        let mut first: BTreeMap<InodeNr, Inode> = self.plan.inodes.iter().cloned().collect();
        let made = writing.lost_and_found()?;
        first.extend(made.map(|inode| (LOST_AND_FOUND, inode)));
        let mut tables = None;
        for (id, node) in self.tree.nodes() {
            if numbers.lost_and_found() == Some(id) {
                continue;
            }
            let inode = writing.node(id, node)?;
            if id == NodeId::ROOT {
                first.insert(InodeNr::ROOT, inode);
                if let Some(id) = numbers.lost_and_found() {
                    first.insert(LOST_AND_FOUND, writing.node(id, self.tree.node(id))?);
                }
                let mut new = Tables::new(self.plan);
                first.values().try_for_each(|inode| new.put(writing.out, inode))?;
                tables = Some(new);
            } else if let Some(tables) = &mut tables {
                debug_assert_eq!(numbers.ino(id).0, tables.done + 1);
                tables.put(writing.out, &inode)?;
            }
        }
        if let Some(mut tables) = tables {
            writing.values(&mut tables)?;
            tables.end(writing.out)?;
        }
        writing.blocks.write(writing.out)?;
        Ok(writing.usage)
    }
}

/// The moment that is kept of a time: inodes without room for more end in 2038.
fn times(inode: &mut Inode, meta: &Meta, tree: &Tree, geo: &Geometry) {
    let stated = tree.times(meta.times);
    inode.mtime = meta.mtime;
    inode.atime = stated.atime.unwrap_or(meta.mtime);
    inode.ctime = stated.ctime.unwrap_or(meta.mtime);
    inode.crtime = match geo.inode_size {
        0..=128 => Time::default(),
        _ => stated.crtime.unwrap_or(meta.mtime),
    };
}

impl<'a> Writing<'a, '_, '_> {
    fn dir(&self, own: InodeNr, parent: InodeNr) -> Dir<'a> {
        let geo = self.geo;
        let kind = geo.incompat().contains(Incompat::FILETYPE).then_some(FileType::Directory);
        Dir { geo, own, parent, kind, seed: self.seed(own) }
    }

    fn seed(&self, ino: InodeNr) -> Option<InodeSeed> {
        self.geo.has_metadata_csum().then(|| self.geo.fs_seed.inode(ino, 0))
    }

    /// Writes everything of a file but its data, and gives its inode.
    fn node(&mut self, id: NodeId, node: &Node) -> Result<Inode> {
        let Sealed { tree, needs, layout, .. } = *self.all;
        let ino = needs.numbers.ino(id);
        let mut inode = Inode::new_empty(self.geo);
        inode.mode = needs::file_type(&node.kind).mode_bits() | node.meta.mode & 0o7777;
        (inode.uid, inode.gid) = (node.meta.uid, node.meta.gid);
        inode.links = needs.stored_links(tree, id);
        times(&mut inode, &node.meta, tree, self.geo);
        let blocks = layout.blocks(id);
        match node.kind {
            Kind::Dir => {
                let parent = self.parents.get(id.0 as usize).copied().unwrap_or(NodeId::ROOT);
                self.directory(id, ino, needs.numbers.ino(parent), &blocks)?;
                let count = needs.blocks.get(id.0 as usize).copied().unwrap_or_default();
                if needs::is_indexed(&needs.numbers, self.geo, id, count) {
                    inode.flags |= InodeFlags::INDEX;
                }
                inode.size = u64::from(count) * self.geo.block_len() as u64;
                self.map(&mut inode, ino, &blocks)?;
            }
            Kind::File { size, .. } => {
                inode.size = size;
                inode.flags.set(InodeFlags::VERITY, node.meta.verity);
                self.map(&mut inode, ino, &blocks)?;
            }
            Kind::Symlink(target) => {
                let target = tree.bytes(target);
                inode.size = target.len() as u64;
                if target.len() < I_BLOCK_LEN {
                    inode.i_block[..target.len()].copy_from_slice(target);
                } else {
                    let mut block = vec![0; self.geo.block_len()];
                    block[..target.len()].copy_from_slice(target);
                    self.contents(&blocks, std::iter::once(&block[..]))?;
                    self.map(&mut inode, ino, &blocks)?;
                }
            }
            Kind::Char(rdev) | Kind::Block(rdev) => inode.set_rdev(rdev.major, rdev.minor),
            Kind::Fifo | Kind::Socket => {}
        }
        self.xattrs(&mut inode, node.meta.xattrs)?;
        let values = needs.sets.get(&node.meta.xattrs).map_or(0, |set| set.values());
        self.usage.count(&inode, values);
        Ok(inode)
    }

    /// The map of a file in its inode, and the blocks of it that are not there.
    fn map(&mut self, inode: &mut Inode, ino: InodeNr, blocks: &Blocks<'_>) -> Result<()> {
        if self.geo.incompat().contains(Incompat::EXTENTS) {
            inode.flags |= InodeFlags::EXTENTS;
        }
        let csum = self.geo.has_metadata_csum();
        let seed = csum.then(|| self.geo.fs_seed.inode(ino, inode.generation));
        let map = maps::encode(self.geo, &blocks.runs, &mut blocks.nodes.iter().copied(), seed);
        inode.i_block = map.i_block;
        inode.blocks += blocks.taken(self.geo) * (self.geo.block_len() as u64 / 512);
        for (at, bytes) in &map.nodes {
            self.blocks.put(self.out, at.0, bytes)?;
        }
        Ok(())
    }

    /// Writes what is known whole to the blocks of a file.
    fn contents<'b>(
        &mut self,
        blocks: &Blocks<'_>,
        contents: impl Iterator<Item = &'b [u8]>,
    ) -> Result<()> {
        let places = blocks.runs.iter().flat_map(|run| run.start..run.start + u64::from(run.len));
        for (at, block) in places.zip(contents) {
            self.blocks.put(self.out, at, block)?;
        }
        Ok(())
    }

    fn directory(
        &mut self,
        id: NodeId,
        own: InodeNr,
        parent: InodeNr,
        blocks: &Blocks<'_>,
    ) -> Result<()> {
        let Sealed { tree, needs, .. } = *self.all;
        let entries = needs::entries(tree, &needs.numbers, self.geo, id);
        let shape = needs::shape(tree, &needs.numbers, self.geo, id, &entries)?;
        let dir = self.dir(own, parent);
        let mut places =
            blocks.runs.iter().flat_map(|run| run.start..run.start + u64::from(run.len));
        let mut done = Ok(());
        shape.write(&dir, &entries, |block| {
            if let (Some(at), Ok(())) = (places.next(), &done) {
                done = self.blocks.put(self.out, at, block);
            }
        });
        done
    }

    /// A lost+found that the tree does not have.
    fn lost_and_found(&mut self) -> Result<Option<Inode>> {
        let Sealed { needs, layout, plan, .. } = *self.all;
        if needs.numbers.lost_and_found().is_some() {
            return Ok(None);
        }
        let count = lost_and_found_blocks(self.geo) as u32;
        let mut inode = Inode::new_empty(self.geo);
        inode.mode = 0o040_700;
        inode.links = 2;
        let now = Time { sec: i64::try_from(plan.sb.mkfs_time).unwrap_or(i64::MAX), nsec: 0 };
        (inode.atime, inode.ctime, inode.mtime) = (now, now, now);
        if self.geo.inode_size > 128 {
            inode.crtime = now;
        }
        inode.size = u64::from(count) * self.geo.block_len() as u64;
        let blocks = layout.lost_and_found();
        let shape = super::dirs::Shape::linear(self.geo, &[], count);
        let dir = self.dir(LOST_AND_FOUND, InodeNr::ROOT);
        let mut contents = Vec::new();
        shape.write(&dir, &[], |block| contents.push(block.to_vec()));
        self.contents(&blocks, contents.iter().map(|block| &block[..]))?;
        self.map(&mut inode, LOST_AND_FOUND, &blocks)?;
        self.usage.count(&inode, 0);
        Ok(Some(inode))
    }

    /// Attribute values in inodes of their own, which are the last ones.
    fn values(&mut self, tables: &mut Tables<'_>) -> Result<()> {
        let Sealed { needs, layout, plan, .. } = *self.all;
        let mut users = HashMap::new();
        needs.sets.values().for_each(|set| set.count_users(&mut users));
        let now = Time { sec: i64::try_from(plan.sb.mkfs_time).unwrap_or(i64::MAX), nsec: 0 };
        for (nr, (ino, value)) in needs.values.iter().enumerate() {
            debug_assert_eq!(ino.0, tables.done + 1);
            let mut inode = Inode::new_empty(self.geo);
            inode.mode = FileType::Regular.mode_bits() | 0o600;
            inode.links = 1;
            inode.flags = InodeFlags::EA_INODE;
            inode.size = value.len() as u64;
            inode.mtime = now;
            if self.geo.inode_size > 128 {
                inode.crtime = now;
            }
            // Other than that of files: with the same it might look like a value of the old form.
            inode.generation = 1;
            xattr::set_stated_hash(&mut inode, xattr::value_hash(value, self.geo.fs_seed));
            xattr::set_stated_users(&mut inode, users.get(&ino).copied().unwrap_or_default());
            let blocks = layout.value(nr);
            let bs = self.geo.block_len();
            let mut padded = value.to_vec();
            padded.resize(value.len().next_multiple_of(bs), 0);
            self.contents(&blocks, padded.chunks(bs))?;
            self.map(&mut inode, ino, &blocks)?;
            tables.put(self.out, &inode)?;
        }
        Ok(())
    }

    /// The attributes of a file: in its inode, and the block that it shares with others.
    fn xattrs(&mut self, inode: &mut Inode, set: XattrSetId) -> Result<()> {
        let Sealed { needs, layout, .. } = *self.all;
        let Some(stored) = needs.sets.get(&set) else { return Ok(()) };
        if let Some(tail) = stored.tail(self.geo, &needs.values) {
            inode.tail = tail;
        }
        inode.blocks += stored.charged(self.geo) / 512;
        let user = self.users.entry(set).or_default();
        let (nr, first) = (Stored::block_of(*user), stored.needs_block(*user));
        *user += 1;
        let Some(at) = layout.xattrs(set).get(nr) else { return Ok(()) };
        inode.file_acl = *at;
        inode.blocks += self.geo.cluster_blocks(1) * (self.geo.block_len() as u64 / 512);
        if first {
            let mut block = stored.block(self.geo, nr, &needs.values);
            if self.geo.has_metadata_csum() {
                xattr::set_csum(&mut block, BlockNr(*at), self.geo.fs_seed);
            }
            self.blocks.put(self.out, *at, &block)?;
        }
        Ok(())
    }
}
