//! A device that was opened for reading.

use extol_block::{BlockDevice, MemDevice, Result};

/// Says that it is only read; a write to it is a mistake of the code that is tested.
#[derive(Debug)]
pub struct OnlyRead(pub MemDevice);

impl BlockDevice for OnlyRead {
    extol_block::pass_on!(me => me.0; reads, ends, abilities);

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        panic!("a device that is only read is written to");
    }
}
