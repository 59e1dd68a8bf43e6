//! States of the fast-commit area that Linux or e2fsck misreads, and that no writer can avoid. They
//! do not check these states; the states are counted.
//!
//! | window | when | what misreads it |
//! |---|---|---|
//! | [`Superseded`](Window::Superseded) | transaction T is durable, and the area still begins with the HEAD of T, because the one write that clears it is not durable yet | e2fsck takes the whole log for damaged |
//! | [`DataMissing`](Window::DataMissing) | the last fast commit is whole, and file data of its checksums is not there | none: both replay it, and may show zeros where the data was to be ([`Rules::missing_data`]) |
//!
//! The conditions are as narrow as that: a HEAD of any older transaction is no window, so a writer
//! that forgets to clear it is found; a first fast commit that is incomplete is none, torn or not,
//! so a writer whose first one can be torn is found.

use extol::inspect_journal;
use extol_block::{MemDevice, SharedDevice};
use extol_jbd2::inspect::{BlockReport, FcTagReport, JournalReport};
use std::sync::Arc;

#[cfg(doc)]
use crate::model::Rules;
use crate::variant::Variant;

/// Why Linux and e2fsck cannot check a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// The fast commits of the last durable transaction are still there.
    Superseded,
    /// The data of the last fast commit did not get there.
    DataMissing,
}

/// The window that a crashed state is in.
///
/// # Errors
/// If its journal cannot be looked at.
pub fn window(variant: &Variant, crashed: &[MemDevice]) -> Result<Option<Window>, String> {
    if variant.fast_blocks.is_none() {
        return Ok(None);
    }
    let device =
        |nr: usize| crashed.get(nr).map(|d: &MemDevice| Arc::new(d.snapshot()) as SharedDevice);
    let volume = device(0).ok_or("no device")?;
    let report = inspect_journal(&volume, &variant.recovery_options(device(1)))
        .map_err(|e| format!("looking at the journal: {e}"))?;
    let missing = report.recovery.data_missing.then_some(Window::DataMissing);
    Ok(of(&report).or(missing))
}

fn of(report: &JournalReport) -> Option<Window> {
    let (first, _) = report.superblock.fast_commit?;
    let begins = |block: &BlockReport| match block {
        BlockReport::FastCommit { block, tags, .. } if *block == first => match tags.first() {
            Some(FcTagReport::Head { tid, .. }) => Some(*tid),
            _ => None,
        },
        _ => None,
    };
    let of_last = |tid: u32| tid == report.recovery.end_tid.wrapping_sub(1);
    let superseded =
        report.recovery.needed && report.blocks.iter().find_map(begins).is_some_and(of_last);
    superseded.then_some(Window::Superseded)
}
