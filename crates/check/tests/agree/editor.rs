//! An image whose parts are known, with edits that can be undone.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use extol_block::{BlockDevice as _, BlockNr, FileDevice, MemDevice, OpenOptions, SharedDevice};
use extol_ondisk::checksum::crc32c;
use extol_ondisk::{
    Compat, FileType, Geometry, GroupNr, Incompat, Inode, InodeFlags, InodeNr, InodeSeed, RoCompat,
    Superblock, bitmap, dirent, extent, htree, orphan_file, xattr,
};
use extol_testkit::Image;

/// A part of a volume that may be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Super,
    Desc(u32),
    BlockBitmap(u32),
    InodeBitmap(u32),
    /// An inode in use, or a reserved one.
    Inode(u32),
    /// One that is free but inside of the part of the table that was written.
    FreeInode(u32),
    DirBlock(u64, InodeSeed),
    DxRoot(u64, InodeSeed),
    DxNode(u64, InodeSeed),
    Extents(u64, InodeSeed),
    Indirect(u64),
    Xattrs(u64),
    Symlink(u64),
    JournalSuper(u64),
    Orphans(u64, InodeSeed),
    Mmp(u64),
    ReservedGdt(u64),
    /// Of a quota file; the first one holds its header.
    Quota(u64, bool),
    /// Of a file that e2fsck does not read.
    Content(u64),
}

impl Part {
    /// True if it is a block that has one form.
    pub fn is_block(self) -> bool {
        !matches!(self, Self::Super | Self::Desc(_) | Self::Inode(_) | Self::FreeInode(_))
    }
}

pub struct ImageEditor {
    pub image: Image,
    file: std::fs::File,
    base: MemDevice,
    pub bytes: Vec<u8>,
    pub geo: Geometry,
    pub sb: Superblock,
    pub parts: Vec<Part>,
    pub free_inodes: Vec<u32>,
    /// Where each group's block bitmap, inode bitmap and inode table lie while nothing is damaged.
    places: Vec<[u64; 3]>,
    undo: Vec<(usize, Vec<u8>)>,
}

pub fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(b[at..at + 2].try_into().unwrap())
}

pub fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
}

impl ImageEditor {
    pub fn new(image: Image) -> Self {
        let path = &image.path;
        let bytes = std::fs::read(path).expect("read image");
        let sb = Superblock::decode(&bytes[1024..2048]).expect("superblock");
        let geo = Geometry::new(&sb, Some(bytes.len() as u64)).expect("geometry");
        let file = std::fs::File::options().write(true).open(path).expect("open image");
        let base = MemDevice::from_bytes(&bytes);
        let mut editor = Self {
            image,
            file,
            base,
            bytes,
            geo,
            sb,
            parts: Vec::new(),
            free_inodes: Vec::new(),
            places: Vec::new(),
            undo: Vec::new(),
        };
        editor.places = (0..editor.geo.groups())
            .map(|g| [0, 4, 8].map(|field| editor.place(g, field)))
            .collect();
        editor.find_parts();
        editor
    }

    fn bs(&self) -> usize {
        self.geo.block_len()
    }

    pub fn block(&self, nr: u64) -> &[u8] {
        let at = nr as usize * self.bs();
        &self.bytes[at..at + self.bs()]
    }

    pub fn desc_at(&self, group: u32) -> usize {
        let (block, offset) = self.geo.desc_block(GroupNr(group));
        block.0 as usize * self.bs() + offset
    }

    fn place(&self, group: u32, lo: usize) -> u64 {
        let at = self.desc_at(group);
        let hi = if self.geo.desc_size >= 64 { le32(&self.bytes, at + lo + 0x20) } else { 0 };
        u64::from(le32(&self.bytes, at + lo)) | u64::from(hi) << 32
    }

    pub fn block_bitmap(&self, group: u32) -> u64 {
        self.places[group as usize][0]
    }

    pub fn inode_bitmap(&self, group: u32) -> u64 {
        self.places[group as usize][1]
    }

    pub fn inode_table(&self, group: u32) -> u64 {
        self.places[group as usize][2]
    }

