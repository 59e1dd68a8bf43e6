//! The inodes of a new volume: root, lost+found, resize inode, journal, orphan file, and the
//! reserved ones.
//!
//! Blocks are taken in the order in which mke2fs takes them: root, lost+found, resize inode,
//! journal, multiple-mount block, quota files, orphan file. All inodes have generation 0 and the
//! time of the making.

use super::filemap::{self, BlockImage, FileMap};
use super::quota::{QuotaFiles, Usage};
use super::space::Space;
use super::{MkfsError, Result};
use extol_block::BlockNr;
use extol_ondisk::quota::Kind;
use extol_ondisk::xattr::{XattrEntry, index};
use extol_ondisk::{
    Compat, FileType, Geometry, Incompat, Inode, InodeFlags, InodeNr, Superblock, Time, dirent,
    orphan_file, xattr,
};

pub(crate) const LOST_AND_FOUND: InodeNr = InodeNr(11);

/// lost+found has room for many names, so that the checker need not allocate.
const LOST_AND_FOUND_BYTES: u64 = 16 << 10;

/// Takes blocks and makes inodes.
pub(crate) struct Builder<'a> {
    pub(crate) geo: &'a Geometry,
    pub(crate) space: &'a mut Space,
    pub(crate) now: Time,
    pub(crate) inodes: Vec<(InodeNr, Inode)>,
    pub(crate) blocks: Vec<BlockImage>,
}

