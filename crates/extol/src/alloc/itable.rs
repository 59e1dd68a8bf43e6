//! Inode tables that mkfs left unzeroed: which part may be zeroed, and how creations keep out. And
//! which blocks of a table are read ahead.
//!
//! `INODE_ZEROED` in a descriptor says that the table holds zeros behind the inodes ever used.
//! Where it is missing, the slots behind `itable_unused` hold arbitrary bytes. They are not read as
//! inodes, so that does no harm until a descriptor is lost and a checker has to look at them.
//!
//! ```text
//!   table   │ used │ used, partly │ never used … │ never used │
//!                                 └──── Unused: zeroed ──────┘
//! ```
//!
//! The first inode in a block of the table is created under the lock of its directory and with a
//! handle open, and reads the block. The device may be busy for as long as a flush, and all
//! creations there wait. So one read brings the next blocks as well, as `inode_readahead_blks` does
//! in Linux. (The old bytes must be known: a fast commit does not carry what lies behind the old
//! inode's end. Zeros behind the last inode ever used are not certain; checkers move that
//! boundary.)
//!
//! Invariants
//! - IT-1: a used inode is never zeroed. The boundary comes from the descriptor and is believed
//!   only if the inode bitmap has no bit behind it ([`Allocator::begin_itable`]); it cannot move
//!   while [`Unused`] lives, since `Allocator::claim_inode` skips the group.
//! - IT-2: no creation waits for the zeroing of a group if another group has free inodes, and none
//!   fails because of it (`Allocator::alloc_inode`).
//! - IT-3: zeroing needs no handle and holds no lock, so a creation that waits with a handle open
//!   waits only for the device.
//! - IT-4: only blocks without a busy inode are read ahead, under the group's lock: no inode in
//!   them is handed out meanwhile, and a freed one is busy until the freeing is durable, so their
//!   bytes do not change ([`Allocator::unread`]).

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::{GroupDesc, GroupFlags, GroupNr};
use extol_sync::Condvar;
use extol_sync::plain::Mutex;
use extol_vfs::{FsError, Result};

use super::Allocator;
use super::bits::Span;
use super::group::InodeMap;

/// Blocks of a table that are read at a time: a thousand inodes of the usual size. Fewer if the
/// block before was not needed: a group may get only a directory and a few files.
const READAHEAD: u32 = 64;
const FIRST_READAHEAD: u32 = 4;

#[derive(Debug, Default)]
struct Passing {
    /// A group is being zeroed.
    closed: bool,
    /// How many were.
    passed: u64,
}

/// Where creations wait for a group that is being zeroed.
#[derive(Debug, Default)]
pub(super) struct Gate {
    passing: Mutex<Passing>,
    opened: Condvar,
}

impl Gate {
    /// How many groups were zeroed so far.
    pub fn passed(&self) -> u64 {
        self.passing.lock().passed
    }

    /// Waits until no group is being zeroed. True if one was since `before`.
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

/// The part of an inode table that never held an inode. While this lives its group hands out no
/// inode.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unused<'a> {
    shared: &'a Allocator,
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

impl Allocator {
    /// The part of a group's inode table that never held an inode, if it was not zeroed yet. Until
    /// the result is dropped no inode of the group is handed out, so the caller may zero those
    /// blocks. One group at a time.
    ///
    /// `Corrupt` if descriptor and inode bitmap do not fit together: then nothing may be zeroed.
    pub fn begin_itable(&self, nr: GroupNr) -> Result<Option<Unused<'_>>> {
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

    /// The blocks of the table to read when the free inode `bit` is taken: its own and those behind
    /// it without a busy inode (IT-4). `None` if its block is in use or in memory.
    pub(super) fn unread(
        &self,
        desc: &GroupDesc,
        map: &InodeMap,
        bit: u32,
    ) -> Option<(BlockNr, u64)> {
        let index = bit / self.geo.inodes_per_block();
        let block = |index: u32| BlockNr(desc.inode_table).plus(index.into());
        if !self.is_block_free(map, index) || self.journal.cached(block(index)).is_some() {
            return None;
        }
        let before = index.checked_sub(1).and_then(|before| self.journal.cached(block(before)));
        let most = if before.is_some() { READAHEAD } else { FIRST_READAHEAD };
        let count = (index..index.saturating_add(most))
            .take_while(|index| self.is_block_free(map, *index))
            .count();
        Some((block(index), count as u64))
    }

    /// No inode in this block of the table is busy. (False behind the table.)
    fn is_block_free(&self, map: &InodeMap, index: u32) -> bool {
        let per_block = self.geo.inodes_per_block();
        map.busy.all_clear(Span { start: index.saturating_mul(per_block), len: per_block })
    }

    /// Notes in the descriptor that the group's inode table was zeroed (1 credit). The zeroes must
    /// be durable before the handle's transaction is.
    pub fn set_itable_zeroed(&self, h: &mut Handle, nr: GroupNr) -> Result<()> {
        let group = self.group(nr)?;
        let mut state = group.lock();
        let mut desc = *state.desc()?;
        desc.flags.insert(GroupFlags::INODE_ZEROED);
        self.write_desc(h, group, &desc)?;
        state.set_desc(desc);
        Ok(())
    }
}
