//! The attendant: a process beside a mount's daemon that does for it what the daemon may not do, or
//! must not.
//!
//! ```text
//!   daemon (confined)                       attendant, `extol attend DIR`
//!     Attendant ── orders ─────────────────► standard input: one thread per order
//!               ◄── code, line ─────────────   U: unmount DIR   L: the same, lazily, after write-back
//!                                              C: cut the connection, then lazily
//!               ── process ────────────────► standard output: one question after the other
//!               ◄── device, inode ──────────   which user namespace that process is in
//! ```
//!
//! - *Unmounting* needs CAP_SYS_ADMIN or the set-user-id program fusermount3; a sandboxed daemon
//!   has neither the one nor, with no_new_privs, a use for the other. And it must not be the
//!   daemon: an unmount waits for the daemon's answers, and a daemon that is killed while a thread
//!   of its own waits for them never ends.
//! - *The user namespace of a process* that asks for something belongs to its rights, and Landlock
//!   hides it from the daemon.
//!
//! The directory is in its command line and in no order, so whatever a daemon that is taken over
//! sends, it is about its own mount; and an unmount is of a mount by its number, which the daemon
//! finds out when the mount is made, so what is mounted over it later stays. Of a daemon with
//! CAP_SYS_ADMIN it keeps that, CAP_DAC_READ_SEARCH to find the directory, and CAP_SYS_PTRACE to
//! see namespaces, behind a seccomp filter without `execve` and `ptrace`. That of an ordinary user
//! has to run fusermount3, and is as free as its user.
//!
//! It is started before the mount has answered anything, with nothing of it open, keeps no
//! directory in use, ignores the signals that end a daemon (they may go to the whole group), and
//! ends when the daemon's end of the socket is closed and what it was told to unmount is unmounted.
//! If it is killed, the daemon's end is without an unmount: the mount stays until it is taken off
//! by hand.
//!
//! Invariants
//! - AT1: an order has [`ORDER`] bytes and is sent at once, so orders of several threads do not mix
//!   ([`Attendant::send`]).
//! - AT2: one unmount at a time waits for its answer (the lock in [`Attendant::take_off`]), so an
//!   answer is that of the order; likewise questions ([`Attendant::user_namespace`]), on a socket
//!   of their own, because an unmount may take long. An order to clear waits for no other, and for
//!   [`PATIENCE`] only: it may be what ends the other, or wait for the end of the daemon itself.
//!   It is the last one, so it does not matter that the two answers may be confused.

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

use rustix::net::SendFlags;
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::AttendArgs;
use crate::error::{Failure, Result};
use crate::{sandbox, umount};

/// Bytes of an order: what, and a number behind it.
const ORDER: usize = 16;
/// Bytes of a question and of an answer.
const QUESTION: usize = 4;
const ANSWER: usize = 16;
/// Longest line of an answer.
const LINE: usize = 4096;
/// How long a daemon waits at its end for its mount to go.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// How a mount is taken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// If it is not in use.
    Unmount,
    /// It goes on for those who use it, and what the kernel holds of it is written back first.
    Lazily,
    /// Nothing of it is to be used any more, and the daemon answers nothing.
    Clear,
}

impl Way {
    const ALL: [(Self, u8); 3] = [(Self::Unmount, b'U'), (Self::Lazily, b'L'), (Self::Clear, b'C')];

    fn letter(self) -> u8 {
        Self::ALL.iter().find(|(way, _)| *way == self).map_or(0, |(_, letter)| *letter)
    }

    fn of(letter: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, its)| *its == letter).map(|(way, _)| *way)
    }
}

/// The daemon's side.
#[derive(Debug)]
pub struct Attendant {
    dir: PathBuf,
    /// The number of the mount; 0: there is none yet, or it is not to be found out.
    mount: AtomicU64,
    stream: UnixStream,
    /// Held from an order to unmount to its answer.
    unmounting: Mutex<()>,
    /// Held from a question to its answer.
    questions: Mutex<UnixStream>,
}

/// That of this process.
static OWN: OnceLock<Arc<Attendant>> = OnceLock::new();

/// The attendant of this process's mount, if it has one.
pub fn own() -> Option<&'static Arc<Attendant>> {
    OWN.get()
}

