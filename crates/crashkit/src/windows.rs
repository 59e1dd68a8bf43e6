//! States of the fast-commit area that others misread, and that no writer can avoid. They are not asked about these, and
//! the states are counted.
//!
//! | window | when | who |
//! |---|---|---|
//! | [`Superseded`](Window::Superseded) | transaction T is durable, and the area still begins with the HEAD of T, because the one write that clears it is not durable yet | e2fsck takes the whole log for damaged |
//! | [`TornHead`](Window::TornHead) | the area's first block was torn *inside* when the first fast commit of T was written | e2fsck as above; Linux refuses the volume |
//! | [`DataMissing`](Window::DataMissing) | the last fast commit is whole, and file data that it vouches for is not there | nobody: both replay it, and may show zeros where the data was to be ([`Rules::missing_data`]) |
//!
//! The conditions are as narrow as that: a HEAD of any older transaction is no window, so a writer that forgets to clear it
//! is found; a first fast commit that is incomplete without a torn write is none, so a writer that sends the first block
//! too early is found.

use extol::inspect_journal;
use extol_device::{MemDevice, SharedDevice};
use extol_journal::inspect::{BlockReport, FcTagReport, JournalReport, Verdict};
use std::sync::Arc;

#[cfg(doc)]
use crate::model::Rules;
use crate::variant::Variant;

/// Why others cannot be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// The fast commits of the last durable transaction are still there.
    Superseded,
    /// The first block is torn.
    TornHead,
    /// The data of the last fast commit did not get there.
    DataMissing,
}

/// The window that a crashed state is in. `torn`: writes were torn, in this crash or in one before it.
///
/// # Errors
/// If its journal cannot be looked at.
pub fn window(variant: &Variant, crashed: &[MemDevice], torn: bool) -> Result<Option<Window>, String> {
    if variant.fast_blocks.is_none() {
        return Ok(None);
    }
    let device = |nr: usize| crashed.get(nr).map(|d: &MemDevice| Arc::new(d.snapshot()) as SharedDevice);
    let volume = device(0).ok_or("no device")?;
    let report = inspect_journal(&volume, &variant.recovery_options(device(1)))
        .map_err(|e| format!("looking at the journal: {e}"))?;
    let missing = report.recovery.data_missing.then_some(Window::DataMissing);
    Ok(of(&report, torn).or(missing))
}

fn of(report: &JournalReport, torn: bool) -> Option<Window> {
    let (first, _) = report.superblock.fast_commit?;
    if !report.recovery.needed {
        return None;
    }
    let expected = report.recovery.end_tid;
    let blocks = report.blocks.iter().filter_map(|block| match block {
        BlockReport::FastCommit { block, tags, problem } => Some((*block, tags, problem.is_some())),
        _ => None,
    });
    let mut next = first;
    for (block, tags, broken) in blocks {
        if block != next {
            break;
        }
        if block == first {
            match tags.first() {
                Some(FcTagReport::Head { tid, .. }) if *tid == expected => {}
                Some(FcTagReport::Head { tid, .. }) if *tid == expected.wrapping_sub(1) => {
                    return Some(Window::Superseded);
                }
                _ => return None,
            }
        }
        let tail = tags.iter().find_map(|tag| match tag {
            FcTagReport::Tail { tid, checksum } => Some(*tid == expected && *checksum == Verdict::Good),
            _ => None,
        });
        if tail == Some(true) {
            return None;
        }
        if broken || tail.is_some() {
            next += 1;
            break;
        }
        next += 1;
    }
    // The area begins with a right HEAD, and no TAIL makes it valid.
    (torn && next > first).then_some(Window::TornHead)
}
