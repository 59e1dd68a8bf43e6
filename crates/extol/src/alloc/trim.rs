//! FITRIM: discards free blocks.
//!
//! Run by run: take it in memory, discard it, give it back. Blocks whose freeing is not durable are
//! busy in memory, so they are never touched. A request that would fail waits at the trim gate
//! until the run under way is back.

use extol_block::{BlockDevice, BlockNr};
use extol_vfs::Result;

use super::Allocator;
use super::bits::{self, Span};
use super::group::Group;
use crate::error;

/// Blocks discarded at once: bounds how long a full volume waits.
const BATCH: u32 = 1 << 15;

/// The same in clusters of so many blocks.
fn batch(ratio: u32) -> u32 {
    (BATCH / ratio).max(1)
}

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
        let min_len = u32::try_from(self.geo.clusters(min_len.max(1))).unwrap_or(u32::MAX);
        let mut done = 0u64;
        for (nr, range) in bits::split(&self.geo, start, len) {
            let Ok(group) = self.group(nr) else { continue };
            if group.free() < min_len {
                continue;
            }
            let mut at = range.start;
            loop {
                let gate = self.trim_gate.lock();
                let Some((run, next)) = self.take_to_trim(group, at, range.end(), min_len) else {
                    break;
                };
                at = next;
                let run = self.run_of(nr, run);
                let bytes = u64::from(run.len) * self.geo.block_len() as u64;
                let result = dev.discard(run.start.offset(self.geo.block_size), bytes);
                self.give_back(run);
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

    /// Takes the next clusters worth a discard in `from..to`, and says where to go on. A group that
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
                let most = batch(self.geo.cluster_ratio).max(min_len);
                let batch = Span { len: run.len.min(most), ..run };
                group.mark_taken(map, batch);
                return Some((batch, batch.end()));
            }
            from = run.end();
        }
    }
}
