//! Zeroes free blocks in advance for small files that are synced (`alloc/zeroed.rs`).
//!
//! An fsync that leaves few of them wakes the service; without threads the fsync zeroes blocks
//! itself before it returns. Nothing is written while the volume is frozen or read-only.

use std::sync::Weak;

use extol_task::{Progress, Service};

use crate::mounted::MountedFs;

/// Zeroes blocks if the allocator wants some. Errors count as those of file data.
pub(crate) fn refill(fs: &MountedFs) {
    if !fs.vol.alloc.wants_zeroed() || fs.check_writable().is_err() {
        return;
    }
    let Some(_inside) = fs.freeze_gate.try_enter() else { return };
    let refilled = fs.vol.alloc.refill_zeroed(&*fs.vol.dev);
    let _ = fs.note(refilled);
}

/// An fsync has ended: zeroes blocks, or wakes the service.
pub(crate) fn after_fsync(fs: &MountedFs) {
    if fs.threads {
        if fs.vol.alloc.wants_zeroed() {
            fs.refill.wake();
        }
    } else {
        refill(fs);
    }
}

/// The service.
#[derive(Debug)]
pub(crate) struct Refill(pub Weak<MountedFs>);

impl Service for Refill {
    fn step(&mut self) -> Progress {
        if let Some(fs) = self.0.upgrade() {
            refill(&fs);
        }
        Progress::Idle(None)
    }
}
