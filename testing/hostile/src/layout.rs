//! Where everything is on a volume that makes sense: the places that the mutator damages.

use std::collections::BTreeMap;

use extol_block::{BlockDevice, BlockNr, MemDevice};
use extol_jbd2::format::{BlockKind, Header, JournalSuperblock};
use extol_ondisk::htree::DxKind;
use extol_ondisk::{
    Geometry, GroupDesc, GroupFlags, GroupNr, Inode, InodeFlags, InodeNr, Superblock, dirent,
};

use crate::disk::{Zone, pattern};

/// What lies at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The superblock.
    Super,
    /// A group's descriptor.
    Desc(u32),
    /// A group's bitmap of blocks.
    BlockBitmap(u32),
    /// A group's bitmap of inodes.
    InodeBitmap(u32),
    /// An inode.
    Inode,
    /// A node of an extent tree.
    Extents,
    /// An indirect block.
    Indirect,
    /// A block of directory entries.
    Leaf,
    /// A block of a directory's index.
    Index(DxKind),
    /// A block of attributes.
    Attributes,
    /// A block of the orphan file.
    Orphans,
    /// A block of a quota file, or one of what is behind a file of fs-verity.
    Own,
    /// The journal's superblock.
    JournalSuper,
    /// A descriptor in the log.
    JournalDesc,
    /// A block of revocations.
    JournalRevoke,
    /// A commit block.
    JournalCommit,
    /// A copy in the log.
    JournalCopy {
        /// Of which block.
        home: u64,
        /// Where its tag is.
        tag: u64,
    },
}

/// A structure on the volume.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is.
    pub kind: Kind,
    /// The inode that it belongs to (0: none).
    pub ino: u32,
    /// Where, in bytes.
    pub at: u64,
    /// How long, in bytes.
    pub len: usize,
}

/// A name that leads to an inode.
#[derive(Clone, Debug)]
pub struct Name {
    /// The directory.
    pub parent: u32,
    /// The name in it.
    pub name: Vec<u8>,
}

/// Everything known about a volume.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Sizes and features.
    pub geo: Geometry,
    /// Every structure.
    pub targets: Vec<Target>,
    /// One name of each inode that has one.
    pub names: BTreeMap<u32, Name>,
    /// Directories.
    pub dirs: Vec<u32>,
    /// Inodes that one can see.
    pub inodes: Vec<u32>,
    /// Generation of each inode.
    pub generations: BTreeMap<u32, u32>,
    /// Device offset of each block of the journal.
    pub log: Vec<u64>,
    /// The journal's superblock.
    pub journal: Option<JournalSuperblock>,
    /// Blocks worth pointing at: metadata of all kinds, data, free space.
    pub blocks: Vec<u64>,
}

/// Bytes of the volume; zeros where it ends.
#[must_use]
pub fn read(dev: &MemDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let _ = dev.read_at(&mut bytes, at);
    bytes
}

/// A number in the bytes; 0 behind their end.
#[must_use]
pub fn le16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// A number in the bytes; 0 behind their end.
#[must_use]
pub fn le32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A number in the bytes, big-endian; 0 behind their end.
#[must_use]
pub fn be32(b: &[u8], at: usize) -> u32 {
    le32(b, at).swap_bytes()
}

/// Superblock and geometry, if they make sense.
pub fn geometry(dev: &MemDevice) -> Option<(Superblock, Geometry)> {
    let sb = Superblock::decode(&read(dev, 1024, 1024)).ok()?;
    let geo = Geometry::new(&sb, Some(dev.size())).ok()?;
    Some((sb, geo))
}

fn desc(dev: &MemDevice, geo: &Geometry, group: u32) -> Option<(GroupDesc, u64)> {
    let (block, inside) = geo.desc_block(GroupNr(group));
    let at = block.offset(geo.block_size) + inside as u64;
    let desc =
        GroupDesc::decode(&read(dev, at, usize::from(geo.desc_size)), geo, GroupNr(group)).ok()?;
    Some((desc, at))
}