    pub fn inode_at(&self, ino: u32) -> usize {
        let (group, index) = self.geo.group_of_inode(InodeNr(ino));
        self.inode_table(group.0) as usize * self.bs()
            + index as usize * usize::from(self.geo.inode_size)
    }

    pub fn inode_bytes(&self, ino: u32) -> &[u8] {
        let at = self.inode_at(ino);
        &self.bytes[at..at + usize::from(self.geo.inode_size)]
    }

    fn find_parts(&mut self) {
        let mut parts = vec![Part::Super];
        let mut free = Vec::new();
        for group in 0..self.geo.groups() {
            parts.extend([Part::Desc(group), Part::BlockBitmap(group), Part::InodeBitmap(group)]);
            let flags = le16(&self.bytes, self.desc_at(group) + 0x12);
            if self.geo.has_gdt_csum() && flags & 1 != 0 {
                continue;
            }
            let unused = u32::from(le16(&self.bytes, self.desc_at(group) + 0x1C));
            let csums = self.geo.has_gdt_csum();
            let scanned = self.geo.inodes_per_group - if csums { unused } else { 0 };
            let map = self.block(self.inode_bitmap(group)).to_vec();
            for index in 0..scanned {
                let ino = group * self.geo.inodes_per_group + index + 1;
                if bitmap::test(&map, index) {
                    parts.push(Part::Inode(ino));
                    if [2, 3, 4, 8].contains(&ino) || ino >= self.geo.first_ino.0 {
                        self.parts_of(ino, &mut parts);
                    }
                } else if csums || index < 40 {
                    free.push(ino);
                }
            }
        }
        if self.sb.feature_incompat.contains(Incompat::MMP) {
            parts.push(Part::Mmp(self.sb.mmp_block));
        }
        if self.sb.feature_compat.contains(Compat::RESIZE_INODE) {
            parts.push(Part::ReservedGdt(
                self.geo.super_block().0.0 + 1 + u64::from(self.geo.desc_blocks()),
            ));
        }
        self.parts = parts;
        self.free_inodes = free;
    }

