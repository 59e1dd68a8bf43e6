//! SIGTERM, SIGINT, SIGHUP and SIGQUIT end a mount cleanly, in whatever state it is.
//!
//! - *Starting* (opening, recovering, waiting in mount(2)): the start fails at its next step, and
//!   what is open is closed. Where no step comes within [`GRACE`] the process exits, which a
//!   journal survives; the cleanup process (`start_cleanup.rs`) unmounts a mount that stands by
//!   then.
//! - *Serving*: it unmounts. A frozen volume is thawed first. If files are open, the mount is
//!   detached instead: it goes on for the processes that have them, and no path leads to it any
//!   more.
//! - *Detached, or being unmounted by another process*: the first signal is as above. The next does
//!   not wait: the volume is closed at once, and processes with open files get errors.
//! - *Exporting* over NFS: no request is read any more; those that were are answered.
//! - *Closing*: nothing. It ends by itself, when everything is written.
//!
//! Signals within a second of the first are one with it.
//!
//! The thread that waits for signals never does the work itself, so it receives a second signal
//! while the first waits (for the kernel's write-back, say).

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use extol::options::Waiting;
use extol_cli_common::{Failure, Result, warn};
use extol_fuse::Stopper;
use extol_proc::Shown as _;
use signal_hook::consts::SIGXFSZ;
use signal_hook::iterator::Signals;

use crate::interrupt::Noted;
use crate::{interrupt, monitor, mount_table, sandbox, umount};

/// How long a start may take from a signal to its next step.
const GRACE: Duration = Duration::from_secs(1);

/// A write behind the limit on the size of files (RLIMIT_FSIZE) becomes an error, instead of ending
/// the process with a mount that others use.
pub fn survive_limits() {
    // The flag is not read: a handler is all that is needed.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Receives the signals of this process.
#[derive(Clone)]
pub struct Guard {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Starting,
    Serving(Served),
    Exporting(extol_nfs::Stopper),
    Closing,
}

/// The mount that signals end.
#[derive(Clone)]
struct Served {
    stopper: Stopper,
    /// Its number.
    id: u64,
}

impl Guard {
    /// Starts to receive signals.
    pub fn start() -> Result<Self> {
        let fail = |error: std::io::Error| {
            Failure::system(format_args!("cannot wait for signals: {error}"))
        };
        let mut signals = Signals::new(interrupt::ENDING).map_err(fail)?;
        let shared = Arc::new(Shared::default());
        let listener = Arc::clone(&shared);
        let listen = move || {
            let _ = sandbox::enter();
            for signal in signals.forever() {
                signalled(&listener, signal);
            }
        };
        thread::Builder::new().name("signals".into()).spawn(listen).map_err(fail)?;
        Ok(Self { shared })
    }

    /// From now on signals end this mount.
    ///
    /// # Errors
    /// If a signal came before, which ends the mount.
    pub fn mounted(&self, stopper: Stopper) -> Result<()> {
        let served = Served::of(stopper);
        let seen = {
            let mut state = self.shared.lock();
            *state = State::Serving(served.clone());
            interrupt::check()
        };
        if seen.is_err() {
            served.stop(false);
        }
        seen
    }

    /// From now on signals end this export.
    ///
    /// # Errors
    /// If a signal came before.
    pub fn exported(&self, stopper: extol_nfs::Stopper) -> Result<()> {
        *self.shared.lock() = State::Exporting(stopper);
        interrupt::check()
    }

    /// An error has stopped the volume: makes the kernel's side of the mount read-only. The error
    /// is an exit code as of [`remount::make_read_only`].
    pub fn make_read_only(&self) -> std::result::Result<(), u8> {
        let served = match &*self.shared.lock() {
            State::Serving(served) => served.clone(),
            _ => return Ok(()),
        };
        served.make_read_only()
    }

    /// The mount has ended. True if the connection to the kernel has, and so nothing is left to
    /// take off.
    pub fn closing(&self) -> bool {
        let before = std::mem::replace(&mut *self.shared.lock(), State::Closing);
        matches!(before, State::Serving(served) if served.stopper.has_ended())
    }
}

/// Waits of the opening of a volume.
#[derive(Debug)]
struct Opening;

impl Waiting for Opening {
    fn waits(&self, line: &str) {
        warn(line);
    }

    fn is_interrupted(&self) -> bool {
        interrupt::came()
    }
}

/// For the opening of a volume: prints what it waits for, and ends the wait on a signal.
pub fn waiting() -> Arc<dyn Waiting> {
    Arc::new(Opening)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_starting(&self) -> bool {
        matches!(&*self.lock(), State::Starting)
    }
}

fn signalled(shared: &Arc<Shared>, signal: i32) {
    let (again, served) = {
        let state = shared.lock();
        let again = match interrupt::note(signal) {
            Noted::First => false,
            Noted::Same => return,
            Noted::Again => true,
        };
        match &*state {
            State::Starting => (again, None),
            State::Serving(served) => (again, Some(served.clone())),
            State::Exporting(stopper) => return stopper.stop(),
            State::Closing => return,
        }
    };
    match served {
        Some(served) => {
            let stop = move || served.stop(again);
            in_thread(stop);
        }
        None if again => exit(),
        None => {
            let shared = Arc::clone(shared);
            in_thread(move || {
                thread::sleep(GRACE);
                if shared.is_starting() {
                    exit();
                }
            });
        }
    }
}

fn exit() -> ! {
    let failure = interrupt::check().err().unwrap_or_else(|| Failure::silent(Failure::INTERNAL));
    failure.report();
    std::process::exit(i32::from(failure.code))
}

/// Does something in a thread, so that signals are received meanwhile; in this one if no other can
/// be started.
fn in_thread(work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(work)));
    let its = Arc::clone(&work);
    if thread::Builder::new().name("stop".into()).spawn(move || take(&its)).is_err() {
        take(&work);
    }
}

