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
        let geo = &fs.vol.geo;
        if sb.overhead_clusters != 0 {
            let copies = u32::try_from(geo.backup_groups().count()).unwrap_or(u32::MAX);
            let gone = copies.saturating_add(1).saturating_mul(geo.reserved_gdt());
            sb.overhead_clusters = sb.overhead_clusters.saturating_sub(gone).max(1);
        }
        self.reserved.remove(fs, h)?;
        self.cut.apply(&fs.vol.alloc, h).map(drop)
    }
}