fn inode_at(dev: &MemDevice, geo: &Geometry, ino: u32) -> Option<u64> {
    let (group, index) = geo.group_of_inode(InodeNr(ino));
    let (desc, _) = desc(dev, geo, group.0)?;
    Some(
        desc.inode_table * u64::from(geo.block_size.bytes())
            + u64::from(index) * u64::from(geo.inode_size),
    )
}

fn inode(dev: &MemDevice, geo: &Geometry, ino: u32) -> Option<Inode> {
    let at = inode_at(dev, geo, ino)?;
    Inode::decode(&read(dev, at, usize::from(geo.inode_size)), InodeNr(ino), geo).ok()
}

/// A mapped stretch: logical block, block, how many.
type Run = (u64, u64, u64);

struct Walk<'a> {
    dev: &'a MemDevice,
    geo: &'a Geometry,
    tree: Vec<(Kind, u64)>,
    runs: Vec<Run>,
    budget: u32,
}

impl Walk<'_> {
    fn block(&self, nr: u64) -> Vec<u8> {
        read(self.dev, BlockNr(nr).offset(self.geo.block_size), self.geo.block_len())
    }

    fn extents(&mut self, node: &[u8], depth: u16) {
        let (count, max) = (usize::from(le16(node, 2)), usize::from(le16(node, 4)));
        if le16(node, 0) != 0xF30A
            || count > max
            || 12 + 12 * count > node.len()
            || le16(node, 6) != depth
        {
            return;
        }
        for i in 0..count {
            let at = 12 + 12 * i;
            if depth == 0 {
                let len = u64::from(le16(node, at + 4));
                let len = if len > 32768 { len - 32768 } else { len };
                let start = u64::from(le16(node, at + 6)) << 32 | u64::from(le32(node, at + 8));
                self.runs.push((u64::from(le32(node, at)), start, len));
                continue;
            }
            let child = u64::from(le16(node, at + 8)) << 32 | u64::from(le32(node, at + 4));
            if self.budget == 0 || !self.geo.is_valid_block(BlockNr(child)) {
                return;
            }
            self.budget -= 1;
            self.tree.push((Kind::Extents, child));
            let bytes = self.block(child);
            self.extents(&bytes, depth - 1);
        }
    }

    fn indirect(&mut self, nr: u64, level: u32, first: u64) {
        if nr == 0 || !self.geo.is_valid_block(BlockNr(nr)) {
            return;
        }
        if level == 0 {
            self.runs.push((first, nr, 1));
            return;
        }
        if self.budget == 0 {
            return;
        }
        self.budget -= 1;
        self.tree.push((Kind::Indirect, nr));
        let bytes = self.block(nr);
        let per = bytes.len() as u64 / 4;
        for i in 0..per {
            let child = u64::from(le32(&bytes, i as usize * 4));
            self.indirect(child, level - 1, first + i * per.pow(level - 1));
        }
    }

    fn map(&mut self, raw: &Inode) {
        if raw.flags.contains(InodeFlags::INLINE_DATA) || !raw.maps_blocks() {
            return;
        }
        if raw.flags.contains(InodeFlags::EXTENTS) {
            self.extents(&raw.i_block, le16(&raw.i_block, 6).min(5));
            return;
        }
        let per = self.geo.block_len() as u64 / 4;
        let starts = [12, 12 + per, 12 + per + per * per];
        for i in 0..12 {
            self.indirect(u64::from(le32(&raw.i_block, i * 4)), 0, i as u64);
        }
        for (k, start) in starts.into_iter().enumerate() {
            self.indirect(u64::from(le32(&raw.i_block, 48 + 4 * k)), k as u32 + 1, start);
        }
    }
}

