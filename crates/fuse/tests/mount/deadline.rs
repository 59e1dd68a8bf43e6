//! An end to tests that would wait for ever.
//!
//! A caller waits until its request is answered, and no signal ends that: a lost request would hold
//! the whole process, and its mount with it. So where a test takes too long, the connection is cut.
//! Then every caller has an error, the mount is gone, and the test fails.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use extol_fuse::Stopper;
use rustix::mount::UnmountFlags;

/// All tests together take a tenth of it; those that wait for something themselves give up before.
const PATIENCE: Duration = Duration::from_secs(45);

/// Runs while it lives.
pub(crate) struct Deadline {
    missed: Arc<AtomicBool>,
    /// Dropped, it tells the thread that the test is over.
    _over: Sender<()>,
}

impl Deadline {
    /// For the mount on `dir`.
    pub(crate) fn new(dir: &Path, stopper: Stopper) -> Self {
        let (over, heard) = channel::<()>();
        let missed = Arc::<AtomicBool>::default();
        let (dir, says) = (dir.to_path_buf(), Arc::clone(&missed));
        thread::spawn(move || {
            if heard.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                says.store(true, Ordering::SeqCst);
                eprintln!(
                    "not over after {PATIENCE:?}: some request may be lost. The connection is cut."
                );
                let _ = rustix::mount::unmount(&dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
                // Should one of its workers hang, too.
                stopper.abandon();
            }
        });
        Self { missed, _over: over }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let missed = self.missed.load(Ordering::SeqCst);
        assert!(!missed || thread::panicking(), "over only because the connection was cut");
    }
}
