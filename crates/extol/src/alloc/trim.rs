//! FITRIM: discards free blocks.
//!
//! Run by run: take it in memory, discard it, give it back. Blocks whose freeing is not durable are
//! busy in memory, so they are never touched. A request that would fail waits at the trim gate
//! until the run under way is back.

use extol_block::{BlockDevice, BlockNr};
use extol_ondisk::GroupNr;
use extol_vfs::Result;

use super::bits::{self, Span};
use super::group::Group;
use super::{Allocator, Shared};
use crate::error;

/// Blocks discarded at once: bounds how long a full volume waits.
const BATCH: u32 = 1 << 15;

impl Allocator {
    /// Discards free runs of at least `min_len` blocks among `len` blocks from `start`. `go_on`
    /// gets the number of blocks discarded so far and returns whether to continue. Returns that
    /// number.
    pub fn trim(
        &self,
        dev: &dyn BlockDevice,
        start: BlockNr,
        len: u64,
        min_len: u64,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64> {
        let shared = &*self.shared;
        let min_len = u32::try_from(min_len.max(1)).unwrap_or(u32::MAX);
        let mut done = 0u64;
        for (nr, range) in bits::split(&shared.geo, start, len) {
            let Ok(group) = shared.group(nr) else { continue };
            if group.free() < min_len {
                continue;
            }
            let mut at = range.start;
            loop {
                let gate = shared.trim_gate.lock();
                let Some((run, next)) = shared.take_to_trim(group, at, range.end(), min_len) else {
                    break;
                };
                at = next;
                let first = shared.geo.group_first_block(nr).plus(u64::from(run.start));
                let size = shared.geo.block_size;
                let result =
                    dev.discard(first.offset(size), u64::from(run.len) * u64::from(size.bytes()));
                shared.give_back_trimmed(nr, run);
                drop(gate);
                result.map_err(error::device)?;
                done += u64::from(run.len);
                if !go_on(done) {
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }
}

impl Shared {
    /// Takes the next run worth a discard in `from..to`, and says where to go on. A group that
    /// cannot be read has none.
    fn take_to_trim(
        &self,
        group: &Group,
        mut from: u32,
        to: u32,
        min_len: u32,
    ) -> Option<(Span, u32)> {
        let mut state = group.lock();
        self.load_blocks(group, &mut state).ok()?;
        let map = state.blocks.as_mut()?;
        loop {
            let run = map.busy.next_run(from, to)?;
            if run.len >= min_len {
                let batch = Span { len: run.len.min(BATCH.max(min_len)), ..run };
                group.mark_taken(map, batch);
                return Some((batch, batch.end()));
            }
            from = run.end();
        }
    }

    fn give_back_trimmed(&self, nr: GroupNr, span: Span) {
        let start = self.geo.group_first_block(nr).plus(u64::from(span.start));
        self.give_back(super::Run { start, len: span.len });
    }
}
