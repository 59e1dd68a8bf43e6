//! The resize inode goes: the blocks that are reserved behind the descriptors become free.

use extol_jbd2::Handle;
use extol_ondisk::{Geometry, Superblock};
use extol_vfs::FsError;

use super::{Result, refuse};
use crate::alloc::Cut;
use crate::error;
use crate::mounted::MountedFs;
use crate::resize::{RESERVED_CREDITS, Reserved};

/// Credits for the root of the map: bitmap and descriptor.
const ROOT_CREDITS: u32 = 2;

/// The reservation that goes.
#[derive(Debug)]
pub(super) struct Dropped {
    reserved: Reserved,
    cut: Cut,
}

impl Dropped {
    /// `sb` is the superblock without it.
    pub fn plan(fs: &MountedFs, sb: &Superblock) -> Result<Self> {
        let reserved = Reserved::read(&fs.vol);
        let Some(reserved) =
            reserved.map_err(|error| super::TuneError::Refused(error.to_string()))?
        else {
            return refuse("the volume has no resize inode");
        };
        let geo = Geometry::new(sb, None).map_err(error::ondisk)?;
        Ok(Self { reserved, cut: Cut::plan(&fs.vol.alloc, &geo)? })
    }

    pub fn credits(&self) -> u32 {
        self.cut.credits() + RESERVED_CREDITS + ROOT_CREDITS
    }

    pub fn free(
        &self,
        fs: &MountedFs,
        h: &mut Handle,
        sb: &mut Superblock,
    ) -> std::result::Result<(), FsError> {
        self.reserved.remove(fs, h)?;
        let before = fs.vol.alloc.counters().free_on_disk;
        let (free, _) = self.cut.apply(&fs.vol.alloc, h)?;
        if sb.overhead_clusters != 0 {
            let gone = u32::try_from(free.saturating_sub(before)).unwrap_or(u32::MAX);
            sb.overhead_clusters = sb.overhead_clusters.saturating_sub(gone).max(1);
        }
        Ok(())
    }
}
