//! Which groups still have inode tables that were never zeroed.
//!
//! The flags in the descriptors are the only record that outlives a mount, so they are read once
//! when it begins: raw, in long pieces, since on a large volume there are megabytes of them and
//! nothing else of most of them is needed yet.

use std::ops::Range;

use extol_block::BlockDevice;
use extol_ondisk::{Geometry, GroupFlags, GroupNr};

use crate::alloc::desc_runs;

/// Where the flags are in a descriptor.
const FLAGS: usize = 0x12;

/// The groups to do, one bit each.
#[derive(Debug, Default)]
pub(super) struct Groups {
    todo: Vec<u64>,
    left: u64,
    /// All below are done.
    from: usize,
}

impl Groups {
    /// Reads the flags. Nothing may have changed a descriptor since the volume was recovered.
    pub fn read(device: &dyn BlockDevice, geo: &Geometry) -> extol_block::Result<Self> {
        let mut groups =
            Self { todo: vec![0; (geo.groups() as usize).div_ceil(64)], ..Self::default() };
        let per = geo.descs_per_block();
        let mut bytes = Vec::new();
        for run in desc_runs(geo) {
            bytes.resize(run.len() * geo.block_len(), 0);
            let first = geo.desc_block(GroupNr(run.start * per)).0;
            device.read_at(&mut bytes, first.offset(geo.block_size))?;
            let numbers = run.start * per..(run.end * per).min(geo.groups());
            for (nr, desc) in numbers.zip(bytes.chunks_exact(usize::from(geo.desc_size))) {
                let flags = desc.get(FLAGS..).and_then(<[u8]>::first_chunk).copied();
                let flags = u16::from_le_bytes(flags.unwrap_or_default());
                if !GroupFlags::from_bits_retain(flags).contains(GroupFlags::INODE_ZEROED) {
                    groups.todo[nr as usize / 64] |= 1 << (nr % 64);
                    groups.left += 1;
                }
            }
        }
        Ok(groups)
    }

    /// The volume has these groups more, with tables that were not zeroed.
    pub fn extend(&mut self, groups: Range<u32>) {
        self.todo.resize((groups.end as usize).div_ceil(64), 0);
        for nr in groups {
            if let Some(word) = self.todo.get_mut(nr as usize / 64) {
                *word |= 1 << (nr % 64);
                self.left += 1;
                self.from = self.from.min(nr as usize / 64);
            }
        }
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The first one left.
    pub fn first(&mut self) -> Option<GroupNr> {
        while self.todo.get(self.from).is_some_and(|word| *word == 0) {
            self.from += 1;
        }
        let word = self.todo.get(self.from)?;
        Some(GroupNr(self.from as u32 * 64 + word.trailing_zeros()))
    }

    /// This one is done.
    pub fn done(&mut self, group: GroupNr) {
        if let Some(word) = self.todo.get_mut(group.0 as usize / 64)
            && *word & 1 << (group.0 % 64) != 0
        {
            *word &= !(1 << (group.0 % 64));
            self.left -= 1;
        }
    }
}
