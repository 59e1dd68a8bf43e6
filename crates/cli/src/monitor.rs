//! The mount monitor: a process beside a mount's daemon that does for it what the daemon must not
//! do itself, or may not do in its sandbox.
//!
//! ```text
//!   daemon (confined)             monitor, `extol mount-monitor DIR`
//!     Monitor ── requests ────────► standard input: one thread per request
//!             ◄── code, line ─────    U: unmount DIR   L: the same, lazily, after write-back
//!                                     A: abort the connection, then unmount lazily
//!                                     R: make the kernel's side read-only
//!             ── process number ──► standard output: one query after the other
//!             ◄── device, inode ──    the user namespace of that process
//! ```
//!
//! - *Unmounting* needs CAP_SYS_ADMIN or the set-user-id program fusermount3; a sandboxed daemon
//!   has neither the one nor, with no_new_privs, a use for the other. And it must not be the
//!   daemon: an unmount waits for the daemon's answers, and a daemon that is killed while a thread
//!   of its own waits for them never ends.
//! - *The user namespace of a process* that sends requests belongs to its rights, and Landlock
//!   hides it from the daemon.
//!
//! The directory is in its command line and in no request, so a daemon that is taken over can only
//! make requests about its own mount. An unmount is of a mount by its number, which the daemon
//! reads when the mount is made, so what is mounted over it later stays. Of the capabilities of a
//! daemon with CAP_SYS_ADMIN the monitor keeps that one, CAP_DAC_READ_SEARCH to find the directory,
//! and CAP_SYS_PTRACE to see namespaces, behind a seccomp filter without `execve` and `ptrace`. The
//! monitor of an ordinary user has to run fusermount3 and is not confined.
//!
//! The daemon starts it before the mount has answered anything, with nothing of the mount open. It
//! keeps no directory in use, ignores the signals that end a daemon (they may go to the whole
//! process group), and ends when the daemon's end of the socket is closed and all unmounts are
//! done. If it is killed, the daemon ends without an unmount: the mount stays until it is unmounted
//! by hand.
//!
//! Invariants
//! - CL-9: a request has [`REQUEST_LEN`] bytes and is sent at once, so requests of several threads
//!   do not mix ([`Monitor::send`]).
//! - CL-10: one order at a time waits for its answer (the lock in [`Monitor::ask`]), so an
//!   answer is that of the request; likewise queries ([`Monitor::user_namespace`]), on a socket of
//!   their own, because an unmount may take long. A request to abort waits for no other, and for
//!   [`EXIT_TIMEOUT`] only: it may be what ends the other, or wait for the end of the daemon
//!   itself. It is the last one, so it does not matter that the two answers may be confused.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use extol_cli_common::{Failure, Result};
use rustix::net::SendFlags;
use rustix::thread::CapabilitySet;

use crate::args::MonitorArgs;
use crate::umount::{self, How};
use crate::{interrupt, mount_table, remount, sandbox};

/// Bytes of a request: its kind, and a number behind it.
const REQUEST_LEN: usize = 16;
/// Bytes of a query and of its answer.
const QUERY_LEN: usize = 4;
const ANSWER_LEN: usize = 16;
/// Longest line of an answer to an unmount.
const MAX_LINE: usize = 4096;
/// How long a daemon waits at its end for its mount to go.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What is to be done with the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Unmount it if it is not in use.
    Normal,
    /// Unmount it after write-back of what the kernel holds; processes that use the mount keep it.
    Lazy,
    /// Unmount it; the daemon answers no more: the connection is aborted first.
    Abort,
    /// Remount it read-only, because an error has stopped the volume.
    ReadOnly,
}

impl Order {
    const ALL: [(Self, u8); 4] =
        [(Self::Normal, b'U'), (Self::Lazy, b'L'), (Self::Abort, b'A'), (Self::ReadOnly, b'R')];

    fn code(self) -> u8 {
        Self::ALL.iter().find(|(mode, _)| *mode == self).map_or(0, |(_, code)| *code)
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, its)| *its == code).map(|(mode, _)| *mode)
    }
}

/// The daemon's side.
#[derive(Debug)]
pub struct Monitor {
    dir: PathBuf,
    /// The number of the mount; 0 if there is none yet, or if it is not known.
    mount: AtomicU64,
    stream: UnixStream,
    /// Held from a request to unmount to its answer.
    unmounting: Mutex<()>,
    /// Held from a query to its answer.
    queries: Mutex<UnixStream>,
}

static OF_PROCESS: OnceLock<Arc<Monitor>> = OnceLock::new();

/// The monitor of this process's mount, if it has one.
pub fn of_process() -> Option<&'static Arc<Monitor>> {
    OF_PROCESS.get()
}

