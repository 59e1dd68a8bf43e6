//! Pass 1, one inode: is it in use, and if so, does everything in it fit together?

mod contents;
mod file_type;
mod flags;
mod verity;

use extol_ondisk::superblock::{CREATOR_HURD, CREATOR_LINUX};
use extol_ondisk::{Compat, FileType, Incompat, InodeFlags, InodeNr, RoCompat};

use crate::bytes::{le16, le32};
use crate::claims::Claims;
use crate::error::Result;
use crate::inodes::{Dir, Info};
use crate::map::Walk;
use crate::quota::Usage;
use crate::raw::Raw;
use crate::report::{Counts, Finding, Findings, Kind};
use crate::vol::Vol;
use crate::xattr::{Attributes, Charge, Shared};

/// The check of one inode at a time.
pub(crate) struct InodeCheck<'a> {
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
    /// Usage of owners, for quota files.
    pub usage: Usage,
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

impl InodeCheck<'_> {
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

    /// Checks an inode. `garbage`: most of its block of the table makes no sense.
    pub(crate) fn inode(
        &self,
        raw: Raw<'_>,
        csum_ok: bool,
        garbage: bool,
        to: &mut Scanned,
    ) -> Result<Info> {
        let mut info = Info { links: raw.links(), ..Info::default() };
        let orphan = self.vol.orphans.contains(&raw.ino);
        self.header(raw, csum_ok, garbage, orphan, to);
        let plain_number = raw.ino >= self.vol.geo.first_ino.0;
        let quota_number = [3, 4, self.vol.sb.prj_quota_inum].contains(&raw.ino);
        if raw.links() == 0 && plain_number && !quota_number && !(orphan && raw.mode() != 0) {
            if raw.dtime() == 0 && raw.mode() != 0 {
                let what = "the inode is deleted but has no deletion time";
                to.err(raw.ino, Kind::InodeDeletion, what);
            }
            return Ok(info);
        }
        self.flags(raw, plain_number, to)?;
        let done = self.by_role(raw, &mut info, to)?;
        if !done && (raw.links() != 0 || orphan) {
            self.in_use(raw, orphan, &mut info, to)?;
        }
        Ok(info)
    }

    /// What holds for every inode, in use or not.
    fn header(&self, raw: Raw<'_>, csum_ok: bool, garbage: bool, orphan: bool, to: &mut Scanned) {
        let ino = raw.ino;
        if garbage && raw.links() > 0 {
            to.err(ino, Kind::InodeGarbage, "the inode is among others that are garbage");
        }
        if !csum_ok {
            to.err(ino, Kind::InodeChecksum, "the inode's checksum is wrong");
        }
        if raw.dtime() != 0 && self.low_dtime && raw.dtime() < self.vol.geo.inodes() && !orphan {
            let what =
                format!("the deletion time {} is a leftover of the orphan list", raw.dtime());
            to.err(ino, Kind::InodeDeletion, what);
        }
    }

    /// Checks an inode against the role of its number. True if nothing is left to check.
    fn by_role(&self, raw: Raw<'_>, info: &mut Info, to: &mut Scanned) -> Result<bool> {
        let ino = raw.ino;
        match self.role(ino) {
            Role::BadBlocks => {
                self.bad_blocks(raw, to)?;
                info.set(Info::USED);
                return Ok(true);
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
                self.contents(raw, info, 0, to)?;
                return Ok(true);
            }
            Role::Unused(what) => {
                info.set(Info::USED);
                if raw.links() != 0 || raw.blocks_lo() != 0 || raw.word(0) != 0 {
                    let what = format!("the {what} is not in use but has contents");
                    to.err(ino, Kind::InodeReserved, what);
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
                    let what = format!("reserved inode has mode {:o}", raw.mode());
                    to.err(ino, Kind::InodeReserved, what);
                }
                self.contents(raw, info, 0, to)?;
                return Ok(true);
            }
            Role::Plain => {}
        }
        Ok(false)
    }

    /// Checks an inode with names, or an orphan.
    fn in_use(&self, raw: Raw<'_>, orphan: bool, info: &mut Info, to: &mut Scanned) -> Result<()> {
        let ino = raw.ino;
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
        let mut values = charged.inodes;
        if self.kind(raw, info, to)? {
            values += self.contents(raw, info, charged.clusters, to)?;
        }
        if !raw.has(InodeFlags::EA_INODE) {
            to.usage.count(self.vol, raw, values);
        }
        Ok(())
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

    fn of_hurd(&self) -> bool {
        self.vol.sb.creator_os == CREATOR_HURD
    }

    /// Fields that have to be zero.
    fn fields(&self, raw: Raw<'_>, to: &mut Scanned) {
        let (vol, ino) = (self.vol, raw.ino);
        let linux = vol.sb.creator_os == CREATOR_LINUX;
        if raw.fragment() != 0 && self.of_hurd() {
            to.err(ino, Kind::InodeField, "a fragment, which no file has");
        }
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

    /// The extra fields and the attributes behind them; gives what the inode pays for these.
    fn extra_area(&self, raw: Raw<'_>, to: &mut Scanned) -> Result<Charge> {
        let size = raw.b.len();
        if size <= 128 {
            return Ok(Charge::default());
        }
        let (extra, max) = (usize::from(raw.extra_isize()), size - 128);
        if extra != 0 && (extra < 4 || extra > max || extra % 4 != 0) {
            to.err(
                raw.ino,
                Kind::InodeField,
                format!("impossible size of the extra fields ({extra})"),
            );
            return Ok(Charge::default());
        }
        if extra + 4 >= max {
            return Ok(Charge::default());
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
}

impl Scanned {
    pub(crate) fn new(max_findings: usize) -> Self {
        Self {
            infos: Vec::new(),
            dirs: Vec::new(),
            out: Findings::new(max_findings),
            counts: Counts::default(),
            usage: Usage::default(),
            large_file: None,
            large_dir: None,
        }
    }

    pub(crate) fn err(&mut self, ino: u32, kind: Kind, what: impl Into<String>) {
        self.out.push(Finding::error(kind, what).inode(ino));
    }
}
