//! What is remembered of the errors of a mount, in memory and in the superblock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_ondisk::Superblock;
use extol_ondisk::superblock::State;
use extol_sync::plain::Mutex;
use extol_vfs::FsError;

/// The on-disk number of EIO.
pub(super) const IO: u8 = 2;
/// The on-disk number of EFSCORRUPTED.
pub(super) const CORRUPTED: u8 = 5;

/// One error, as the superblock remembers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorRecord<'a> {
    pub what: &'a str,
    pub code: u8,
    pub ino: u32,
    pub block: u64,
}

impl ErrorRecord<'_> {
    pub fn put(&self, sb: &mut Superblock, now: u64) {
        let func = function_name(self.what);
        sb.state |= State::ERROR;
        sb.error_count = sb.error_count.saturating_add(1);
        if sb.first_error_time == 0 {
            sb.first_error_time = now;
            sb.first_error_ino = self.ino;
            sb.first_error_block = self.block;
            sb.first_error_func = func;
            sb.first_error_line = 0;
            sb.first_error_errcode = self.code;
        }
        sb.last_error_time = now;
        sb.last_error_ino = self.ino;
        sb.last_error_block = self.block;
        sb.last_error_func = func;
        sb.last_error_line = 0;
        sb.last_error_errcode = self.code;
    }
}

fn function_name(what: &str) -> [u8; 32] {
    let mut func = [0; 32];
    for (to, from) in func.iter_mut().zip(what.bytes().take(31)) {
        *to = from;
    }
    func
}

/// The errors of this mount.
#[derive(Debug, Default)]
pub(crate) struct ErrorState {
    /// Errors recorded.
    pub(super) seen: AtomicU64,
    /// Code, inode and block of the error that aborts the journal, if it is not one of the
    /// journal's own.
    pub(super) cause: OnceLock<(u8, u32, u64)>,
    /// The mark of an abort was tried.
    pub(super) marked: AtomicBool,
    /// The process is asked to end.
    pub(super) panic_wanted: AtomicBool,
    /// The first one, as a line for the user.
    pub(super) first: Mutex<Option<String>>,
    /// Errors that the allocator hands over.
    pub(super) pending: Arc<PendingErrors>,
}

/// Errors met under locks, which cannot be recorded there: the allocator's, about groups that it
/// leaves out from then on. The operation that meets one goes on elsewhere; the next operation that
/// ends records it.
#[derive(Debug, Default)]
pub(crate) struct PendingErrors {
    waiting: AtomicBool,
    errors: Mutex<Vec<FsError>>,
}

impl PendingErrors {
    pub fn put(&self, error: &FsError) {
        self.errors.lock().push(error.clone());
        self.waiting.store(true, Ordering::Release);
    }

    pub(super) fn take(&self) -> Vec<FsError> {
        if !self.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut errors = self.errors.lock();
        self.waiting.store(false, Ordering::Release);
        std::mem::take(&mut *errors)
    }
}

impl ErrorState {
    pub fn new(pending: Arc<PendingErrors>) -> Self {
        Self { pending, ..Self::default() }
    }

    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub fn panic_wanted(&self) -> bool {
        self.panic_wanted.load(Ordering::Acquire)
    }

    pub fn first(&self) -> Option<String> {
        self.first.lock().clone()
    }
}
