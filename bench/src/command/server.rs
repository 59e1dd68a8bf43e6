//! How a process that serves a mount is told to end.
//!
//! - The mount is unmounted.
//! - SIGTERM, SIGINT or SIGHUP: it unmounts. What is in use is detached and ends with its last
//!   user. The second signal does not wait: processes with open files get errors.
//! - Standard input ends, if the starter wants that (`--until-eof`): as a signal, and five seconds
//!   later as a second one.
//!
//! A signal that comes before the mount is there takes effect as soon as it is.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use extol_cli_common::{Failure, Result, warn};
use extol_fuse::Stopper;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::UnmountArgs;

/// How long the mount may stay in use after the end of standard input.
const GRACE: Duration = Duration::from_secs(5);

/// Signals that came since the start.
pub struct Ending(Signals);

impl Ending {
    /// Signals no longer end the process by themselves.
    pub fn prepare() -> Result<Self> {
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
        signals.map(Self).map_err(|error| cannot("wait for signals", &error))
    }

    /// From now on they end this mount.
    pub fn ends(mut self, stopper: Stopper) -> Result<()> {
        spawn("signals", move || {
            for (n, _) in self.0.forever().enumerate() {
                let stopper = stopper.clone();
                match n {
                    // In a thread of its own, so that the next signal is not kept waiting.
                    0 => drop(spawn("stop", move || stop(&stopper))),
                    _ => stopper.abandon(),
                }
            }
        })
    }
}

/// Ends the mount when standard input ends: the starter wants that, or is gone and has left what
/// `before` tidies up.
pub fn end_with_input(stopper: Stopper, before: impl FnOnce() + Send + 'static) -> Result<()> {
    spawn("input", move || {
        let mut input = std::io::stdin().lock();
        // An error is an end, too.
        while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
        before();
        stop(&stopper);
        thread::sleep(GRACE);
        stopper.abandon();
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|error| cannot("start a thread", &error))
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    Failure::system(format_args!("cannot {what}: {error}"))
}

/// Unmounts, or detaches what is in use.
fn stop(stopper: &Stopper) {
    if stopper.has_ended() || unmounted(stopper.dir(), false) {
        return;
    }
    if stopper.has_ended() {
        return;
    }
    warn(format_args!(
        "{} is in use: it ends when the last file is closed (signal again to end it now)",
        stopper.dir().display()
    ));
    if !unmounted(stopper.dir(), true) {
        stopper.abandon();
    }
}

/// Unmounts in a child: an unmount waits for the answers of this process, and a process that is
/// killed while it waits for itself never ends.
fn unmounted(dir: &Path, lazy: bool) -> bool {
    let mut child = Command::new("/proc/self/exe");
    child.arg("unmount").args(lazy.then_some("--lazy")).arg("--").arg(dir);
    child.stdin(Stdio::null()).stderr(Stdio::null());
    child.status().is_ok_and(|status| status.success())
}

/// `extol-bench unmount`: the child.
pub fn unmount(args: &UnmountArgs) -> Result<()> {
    Ok(extol_fuse::unmount(&args.dir, args.lazy)?)
}

/// The directory to mount on; removed in the end if it was made here.
pub struct MountPoint {
    pub path: PathBuf,
    pub made: bool,
}

impl MountPoint {
    pub fn at(path: &Path) -> Result<Self> {
        let fail = |error| Failure::about(path.display(), error);
        let made = match std::fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(fail(error)),
        };
        Ok(Self { path: path.canonicalize().map_err(fail)?, made })
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}
