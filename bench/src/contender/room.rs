//! Whether a load has room on the volume, told before it begins.
//!
//! What a load needs is compared with what a volume of that kind has free behind mkfs, which is
//! found out by making one in memory.

use std::fmt::Display;
use std::sync::Arc;

use extol::{Ext4, MountOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_vfs::FileSystem as _;

use super::VolumeSpec;
use super::session::make;
use crate::workload::Footprint;
use crate::{BenchError, Result};

/// Sizes that are proposed are multiples of this.
const STEP: u64 = 64 << 20;
/// None larger is tried.
const LARGEST: u64 = 1 << 44;

impl VolumeSpec {
    /// Err if `what` needs more than the volume has: one line that names a size that is enough.
    ///
    /// # Errors
    /// That; or no such volume can be made.
    pub fn check_room(&self, what: &str, needs: Footprint) -> Result<()> {
        // (Most volumes are large enough by far.)
        if needs.bytes.saturating_mul(4) < self.size && needs.files < self.size >> 16 {
            return Ok(());
        }
        if self.has_room(needs)? {
            return Ok(());
        }
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let Footprint { bytes, files } = needs;
        let noun = if files == 1 { "file" } else { "files" };
        let problem = format!(
            "{what} has {} MiB in {files} {noun} at a time, and a volume of {} MiB has no room for \
             that",
            mib(bytes),
            mib(self.size)
        );
        Err(BenchError(match self.enough_for(needs)? {
            Some(size) => format!("{problem}: give --volume {}M", mib(size)),
            None => format!("{problem}: make the load smaller"),
        }))
    }

    /// A size of volume that has room, not much more than needed.
    fn enough_for(&self, needs: Footprint) -> Result<Option<u64>> {
        let with = |steps: u64| Self { size: steps * STEP, ..self.clone() }.has_room(needs);
        let (mut short, mut enough) = (0, 1);
        while !with(enough)? {
            (short, enough) = (enough, enough * 2);
            if enough > LARGEST / STEP {
                return Ok(None);
            }
        }
        while enough - short > 1 {
            let middle = short + (enough - short) / 2;
            if with(middle)? { enough = middle } else { short = middle }
        }
        Ok(Some(enough * STEP))
    }

    fn has_room(&self, needs: Footprint) -> Result<bool> {
        if needs.bytes >= self.size {
            return Ok(false);
        }
        let device: SharedDevice = Arc::new(MemDevice::new(self.size));
        make(&device, &Self { lazy: true, ..self.clone() })?;
        let failed = |e: &dyn Display| BenchError(format!("a volume of that size: {e}"));
        let fs =
            Ext4::open(device, &MountOptions::default().read_only()).map_err(|e| failed(&e))?;
        let free = fs.statfs().map_err(|e| failed(&e))?;
        fs.unmount().map_err(|e| failed(&e))?;
        // A block of extents or names for 250 blocks of data.
        let bytes = free.blocks_available * u64::from(free.block_size);
        Ok(needs.bytes + needs.bytes / 250 <= bytes && needs.files <= free.inodes_free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_that_is_named_is_enough_and_no_waste() {
        let volume = VolumeSpec { size: 64 << 20, ..VolumeSpec::default() };
        for (bytes, files, at_most) in [(100 << 20, 1, 192 << 20), (1 << 20, 20_000, 448 << 20)] {
            let needs = Footprint { bytes, files };
            let told = volume.check_room("the load", needs).unwrap_err().0;
            assert!(told.contains("the load has") && !told.contains('\n'), "{told}");
            let mib = told.rsplit(' ').next().unwrap().trim_end_matches('M');
            let size = mib.parse::<u64>().expect("a size") << 20;
            assert!((bytes..=at_most).contains(&size), "{told}");
            let larger = VolumeSpec { size, ..volume.clone() };
            larger.check_room("the load", needs).unwrap();
        }
        volume.check_room("the load", Footprint { bytes: 1 << 20, files: 10 }).unwrap();
        let told = volume.check_room("it", Footprint { bytes: u64::MAX / 2, files: 1 });
        assert!(told.unwrap_err().0.contains("smaller"));
    }
}