impl Monitor {
    /// Starts one for the mount on `dir`, the only one of this process.
    pub fn start(dir: &Path) -> Result<Arc<Self>> {
        let fail = |error: io::Error| {
            Failure::system(format_args!("cannot start the mount monitor: {error}"))
        };
        let (ours, theirs) = UnixStream::pair().map_err(fail)?;
        let (queries, answers) = UnixStream::pair().map_err(fail)?;
        let words: [OsString; 3] = ["mount-monitor".into(), "--".into(), dir.into()];
        let mut command = sandbox::process::program();
        sandbox::process::clean_env(command.args(words)).current_dir("/").process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(answers)).stderr(Stdio::null());
        command.spawn().map_err(fail)?;
        // It holds the other ends: while they are open here, the end of the monitor goes unnoticed.
        drop(command);
        let monitor = Self::new(dir, ours, queries);
        // The monitor sends a byte when it has closed what it has inherited; the mount does not
        // exist yet.
        let mut ready = [0];
        (&monitor.stream).read_exact(&mut ready).map_err(fail)?;
        Ok(Arc::clone(OF_PROCESS.get_or_init(|| Arc::new(monitor))))
    }

    fn new(dir: &Path, stream: UnixStream, queries: UnixStream) -> Self {
        Self {
            dir: dir.to_owned(),
            mount: AtomicU64::new(0),
            stream,
            unmounting: Mutex::new(()),
            queries: Mutex::new(queries),
        }
    }

    /// Notes the number of the new mount. To be called before this process is confined, which may
    /// keep it from reading the table of mounts.
    pub fn mounted(&self) {
        let id = mount_table::mount_entry(&self.dir).map_or(0, |mount| mount.id);
        self.mount.store(id, Ordering::SeqCst);
    }

    /// At the daemon's end: unmounts if the mount still stands.
    pub fn unmount_at_exit(&self) {
        if self.mount.load(Ordering::SeqCst) != 0 {
            let _ = self.ask(Order::Abort);
        }
    }

    /// Gives an order. The error has the exit code and the line of the monitor.
    pub fn ask(&self, mode: Order) -> Result<()> {
        let gone = || Failure::system("the mount monitor is gone: unmount by hand (extol umount)");
        let request = || self.send(mode.code(), self.mount.load(Ordering::SeqCst));
        let _one = if mode == Order::Abort {
            if !request() {
                return Err(gone());
            }
            let Some(one) = self.lock_with_timeout() else { return Ok(()) };
            self.stream.set_read_timeout(Some(EXIT_TIMEOUT)).map_err(|_| gone())?;
            one
        } else {
            let one = self.unmounting.lock().unwrap_or_else(PoisonError::into_inner);
            if !request() {
                return Err(gone());
            }
            one
        };
        let mut head = [0; 3];
        match (&self.stream).read_exact(&mut head) {
            Ok(()) => {}
            // It goes on when this process has ended.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(gone()),
        }
        let mut line = vec![0; usize::from(u16::from_le_bytes([head[1], head[2]])).min(MAX_LINE)];
        (&self.stream).read_exact(&mut line).map_err(|_| gone())?;
        match head[0] {
            0 => Ok(()),
            code => Err(Failure { line: String::from_utf8_lossy(&line).into_owned(), code }),
        }
    }

    /// The lock on unmounts. `None` if another thread holds it for longer than [`EXIT_TIMEOUT`].
    fn lock_with_timeout(&self) -> Option<MutexGuard<'_, ()>> {
        let end = Instant::now() + EXIT_TIMEOUT;
        loop {
            match self.unmounting.try_lock() {
                Ok(one) => return Some(one),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Device and inode number of the user namespace of a process or thread. `None`: not known.
    pub fn user_namespace(&self, process: u32) -> Option<(u64, u64)> {
        let mut stream = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::retry_on_intr(|| {
            rustix::net::send(&*stream, &process.to_le_bytes(), SendFlags::NOSIGNAL)
        })
        .ok()?;
        let mut answer = [0; ANSWER_LEN];
        stream.read_exact(&mut answer).ok()?;
        let (device, inode) = (number(&answer[..8]), number(&answer[8..]));
        (inode != 0).then_some((device, inode))
    }

    fn send(&self, kind: u8, about: u64) -> bool {
        let mut request = [0; REQUEST_LEN];
        request[0] = kind;
        request[8..].copy_from_slice(&about.to_le_bytes());
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::send(&self.stream, &request, SendFlags::NOSIGNAL)
        });
        sent == Ok(REQUEST_LEN)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// `extol mount-monitor`.
pub fn run(args: &MonitorArgs) -> Result<()> {
    let fail = |error: io::Error| Failure::system(format_args!("mount monitor: {error}"));
    sandbox::process::close_inherited(None);
    for signal in interrupt::ENDING {
        signal_hook::flag::register(signal, Arc::default()).map_err(fail)?;
    }
    confine()?;
    let socket = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(UnixStream::from).map_err(fail);
    let (stream, queries) = (socket(std::io::stdin().as_fd())?, socket(std::io::stdout().as_fd())?);
    std::thread::Builder::new().spawn(move || answer_queries(&queries)).map_err(fail)?;
    (&stream).write_all(&[0]).map_err(fail)?;
    let dir = Arc::new(args.dir.clone());
    let mut unmounts = Vec::new();
    let mut request = [0; REQUEST_LEN];
    while (&stream).read_exact(&mut request).is_ok() {
        if let Some(mode) = Order::from_code(request[0]) {
            let (its, id, answer) =
                (Arc::clone(&dir), number(&request[8..]), stream.try_clone().map_err(fail)?);
            match std::thread::Builder::new().spawn(move || carry_out(&its, id, mode, &answer)) {
                Ok(thread) => unmounts.push(thread),
                Err(_) => carry_out(&dir, id, mode, &stream),
            }
        }
    }
    // The daemon is gone: an unmount that waits for its answers gets an error.
    for thread in unmounts {
        let _ = thread.join();
    }
    Ok(())
}

/// Leaves the process the right to unmount, if that is its own, and little else.
fn confine() -> Result<()> {
    sandbox::process::protect();
    let has =
        rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if !has.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    sandbox::prepare(&sandbox::Config {
        kind: sandbox::Kind::Monitor,
        keep: CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE,
        files: &[],
        port: None,
        required: false,
    })?;
    sandbox::enter()
}

fn carry_out(dir: &Path, id: u64, mode: Order, mut answer: &UnixStream) {
    let done = match mode {
        Order::Normal => umount::for_daemon(dir, id, How::Normal),
        Order::Lazy => umount::for_daemon(dir, id, How::Lazy),
        Order::Abort if mount_table::is_top(dir, id) => {
            extol_fuse::undo(dir);
            Ok(())
        }
        Order::Abort => Err(Failure::silent(umount::GONE)),
        Order::ReadOnly => remount::make_read_only(dir, id),
    };
    let (code, line) =
        done.map_or_else(|failure| (failure.code, failure.line), |()| (0, String::new()));
    let line = &line.as_bytes()[..line.len().min(MAX_LINE)];
    let [low, high] = u16::try_from(line.len()).unwrap_or(0).to_le_bytes();
    let _ = answer.write_all(&[&[code, low, high], line].concat());
}

/// Answers queries until the daemon is gone.
fn answer_queries(mut queries: &UnixStream) {
    let mut query = [0; QUERY_LEN];
    while queries.read_exact(&mut query).is_ok() {
        let process = u32::from_le_bytes(query);
        let namespace = std::fs::metadata(format!("/proc/{process}/ns/user"));
        let (device, inode) = namespace.map_or((0, 0), |file| (file.dev(), file.ino()));
        let answer = [device.to_le_bytes(), inode.to_le_bytes()].concat();
        if queries.write_all(&answer).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_a_code_of_its_own() {
        for (mode, code) in Order::ALL {
            assert_eq!((mode.code(), Order::from_code(code)), (code, Some(mode)));
        }
        assert!(Order::from_code(b'S').is_none() && Order::from_code(0).is_none());
    }

    #[test]
    fn queries_are_answered_one_by_one() {
        let ((stream, _requests), (ours, theirs)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let monitor = Monitor::new(Path::new("/"), stream, ours);
        let thread = std::thread::spawn(move || answer_queries(&theirs));
        let own = std::fs::metadata("/proc/self/ns/user").unwrap();
        let pid = std::process::id();
        assert_eq!(monitor.user_namespace(pid), Some((own.dev(), own.ino())));
        assert_eq!(monitor.user_namespace(0), None, "no such process");
        assert_eq!(monitor.user_namespace(pid), Some((own.dev(), own.ino())));
        drop(monitor);
        thread.join().unwrap();
    }

    #[test]
    fn a_monitor_that_is_gone_is_noticed() {
        let (stream, requests) = UnixStream::pair().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let monitor = Monitor::new(Path::new("/"), stream, ours);
        drop((requests, theirs));
        assert!(monitor.ask(Order::Normal).unwrap_err().line.contains("gone"));
        assert!(monitor.user_namespace(1).is_none());
    }
}