fn walk<'a>(dev: &'a MemDevice, geo: &'a Geometry, raw: &Inode) -> Walk<'a> {
    let mut walk = Walk { dev, geo, tree: Vec::new(), runs: Vec::new(), budget: 20_000 };
    walk.map(raw);
    walk
}

/// The metadata in fixed places that file data must never touch, as the volume itself describes it.
pub fn zones(dev: &MemDevice) -> Option<(u64, Vec<Zone>)> {
    let (sb, geo) = geometry(dev)?;
    let bs = u64::from(geo.block_size.bytes());
    let mut zones = Vec::new();
    let mut push = |start: u64, len: u64, partial: bool, unzeroed: bool| {
        let (start, end) = (start * bs, (start + len) * bs);
        zones.push(Zone { start, end, partial, log: false, unzeroed });
    };
    let mut add = |start, len, partial| push(start, len, partial, false);
    add(0, geo.super_block().0.0 + 1, true);
    for g in 0..geo.groups() {
        let first = geo.group_first_block(GroupNr(g)).0;
        let base = u64::from(geo.base_meta_blocks(GroupNr(g)).min(geo.group_blocks(GroupNr(g))));
        let skip = u64::from(g == 0 && first == geo.super_block().0.0);
        if base > skip {
            add(first + skip, base - skip, false);
        }
    }
    for g in 0..geo.groups() {
        let Some((desc, _)) = desc(dev, &geo, g) else { continue };
        // A damaged descriptor may name blocks of a file: what is written there begins as these do.
        let is_metadata = |nr: &u64| read(dev, nr.saturating_mul(bs), 16) != pattern(16);
        let unzeroed = geo.has_gdt_csum() && !desc.flags.contains(GroupFlags::INODE_ZEROED);
        let table = desc.inode_table..desc.inode_table + u64::from(geo.inode_table_blocks);
        for nr in [desc.block_bitmap, desc.inode_bitmap].into_iter().filter(is_metadata) {
            push(nr, 1, false, false);
        }
        table.filter(is_metadata).for_each(|nr| push(nr, 1, false, unzeroed));
    }
    if sb.journal_inum != 0
        && let Some(raw) = inode(dev, &geo, sb.journal_inum)
    {
        // What its map names behind its end is not the journal's.
        let end = raw.size / bs;
        for (_, start, len) in walk(dev, &geo, &raw).runs.into_iter().filter(|r| r.0 < end) {
            zones.push(Zone {
                start: start * bs,
                end: (start + len) * bs,
                partial: true,
                log: true,
                unzeroed: false,
            });
        }
    }
    Some((bs, zones))
}

/// True if an inode says that its data goes through the log.
pub fn any_journalled_file(dev: &MemDevice) -> bool {
    let Some((_, geo)) = geometry(dev) else { return false };
    let size = usize::from(geo.inode_size);
    (0..geo.groups()).filter_map(|g| desc(dev, &geo, g)).any(|(desc, _)| {
        let len = geo.inode_table_blocks as usize * geo.block_len();
        let table = read(dev, BlockNr(desc.inode_table).offset(geo.block_size), len);
        table.chunks(size).any(|raw| le32(raw, 0x20) & InodeFlags::JOURNAL_DATA.bits() != 0)
    })
}