impl Attendant {
    /// Starts one for the mount on `dir`, the only one of this process.
    pub fn start(dir: &Path) -> Result<Arc<Self>> {
        let fail = |error: io::Error| {
            Failure::system(format_args!("cannot start the mount's attendant: {error}"))
        };
        let (ours, theirs) = UnixStream::pair().map_err(fail)?;
        let (questions, answers) = UnixStream::pair().map_err(fail)?;
        let words: [OsString; 3] = ["attend".into(), "--".into(), dir.into()];
        let mut command = sandbox::process::program();
        sandbox::process::clean(command.args(words)).current_dir("/").process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(answers)).stderr(Stdio::null());
        command.spawn().map_err(fail)?;
        // With its own copies of the other ends, a dead attendant would not be noticed.
        drop(command);
        let attendant = Self::over(dir, ours, questions);
        // It says when it has closed what it had inherited: nothing of the mount, which does not
        // exist yet.
        let mut ready = [0];
        (&attendant.stream).read_exact(&mut ready).map_err(fail)?;
        Ok(Arc::clone(OWN.get_or_init(|| Arc::new(attendant))))
    }

    fn over(dir: &Path, stream: UnixStream, questions: UnixStream) -> Self {
        Self {
            dir: dir.to_owned(),
            mount: AtomicU64::new(0),
            stream,
            unmounting: Mutex::new(()),
            questions: Mutex::new(questions),
        }
    }

    /// The mount is made. To be called before this process is confined, which may keep it from
    /// reading the table of mounts.
    pub fn mounted(&self) {
        let id = umount::mount_entry(&self.dir).map_or(0, |mount| mount.id);
        self.mount.store(id, Ordering::SeqCst);
    }

    /// At the daemon's end: takes the mount off if it still stands.
    pub fn leave(&self) {
        if self.mount.load(Ordering::SeqCst) != 0 {
            let _ = self.take_off(Way::Clear);
        }
    }

    /// Takes the mount off its directory. The error is the exit code and the line of it.
    pub fn take_off(&self, way: Way) -> Result<()> {
        let gone =
            || Failure::system("the mount's attendant is gone: unmount by hand (extol umount)");
        let order =
            || self.send(way.letter(), self.mount.load(Ordering::SeqCst), SendFlags::NOSIGNAL);
        let _one = if way == Way::Clear {
            if !order() {
                return Err(gone());
            }
            let Some(one) = self.only_one_soon() else { return Ok(()) };
            self.stream.set_read_timeout(Some(PATIENCE)).map_err(|_| gone())?;
            one
        } else {
            let one = self.unmounting.lock().unwrap_or_else(PoisonError::into_inner);
            if !order() {
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
        let mut line = vec![0; usize::from(u16::from_le_bytes([head[1], head[2]])).min(LINE)];
        (&self.stream).read_exact(&mut line).map_err(|_| gone())?;
        match head[0] {
            0 => Ok(()),
            code => Err(Failure { line: String::from_utf8_lossy(&line).into_owned(), code }),
        }
    }

    /// The lock on unmounts. `None` if another one has it for longer than can be waited for.
    fn only_one_soon(&self) -> Option<MutexGuard<'_, ()>> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.unmounting.try_lock() {
                Ok(one) => return Some(one),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Device and inode number of the user namespace of a process or thread. `None`: not known.
    pub fn user_namespace(&self, process: u32) -> Option<(u64, u64)> {
        let mut stream = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::retry_on_intr(|| {
            rustix::net::send(&*stream, &process.to_le_bytes(), SendFlags::NOSIGNAL)
        })
        .ok()?;
        let mut answer = [0; ANSWER];
        stream.read_exact(&mut answer).ok()?;
        let (device, inode) = (number(&answer[..8]), number(&answer[8..]));
        (inode != 0).then_some((device, inode))
    }

    fn send(&self, what: u8, about: u64, flags: SendFlags) -> bool {
        let mut order = [0; ORDER];
        order[0] = what;
        order[8..].copy_from_slice(&about.to_le_bytes());
        rustix::io::retry_on_intr(|| rustix::net::send(&self.stream, &order, flags)) == Ok(ORDER)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// `extol attend`.
pub fn run(args: &AttendArgs) -> Result<()> {
    let fail = |error: io::Error| Failure::system(format_args!("attendant: {error}"));
    sandbox::process::close_inherited(None);
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::default()).map_err(fail)?;
    }
    confine()?;
    let socket = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(UnixStream::from).map_err(fail);
    let (stream, questions) =
        (socket(std::io::stdin().as_fd())?, socket(std::io::stdout().as_fd())?);
    std::thread::Builder::new().spawn(move || answer(&questions)).map_err(fail)?;
    (&stream).write_all(&[0]).map_err(fail)?;
    let dir = Arc::new(args.dir.clone());
    let mut unmounts = Vec::new();
    let mut order = [0; ORDER];
    while (&stream).read_exact(&mut order).is_ok() {
        if let Some(way) = Way::of(order[0]) {
            let (its, id, answer) =
                (Arc::clone(&dir), number(&order[8..]), stream.try_clone().map_err(fail)?);
            match std::thread::Builder::new().spawn(move || take_off(&its, id, way, &answer)) {
                Ok(thread) => unmounts.push(thread),
                Err(_) => take_off(&dir, id, way, &stream),
            }
        }
    }
    // The daemon is gone, so whatever waited for its answers has an error by now.
    for thread in unmounts {
        let _ = thread.join();
    }
    Ok(())
}

/// Where the right to unmount is the process's own, that is all that is left.
fn confine() -> Result<()> {
    sandbox::process::settle();
    let has =
        rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if !has.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    sandbox::prepare(&sandbox::Wish {
        kind: sandbox::Kind::Attendant,
        keep: CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE,
        files: &[],
        required: false,
    })?;
    sandbox::enter()
}

fn take_off(dir: &Path, id: u64, way: Way, mut answer: &UnixStream) {
    let done = match way {
        Way::Unmount => umount::for_daemon(dir, id, false),
        Way::Lazily => umount::for_daemon(dir, id, true),
        Way::Clear if umount::is_top(dir, id) => {
            extol_fuse::undo(dir);
            Ok(())
        }
        Way::Clear => Err(Failure::silent(umount::GONE)),
    };
    let (code, line) =
        done.map_or_else(|failure| (failure.code, failure.line), |()| (0, String::new()));
    let line = &line.as_bytes()[..line.len().min(LINE)];
    let [low, high] = u16::try_from(line.len()).unwrap_or(0).to_le_bytes();
    let _ = answer.write_all(&[&[code, low, high], line].concat());
}

/// Answers questions until the daemon is gone.
fn answer(mut questions: &UnixStream) {
    let mut question = [0; QUESTION];
    while questions.read_exact(&mut question).is_ok() {
        let process = u32::from_le_bytes(question);
        let namespace = std::fs::metadata(format!("/proc/{process}/ns/user"));
        let (device, inode) = namespace.map_or((0, 0), |file| (file.dev(), file.ino()));
        let answer = [device.to_le_bytes(), inode.to_le_bytes()].concat();
        if questions.write_all(&answer).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_letters_of_their_own() {
        for (way, letter) in Way::ALL {
            assert_eq!((way.letter(), Way::of(letter)), (letter, Some(way)));
        }
        assert!(Way::of(b'S').is_none() && Way::of(0).is_none());
    }

    #[test]
    fn questions_are_answered_one_by_one() {
        let ((stream, _orders), (ours, theirs)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let attendant = Attendant::over(Path::new("/"), stream, ours);
        let thread = std::thread::spawn(move || answer(&theirs));
        let own = std::fs::metadata("/proc/self/ns/user").unwrap();
        let me = std::process::id();
        assert_eq!(attendant.user_namespace(me), Some((own.dev(), own.ino())));
        assert_eq!(attendant.user_namespace(0), None, "no such process");
        assert_eq!(attendant.user_namespace(me), Some((own.dev(), own.ino())));
        drop(attendant);
        thread.join().unwrap();
    }

    #[test]
    fn one_that_is_gone_is_noticed() {
        let (stream, orders) = UnixStream::pair().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let attendant = Attendant::over(Path::new("/"), stream, ours);
        drop((orders, theirs));
        assert!(attendant.take_off(Way::Unmount).unwrap_err().line.contains("gone"));
        assert!(attendant.user_namespace(1).is_none());
    }
}
