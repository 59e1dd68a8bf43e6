//! Blocks of an inode table that will be wanted soon, read by who has time.
//!
//! ```text
//!   table   │ busy │ busy, partly │ free, in memory … │ free, not in memory … │ …
//!                     └ the next inode ─── EARLY ────►└ wanted: the next AHEAD of them
//! ```
//!
//! Whoever makes the first file in a block of the table that is not in memory reads that and the
//! next ones (see `itable.rs`), with the directory and the group locked; who makes files there
//! waits for the device. Where files are synced as they are made a thread writes ahead for them
//! anyway (`zeroed.rs`), and that one reads ahead, too, before anybody needs it. Whoever comes
//! sooner reads himself.
//!
//! The thread has no lock while it reads, so the blocks are kept only if nobody can have changed
//! them meanwhile.
//!
//! Invariants
//! - T1: what is kept is what the medium holds. Who changes a block of the table has an inode in it
//!   that is busy: before it is changed, and until that is durable if the inode is freed. So a
//!   block without a busy inode before and behind the read was not changed unless inodes of the
//!   group were settled in between, or its table was zeroed; then nothing is kept
//!   ([`Shared::keep_table`]).

use std::sync::atomic::{AtomicBool, Ordering};

use extol_block::BlockNr;
use extol_ondisk::{GroupDesc, GroupFlags, GroupNr};
use parking_lot::Mutex;

use super::group::InodeMap;
use super::{Allocator, Shared};

/// Blocks that are left when the next ones are wanted: four hundred files of the usual inode size,
/// some 10 ms of the fastest that make any.
const EARLY: u32 = 24;

/// What is wanted.
#[derive(Debug, Default)]
pub(super) struct TableAhead {
    wanted: AtomicBool,
    next: Mutex<Option<(GroupNr, u32)>>,
}

/// Blocks that were read, and what was so before.
#[derive(Debug)]
pub(super) struct Read {
    group: GroupNr,
    first: BlockNr,
    /// Which block of the table the first one is.
    index: u32,
    blocks: Vec<Vec<u8>>,
    settled: u32,
    is_zeroed: bool,
}

impl Allocator {
    /// Blocks of an inode table should be read.
    pub fn wants_table(&self) -> bool {
        self.shared.table_ahead.wanted.load(Ordering::Relaxed)
    }

    /// Reads them. What fails is left to those who need it.
    pub fn read_table_ahead(&self) {
        if let Some(read) = self.shared.read_table() {
            self.shared.keep_table(read);
        }
    }
}

impl Shared {
    /// The free inode `bit` is about to be taken.
    pub(super) fn note_table_use(&self, nr: GroupNr, desc: &GroupDesc, map: &InodeMap, bit: u32) {
        let per_block = self.geo.inodes_per_block();
        if !bit.is_multiple_of(per_block) {
            return;
        }
        let index = bit / per_block + EARLY;
        let in_memory = |index: u32| {
            self.journal.cached(BlockNr(desc.inode_table).plus(index.into())).is_some()
        };
        if self.is_block_free(map, index) && in_memory(index - 1) && !in_memory(index) {
            *self.table_ahead.next.lock() = Some((nr, index));
            self.table_ahead.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Reads what is wanted. Nothing is locked meanwhile.
    pub(super) fn read_table(&self) -> Option<Read> {
        self.table_ahead.wanted.store(false, Ordering::Relaxed);
        let (nr, index) = self.table_ahead.next.lock().take()?;
        let group = self.group(nr).ok()?;
        let (first, count, settled, is_zeroed) = {
            let state = group.lock();
            let desc = state.desc().ok()?;
            let map = state.inodes.as_ref().filter(|_| !state.zeroing)?;
            let (first, count) = self.unread(desc, map, index * self.geo.inodes_per_block())?;
            let settled = group.settled_inodes.load(Ordering::Relaxed);
            (first, count, settled, desc.flags.contains(GroupFlags::INODE_ZEROED))
        };
        let blocks = self.journal.read_apart(first, count);
        Some(Read { group: nr, first, index, blocks, settled, is_zeroed })
    }

    /// Keeps what was read in memory, as far as it counts (T1).
    pub(super) fn keep_table(&self, read: Read) {
        let Ok(group) = self.group(read.group) else { return };
        let state = group.lock();
        let (Ok(desc), Some(map)) = (state.desc(), &state.inodes) else { return };
        let is_zeroed = desc.flags.contains(GroupFlags::INODE_ZEROED);
        let settled = group.settled_inodes.load(Ordering::Relaxed);
        if state.zeroing || (is_zeroed, settled) != (read.is_zeroed, read.settled) {
            return;
        }
        for (n, block) in (0..).zip(read.blocks) {
            if self.is_block_free(map, read.index + n) {
                self.journal.keep_clean(read.first.plus(n.into()), block);
            }
        }
    }
}
