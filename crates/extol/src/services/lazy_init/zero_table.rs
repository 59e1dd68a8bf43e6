//! One step of lazy initialisation: zeroes the inode table of one group.
//!
//! ```text
//!   group closed ─ probe ─ read ─┬─ all zero ──────────────┬─ cache cleared ─ group open
//!                                └─ zeroed, piece by piece ┘    ─ (flush) ─ flag in a transaction
//! ```
//!
//! Invariants
//! - LI-1: the flag is durable only after the zeroes are. The journal is told of them as of file
//!   data, so a commit flushes the device before its record; where it does not
//!   ([`extol_jbd2::Journal::commits_after_data`]) the step flushes itself before it opens a
//!   handle. The journal is told of a table that reads as zeros, too: what is read need not be
//!   durable.
//! - LI-2: after the zeroing no cached block shows what was there before: a new inode would bring
//!   its neighbours' old bytes back ([`extol_jbd2::Journal::forget_clean`], before the group hands
//!   out inodes again).
//! - LI-3: a step that is cut short sets no flag. What it zeroed stays so, and the next step does
//!   it again.
//! - LI-4: no handle is open while the device works, so no commit waits for it.

use std::sync::atomic::{AtomicBool, Ordering};

use extol_block::BlockNr;
use extol_ondisk::GroupNr;
use extol_vfs::{FsError, Result};

use super::state::Work;
use crate::error;
use crate::mounted::MountedFs;

/// Bytes zeroed by one request: how long a stop can take.
const ZERO_STEP: u64 = 1 << 20;
/// Bytes read by one request.
const READ_STEP: u64 = 256 << 10;

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The group is done.
    Done(Work),
    /// The volume is frozen.
    Postponed,
    /// It was asked to stop.
    Stopped,
}

/// Does the step. With `flush` the zeroes are durable when it ends, so that the time it takes is
/// the medium's.
pub(super) fn zero_table(
    fs: &MountedFs,
    group: GroupNr,
    flush: bool,
    zeroed: &mut Option<GroupNr>,
    stop: &AtomicBool,
) -> Result<Outcome> {
    fs.check_writable()?;
    let vol = &fs.vol;
    let stopped = || match (stop.load(Ordering::Relaxed), vol.journal.is_frozen()) {
        (true, _) => Some(Outcome::Stopped),
        (_, true) => Some(Outcome::Postponed),
        _ => None,
    };
    if let Some(end) = stopped() {
        return Ok(end);
    }
    let mut work = Work::Nothing;
    if *zeroed != Some(group) {
        let Some(unused) = vol.alloc.begin_itable(group)? else {
            return Ok(Outcome::Done(Work::Nothing));
        };
        let end = zero(fs, unused.start, unused.blocks, &stopped);
        vol.journal.note_data_write();
        let clean = vol.journal.forget_clean(unused.start, unused.blocks);
        drop(unused);
        match end.map_err(|e| fs.data_write_failed(e))? {
            Ok(done) => work = done,
            Err(end) => return Ok(end),
        }
        if !clean {
            let what =
                format!("inodes of block group {} that were never used have been changed", group.0);
            return Err(FsError::corrupt(what));
        }
        *zeroed = Some(group);
    }
    if flush || !vol.journal.commits_after_data() {
        vol.journal.flush_data().map_err(error::journal)?;
    }
    let Some(mut h) = vol.journal.start_unless_frozen(1).map_err(error::journal)? else {
        return Ok(Outcome::Postponed);
    };
    let set = vol.alloc.set_itable_zeroed(&mut h, group);
    h.stop().map_err(error::journal)?;
    set?;
    *zeroed = None;
    Ok(Outcome::Done(work))
}

/// Does the step for a caller that has nothing else to do meanwhile.
pub(crate) fn zero_now(fs: &MountedFs, group: GroupNr, stop: &AtomicBool) -> Result<()> {
    zero_table(fs, group, false, &mut None, stop).map(drop)
}

type Zeroed = extol_block::Result<std::result::Result<Work, Outcome>>;

/// Makes the blocks read as zeros. A sparse image or a trimmed disk gives zeros already, and
/// reading is cheaper there than writing. A few probes find most tables that are not zero; only one
/// whose probes are all zero is read.
fn zero(
    fs: &MountedFs,
    start: BlockNr,
    blocks: u64,
    stopped: &dyn Fn() -> Option<Outcome>,
) -> Zeroed {
    let size = fs.vol.geo.block_size;
    let block = u64::from(size.bytes());
    let (mut at, end) = (start.offset(size), start.plus(blocks).offset(size));
    if at == end {
        return Ok(Ok(Work::Zeroed(0)));
    }
    let middle = start.plus(blocks / 2).offset(size);
    let mut probes_zero = true;
    for probe in [at, middle, end - block] {
        probes_zero = probes_zero && is_zero(fs, probe, block)?;
    }
    if probes_zero {
        while at < end {
            if let Some(end) = stopped() {
                return Ok(Err(end));
            }
            let n = (end - at).min(READ_STEP);
            if !is_zero(fs, at, n)? {
                break;
            }
            at += n;
        }
        if at == end {
            return Ok(Ok(Work::Read));
        }
    }
    // What was read and found zero stays as it is.
    let first = at;
    while at < end {
        if let Some(end) = stopped() {
            return Ok(Err(end));
        }
        let n = (end - at).min(ZERO_STEP);
        fs.vol.dev.zero_range(at, n)?;
        at += n;
    }
    Ok(Ok(Work::Zeroed(end - first)))
}

fn is_zero(fs: &MountedFs, at: u64, len: u64) -> extol_block::Result<bool> {
    let len = usize::try_from(len).unwrap_or(0);
    let mut bytes = vec![0xFF; len];
    fs.vol.dev.read_at(&mut bytes, at)?;
    Ok(bytes.iter().fold(0, |all, byte| all | byte) == 0)
}