impl Layout {
    /// Looks at a volume.
    ///
    /// # Panics
    /// If its superblock makes no sense.
    pub fn of(dev: &MemDevice) -> Self {
        let (sb, geo) = geometry(dev).expect("a volume that makes sense");
        let bs = geo.block_len();
        let mut layout = Self {
            targets: vec![Target { kind: Kind::Super, ino: 0, at: 1024, len: 1024 }],
            names: BTreeMap::new(),
            dirs: Vec::new(),
            inodes: Vec::new(),
            generations: BTreeMap::new(),
            log: Vec::new(),
            journal: None,
            blocks: vec![
                0,
                1,
                geo.blocks() - 1,
                geo.blocks(),
                geo.blocks() + 1,
                geo.desc_block(GroupNr(0)).0.0,
            ],
            geo: geo.clone(),
        };
        for g in 0..geo.groups() {
            let Some((desc, at)) = desc(dev, &geo, g) else { continue };
            let at_block = |nr: u64| BlockNr(nr).offset(geo.block_size);
            let mut push = |kind, at, len| layout.targets.push(Target { kind, ino: 0, at, len });
            push(Kind::Desc(g), at, usize::from(geo.desc_size));
            push(Kind::BlockBitmap(g), at_block(desc.block_bitmap), bs);
            push(Kind::InodeBitmap(g), at_block(desc.inode_bitmap), bs);
            if g < 3 {
                let table =
                    [desc.block_bitmap, desc.inode_bitmap, desc.inode_table, desc.inode_table + 1];
                layout.blocks.extend(table);
                layout.blocks.push(geo.group_first_block(GroupNr(g)).0);
            }
            if desc.flags.contains(GroupFlags::INODE_UNINIT) && geo.has_gdt_csum() {
                continue;
            }
            let bits = read(dev, at_block(desc.inode_bitmap), bs);
            for i in (0..geo.inodes_per_group).filter(|i| extol_ondisk::bitmap::test(&bits, *i)) {
                layout.inode(dev, geo.inode_at(GroupNr(g), i).0, &sb);
            }
        }
        layout.find_names(dev);
        layout.look_at_log(dev, sb.journal_inum);
        layout
    }

    fn inode(&mut self, dev: &MemDevice, ino: u32, sb: &Superblock) {
        let geo = self.geo.clone();
        let (Some(raw), Some(at)) = (inode(dev, &geo, ino), inode_at(dev, &geo, ino)) else {
            return;
        };
        if raw.mode == 0 {
            return;
        }
        self.targets.push(Target { kind: Kind::Inode, ino, at, len: usize::from(geo.inode_size) });
        self.generations.insert(ino, raw.generation);
        let bs = geo.block_len();
        let offset = |nr: u64| BlockNr(nr).offset(geo.block_size);
        let walk = walk(dev, &geo, &raw);
        let mut push =
            |kind, nr: u64| self.targets.push(Target { kind, ino, at: offset(nr), len: bs });
        for (kind, nr) in &walk.tree {
            push(*kind, *nr);
        }
        if raw.file_acl != 0 {
            push(Kind::Attributes, raw.file_acl);
        }
        let whole = |nr: &u64| read(dev, offset(*nr), bs);
        if raw.is_dir() {
            for (lblk, start, len) in &walk.runs {
                for (lblk, nr) in (*lblk..lblk + len).zip(*start..) {
                    let bytes = whole(&nr);
                    let indexed = raw.flags.contains(InodeFlags::INDEX);
                    let kind = match lblk {
                        0 if indexed => Kind::Index(DxKind::Root),
                        _ if indexed
                            && le32(&bytes, 0) == 0
                            && usize::from(le16(&bytes, 4)) == bs =>
                        {
                            Kind::Index(DxKind::Node)
                        }
                        _ => Kind::Leaf,
                    };
                    push(kind, nr);
                }
            }
        }
        if ino == sb.orphan_file_inum {
            for (_, start, len) in &walk.runs {
                (*start..start + len).for_each(|nr| push(Kind::Orphans, nr));
            }
        }
        let quotas = [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum];
        let end = raw.size.div_ceil(bs as u64);
        for (lblk, start, len) in &walk.runs {
            let own = |lblk: u64| {
                quotas.contains(&ino) || raw.flags.contains(InodeFlags::VERITY) && lblk >= end
            };
            let pairs = (*lblk..lblk + len).zip(*start..);
            pairs.filter(|pair| own(pair.0)).for_each(|pair| push(Kind::Own, pair.1));
        }
        if ino == sb.journal_inum {
            for (_, start, len) in &walk.runs {
                self.log.extend((*start..start + len).map(offset));
            }
        }
        self.blocks.extend(walk.tree.iter().map(|t| t.1).take(3));
        self.blocks.extend(walk.runs.first().map(|r| r.1));
        if ino >= geo.first_ino.0 || ino == 2 {
            self.inodes.push(ino);
        }
        if raw.is_dir() {
            self.dirs.push(ino);
        }
    }

