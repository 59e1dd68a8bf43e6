//! The walk over a block map.

use extol_ondisk::{FileType, Incompat};

use super::{Run, Walk};
use crate::error::Result;
use crate::report::Kind;

impl Walk<'_> {
    pub(super) fn block_map(&mut self) -> Result<()> {
        for i in 0..12 {
            self.data(self.raw.word(i), i as u64);
        }
        let per_block = self.vol.geo.block_len() as u64 / 4;
        let mut base = 12;
        let mut covers = 1;
        for level in 1..=3u8 {
            covers *= per_block;
            self.indirect(self.raw.word(11 + usize::from(level)), level, base)?;
            base += covers;
        }
        if self.claims.is_some() {
            // There are no unwritten blocks in block maps.
            self.mapped.last_written = self.mapped.last;
        }
        Ok(())
    }

    fn is_resize(&self) -> bool {
        self.raw.ino == extol_ondisk::InodeNr::RESIZE.0
    }

    /// True if there is room for one block more in a file of this type.
    fn too_many(&self) -> bool {
        let limit = 1u64 << (31 - self.log_bs());
        self.mapped.clusters + 1 >= limit && (self.is_dir || self.raw.is(FileType::Regular))
    }

    fn data(&mut self, pblk: u32, lblk: u64) {
        let pblk = u64::from(pblk);
        if pblk == 0 {
            return;
        }
        let too_big = self.is_dir
            && !self.vol.incompat(Incompat::LARGE_DIR)
            && self.raw.size_hi() == 0
            && lblk > 1 << (21 - self.log_bs());
        let other =
            !self.is_dir && !self.raw.is(FileType::Regular) && self.raw.mode() != 0 && lblk > 0;
        if !self.vol.is_block(pblk) {
            self.error(
                Kind::BlockMap,
                None,
                format!("file block {lblk} is at impossible block {pblk}"),
            );
            return;
        }
        if too_big || other || self.too_many() {
            self.error(Kind::BlockMap, None, format!("file block {lblk} makes the file too large"));
            return;
        }
        let mut usable = true;
        if self.is_resize() {
            self.seen = self.seen.saturating_add(1);
            self.mapped.clusters += 1;
        } else {
            usable = self.take_block(pblk, Some(lblk), "a block");
        }
        self.mapped.last = Some(lblk);
        self.previous = pblk;
        if usable {
            self.keep(Run { lblk, pblk, len: 1 });
        }
    }

    /// Claims one block, or finds it in the cluster that the block before lies in.
    fn take_block(&mut self, pblk: u64, lblk: Option<u64>, what: &str) -> bool {
        let ratio = u64::from(self.vol.geo.cluster_ratio);
        let same = ratio > 1
            && self.previous != 0
            && pblk / ratio == self.previous / ratio
            && lblk.is_some_and(|lblk| lblk % ratio == pblk % ratio);
        if same {
            return true;
        }
        self.mapped.clusters += 1;
        self.claim(pblk, 1, what)
    }

    fn indirect(&mut self, pblk: u32, level: u8, base: u64) -> Result<()> {
        let pblk = u64::from(pblk);
        let unclaimed = self.claims.is_none() || self.is_resize();
        if pblk == 0 || unclaimed && self.seen > self.vol.geo.blocks() {
            return Ok(());
        }
        if !self.vol.is_block(pblk) {
            self.error(
                Kind::BlockMap,
                None,
                format!("an indirect block is at impossible block {pblk}"),
            );
            return Ok(());
        }
        if self.too_many() {
            self.error(Kind::BlockMap, Some(pblk), "an indirect block makes the file too large");
            return Ok(());
        }
        let usable = if self.is_resize() {
            self.mapped.clusters += 1;
            // Only the double indirect block is the inode's own; the others are reserved
            // descriptors.
            self.seen = self.seen.saturating_add(1);
            if level == 2 { self.claim(pblk, 1, "the indirect block") } else { true }
        } else if self.is_meta(pblk) {
            self.error(
                Kind::BlockOnMetadata,
                Some(pblk),
                "an indirect block lies on the volume's own metadata",
            );
            return Ok(());
        } else {
            self.take_block(pblk, None, "an indirect block")
        };
        self.previous = pblk;
        if !usable {
            return Ok(());
        }
        let bytes = self.vol.block(pblk)?;
        let covers = (bytes.len() as u64 / 4).pow(u32::from(level) - 1);
        for (i, word) in (0u64..).zip(bytes.as_chunks::<4>().0) {
            let below = u32::from_le_bytes(*word);
            if below == 0 {
                continue;
            }
            let lblk = base + i * covers;
            if level == 1 {
                self.data(below, lblk);
            } else {
                self.indirect(below, level - 1, lblk)?;
            }
        }
        Ok(())
    }
}
