//! SIGTERM, SIGINT and SIGHUP end a mount cleanly.
//!
//! The first signal unmounts. If files are open, the mount is detached instead: it goes on for those who have it, out
//! of everybody else's sight. A second signal does not wait for them: the volume is closed at once, and they get
//! errors. A frozen volume is thawed first. A signal while the volume is still being opened (a long recovery) takes effect when the mount stands; a
//! second one exits at once, which a journal survives.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use extol_fuse::Stopper;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::error::{Failure, Result, warn};
use crate::umount;

/// A write behind the limit on the size of files (RLIMIT_FSIZE) becomes an error, instead of ending the process with a
/// mount that others use.
pub fn survive_limits() {
    // The flag is nobody's; that there is a handler is what counts.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// The thread that waits for signals.
pub struct Guard {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopper: Mutex<Option<Stopper>>,
    seen: AtomicU32,
}

impl Guard {
    /// Starts to listen.
    pub fn start() -> Result<Self> {
        let fail = |error: std::io::Error| Failure::system(format_args!("cannot wait for signals: {error}"));
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(fail)?;
        let shared = Arc::new(Shared::default());
        let listener = Arc::clone(&shared);
        let listen = move || {
            for _ in signals.forever() {
                listener.signalled();
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(fail)?;
        Ok(Self { shared })
    }

    /// From now on signals end this mount; one that came before does so now.
    pub fn mounted(&self, stopper: Stopper) {
        let seen = {
            let mut slot = self.shared.lock();
            *slot = Some(stopper.clone());
            self.shared.seen.load(Ordering::SeqCst)
        };
        if seen > 0 {
            stop(&stopper, false);
        }
    }

    /// True if a signal came.
    pub fn any(&self) -> bool {
        self.shared.seen.load(Ordering::SeqCst) > 0
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Stopper>> {
        self.stopper.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn signalled(&self) {
        let (stopper, again) = {
            let slot = self.lock();
            (slot.clone(), self.seen.fetch_add(1, Ordering::SeqCst) > 0)
        };
        match stopper {
            Some(stopper) => stop(&stopper, again),
            None if again => std::process::exit(i32::from(Failure::INTERRUPTED)),
            None => {}
        }
    }
}

/// Unmounts, or detaches what is in use. If that was done already (`again`), ends the mount whatever is open.
pub fn stop(stopper: &Stopper, again: bool) {
    if again {
        stopper.abandon();
        return;
    }
    stopper.thaw();
    match take_off(stopper, false) {
        Ok(()) => {}
        Err(umount::BUSY) => {
            warn(format_args!(
                "{} is in use: it ends when the last file is closed (signal again to end it now)",
                stopper.dir().display()
            ));
            if take_off(stopper, true).is_err() {
                stopper.abandon();
            }
        }
        Err(_) => stopper.abandon(),
    }
}

/// Takes the mount off its directory, in a process of its own ([`umount::run`] says why). The error is its exit code; it has
/// said why.
fn take_off(stopper: &Stopper, lazy: bool) -> std::result::Result<(), u8> {
    if stopper.has_ended() {
        return Ok(());
    }
    let mut child = Command::new("/proc/self/exe");
    child
        .arg0("extol")
        .args(["umount", "--serving"])
        .args(lazy.then_some("--lazy"))
        .arg("--")
        .arg(stopper.dir());
    // A second Ctrl-C is for us.
    match child.process_group(0).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(Failure::INTERNAL))
        }
        Err(error) => {
            warn(format_args!("cannot start an unmount: {error}"));
            Err(Failure::INTERNAL)
        }
    }
}
