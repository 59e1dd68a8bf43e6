//! An inode's blocks, size and counts.

use extol_block::BlockNr;
use extol_ondisk::{FileType, Incompat, InodeFlags, RoCompat};

use super::verity::is_verity;
use super::{InodeCheck, Role, Scanned};
use crate::error::Result;
use crate::inodes::{Dir, DirContent, Info};
use crate::map::{Mapped, Walk};
use crate::raw::Raw;
use crate::report::{Finding, Kind};
use crate::xattr::Attributes;

impl InodeCheck<'_> {
    /// Blocks, sizes and counts; hands directories on to pass 2. `charged`: for attributes in the
    /// inode. Gives the attribute values in other inodes that the attribute block names.
    pub(super) fn contents(
        &self,
        raw: Raw<'_>,
        info: &mut Info,
        charged: u64,
        to: &mut Scanned,
    ) -> Result<u64> {
        let (vol, ino) = (self.vol, raw.ino);
        let is_dir = raw.is(FileType::Directory);
        let attributes = Attributes { vol, claims: self.claims, raw };
        let hidden = matches!(self.role(ino), Role::Hidden(_));
        let block = attributes.in_block(hidden, &mut self.lock(), &mut to.out)?;
        let own = block.clusters;
        let inline = vol.incompat(Incompat::INLINE_DATA) && raw.has(InodeFlags::INLINE_DATA);
        let mut mapped = Mapped::default();
        if !inline && raw.maps_blocks(&vol.geo) {
            let keeps = is_dir || is_verity(raw);
            let mut walk = Walk::new(vol, Some(self.claims), raw, keeps, &mut to.out);
            walk.truncating = vol.orphans.contains(&ino);
            mapped = walk.run()?;
            self.translator(raw, to);
        }
        if is_verity(raw) && raw.links() != 0 {
            self.verity(raw, &mapped, to)?;
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
            let casefolded = raw.has(InodeFlags::CASEFOLD) && vol.incompat(Incompat::CASEFOLD);
            let encrypted = raw.has(InodeFlags::ENCRYPT);
            to.dirs.push(Dir {
                ino,
                seed: raw.seed(&vol.geo),
                content,
                hashed,
                stores_hashes: casefolded && encrypted,
                folds: casefolded && !encrypted,
                encrypted,
                orphan: info.has(Info::ORPHAN),
            });
        }
        Ok(block.inodes)
    }

    /// The Hurd's inodes have one block more. (e2fsck finds it beside the old map only.)
    fn translator(&self, raw: Raw<'_>, to: &mut Scanned) {
        let block = u64::from(raw.translator());
        let extents = self.vol.incompat(Incompat::EXTENTS) && raw.has(InodeFlags::EXTENTS);
        if block == 0 || extents || !self.of_hurd() {
            return;
        }
        if self.vol.geo.is_valid_block(BlockNr(block)) {
            self.claims.claim(block, 1, raw.ino, "the translator's block", &mut to.out);
        } else {
            let what = "the translator's block is not on the volume";
            to.out.push(Finding::error(Kind::BlockMap, what).inode(raw.ino).block(block));
        }
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
            let finding = Finding::error(Kind::InodeBlocks, what).inode(raw.ino);
            to.out.push(if self.of_hurd() { finding.beyond() } else { finding });
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
