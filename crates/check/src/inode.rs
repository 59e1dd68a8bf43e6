//! Pass 1, one inode: is it in use, and if so, does everything in it fit together?

use extol_ondisk::{Compat, FileType, Incompat, InodeFlags, InodeNr, RoCompat};

use crate::bytes::{le8, le16, le32};
use crate::claims::Claims;
use crate::error::Result;
use crate::inodes::{Dir, DirContent, Info};
use crate::map::{Mapped, Walk};
use crate::raw::{Raw, extent_header_ok};
use crate::report::{Counts, Finding, Findings, Kind};
use crate::vol::Vol;
use crate::xattr::{Attributes, Shared};

/// What the judge of inodes works with.
pub(crate) struct Judge<'a> {
    pub vol: &'a Vol,
    pub claims: &'a Claims,
    pub shared: &'a std::sync::Mutex<Shared>,
    /// Deletion times below the number of inodes are leftovers of the orphan list.
    pub low_dtime: bool,
}

/// What a group's inodes gave.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub infos: Vec<Info>,
    pub dirs: Vec<Dir>,
    pub out: Findings,
    pub counts: Counts,
    /// First file of 2 GiB and more.
    pub large_file: Option<u32>,
    /// First directory that needs large_dir.
    pub large_dir: Option<u32>,
}

