//! An inode's type against its contents.

use extol_ondisk::xattr::index::ENCRYPTION;
use extol_ondisk::{FileType, Incompat, InodeFlags, encryption};

use super::{InodeCheck, Scanned};
use crate::bytes::{join, le16, le32};
use crate::error::Result;
use crate::inodes::Info;
use crate::raw::{Raw, extent_header_ok};
use crate::report::{Finding, Kind};
use crate::xattr::Attributes;

/// Indexes of attributes whose names e2fsck takes for ones with a prefix.
const PREFIXED: [u8; 8] = [1, 2, 3, 4, 6, 7, 8, 10];

impl InodeCheck<'_> {
    /// The context of an encrypted inode.
    fn context(&self, raw: Raw<'_>, to: &mut Scanned) -> Result<()> {
        let attributes = Attributes { vol: self.vol, claims: self.claims, raw };
        let good = |c: &Vec<u8>| encryption::split(c).is_some();
        let own = attributes.value(|index| index == ENCRYPTION, encryption::XATTR, false)?;
        if let Some(context) = own.filter(good) {
            self.lock().policies.add(raw.ino, &context);
            return Ok(());
        }
        let what = "the inode is encrypted but has no usable context";
        let finding = Finding::error(Kind::Encryption, what).inode(raw.ino);
        // e2fsck takes any index without a prefix for that of contexts; Linux does not.
        let other =
            attributes.value(|index| !PREFIXED.contains(&index), encryption::XATTR, false)?;
        match other.filter(good) {
            Some(context) => {
                self.lock().policies.add(raw.ino, &context);
                to.out.push(finding.beyond());
            }
            None => to.out.push(finding),
        }
        Ok(())
    }

    /// Type against contents. False if the map need not be checked.
    pub(super) fn kind(&self, raw: Raw<'_>, info: &mut Info, to: &mut Scanned) -> Result<bool> {
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
            self.context(raw, to)?;
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
                join(le32(b, 20), u32::from(le16(b, 18)))
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
}