fn take(work: &Mutex<Option<impl FnOnce()>>) {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(work) = work {
        work();
    }
}

impl Served {
    /// (Number 0 where the table of mounts cannot be read: see [`mount_table::is_top`].)
    fn of(stopper: Stopper) -> Self {
        let id = mount_table::mount_entry(stopper.dir()).map_or(0, |mount| mount.id);
        Self { stopper, id }
    }

    /// Unmounts, or detaches what is in use. If that was done already (`again`), ends the mount
    /// with files open.
    fn stop(&self, again: bool) {
        let Self { stopper, .. } = self;
        if again {
            stopper.abandon();
            return;
        }
        stopper.thaw();
        let dir = stopper.dir().shown();
        match self.unmount(false) {
            Ok(()) => {}
            Err(umount::BUSY) => {
                warn(format_args!(
                    "{dir} is in use: it ends when the last file is closed (signal again to end it \
                     now)"
                ));
                if self.unmount(true).is_err_and(|code| code != umount::GONE) {
                    stopper.abandon();
                }
            }
            Err(umount::GONE) => {
                warn(format_args!("{dir} is being unmounted already (signal again to end it now)"));
            }
            Err(_) => stopper.abandon(),
        }
    }

    /// Unmounts, in a process of its own ([`umount::for_daemon`] says why): the monitor, or without
    /// a sandbox a child. The error is its exit code; the line is printed.
    fn unmount(&self, lazy: bool) -> std::result::Result<(), u8> {
        if self.stopper.has_ended() {
            return Ok(());
        }
        if let Some(monitor) = monitor::of_process() {
            let mode = if lazy { monitor::Order::Lazy } else { monitor::Order::Normal };
            return monitor.ask(mode).map_err(|failure| {
                failure.report();
                failure.code
            });
        }
        if self.stopper.dir().as_os_str().is_empty() {
            // Another process has made the mount; its place is not known.
            return Err(Failure::INTERNAL);
        }
        let words = ["umount", "--serving", &self.id.to_string()];
        self.in_child(&[&words[..], lazy.then_some("--lazy").as_slice()].concat())
    }

    /// Makes the kernel's side of the mount read-only, in the same way.
    fn make_read_only(&self) -> std::result::Result<(), u8> {
        if self.stopper.has_ended() {
            return Ok(());
        }
        if let Some(monitor) = monitor::of_process() {
            return monitor.ask(monitor::Order::ReadOnly).map_err(|failure| failure.code);
        }
        if self.stopper.dir().as_os_str().is_empty() {
            return Ok(());
        }
        self.in_child(&["remount", "--serving", &self.id.to_string()])
    }

    /// Runs this program with these words and the directory, in a child. The error is its exit
    /// code.
    fn in_child(&self, words: &[&str]) -> std::result::Result<(), u8> {
        let mut child = Command::new("/proc/self/exe");
        child.arg0("extol").args(words).arg("--").arg(self.stopper.dir());
        // A second Ctrl-C is for this process.
        match child.process_group(0).stdin(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(Failure::INTERNAL)),
            Err(error) => {
                warn(format_args!("cannot start a process: {error}"));
                Err(Failure::INTERNAL)
            }
        }
    }
}