    fn parts_of(&self, ino: u32, parts: &mut Vec<Part>) {
        let inode =
            Inode::decode(self.inode_bytes(ino), InodeNr(ino), &self.geo).expect("a good inode");
        let seed = inode.seed(InodeNr(ino), &self.geo);
        if inode.file_acl != 0 {
            parts.push(Part::Xattrs(inode.file_acl));
        }
        if !inode.maps_blocks() {
            return;
        }
        let mut data = Vec::new();
        let sb = &self.sb;
        let quotas = [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum];
        let is_quota = sb.feature_ro_compat.contains(RoCompat::QUOTA) && quotas.contains(&ino);
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.extent_parts(&inode.i_block, seed, parts, &mut data);
        } else {
            let word = |n: usize| le32(&inode.i_block, n * 4);
            data.extend((0..12).map(word).filter(|&b| b != 0).map(u64::from));
            for level in 1..=3 {
                self.indirect_parts(word(11 + level), level, parts, &mut data);
            }
        }
        if is_quota {
            parts.extend(data.iter().map(|&b| Part::Quota(b, b == data[0])));
        } else if inode.flags.intersects(InodeFlags::VERITY | InodeFlags::EA_INODE) {
            parts.extend(data.iter().map(|&b| Part::Content(b)));
        } else if inode.is_symlink() {
            parts.extend(data.iter().map(|&b| Part::Symlink(b)));
        } else if ino == self.sb.journal_inum
            && self.sb.feature_compat.contains(Compat::HAS_JOURNAL)
        {
            parts.push(Part::JournalSuper(data[0]));
        } else if ino == self.sb.orphan_file_inum
            && self.sb.feature_compat.contains(Compat::ORPHAN_FILE)
        {
            parts.extend(data.iter().map(|&b| Part::Orphans(b, seed)));
        } else if inode.is_dir() {
            let indexed = inode.flags.contains(InodeFlags::INDEX);
            for (n, &b) in data.iter().enumerate() {
                let node =
                    le32(self.block(b), 0) == 0 && usize::from(le16(self.block(b), 4)) == self.bs();
                parts.push(match (indexed, n) {
                    (true, 0) => Part::DxRoot(b, seed),
                    (true, _) if node && le16(self.block(b), 8) > 50 => Part::DxNode(b, seed),
                    _ => Part::DirBlock(b, seed),
                });
            }
        }
    }

    fn extent_parts(
        &self,
        node: &[u8],
        seed: InodeSeed,
        parts: &mut Vec<Part>,
        data: &mut Vec<u64>,
    ) {
        match extent::Node::decode(node, &self.geo).expect("a good node").entries {
            extent::Entries::Leaf(all) => {
                for e in all {
                    data.extend((0..u64::from(e.len)).map(|i| e.start + i));
                }
            }
            extent::Entries::Index(all) => {
                for i in all {
                    parts.push(Part::Extents(i.leaf, seed));
                    self.extent_parts(self.block(i.leaf), seed, parts, data);
                }
            }
        }
    }

    fn indirect_parts(&self, nr: u32, level: usize, parts: &mut Vec<Part>, data: &mut Vec<u64>) {
        if nr == 0 {
            return;
        }
        parts.push(Part::Indirect(u64::from(nr)));
        for word in self.block(u64::from(nr)).chunks_exact(4) {
            let below = le32(word, 0);
            if level > 1 {
                self.indirect_parts(below, level - 1, parts, data);
            } else if below != 0 {
                data.push(u64::from(below));
            }
        }
    }

    // ---- edits ----

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let Some(old) = self.bytes.get_mut(at..at + bytes.len()) else { return };
        self.undo.push((at, old.to_vec()));
        old.copy_from_slice(bytes);
        self.file.write_all_at(bytes, at as u64).expect("write image");
    }

    pub fn put16(&mut self, at: usize, v: u16) {
        self.write(at, &v.to_le_bytes());
    }

    pub fn put32(&mut self, at: usize, v: u32) {
        self.write(at, &v.to_le_bytes());
    }

    /// Takes all edits back.
    pub fn restore(&mut self) {
        while let Some((at, old)) = self.undo.pop() {
            self.bytes[at..at + old.len()].copy_from_slice(&old);
            self.file.write_all_at(&old, at as u64).expect("write image");
        }
    }

    /// The image with its edits, in memory.
    pub fn device(&self) -> MemDevice {
        let device = self.base.snapshot();
        for (at, old) in &self.undo {
            device.write_at(&self.bytes[*at..at + old.len()], *at as u64).expect("write in memory");
        }
        device
    }

    /// The external journal, if there is one.
    pub fn journal(&self) -> Option<SharedDevice> {
        let path = self.image.journal.as_ref()?;
        let device = FileDevice::open(path, &OpenOptions::read_only()).expect("open the journal");
        Some(Arc::new(device))
    }

    /// Where a part begins and how long it is.
    pub fn range(&self, part: Part) -> (usize, usize) {
        let block = |nr: u64| (nr as usize * self.bs(), self.bs());
        match part {
            Part::Super => (1024, 1024),
            Part::Desc(group) => (self.desc_at(group), usize::from(self.geo.desc_size)),
            Part::BlockBitmap(group) => block(self.block_bitmap(group)),
            Part::InodeBitmap(group) => block(self.inode_bitmap(group)),
            Part::Inode(ino) | Part::FreeInode(ino) => {
                (self.inode_at(ino), usize::from(self.geo.inode_size))
            }
            Part::DirBlock(nr, _)
            | Part::DxRoot(nr, _)
            | Part::DxNode(nr, _)
            | Part::Extents(nr, _)
            | Part::Indirect(nr)
            | Part::Xattrs(nr)
            | Part::Symlink(nr)
            | Part::JournalSuper(nr)
            | Part::Orphans(nr, _)
            | Part::Mmp(nr)
            | Part::ReservedGdt(nr)
            | Part::Quota(nr, _)
            | Part::Content(nr) => block(nr),
        }
    }

    /// Brings the checksum of a part up to date.
    pub fn fix(&mut self, part: Part) {
        let csum = self.geo.has_metadata_csum();
        let (at, len) = self.range(part);
        let mut b = self.bytes[at..at + len].to_vec();
        match part {
            Part::Super if csum => {
                let sum = crc32c(!0, &b[..0x3FC]);
                self.put32(at + 0x3FC, sum);
            }
            Part::Desc(group) if self.geo.has_gdt_csum() => self.fix_desc(group),
            Part::BlockBitmap(group) if csum => {
                let sum = bitmap::block_bitmap_csum(&self.geo, &b);
                self.put_wide(group, 0x18, sum);
            }
            Part::InodeBitmap(group) if csum => {
                let sum = bitmap::inode_bitmap_csum(&self.geo, &b);
                self.put_wide(group, 0x1A, sum);
            }
            Part::Inode(ino) | Part::FreeInode(ino) if csum => self.fix_inode(ino),
            Part::DirBlock(_, seed) if csum => {
                dirent::set_csum(&mut b, seed);
                self.write(at, &b);
            }
            Part::DxRoot(_, seed) | Part::DxNode(_, seed) if csum => {
                let kind = if matches!(part, Part::DxRoot(..)) {
                    htree::DxKind::Root
                } else {
                    htree::DxKind::Node
                };
                let place = kind.count_at();
                let (limit, count) =
                    (usize::from(le16(&b, place)), usize::from(le16(&b, place + 2)));
                if count <= limit && place + 8 * limit + 8 <= b.len() {
                    htree::set_csum(&mut b, kind, seed);
                    self.write(at, &b);
                }
            }
            Part::Extents(_, seed)
                if csum && 12 * (1 + usize::from(le16(&b, 4))) + 4 <= b.len() =>
            {
                extent::set_csum(&mut b, seed);
                self.write(at, &b);
            }
            Part::Xattrs(nr) if csum => {
                xattr::set_csum(&mut b, BlockNr(nr), self.geo.fs_seed);
                self.write(at, &b);
            }
            Part::JournalSuper(_) if b[0x2B] & 24 != 0 => {
                b[0xFC..0x100].fill(0);
                let sum = crc32c(!0, &b[..1024]);
                self.write(at + 0xFC, &sum.to_be_bytes());
            }
            Part::Orphans(nr, seed) if csum => {
                orphan_file::set_csum(&mut b, BlockNr(nr), seed);
                self.write(at, &b);
            }
            Part::Mmp(_) if csum => {
                let sum = self.geo.fs_seed.crc(&b[..0x3FC]);
                self.put32(at + 0x3FC, sum);
            }
            _ => {}
        }
    }

    fn put_wide(&mut self, group: u32, lo: usize, sum: u32) {
        let at = self.desc_at(group);
        self.put16(at + lo, sum as u16);
        if self.geo.desc_size >= 64 {
            self.put16(at + lo + 0x20, (sum >> 16) as u16);
        }
        self.fix_desc(group);
    }

    fn fix_desc(&mut self, group: u32) {
        let (at, len) = self.range(Part::Desc(group));
        let mut b = self.bytes[at..at + len].to_vec();
        b[0x1E..0x20].fill(0);
        let number = group.to_le_bytes();
        let sum = if self.geo.has_metadata_csum() {
            crc32c(crc32c(self.geo.fs_seed.0, &number), &b) as u16
        } else {
            use extol_ondisk::checksum::crc16;
            let head = crc16(crc16(crc16(!0, &self.geo.uuid), &number), &b[..0x1E]);
            if self.geo.incompat().contains(Incompat::BIT64) {
                crc16(head, &b[0x20..])
            } else {
                head
            }
        };
        self.put16(at + 0x1E, sum);
    }

    fn fix_inode(&mut self, ino: u32) {
        let (at, len) = self.range(Part::Inode(ino));
        let mut b = self.bytes[at..at + len].to_vec();
        let high = len > 128 && le16(&b, 0x80) >= 4;
        b[0x7C..0x7E].fill(0);
        if high {
            b[0x82..0x84].fill(0);
        }
        let sum = self.geo.fs_seed.inode(InodeNr(ino), le32(&b, 0x64)).crc(&b);
        self.put16(at + 0x7C, sum as u16);
        if high {
            self.put16(at + 0x82, (sum >> 16) as u16);
        }
    }

    /// The type of an inode.
    pub fn kind(&self, ino: u32) -> Option<FileType> {
        FileType::from_mode(le16(self.inode_bytes(ino), 0))
    }
}
