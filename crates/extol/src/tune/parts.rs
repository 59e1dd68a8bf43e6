//! What goes into the transaction of a request beside the superblock.

use extol_jbd2::Handle;
use extol_ondisk::{Compat, Superblock};
use extol_vfs::FsError;

use super::plan::Plan;
use super::{Result, check_room, checksums, journal, mmp, orphan_file, quota, reserved};
use crate::mounted::MountedFs;

/// What goes into the transaction beside the superblock.
pub(super) struct Parts {
    pub journal: Option<journal::Made>,
    pub orphan_file: Option<orphan_file::Made>,
    pub mmp: Option<mmp::Made>,
    pub reserved: Option<reserved::Dropped>,
    pub new_quotas: quota::Made,
    pub old_quotas: quota::Dropped,
    pub checksums: Option<checksums::Switch>,
}

impl Parts {
    /// Finds out whether there is room for all of it. Nothing is written.
    pub fn plan(fs: &MountedFs, plan: &Plan) -> Result<Self> {
        let fast = plan.sb.feature_compat.contains(Compat::FAST_COMMIT);
        let journal = plan.makes_journal.as_ref();
        let journal = journal.map(|wish| journal::Made::plan(fs, wish, fast)).transpose()?;
        let most = journal.as_ref().map_or(fs.vol.journal.max_credits(), |new| new.max_credits());
        let orphan_file = plan.makes_orphan_file;
        let orphan_file =
            orphan_file.map(|blocks| orphan_file::Made::plan(fs, blocks, most)).transpose()?;
        let mmp = plan.makes_mmp.then(|| mmp::Made::plan(fs, &plan.sb)).transpose()?;
        let reserved =
            plan.drops_resize_inode.then(|| reserved::Dropped::plan(fs, &plan.sb)).transpose()?;
        let new_quotas = quota::Made::plan(fs, &plan.makes_quotas)?;
        let old_quotas = fs.sb.read(Superblock::clone);
        let old_quotas = quota::Dropped::plan(fs, &old_quotas, &plan.drops_quotas)?;
        let checksums = checksums::Switch::plan(fs, &plan.sb)?;
        let parts = Self { journal, orphan_file, mmp, reserved, new_quotas, old_quotas, checksums };
        check_room(parts.credits(fs, plan), most)?;
        Ok(parts)
    }

    pub fn credits(&self, fs: &MountedFs, plan: &Plan) -> u32 {
        let descs = if plan.descriptors { fs.vol.geo.desc_blocks() } else { 0 };
        1 + descs
            + self.journal.as_ref().map_or(0, journal::Made::credits)
            + self.orphan_file.as_ref().map_or(0, orphan_file::Made::credits)
            + self.mmp.as_ref().map_or(0, |_| mmp::CREDITS)
            + self.reserved.as_ref().map_or(0, reserved::Dropped::credits)
            + self.new_quotas.credits(fs)
            + self.old_quotas.credits(fs)
            + self.checksums.as_ref().map_or(0, |switch| switch.credits(fs))
            + if plan.drops_orphan_file { orphan_file::DROP_CREDITS } else { 0 }
    }

    /// Changes it, but for the superblock: that is `sb`.
    pub fn change(
        &self,
        fs: &MountedFs,
        h: &mut Handle,
        sb: &mut Superblock,
    ) -> std::result::Result<(), FsError> {
        if let Some(made) = &self.journal {
            made.take(fs, h)?;
            made.describe(fs, sb);
        }
        if let Some(made) = &self.orphan_file {
            sb.orphan_file_inum = made.make(fs, h)?.0;
        }
        if let Some(made) = &self.mmp {
            sb.mmp_block = made.take(fs, h)?.0;
        }
        self.old_quotas.free(fs, h)?;
        self.new_quotas.make(fs, h, sb)?;
        match &self.reserved {
            Some(dropped) => dropped.free(fs, h, sb),
            None => Ok(()),
        }
    }
}
