//! What a failed start has left on its directory, taken off.
//!
//! A daemon that ends between mount(2) and its first answer (killed, out of memory, which aborts a
//! Rust program) leaves a mount that is dead: every access fails with ENOTCONN until it is
//! unmounted. The daemon itself can do nothing about that any more, so another process does: in the
//! background the parent, which waits for it anyway; in the foreground a *keeper*, this program
//! once more, which waits until it is dismissed or its input ends.
//!
//! - R1: only what this start has mounted is taken off: it was not there before (mounts are known
//!   by their numbers), and it is of the same volume, which nothing else can have mounted meanwhile
//!   ([`Place::clear`]).
//! - R2: the keeper knows what was there before anything is mounted: it is told
//!   ([`Keeper::start`]).

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::attendant;
use crate::error::{Failure, Result};
use crate::umount::mounts_on;

/// What the keeper reads when it is dismissed.
const DISMISSED: &[u8] = b"+";

/// A directory, what is to be mounted there, and what was mounted there before.
#[derive(Clone, Debug)]
pub struct Place {
    source: PathBuf,
    dir: PathBuf,
    before: Vec<u64>,
}

impl Place {
    /// A directory as it is now. The paths are resolved.
    pub fn of(source: &Path, dir: &Path) -> Self {
        let before = mounts_on(dir).into_iter().map(|mount| mount.id).collect();
        Self { source: source.to_owned(), dir: dir.to_owned(), before }
    }

    /// Takes the source off if it has been mounted there since.
    pub fn clear(&self) {
        if self.is_taken() {
            let _ = extol_fuse::unmount(&self.dir, true);
        }
    }

    fn is_taken(&self) -> bool {
        let source = self.source.to_string_lossy();
        let top = mounts_on(&self.dir).pop().filter(|top| top.kind.starts_with("fuse"));
        top.is_some_and(|top| top.source == source && !self.before.contains(&top.id))
    }
}

impl Place {
    /// The same by the daemon that served the mount, at its end. The kernel may have something to
    /// ask before it lets a mount go that this process does not answer any more, and would wait for
    /// ever, and the process with it; so it is done by a keeper. That is waited for as long as it
    /// takes to go well. (Else it goes on when this process has ended.)
    pub fn leave(&self) {
        // A confined process starts no other; its attendant does the same.
        if let Some(attendant) = attendant::own() {
            return attendant.leave();
        }
        if !self.is_taken() {
            return;
        }
        match Keeper::start(self) {
            Ok(Keeper { mut child, input }) => {
                drop(input);
                let end = Instant::now() + PATIENCE;
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Err(_) => extol_fuse::undo(&self.dir),
        }
    }
}

/// How long a daemon waits at its end for its mount to go.
const PATIENCE: Duration = Duration::from_secs(1);

/// The process that clears a place if this one ends before it says otherwise.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
    input: ChildStdin,
}

impl Keeper {
    /// Starts it.
    pub fn start(place: &Place) -> Result<Self> {
        let fail = |error: std::io::Error| {
            Failure::system(format_args!("cannot start a process: {error}"))
        };
        let before: Vec<_> = place.before.iter().map(u64::to_string).collect();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("extol").args(["umount", "--keeper", &before.join(",")]).arg("--");
        command.arg(&place.source).arg(&place.dir);
        // Signals of a terminal are not for it, and it keeps no directory in use.
        command.process_group(0).current_dir("/");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(fail)?;
        let input =
            child.stdin.take().ok_or_else(|| fail(std::io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { child, input })
    }

    /// The place is to stay as it is.
    pub fn dismiss(mut self) {
        let _ = self.input.write_all(DISMISSED);
        drop(self.input);
        let _ = self.child.wait();
    }
}

/// The keeper's side. `before` are the numbers of the mounts that were there.
pub fn keep(source: &Path, dir: &Path, before: &str) {
    let before = before.split(',').filter_map(|number| number.parse().ok()).collect();
    let mut said = Vec::new();
    let _ = std::io::stdin().take(DISMISSED.len() as u64).read_to_end(&mut said);
    if said != DISMISSED {
        Place { source: source.to_owned(), dir: dir.to_owned(), before }.clear();
    }
}
