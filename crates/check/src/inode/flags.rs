//! An inode's flags against its type, the features and each other.

use extol_ondisk::{FileType, Incompat, InodeFlags};

use super::{InodeCheck, Scanned};
use crate::error::Result;
use crate::raw::{Raw, extent_header_ok};
use crate::report::{Finding, Kind};
use crate::xattr::Attributes;

impl InodeCheck<'_> {
    /// Flags against features and each other.
    pub(super) fn flags(&self, raw: Raw<'_>, plain_number: bool, to: &mut Scanned) -> Result<()> {
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
        if raw.has(InodeFlags::EA_INODE) && kind != Some(FileType::Regular) {
            let what = "the flag of inodes for attributes is set, but this is no regular file";
            to.err(ino, Kind::InodeFlags, what);
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
            } else if self.attribute_of_inline(raw, false)?.is_none() {
                let what = "the attribute for inline contents is missing or unreadable";
                let finding = Finding::error(Kind::InlineData, what).inode(ino);
                // e2fsck takes names to end with a zero byte, Linux does not.
                let padded = self.inline_value(raw)?.is_some();
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

    /// The inline contents behind those in the map, as e2fsck finds them.
    pub(super) fn inline_value(&self, raw: Raw<'_>) -> Result<Option<Vec<u8>>> {
        self.attribute_of_inline(raw, true)
    }

    fn attribute_of_inline(&self, raw: Raw<'_>, padded: bool) -> Result<Option<Vec<u8>>> {
        let attributes = Attributes { vol: self.vol, claims: self.claims, raw };
        attributes.value(|index| index == 7, b"data", padded)
    }
}