impl Builder<'_> {
    fn uses_extents(&self) -> bool {
        self.geo.incompat().contains(Incompat::EXTENTS)
    }

    fn directory_type(&self) -> Option<FileType> {
        self.geo.incompat().contains(Incompat::FILETYPE).then_some(FileType::Directory)
    }

    fn blank(&self, mode: u16, links: u16) -> Inode {
        let mut inode = Inode::new_empty(self.geo);
        inode.mode = mode;
        inode.links = links;
        (inode.atime, inode.ctime, inode.mtime) = (self.now, self.now, self.now);
        inode.crtime = if self.geo.inode_size > 128 { self.now } else { Time::default() };
        inode
    }

    /// Maps `len` blocks to a new inode.
    fn file(
        &mut self,
        ino: InodeNr,
        mode: u16,
        links: u16,
        goal: u64,
        len: u64,
    ) -> Result<FileMap> {
        let mut inode = self.blank(mode, links);
        let map = if self.uses_extents() {
            inode.flags |= InodeFlags::EXTENTS;
            filemap::by_extents(self.space, self.geo, ino, goal, len)?
        } else {
            // Without extents mke2fs takes blocks from the start, whatever the goal.
            filemap::by_blocks(self.space, self.geo, 0, len)?
        };
        inode.i_block = map.i_block;
        inode.size = len * self.geo.block_len() as u64;
        inode.blocks = map.sectors(self.geo);
        self.blocks.extend_from_slice(&map.nodes);
        self.inodes.push((ino, inode));
        Ok(map)
    }

    fn directory_block(
        &self,
        ino: InodeNr,
        at: BlockNr,
        fill: impl FnOnce(&mut [u8]),
    ) -> BlockImage {
        let mut bytes = vec![0; self.geo.block_len()];
        fill(&mut bytes[..dirent::area_len(self.geo)]);
        if self.geo.has_metadata_csum() {
            dirent::set_csum(&mut bytes, self.geo.fs_seed.inode(ino, 0));
        }
        (at, bytes)
    }

    /// The reserved inodes: in use, but empty. The bad-blocks inode has times.
    pub(crate) fn reserved(&mut self, quotas: &[Kind]) {
        for ino in (1..self.geo.first_ino.0).map(InodeNr) {
            if [InodeNr::ROOT, InodeNr::RESIZE, InodeNr::JOURNAL].contains(&ino) {
                continue;
            }
            let comes = |kind| quotas.contains(&kind);
            match ino {
                InodeNr::USER_QUOTA if comes(Kind::User) => continue,
                InodeNr::GROUP_QUOTA if comes(Kind::Group) => continue,
                _ => {}
            }
            let mut inode = Inode::new_empty(self.geo);
            inode.extra_isize = 0;
            if ino == InodeNr::BAD_BLOCKS {
                (inode.atime, inode.ctime, inode.mtime) = (self.now, self.now, self.now);
            }
            self.inodes.push((ino, inode));
        }
    }

    /// Blocks that nothing may use, in the inode for them. It has the old map, as e2fsck knows it.
    pub(crate) fn bad_blocks(&mut self, blocks: &[u64]) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let map = filemap::of_blocks(self.space, self.geo, blocks)?;
        let of_bad = self.inodes.iter_mut().find(|(ino, _)| *ino == InodeNr::BAD_BLOCKS);
        if let Some((_, inode)) = of_bad {
            inode.i_block = map.i_block;
            inode.size = blocks.len() as u64 * self.geo.block_len() as u64;
            inode.blocks = map.sectors(self.geo);
        }
        self.blocks.extend(map.nodes);
        Ok(())
    }

    /// Gives the root directory a label of SELinux.
    pub(crate) fn label_root(&mut self, label: &[u8]) -> Result<()> {
        let entry = XattrEntry::new(index::SECURITY, b"selinux", &[label, b"\0"].concat());
        let root = self.inodes.iter_mut().find(|(ino, _)| *ino == InodeNr::ROOT);
        let Some((_, inode)) = root else { return Ok(()) };
        match xattr::build_ibody(&[entry], inode.tail.len()) {
            Some(tail) => inode.tail = tail,
            None => {
                return Err(MkfsError::Refused(
                    "the label of root_selinux= does not fit into the inode: give larger inodes \
                     (-I 256)"
                        .into(),
                ));
            }
        }
        Ok(())
    }

    /// The root directory with lost+found in it, and that.
    pub(crate) fn directories(&mut self, (uid, gid): (u32, u32), perms: Option<u16>) -> Result<()> {
        let map = self.file(InodeNr::ROOT, 0o040_000 | perms.unwrap_or(0o755), 3, 0, 1)?;
        if let Some((_, root)) = self.inodes.last_mut() {
            (root.uid, root.gid) = (uid, gid);
        }
        let kind = self.directory_type();
        let at = map.block(0).unwrap_or_default();
        let mut added = Ok(false);
        let block = self.directory_block(InodeNr::ROOT, at, |area| {
            dirent::init_dots(area, InodeNr::ROOT, InodeNr::ROOT, kind);
            added = dirent::add(area, b"lost+found", LOST_AND_FOUND, kind);
        });
        debug_assert_eq!(added, Ok(true), "a new directory block has room");
        self.blocks.push(block);

        let len = lost_and_found_blocks(self.geo);
        let map = self.file(LOST_AND_FOUND, 0o040_700, 2, 0, len)?;
        for nr in 0..len {
            let at = map.block(nr).unwrap_or_default();
            let block = self.directory_block(LOST_AND_FOUND, at, |area| match nr {
                0 => dirent::init_dots(area, LOST_AND_FOUND, InodeNr::ROOT, kind),
                _ => dirent::init_area(area),
            });
            self.blocks.push(block);
        }
        Ok(())
    }

    /// The resize inode: its map *is* the reservation. The double indirect block points at the
    /// reserved descriptor blocks behind the primary descriptors, and each of these holds the
    /// numbers of its copies in the groups with a superblock. Without the feature it is empty.
    pub(crate) fn resize_inode(&mut self) -> Result<()> {
        let geo = self.geo;
        if !geo.compat().contains(Compat::RESIZE_INODE) {
            let mut inode = Inode::new_empty(geo);
            inode.extra_isize = 0;
            self.inodes.push((InodeNr::RESIZE, inode));
            return Ok(());
        }
        let wide = || MkfsError::Refused("reserved descriptors lie beyond 2^32 blocks".into());
        let put = |bytes: &mut [u8], index: usize, block: u64| -> Result<()> {
            let block = u32::try_from(block).map_err(|_| wide())?;
            if let Some(place) = bytes.as_chunks_mut::<4>().0.get_mut(index) {
                *place = block.to_le_bytes();
            }
            Ok(())
        };
        let per_block = geo.block_len() / 4;
        let goal = 3 + geo.reserved_gdt() + geo.desc_blocks() + geo.inode_table_blocks;
        let root = self.space.take_one(u64::from(goal)).ok_or_else(super::filemap::full)?;
        let mut root_bytes = vec![0; geo.block_len()];
        let mut count = 1;
        for i in 0..geo.reserved_gdt() {
            let index = geo.desc_blocks() + i;
            // The superblock is the first block of its group.
            let primary = geo.first_data_block + 1 + u64::from(index);
            put(&mut root_bytes, index as usize % per_block, primary)?;
            let mut bytes = vec![0; geo.block_len()];
            count += 1;
            for (at, group) in geo.backup_groups().enumerate() {
                put(
                    &mut bytes,
                    at,
                    primary + u64::from(group.0) * u64::from(geo.blocks_per_group),
                )?;
                count += 1;
            }
            self.blocks.push((BlockNr(primary), bytes));
        }
        self.blocks.push((BlockNr(root), root_bytes));

        let mut inode = self.blank(0o100_600, 1);
        put(&mut inode.i_block, 13, root)?;
        let n = per_block as u64;
        inode.size = (n * n + n + 12) * geo.block_len() as u64;
        inode.blocks = count * (geo.block_len() as u64 / 512);
        self.inodes.push((InodeNr::RESIZE, inode));
        Ok(())
    }

    /// The journal inode, `len` blocks from `goal` on. Its contents are the caller's matter.
    pub(crate) fn journal(&mut self, goal: u64, len: u64) -> Result<FileMap> {
        self.file(InodeNr::JOURNAL, 0o100_600, 1, goal, len)
    }

    /// An empty journal inode, where there is no internal journal.
    pub(crate) fn no_journal(&mut self) {
        let mut inode = Inode::new_empty(self.geo);
        inode.extra_isize = 0;
        self.inodes.push((InodeNr::JOURNAL, inode));
    }

    /// The orphan file, all entries free.
    pub(crate) fn orphan_file(&mut self, len: u64) -> Result<InodeNr> {
        let ino = self.next_number();
        let map = self.file(ino, 0o100_600, 1, 0, len)?;
        let seed = self.geo.fs_seed.inode(ino, 0);
        for nr in 0..len {
            let at = map.block(nr).unwrap_or_default();
            let mut bytes = vec![0; self.geo.block_len()];
            orphan_file::init(&mut bytes);
            if self.geo.has_metadata_csum() {
                orphan_file::set_csum(&mut bytes, at, seed);
            }
            self.blocks.push((at, bytes));
        }
        Ok(ino)
    }

    /// The first number that no inode has.
    fn next_number(&self) -> InodeNr {
        let last = self.inodes.iter().map(|(ino, _)| ino.0).max().unwrap_or_default();
        InodeNr(last.max(LOST_AND_FOUND.0) + 1)
    }

    /// The quota files of these kinds. Their contents are the caller's matter.
    pub(crate) fn quota_files(
        &mut self,
        sb: &mut Superblock,
        kinds: &[Kind],
        usage: Usage,
    ) -> Result<QuotaFiles> {
        let mut maps = Vec::new();
        for kind in kinds.iter().copied() {
            let (ino, named) = match kind {
                Kind::User => (InodeNr::USER_QUOTA, &mut sb.usr_quota_inum),
                Kind::Group => (InodeNr::GROUP_QUOTA, &mut sb.grp_quota_inum),
                Kind::Project => (self.next_number(), &mut sb.prj_quota_inum),
            };
            *named = ino.0;
            let bytes = usage.contents(kind)?.len();
            let map =
                self.file(ino, 0o100_600, 1, 0, bytes.div_ceil(self.geo.block_len()) as u64)?;
            if let Some((_, inode)) = self.inodes.last_mut() {
                inode.size = bytes as u64;
                inode.flags |= InodeFlags::IMMUTABLE;
            }
            maps.push((kind, map));
        }
        Ok(QuotaFiles { maps, usage })
    }

    /// What the directories use that were made.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for (ino, inode) in &self.inodes {
            if [InodeNr::ROOT, LOST_AND_FOUND].contains(ino) {
                usage.count(inode, 0);
            }
        }
        usage
    }
}

/// Blocks of lost+found: 16 KiB, but at least two blocks and at most what the direct pointers map.
/// With inline_data mke2fs gets one block less, as the directory begins inside its inode.
pub(crate) fn lost_and_found_blocks(geo: &Geometry) -> u64 {
    let blocks = LOST_AND_FOUND_BYTES.div_ceil(geo.block_len() as u64).clamp(2, 12);
    if geo.incompat().contains(Incompat::INLINE_DATA) { blocks - 1 } else { blocks }
}
