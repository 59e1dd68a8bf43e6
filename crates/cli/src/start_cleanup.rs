//! Unmounting after a failed start.
//!
//! A daemon that ends between mount(2) and its first reply (killed, or out of memory, which aborts
//! a Rust program) leaves a dead mount: every access fails with ENOTCONN until it is unmounted. So
//! another process unmounts it: in the background the parent, which waits for the daemon anyway; in
//! the foreground a *cleanup process*, another process of this program, which waits until it is
//! cancelled or its input ends.
//!
//! - CL-3: only what this start has mounted is unmounted: it was not there before (mounts are known
//!   by their numbers), and it is of the same volume, which nothing else can have mounted meanwhile
//!   ([`MountTarget::unmount`]).
//! - CL-4: the cleanup process gets the list of what was there before anything is mounted
//!   ([`CleanupProcess::start`]).

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use extol_cli_common::{Failure, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::monitor;
use crate::mount_table::mounts_on;

/// What the cleanup process reads when it is cancelled.
const CANCEL: &[u8] = b"+";
/// How long a daemon waits at its end for its mount to go.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A directory, the volume to mount there, and the mounts that it had before.
#[derive(Clone, Debug)]
pub struct MountTarget {
    source: PathBuf,
    dir: PathBuf,
    before: Vec<u64>,
}

impl MountTarget {
    /// A directory as it is now. The paths are resolved.
    pub fn new(source: &Path, dir: &Path) -> Self {
        let before = mounts_on(dir).into_iter().map(|mount| mount.id).collect();
        Self { source: source.to_owned(), dir: dir.to_owned(), before }
    }

    /// Unmounts the source if it has been mounted there since.
    pub fn unmount(&self) {
        if self.is_mounted() {
            let _ = extol_fuse::unmount(&self.dir, true);
        }
    }

    /// True if the mount stands and nothing answers it any more.
    pub fn is_dead(&self) -> bool {
        // Not from the kernel's cache, which outlives the connection.
        let flags = AtFlags::STATX_FORCE_SYNC;
        let answer = || statx(CWD, &self.dir, flags, StatxFlags::BASIC_STATS);
        self.is_mounted() && answer().is_err_and(extol_fuse::is_dead)
    }

    fn is_mounted(&self) -> bool {
        let top = mounts_on(&self.dir).pop().filter(extol_proc::Mount::is_fuse);
        top.is_some_and(|top| top.source == *self.source && !self.before.contains(&top.id))
    }

    /// Unmounts at the end of the daemon that served the mount. The kernel may have a request
    /// before it lets a mount go; this process does not answer any more, and an unmount of its own
    /// would wait for ever. So the cleanup process unmounts, and this one waits a while for it. (If
    /// it takes longer, the unmount goes on when this process has ended.)
    pub fn unmount_at_exit(&self) {
        // A confined process starts no other; its monitor does the same.
        if let Some(monitor) = monitor::of_process() {
            return monitor.unmount_at_exit();
        }
        if !self.is_mounted() {
            return;
        }
        match CleanupProcess::start(self) {
            Ok(CleanupProcess { mut child, input }) => {
                drop(input);
                let end = Instant::now() + EXIT_TIMEOUT;
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                    std::thread::sleep(POLL_INTERVAL);
                }
            }
            Err(_) => extol_fuse::undo(&self.dir),
        }
    }
}

/// The process that unmounts if this one ends before it cancels that.
#[derive(Debug)]
pub struct CleanupProcess {
    child: Child,
    input: ChildStdin,
}

impl CleanupProcess {
    /// Starts it.
    pub fn start(target: &MountTarget) -> Result<Self> {
        let fail = |error: std::io::Error| {
            Failure::system(format_args!("cannot start a process: {error}"))
        };
        let before: Vec<_> = target.before.iter().map(u64::to_string).collect();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("extol").args(["umount", "--start-cleanup", &before.join(",")]).arg("--");
        command.arg(&target.source).arg(&target.dir);
        // Signals of a terminal are not for it, and it keeps no directory in use.
        command.process_group(0).current_dir("/");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(fail)?;
        let input =
            child.stdin.take().ok_or_else(|| fail(std::io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { child, input })
    }

    /// The mount stands and stays.
    pub fn cancel(mut self) {
        let _ = self.input.write_all(CANCEL);
        drop(self.input);
        let _ = self.child.wait();
    }
}

/// The cleanup process. `before` are the numbers of the mounts that were there.
pub fn run(source: &Path, dir: &Path, before: &str) {
    let before = before.split(',').filter_map(|number| number.parse().ok()).collect();
    let mut received = Vec::new();
    let _ = std::io::stdin().take(CANCEL.len() as u64).read_to_end(&mut received);
    if received != CANCEL {
        MountTarget { source: source.to_owned(), dir: dir.to_owned(), before }.unmount();
    }
}
