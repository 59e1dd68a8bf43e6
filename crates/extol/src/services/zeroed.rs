//! Keeps zeroed blocks at hand for small files that are synced (`alloc/zeroed.rs`), while they are
//! taken, and reads blocks of inode tables that such files will want (`alloc/table_ahead.rs`).
//!
//! An fsync that finds few of them left wakes the thread; without threads it makes zeroed blocks
//! itself before it returns. Nothing is written while the volume is frozen or may not be written.

use std::sync::Weak;

use extol_task::{Progress, Service};

use crate::mounted::MountedFs;

/// Makes more of them if they are wanted. Errors are noted as those of file data.
pub(crate) fn refill(fs: &MountedFs) {
    if !fs.vol.alloc.wants_zeroed() || fs.check_writable().is_err() {
        return;
    }
    let Some(_inside) = fs.freeze_gate.try_enter() else { return };
    let refilled = fs.vol.alloc.refill_zeroed(&*fs.vol.dev);
    let _ = fs.note(refilled);
}

/// Reads parts of inode tables if they are wanted.
fn read_ahead(fs: &MountedFs) {
    if !fs.vol.alloc.wants_table() {
        return;
    }
    // A freeze drops what is in memory: nothing that was read before may come behind that.
    let Some(_inside) = fs.freeze_gate.try_enter() else { return };
    fs.vol.alloc.read_table_ahead();
}

/// Makes them, or wakes the thread that does.
pub(crate) fn after_fsync(fs: &MountedFs) {
    if fs.threads {
        if fs.vol.alloc.wants_zeroed() || fs.vol.alloc.wants_table() {
            fs.refill.wake();
        }
    } else {
        refill(fs);
    }
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Refill(pub Weak<MountedFs>);

impl Service for Refill {
    fn step(&mut self) -> Progress {
        if let Some(fs) = self.0.upgrade() {
            read_ahead(&fs);
            refill(&fs);
        }
        Progress::Idle(None)
    }
}