    fn find_names(&mut self, dev: &MemDevice) {
        let area = dirent::area_len(&self.geo);
        for t in self.targets.iter().filter(|t| t.kind == Kind::Leaf) {
            let bytes = read(dev, t.at, t.len);
            for e in dirent::iter(&bytes[..area]).flatten().filter(|e| e.is_used() && !e.is_dot()) {
                self.names.entry(e.ino.0).or_insert(Name { parent: t.ino, name: e.name.to_vec() });
            }
        }
        for ino in self.dirs.clone() {
            let Some(raw) = inode(dev, &self.geo, ino) else { continue };
            if raw.flags.contains(InodeFlags::INLINE_DATA) {
                for e in dirent::iter(&raw.i_block[4..]).flatten().filter(|e| e.is_used()) {
                    self.names
                        .entry(e.ino.0)
                        .or_insert(Name { parent: ino, name: e.name.to_vec() });
                }
            }
        }
    }

    /// Finds the blocks of the log.
    pub fn look_at_log(&mut self, dev: &MemDevice, ino: u32) {
        let bs = self.geo.block_len();
        let Some(first) = self.log.first().copied() else { return };
        let Ok(jsb) = JournalSuperblock::decode(&read(dev, first, 1024)) else { return };
        self.targets.push(Target { kind: Kind::JournalSuper, ino, at: first, len: 1024 });
        self.blocks.extend([first / bs as u64, self.log.last().copied().unwrap_or(0) / bs as u64]);
        let tag_size = jsb.features.tag_size();
        let wide = jsb.features.is_64bit();
        let mut next_copy = 0;
        let log = self.log.clone();
        for (i, at) in log.iter().copied().enumerate().skip(1) {
            if i < next_copy {
                continue;
            }
            let block = read(dev, at, bs);
            let Some(header) = Header::decode(&block) else { continue };
            let mut push = |kind, at| self.targets.push(Target { kind, ino, at, len: bs });
            match header.kind {
                BlockKind::Commit => push(Kind::JournalCommit, at),
                BlockKind::Revoke => push(Kind::JournalRevoke, at),
                BlockKind::Descriptor => {
                    push(Kind::JournalDesc, at);
                    let mut tag = 12;
                    next_copy = i + 1;
                    while tag + tag_size <= bs {
                        let flags = u16::from_be_bytes([block[tag + 6], block[tag + 7]]);
                        let high = if wide { u64::from(be32(&block, tag + 8)) << 32 } else { 0 };
                        let home = high | u64::from(be32(&block, tag));
                        if let Some(copy) = log.get(next_copy) {
                            push(Kind::JournalCopy { home, tag: at + tag as u64 }, *copy);
                        }
                        next_copy += 1;
                        tag += tag_size + if flags & 2 == 0 { 16 } else { 0 };
                        if flags & 8 != 0 {
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
        self.journal = Some(jsb);
    }

    /// The structures whose home is in this block.
    pub fn in_block(&self, nr: u64) -> Vec<Target> {
        let bs = self.geo.block_len() as u64;
        let log = |k: Kind| {
            matches!(
                k,
                Kind::JournalSuper
                    | Kind::JournalDesc
                    | Kind::JournalRevoke
                    | Kind::JournalCommit
                    | Kind::JournalCopy { .. }
            )
        };
        self.targets.iter().filter(|t| t.at / bs == nr && !log(t.kind)).copied().collect()
    }
}
