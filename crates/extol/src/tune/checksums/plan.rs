//! What a request that changes checksums makes of a superblock.

use extol_ondisk::checksum::FsSeed;
use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Incompat, RoCompat, Superblock};

use super::super::plan::Plan;
use super::super::{Request, Result, refuse};
use super::Covered;

impl Plan {
    /// Checksums come and go alone.
    pub(in crate::tune) fn checksums(&self, before: &Superblock, request: &Request) -> Result<()> {
        if Covered::of(before) == Covered::of(&self.sb) {
            return Ok(());
        }
        if !before.feature_compat.contains(Compat::HAS_JOURNAL) {
            return refuse(
                "features metadata_csum and uninit_bg change all descriptors together, and \
                 without a journal a crash in between would damage the volume: give it one (-j)",
            );
        }
        let others = self.makes_orphan_file.is_some()
            || self.drops_orphan_file
            || self.makes_journal.is_some()
            || self.drops_journal
            || self.makes_mmp
            || self.drops_mmp.is_some()
            || self.drops_resize_inode
            || !self.makes_quotas.is_empty()
            || !self.drops_quotas.is_empty()
            || request.uuid.is_some_and(|uuid| uuid != before.uuid);
        if others {
            return refuse(
                "features metadata_csum and uninit_bg change alone: run it once for them, and once \
                 for the rest",
            );
        }
        Ok(())
    }

    /// Notes and bits that go with the checksums of all metadata.
    pub(in crate::tune) fn switch_checksums(&mut self, on: bool) -> Result<()> {
        let sb = &mut self.sb;
        if on {
            sb.checksum_type = 1;
            sb.feature_ro_compat.remove(RoCompat::UNINIT_BG);
            for (bit, what) in [
                (Incompat::EXTENTS, "without the feature extent, maps of blocks have no checksum"),
                (Incompat::BIT64, "without the feature 64bit, checksums of bitmaps have 16 bits"),
            ] {
                if !sb.feature_incompat.contains(bit) {
                    self.notes.push(what.into());
                }
            }
            return Ok(());
        }
        let seed_is_own = sb.fs_seed().0 == FsSeed::from_uuid(&sb.uuid).0;
        if sb.feature_incompat.contains(Incompat::EA_INODE) && !seed_is_own {
            return refuse(
                "feature metadata_csum cannot be switched off: hashes of large attribute values \
                 come from another UUID",
            );
        }
        sb.feature_incompat.remove(Incompat::CSUM_SEED);
        (sb.checksum_seed, sb.checksum_type) = (0, 0);
        sb.feature_ro_compat.insert(RoCompat::UNINIT_BG);
        Ok(())
    }

    /// As tune2fs: the bit changes, and e2fsck has to make the rest fit.
    pub(in crate::tune) fn needs_fsck(&mut self, what: &str) {
        self.sb.state |= State::ERROR;
        self.notes.push(format!("run e2fsck -f now: {what}"));
    }
}
