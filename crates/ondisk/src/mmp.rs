//! Multiple-mount protection: one block that a mount rewrites every few seconds.
//!
//! The sequence number names the user of the volume: [`SEQ_CLEAN`] none, [`SEQ_FSCK`] a checker,
//! any other up to [`SEQ_MAX`] a mount. Before a mount takes the volume it reads the block, waits
//! longer than the writer's interval, and reads again: a number that has changed is in use.

use crate::bytes::{array, get16, get32, get64, put, put16, put32, put64};
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::geometry::Geometry;

/// Magic number.
pub const MAGIC: u32 = 0x004D_4D50;
/// The volume is not in use.
pub const SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// A checker uses it.
pub const SEQ_FSCK: u32 = 0xE24D_4D50;
/// Greatest sequence number of a mount.
pub const SEQ_MAX: u32 = 0xE24D_4D4F;
/// Bytes of the block that mean something.
pub const LEN: usize = 1024;
const CHECKSUM_AT: usize = 0x3FC;

/// Contents of the block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mmp {
    /// User of the volume; a mount changes it with every update.
    pub seq: u32,
    /// Time of the last update, seconds.
    pub time: u64,
    /// Host name of the owner.
    pub nodename: [u8; 64],
    /// Device name at the owner.
    pub bdevname: [u8; 32],
    /// Seconds that other mounts must wait.
    pub check_interval: u16,
}

impl Mmp {
    /// Decodes the block; checks magic and checksum.
    ///
    /// # Errors
    /// Not such a block, or a wrong checksum.
    pub fn decode(bytes: &[u8], geo: &Geometry) -> Result<Self> {
        let b = bytes.get(..LEN).ok_or(OnDiskError::bad("MMP block is cut short"))?;
        ensure(get32(b, 0) == MAGIC, "MMP block has a bad magic number")?;
        if geo.has_metadata_csum() {
            ensure_csum("MMP block", get32(b, CHECKSUM_AT), geo.fs_seed.crc(&b[..CHECKSUM_AT]))?;
        }
        Ok(Self {
            seq: get32(b, 4),
            time: get64(b, 8),
            nodename: array(b, 0x10),
            bdevname: array(b, 0x50),
            check_interval: get16(b, 0x70),
        })
    }

    /// Writes the block's fields, keeping other bytes, and computes the checksum.
    pub fn encode_into(&self, bytes: &mut [u8], geo: &Geometry) {
        put32(bytes, 0, MAGIC);
        put32(bytes, 4, self.seq);
        put64(bytes, 8, self.time);
        put(bytes, 0x10, &self.nodename);
        put(bytes, 0x50, &self.bdevname);
        put16(bytes, 0x70, self.check_interval);
        if geo.has_metadata_csum() {
            let sum = geo.fs_seed.crc(bytes.get(..CHECKSUM_AT).unwrap_or_default());
            put32(bytes, CHECKSUM_AT, sum);
        }
    }
}