/// The role that an inode's number gives it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Plain,
    Root,
    BadBlocks,
    /// Journal, quota or orphan file that is in use: a hidden file.
    Hidden(&'static str),
    /// The number of a hidden file that the volume does not use.
    Unused(&'static str),
    Reserved,
}

impl Judge<'_> {
    fn role(&self, ino: u32) -> Role {
        let sb = &self.vol.sb;
        let orphan_file = sb.orphan_file_inum;
        let quotas = [InodeNr::USER_QUOTA.0, InodeNr::GROUP_QUOTA.0, sb.prj_quota_inum];
        if ino == InodeNr::BAD_BLOCKS.0 {
            Role::BadBlocks
        } else if ino == InodeNr::ROOT.0 {
            Role::Root
        } else if ino == InodeNr::JOURNAL.0 {
            if sb.journal_inum == ino { Role::Hidden("journal") } else { Role::Unused("journal") }
        } else if ino == orphan_file {
            let used = self.vol.compat(Compat::ORPHAN_FILE);
            if used { Role::Hidden("orphan file") } else { Role::Unused("orphan file") }
        } else if quotas.contains(&ino) {
            let named = [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum].contains(&ino);
            let used = self.vol.ro_compat(RoCompat::QUOTA) && named;
            if used { Role::Hidden("quota file") } else { Role::Unused("quota file") }
        } else if ino < self.vol.geo.first_ino.0 {
            Role::Reserved
        } else {
            Role::Plain
        }
    }

    /// Judges an inode. `garbage`: most of its block of the table makes no sense.
    pub(crate) fn inode(
        &self,
        raw: Raw<'_>,
        csum_ok: bool,
        garbage: bool,
        to: &mut Scanned,
    ) -> Result<Info> {
        let ino = raw.ino;
        let mut info = Info { links: raw.links(), ..Info::default() };
        let orphan = self.vol.orphans.contains(&ino);
        if garbage && raw.links() > 0 {
            to.err(ino, Kind::InodeGarbage, "the inode is among others that are garbage");
        }
        if !csum_ok {
            to.err(ino, Kind::InodeChecksum, "the inode's checksum is wrong");
        }
        let role = self.role(ino);
        if raw.dtime() != 0 && self.low_dtime && raw.dtime() < self.vol.geo.inodes && !orphan {
            let what =
                format!("the deletion time {} is a leftover of the orphan list", raw.dtime());
            to.err(ino, Kind::InodeDeletion, what);
        }
        let plain_number = ino >= self.vol.geo.first_ino.0;
        let quota_number = [3, 4, self.vol.sb.prj_quota_inum].contains(&ino);
        if raw.links() == 0 && plain_number && !quota_number && !(orphan && raw.mode() != 0) {
            if raw.dtime() == 0 && raw.mode() != 0 {
                to.err(ino, Kind::InodeDeletion, "the inode is deleted but has no deletion time");
            }
            return Ok(info);
        }
        self.flags(raw, plain_number, to)?;
        match role {
            Role::BadBlocks => {
                self.bad_blocks(raw, to)?;
                info.set(Info::USED);
                return Ok(info);
            }
            Role::Root => {
                if !raw.is(FileType::Directory) {
                    to.err(ino, Kind::RootMissing, "the root is not a directory");
                }
                if raw.dtime() != 0 && raw.links() != 0 {
                    to.err(ino, Kind::InodeDeletion, "the root has a deletion time");
                }
            }
            Role::Hidden(what) => {
                info.set(Info::USED);
                if !raw.is(FileType::Regular) {
                    to.err(ino, Kind::InodeReserved, format!("the {what} is not a regular file"));
                }
                self.contents(raw, &mut info, 0, to)?;
                return Ok(info);
            }
            Role::Unused(what) => {
                info.set(Info::USED);
                if raw.links() != 0 || raw.blocks_lo() != 0 || raw.word(0) != 0 {
                    to.err(
                        ino,
                        Kind::InodeReserved,
                        format!("the {what} is not in use but has contents"),
                    );
                }
            }
            Role::Reserved => {
                info.set(Info::USED);
                let bad = match ino {
                    5 => raw.is(FileType::Directory),
                    7 => raw.mode() != 0 && !raw.is(FileType::Regular),
                    _ => raw.mode() != 0,
                };
                if bad {
                    to.err(
                        ino,
                        Kind::InodeReserved,
                        format!("reserved inode has mode {:o}", raw.mode()),
                    );
                }
                self.contents(raw, &mut info, 0, to)?;
                return Ok(info);
            }
            Role::Plain => {}
        }
        if raw.links() == 0 && !orphan {
            return Ok(info);
        }
        if raw.dtime() != 0 && !orphan {
            to.err(ino, Kind::InodeDeletion, "the inode is in use but has a deletion time");
        }
        info.set(Info::USED);
        if orphan {
            to.counts.orphans += 1;
            // An orphan with names is only to be truncated.
            if raw.links() == 0 {
                info.set(Info::ORPHAN);
            }
        }
        self.fields(raw, to);
        if raw.has(InodeFlags::IMAGIC) {
            if self.vol.compat(Compat::IMAGIC_INODES) {
                info.set(Info::IMAGIC);
            } else {
                to.err(ino, Kind::InodeFlags, "the imagic flag is set without the feature");
            }
        }
        if raw.has(InodeFlags::EA_INODE) {
            info.set(Info::EA_INODE);
        }
        let charged = self.extra_area(raw, to)?;
        let follow = self.kind(raw, &mut info, to)?;
        if follow {
            self.contents(raw, &mut info, charged, to)?;
        }
        Ok(info)
    }

    /// Flags against features and each other.
    fn flags(&self, raw: Raw<'_>, plain_number: bool, to: &mut Scanned) -> Result<()> {
        let (vol, ino) = (self.vol, raw.ino);
        let extents_on = vol.incompat(Incompat::EXTENTS);
        let inline_on = vol.incompat(Incompat::INLINE_DATA);
        let kind = raw.kind();
        if raw.has(InodeFlags::CASEFOLD) {
            if kind != Some(FileType::Directory) {
                to.err(ino, Kind::InodeFlags, "the casefold flag is set, but this is no directory");
            } else if !vol.incompat(Incompat::CASEFOLD) {
                to.err(ino, Kind::InodeFlags, "the casefold flag is set without the feature");
            }
        }
        let (inline, extents) = (raw.has(InodeFlags::INLINE_DATA), raw.has(InodeFlags::EXTENTS));
        let special = matches!(
            kind,
            Some(FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket)
        );
        if inline && extents && (extents_on || inline_on) && !special {
            to.err(
                ino,
                Kind::InodeFlags,
                "the flags for inline contents and for extents are both set",
            );
        }
        if inline && plain_number {
            if !inline_on {
                to.err(
                    ino,
                    Kind::InodeFlags,
                    "the flag for inline contents is set without the feature",
                );
            } else if self.inline_value(raw)?.is_none() {
                let what = "the attribute for inline contents is missing or unreadable";
                let finding = Finding::error(Kind::InlineData, what).inode(ino);
                // e2fsck takes names to end with a zero byte, Linux does not.
                let attributes = Attributes { vol, claims: self.claims, raw };
                let padded = attributes.value(7, b"data", true)?.is_some();
                to.out.push(if padded { finding.beyond() } else { finding });
            }
        }
        let in_use = raw.links() != 0 || [1, 2, 8].contains(&ino);
        if extents && !extents_on && in_use {
            to.err(ino, Kind::InodeFlags, "the extents flag is set without the feature");
        }
        if extents_on
            && !extents
            && in_use
            && matches!(kind, Some(FileType::Regular | FileType::Directory))
            && extent_header_ok(raw.i_block())
        {
            to.err(ino, Kind::InodeFlags, "the map is an extent tree, but the flag is not set");
        }
        Ok(())
    }

    fn inline_value(&self, raw: Raw<'_>) -> Result<Option<Vec<u8>>> {
        Attributes { vol: self.vol, claims: self.claims, raw }.value(7, b"data", false)
    }

    fn bad_blocks(&self, raw: Raw<'_>, to: &mut Scanned) -> Result<()> {
        let used = raw.mode() != 0
            || le16(raw.b, 2) != 0
            || le16(raw.b, 0x18) != 0
            || raw.links() != 0
            || raw.has(InodeFlags::INLINE_DATA)
            || le32(raw.b, 0x68) != 0;
        if used {
            to.err(
                raw.ino,
                Kind::InodeReserved,
                "the list of bad blocks has fields that should be zero",
            );
        }
        if !raw.has(InodeFlags::INLINE_DATA) {
            Walk::new(self.vol, Some(self.claims), raw, false, &mut to.out).run()?;
        }
        Ok(())
    }

    /// Fields that have to be zero.
    fn fields(&self, raw: Raw<'_>, to: &mut Scanned) {
        let (vol, ino) = (self.vol, raw.ino);
        let linux = vol.sb.creator_os == 0;
        if raw.faddr() != 0 {
            to.err(ino, Kind::InodeField, "the fragment address is not zero");
        }
        if raw.is(FileType::Directory) && raw.size_hi() != 0 && !vol.incompat(Incompat::LARGE_DIR) {
            to.err(ino, Kind::InodeField, "a directory's size has high bits");
        }
        if raw.file_acl_hi() != 0 && !vol.incompat(Incompat::BIT64) && linux {
            to.err(ino, Kind::InodeField, "the attribute block has high bits on a 32-bit volume");
        }
        if raw.blocks_hi() != 0 && !vol.ro_compat(RoCompat::HUGE_FILE) && linux {
            to.err(ino, Kind::InodeField, "the count of blocks has high bits without huge_file");
        }
    }

    /// The extra fields and the attributes behind them; gives the blocks that these count for.
    fn extra_area(&self, raw: Raw<'_>, to: &mut Scanned) -> Result<u64> {
        let size = raw.b.len();
        if size <= 128 {
            return Ok(0);
        }
        let (extra, max) = (usize::from(raw.extra_isize()), size - 128);
        if extra != 0 && (extra < 4 || extra > max || extra % 4 != 0) {
            to.err(
                raw.ino,
                Kind::InodeField,
                format!("impossible size of the extra fields ({extra})"),
            );
            return Ok(0);
        }
        if extra + 4 >= max {
            return Ok(0);
        }
        let attributes = Attributes { vol: self.vol, claims: self.claims, raw };
        attributes.in_inode(&mut self.lock(), &mut to.out)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// An orphan without a name: parts of it may be gone already.
    fn is_being_deleted(&self, raw: Raw<'_>) -> bool {
        raw.links() == 0 && self.vol.orphans.contains(&raw.ino)
    }

    /// Type against contents. False if the map need not be looked at.
    fn kind(&self, raw: Raw<'_>, info: &mut Info, to: &mut Scanned) -> Result<bool> {
        let (vol, ino) = (self.vol, raw.ino);
        // A long link on its way out: its block is gone, the inode goes next. (Linux and e2fsck
        // free it without a word.)
        let going = raw.is(FileType::Symlink)
            && raw.size() == 0
            && raw.size_hi() == 0
            && self.is_being_deleted(raw);
        if vol.incompat(Incompat::EXTENTS)
            && raw.has(InodeFlags::EXTENTS)
            && raw.is(FileType::Symlink)
            && !raw.maps_blocks(&vol.geo)
            && !going
        {
            to.err(ino, Kind::InodeFlags, "a symbolic link inside the inode has the extents flag");
        }
        if raw.has(InodeFlags::ENCRYPT) {
            let context = Attributes { vol, claims: self.claims, raw }.value(9, b"c", false)?;
            let good = context.is_some_and(|c| matches!((le8(&c, 0), c.len()), (1, 28) | (2, 40)));
            if !good {
                to.err(ino, Kind::Encryption, "the inode is encrypted but has no usable context");
            }
        }
        let Some(kind) = raw.kind() else {
            to.err(ino, Kind::InodeMode, format!("mode {:o} is no file type", raw.mode()));
            return Ok(true);
        };
        info.kind = kind as u8;
        match kind {
            FileType::Directory => {
                to.counts.directories += 1;
                if raw.has(InodeFlags::INDEX) {
                    info.set(Info::INDEX);
                }
            }
            FileType::Regular => to.counts.files += 1,
            FileType::Symlink => {
                to.counts.symlinks += 1;
                if !going && !self.symlink_ok(raw)? {
                    to.err(ino, Kind::Symlink, "the target of the symbolic link makes no sense");
                } else if raw.has(InodeFlags::INLINE_DATA) {
                    return Ok(false);
                }
            }
            _ => {
                to.counts.specials += 1;
                let locked = raw.has(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
                if raw.has(InodeFlags::INDEX | InodeFlags::EXTENTS)
                    || locked && (4..15).any(|n| raw.word(n) != 0)
                {
                    to.err(
                        ino,
                        Kind::SpecialFile,
                        "a device, pipe or socket with the map of a file",
                    );
                } else if raw.size() != 0 {
                    to.err(ino, Kind::SpecialFile, "a device, pipe or socket with a size");
                }
            }
        }
        Ok(true)
    }

    fn symlink_ok(&self, raw: Raw<'_>) -> Result<bool> {
        let vol = self.vol;
        if raw.size_hi() != 0 || raw.size() == 0 || raw.has(InodeFlags::INDEX) {
            return Ok(false);
        }
        if raw.has(InodeFlags::INLINE_DATA) {
            let value = self.inline_value(raw)?;
            let fits = value.is_some_and(|value| raw.size() == 60 + value.len() as u64);
            return Ok(fits && !raw.has(InodeFlags::EXTENTS));
        }
        let target = if raw.is_fast_symlink() {
            if raw.has(InodeFlags::EXTENTS) {
                return Ok(false);
            }
            raw.i_block().to_vec()
        } else {
            let block = if raw.has(InodeFlags::EXTENTS) {
                let b = raw.i_block();
                let (entries, depth) = (le16(b, 2), le16(b, 6));
                let len = le16(b, 16);
                let single =
                    entries == 1 && depth == 0 && le32(b, 12) == 0 && (len == 1 || len == 32769);
                if !extent_header_ok(b) || !single {
                    return Ok(false);
                }
                crate::bytes::join(le32(b, 20), u32::from(le16(b, 18)))
            } else {
                if (1..15).any(|n| raw.word(n) != 0) {
                    return Ok(false);
                }
                u64::from(raw.word(0))
            };
            if !vol.is_block(block) {
                return Ok(false);
            }
            vol.block(block)?
        };
        let len = if raw.has(InodeFlags::ENCRYPT) {
            usize::from(le16(&target, 0)) + 2
        } else {
            target.iter().position(|&b| b == 0).unwrap_or(target.len())
        };
        Ok(len < target.len() && len as u64 == raw.size())
    }

    /// Blocks, sizes and counts; hands directories on to pass 2.
    fn contents(
        &self,
        raw: Raw<'_>,
        info: &mut Info,
        charged: u64,
        to: &mut Scanned,
    ) -> Result<()> {
        let (vol, ino) = (self.vol, raw.ino);
        let is_dir = raw.is(FileType::Directory);
        let attributes = Attributes { vol, claims: self.claims, raw };
        let hidden = matches!(self.role(ino), Role::Hidden(_));
        let own = attributes.in_block(hidden, &mut self.lock(), &mut to.out)?;
        let inline = vol.incompat(Incompat::INLINE_DATA) && raw.has(InodeFlags::INLINE_DATA);
        let mut mapped = Mapped::default();
        if !inline && raw.maps_blocks(&vol.geo) {
            let mut walk = Walk::new(vol, Some(self.claims), raw, is_dir, &mut to.out);
            walk.truncating = vol.orphans.contains(&ino);
            mapped = walk.run()?;
        }
        let clusters = mapped.clusters + own + charged;
        let blocks = mapped.last.map_or(0, |last| last.wrapping_add(1));
        let mut hashed = false;
        // (A removed directory may be half way to its end. Its root goes last.)
        let being_deleted = self.is_being_deleted(raw);
        if raw.has(InodeFlags::INDEX) && !(is_dir && being_deleted && mapped.runs.is_empty()) {
            hashed = crate::htree::root_ok(vol, raw, &mapped, to)?;
        }
        if clusters == 0 && is_dir && !being_deleted && !raw.has(InodeFlags::INLINE_DATA) {
            to.err(ino, Kind::DirEmpty, "the directory has no blocks");
        }
        let inline_value = if is_dir && inline { self.inline_value(raw)? } else { None };
        self.size(raw, &mapped, inline_value.as_deref(), to);
        self.count_of_blocks(raw, clusters, to);
        if vol.ro_compat(RoCompat::BIGALLOC)
            && matches!(raw.kind(), Some(FileType::Regular | FileType::Directory))
            && clusters > own
            && (ino == 2 || ino >= vol.geo.first_ino.0)
            && !raw.has(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
        {
            to.err(ino, Kind::InodeFlags, "a file with a block map on a volume with clusters");
        }
        if is_dir && info.is_used() && info.is_dir() {
            let content = match inline_value {
                Some(value) => {
                    let mut all = raw.i_block().to_vec();
                    all.extend_from_slice(&value);
                    DirContent::Inline(all)
                }
                None if inline => DirContent::Inline(Vec::new()),
                None => DirContent::Blocks { runs: mapped.runs, blocks },
            };
            to.dirs.push(Dir {
                ino,
                seed: raw.seed(&vol.geo),
                content,
                hashed,
                odd_names: raw.has(InodeFlags::CASEFOLD),
                encrypted: raw.has(InodeFlags::ENCRYPT),
                orphan: info.has(Info::ORPHAN),
            });
        }
        Ok(())
    }

    fn count_of_blocks(&self, raw: Raw<'_>, clusters: u64, to: &mut Scanned) {
        let geo = &self.vol.geo;
        let huge = self.vol.ro_compat(RoCompat::HUGE_FILE) && raw.has(InodeFlags::HUGE_FILE);
        let unit = if huge { 1 } else { geo.block_len() as u64 / 512 };
        let wanted = clusters.saturating_mul(unit).saturating_mul(u64::from(geo.cluster_ratio));
        let found = raw.blocks(geo);
        if found != wanted || huge && raw.blocks_hi() != 0 {
            let what = format!(
                "the inode states {found} blocks (in units of {}), but has {wanted}",
                if huge { geo.block_len() } else { 512 }
            );
            to.err(raw.ino, Kind::InodeBlocks, what);
        }
    }

    fn size(&self, raw: Raw<'_>, mapped: &Mapped, inline: Option<&[u8]>, to: &mut Scanned) {
        let (vol, ino) = (self.vol, raw.ino);
        let (size, bs) = (raw.size(), vol.geo.block_len() as u64);
        let extents = vol.incompat(Incompat::EXTENTS) && raw.has(InodeFlags::EXTENTS);
        if raw.is(FileType::Directory) {
            let blocks = mapped.last.map_or(0, |last| last.wrapping_add(1));
            // Linux keeps the number of a directory's blocks in 32 bits.
            let stated = (size / bs) & 0xFFFF_FFFF;
            let spare = u64::from(vol.sb.prealloc_dir_blocks);
            // Removed while it was in use: its size is 0 already, its blocks go with the orphan.
            let removed = size == 0 && self.is_being_deleted(raw);
            let wrong = if removed {
                false
            } else if raw.has(InodeFlags::INLINE_DATA) {
                inline.is_none_or(|value| 60 + value.len() as u64 != size)
            } else {
                size % bs != 0 || stated > blocks || blocks - stated > spare
            };
            if wrong {
                let have = inline.map_or(blocks * bs, |value| 60 + value.len() as u64);
                let what = format!("the directory's size is {size}, its contents take {have}");
                to.err(ino, Kind::InodeSize, what);
            }
        } else if !raw.is(FileType::Symlink) {
            let truncating = vol.orphans.contains(&ino);
            let last = mapped.last_written.filter(|_| !raw.has(InodeFlags::VERITY) && !truncating);
            if last.is_some_and(|last| size < last.saturating_mul(bs)) {
                let what = format!("the size is {size}, but block {} is in use", last.unwrap_or(0));
                to.err(ino, Kind::InodeSize, what);
            } else if !extents && size > max_mapped_size(bs) || extents && size > (bs << 32) - 1 {
                to.err(
                    ino,
                    Kind::InodeSize,
                    format!("a file of this kind cannot have the size {size}"),
                );
            }
        }
        if raw.is(FileType::Regular) && size >= 1 << 31 {
            to.large_file.get_or_insert(ino);
        }
    }
}

/// Bytes that a block map can reach.
fn max_mapped_size(bs: u64) -> u64 {
    let n = bs / 4;
    (12 + n + n * n + n * n * n) * bs
}

impl Scanned {
    pub(crate) fn new(max_findings: usize) -> Self {
        Self {
            infos: Vec::new(),
            dirs: Vec::new(),
            out: Findings::new(max_findings),
            counts: Counts::default(),
            large_file: None,
            large_dir: None,
        }
    }

    pub(crate) fn err(&mut self, ino: u32, kind: Kind, what: impl Into<String>) {
        self.out.push(Finding::error(kind, what).inode(ino));
    }
}
