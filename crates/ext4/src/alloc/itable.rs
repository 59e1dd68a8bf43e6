//! Inode tables that were never zeroed: which part of one may be zeroed, and who has to stay out meanwhile. And of those that
//! were, which blocks nobody has to read.
//!
//! `INODE_ZEROED` in a descriptor says that the table holds zeros behind the inodes that were ever used. Where it is
//! missing (mkfs left that for later), the slots behind `itable_unused` hold anything. Nobody reads them as inodes, so
//! that is no damage, until a descriptor is lost and a checker has to look at them.
//!
//! ```text
//!   table   │ used │ used, partly │ never used … │ never used │      zeroed are whole blocks without a used inode
//!                                  └──────── Unused ─────────┘
//! ```
//!
//! The first inode of a block of the table is made under the lock of its directory and with a handle open. Reading the block then
//! takes as long as the device does what it is at: on a disk that writes its cache back, as long as a flush, and all who
//! make files there wait too. So where the block is known to hold zeros, it is made up in memory.
//!
//! Invariants
//! - I1: a used inode is never zeroed. The boundary comes from the descriptor and is believed only if the inode bitmap
//!   has nothing behind it ([`Shared::begin_itable`]); it cannot move while [`Unused`] lives, since
//!   `Shared::claim_inode` leaves the group out.
//! - I2: no inode waits for the zeroing of a group if another has room, and none is refused because of it
//!   (`Shared::alloc_inode`).
//! - I3: whoever zeroes needs no handle and holds no lock, so who waits with a handle open waits only for the device.
//! - I4: a block of the table is taken for zeros only if the table was zeroed, and neither the descriptor nor the inode
//!   bitmap knows of an inode in it that was ever used ([`Shared::never_used`]). That is decided with the lock of the group, by
//!   who takes the block's first inode, so nobody can have changed it.

use extol_device::BlockNr;
use extol_journal::Handle;
use extol_ondisk::{GroupDesc, GroupFlags, GroupNr};
use extol_vfs::{FsError, Result};
use parking_lot::{Condvar, Mutex};

use super::Shared;
use super::bits::Span;
use super::group::InodeMap;

#[derive(Debug, Default)]
struct Passing {
    /// A group is left out now.
    closed: bool,
    /// How often one was.
    passed: u64,
}

/// Where those wait who need an inode of the group that is being zeroed.
#[derive(Debug, Default)]
pub(super) struct Gate {
    passing: Mutex<Passing>,
    opened: Condvar,
}

impl Gate {
    /// How often a group was left out until now.
    pub fn passed(&self) -> u64 {
        self.passing.lock().passed
    }

    /// Waits until no group is left out. True if one was since there had been `before`.
    pub fn wait(&self, before: u64) -> bool {
        let mut passing = self.passing.lock();
        while passing.closed {
            self.opened.wait(&mut passing);
        }
        passing.passed != before
    }

    fn close(&self) {
        self.passing.lock().closed = true;
    }

    fn open(&self) {
        let mut passing = self.passing.lock();
        passing.closed = false;
        passing.passed += 1;
        drop(passing);
        self.opened.notify_all();
    }
}

/// The part of an inode table that never held an inode. While this lives its group hands out no inode.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unused<'a> {
    shared: &'a Shared,
    group: GroupNr,
    /// The first block.
    pub start: BlockNr,
    /// How many; may be none.
    pub blocks: u64,
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Ok(group) = self.shared.group(self.group) {
            group.lock().zeroing = false;
        }
        self.shared.zeroing.open();
    }
}

impl Shared {
    pub(super) fn begin_itable(&self, nr: GroupNr) -> Result<Option<Unused<'_>>> {
        let group = self.group(nr)?;
        let mut state = group.lock();
        let desc = *state.desc()?;
        if !self.geo.has_gdt_csum() || desc.flags.contains(GroupFlags::INODE_ZEROED) {
            return Ok(None);
        }
        let bad = |what: &str| {
            Err(FsError::corrupt(format!("descriptor of block group {}: {what}", nr.0))
                .at_block(self.geo.desc_block(nr).0.0))
        };
        let per_group = self.geo.inodes_per_group;
        let used = if self.is_uninit(&desc, GroupFlags::INODE_UNINIT) {
            0
        } else {
            let Some(used) = per_group.checked_sub(desc.itable_unused) else {
                return bad("more unused inodes than the group has");
            };
            let behind = Span { start: used, len: desc.itable_unused };
            let unused = match &state.inodes {
                Some(map) => map.busy.all_clear(behind),
                None => self.read_inode_map(group, &state)?.busy.all_clear(behind),
            };
            if !unused {
                return bad("an inode in use is among those that were never used");
            }
            used
        };
        let reserved = self.geo.first_ino.0.saturating_sub(1);
        if nr.0 == 0 && used < reserved.min(per_group) {
            return bad("reserved inodes are among those that were never used");
        }
        let table = u64::from(self.geo.inode_table_blocks);
        let bytes = u64::from(used) * u64::from(self.geo.inode_size);
        let first = bytes.div_ceil(u64::from(self.geo.block_size.bytes()));
        if first > table {
            return bad("more used inodes than the inode table has");
        }
        self.zeroing.close();
        state.zeroing = true;
        let start = BlockNr(desc.inode_table).plus(first);
        Ok(Some(Unused { shared: self, group: nr, start, blocks: table - first }))
    }

    /// The block of the table with inode `bit`, if it holds zeros (I4). `desc` and `map`: before that inode is taken.
    pub(super) fn never_used(
        &self,
        nr: GroupNr,
        desc: &GroupDesc,
        map: &InodeMap,
        bit: u32,
    ) -> Option<BlockNr> {
        let zeroed = self.geo.has_gdt_csum() && desc.flags.contains(GroupFlags::INODE_ZEROED);
        let per_block = self.geo.inodes_per_block();
        let index = bit / per_block;
        let inside = Span { start: index * per_block, len: per_block };
        let used = if self.is_uninit(desc, GroupFlags::INODE_UNINIT) {
            0
        } else {
            self.geo.inodes_per_group.checked_sub(desc.itable_unused)?
        };
        let unused = used <= inside.start && self.geo.inode_at(nr, inside.start) >= self.geo.first_ino;
        (zeroed && unused && map.busy.all_clear(inside)).then(|| BlockNr(desc.inode_table).plus(index.into()))
    }

    pub(super) fn set_itable_zeroed(&self, h: &mut Handle, nr: GroupNr) -> Result<()> {
        let group = self.group(nr)?;
        let mut state = group.lock();
        let mut desc = *state.desc()?;
        desc.flags.insert(GroupFlags::INODE_ZEROED);
        self.write_desc(h, group, &desc)?;
        state.set_desc(desc);
        Ok(())
    }
}
