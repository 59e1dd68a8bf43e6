//! Control requests to a running mount: those that Linux has no system call for.
//!
//! A client reads an extended attribute of the root: the attribute's name is the request, its value
//! the answer. Reading works on read-only mounts as well, where nothing may be set. Lists of
//! attributes never contain these names, so a program that copies attributes makes no such request.
//!
//! | name | request | answer |
//! | --- | --- | --- |
//! | `extol.remount:LIST` | change mount options | `+`, then warnings, one per line; or `-` and why not |
//! | `extol.tune:TEXT` | change properties of the volume | `+`, then what changed, one per line; or `-` and why not |
//! | `extol.quota:TEXT` | report or set quotas | `+`, then the answer, line by line; or `-` and why not |
//! | `extol.encryption:TEXT` | tell or make how files are encrypted | the same |
//! | `extol.sync` | makes the whole volume durable | `+`, or the errno |
//! | `extol.checkpoint:FLAGS` | as EXT4_IOC_CHECKPOINT | the same |
//! | `extol.freeze`, `extol.thaw` | | the same |
//! | `extol.shutdown:MODE` | as EXT4_IOC_SHUTDOWN | the same |
//! | `extol.fragments:INODE` | how a file lies on the volume | `+`, then the numbers of [`Defragmented`]; or the errno |
//! | `extol.defrag:INODE` | moves a file into fewer pieces | the same |
//! | `extol.grow:BYTES` | makes the volume larger; without a number as large as its device | `+` and the numbers of [`Resized`]; or `-` and why not |
//!
//! A request that says that all data is somewhere (sync, checkpoint, freeze) first has the kernel
//! write back what it holds, and waits for that. EOPNOTSUPP if the kernel would not wait, and may
//! hold something: before Linux 6.16, with a file open that is written through the page cache.
//!
//! A growth takes long on a large volume: each request does about a second of it, and the client
//! repeats it until the volume is as large as wanted.
//!
//! The prefix of the name decides how the client's rights are checked (`CheckedBy`):
//!
//! - `trusted.`: the kernel lets only a process with CAP_SYS_ADMIN in the initial user namespace
//!   read any such attribute. The daemon checks nothing, so this works also where the daemon cannot
//!   look at other processes.
//! - `user.`: the daemon checks that the process has rights over the mount (`rights.rs`). A sync
//!   needs none, as sync(1).
//!
//! A client tries both, in this order (`ask`).
//!
//! A request to add a key has the key in it: the memory of a request for an attribute is
//! overwritten once it is answered (`may_hold_secret`).
//!
//! Flags that the kernel itself keeps for a mount (`ro`, `nosuid` …) are changed with
//! [`set_flags`].

use std::io;
use std::path::Path;
use std::time::Duration;

use extol_vfs::{
    CheckpointFlags, Defragmented, Outcome, RemountError, Resized, Shutdown, VolumeControl,
};
use rustix::io::Errno as Os;
use zeroize::Zeroizing;

use crate::abi::op;
use crate::config::MountConfig;
use crate::errno::{Errno, Result};
use crate::rights::Owner;
use crate::wire::Request;

const REMOUNT: &str = "extol.remount:";
const TUNE: &str = "extol.tune:";
const QUOTA: &str = "extol.quota:";
const ENCRYPTION: &str = "extol.encryption:";
const CHECKPOINT: &str = "extol.checkpoint:";
const SYNC: &str = "extol.sync";
const FREEZE: &str = "extol.freeze";
const THAW: &str = "extol.thaw";
/// The requests without a parameter.
const WHOLE: [&str; 3] = [SYNC, FREEZE, THAW];
const SHUTDOWN: &str = "extol.shutdown:";
const SHUTDOWN_AFTER_SYNC: &str = "extol.shutdown:0";
const FRAGMENTS: &str = "extol.fragments:";
const DEFRAG: &str = "extol.defrag:";
const GROW: &str = "extol.grow:";
/// A request to grow takes about so long.
const GROW_TIME: Duration = Duration::from_secs(1);
/// Longest name of an attribute.
const NAME_MAX: usize = 255;
/// Room for an answer.
const ANSWER: usize = 16 << 10;

/// How the right to make a request is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckedBy {
    /// By the kernel, before the request.
    Kernel,
    /// By the daemon.
    Daemon,
}

/// The request in the name of an attribute of the root, if it is one.
pub(crate) fn request(name: &[u8]) -> Option<(CheckedBy, &str)> {
    let name = std::str::from_utf8(name).ok()?;
    let (checked_by, command) = match name.strip_prefix("trusted.") {
        Some(command) => (CheckedBy::Kernel, command),
        None => (CheckedBy::Daemon, name.strip_prefix("user.")?),
    };
    let starts = [REMOUNT, TUNE, QUOTA, ENCRYPTION, CHECKPOINT, SHUTDOWN, FRAGMENTS, DEFRAG, GROW];
    let known = starts.iter().any(|start| command.starts_with(start)) || WHOLE.contains(&command);
    known.then_some((checked_by, command))
}

/// True for requests of the kernel whose bytes must not stay in memory.
pub(crate) fn may_hold_secret(opcode: u32) -> bool {
    opcode == op::GETXATTR
}

/// Data in the kernel that a request needs to have arrived before it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WrittenBack {
    /// None.
    Nothing,
    /// The data of one file.
    File(u32),
    /// All.
    All,
}

/// Checks whether the process may make this request, and says what must be written back before it
/// is [answered](answer).
pub(crate) fn check(
    owner: &Owner,
    request: &Request<'_>,
    (checked_by, command): (CheckedBy, &str),
) -> Result<WrittenBack> {
    if checked_by == CheckedBy::Daemon && command != SYNC {
        owner.check(request)?;
    }
    let is_dry_run = |flags: &str| {
        let flags = flags.parse().ok().and_then(CheckpointFlags::from_bits);
        flags.is_some_and(|flags| flags.contains(CheckpointFlags::DRY_RUN))
    };
    Ok(match command {
        SYNC | FREEZE | SHUTDOWN_AFTER_SYNC => WrittenBack::All,
        command => {
            let of_file = [FRAGMENTS, DEFRAG].iter().find_map(|start| command.strip_prefix(start));
            let checkpoint = command.strip_prefix(CHECKPOINT);
            match of_file.and_then(|ino| ino.parse().ok()) {
                Some(ino) => WrittenBack::File(ino),
                None if checkpoint.is_some_and(|flags| !is_dry_run(flags)) => WrittenBack::All,
                None => WrittenBack::Nothing,
            }
        }
    })
}

/// The daemon's side: does what a [`request`] asks for.
pub(crate) fn answer(fs: &dyn VolumeControl, command: &str) -> Result<Vec<u8>> {
    if let Some(done) = by_text(fs, command) {
        let mut text = match done {
            Ok(lines) => format!("+{}", lines.join("\n")),
            Err(RemountError(line)) => format!("-{line}"),
        };
        text.truncate(text.floor_char_boundary(ANSWER));
        return Ok(text.into_bytes());
    }
    if let Some(bytes) = command.strip_prefix(GROW) {
        let bytes = match bytes {
            "" => None,
            number => Some(number.parse().map_err(|_| Errno(libc::EINVAL))?),
        };
        return Ok(match fs.grow(bytes, Some(GROW_TIME)) {
            Ok(resized) => format!("+{resized}"),
            Err(error) => format!("-{error}"),
        }
        .into_bytes());
    }
    let invalid = Errno(libc::EINVAL);
    let number =
        |start: &str| command.strip_prefix(start).map(|n| n.parse::<u32>().map_err(|_| invalid));
    if let Some(flags) = number(CHECKPOINT) {
        fs.checkpoint(CheckpointFlags::from_bits(flags?).ok_or(invalid)?)?;
    } else if let Some(mode) = number(SHUTDOWN) {
        fs.shut_down(Shutdown::from_number(mode?).ok_or(invalid)?)?;
    } else if let Some(ino) = number(FRAGMENTS) {
        let now = fs.fragments(ino?)?;
        let outcome = if now.extents > now.best { Outcome::NoRoom } else { Outcome::Whole };
        return Ok(format!("+{}", Defragmented { before: now, after: now, outcome }).into_bytes());
    } else if let Some(ino) = number(DEFRAG) {
        return Ok(format!("+{}", fs.defragment(ino?)?).into_bytes());
    } else if command == SYNC {
        fs.sync()?;
    } else if command == FREEZE {
        fs.freeze()?;
    } else if command == THAW {
        fs.thaw()?;
    } else {
        return Err(invalid);
    }
    Ok(vec![b'+'])
}

/// Does a request in words of the file system; `None`: it is no such request.
fn by_text(
    fs: &dyn VolumeControl,
    command: &str,
) -> Option<std::result::Result<Vec<String>, RemountError>> {
    if let Some(list) = command.strip_prefix(REMOUNT) {
        return Some(fs.remount(list));
    }
    if let Some(text) = command.strip_prefix(TUNE) {
        return Some(fs.tune_by_text(text));
    }
    if let Some(text) = command.strip_prefix(ENCRYPTION) {
        return Some(fs.encryption_by_text(text));
    }
    Some(fs.quota_by_text(command.strip_prefix(QUOTA)?))
}

fn understand(answer: &[u8]) -> std::result::Result<Vec<String>, RemountError> {
    let text = String::from_utf8_lossy(answer);
    match text.strip_prefix('+') {
        Some(warnings) => Ok(warnings.lines().map(str::to_owned).collect()),
        None => Err(RemountError(text.trim_start_matches('-').to_owned())),
    }
}

/// Asks the daemon of the mount with this root to change options. Gives its warnings, or its
/// refusal.
///
/// # Errors
/// If the request failed: `ENODATA` or `EOPNOTSUPP` if it is no mount of Extol, `EPERM`,
/// `ENOTCONN` …
pub fn remount(
    root: &Path,
    list: &str,
) -> io::Result<std::result::Result<Vec<String>, RemountError>> {
    ask_in_words(root, REMOUNT, list)
}

/// Asks the daemon of the mount with this root to change properties of the volume, by a text that
/// its file system understands; the answer has a line for each that has another value now.
///
/// # Errors
/// As [`remount`].
pub fn tune(
    root: &Path,
    request: &str,
) -> io::Result<std::result::Result<Vec<String>, RemountError>> {
    ask_in_words(root, TUNE, request)
}

/// Asks the daemon of the mount with this root to report or set quotas, by a text that its file
/// system understands, as is the answer.
///
/// # Errors
/// As [`remount`].
pub fn quota(
    root: &Path,
    request: &str,
) -> io::Result<std::result::Result<Vec<String>, RemountError>> {
    ask_in_words(root, QUOTA, request)
}

/// Asks the daemon of the mount with this root to tell or make how files are encrypted, by a text
/// that its file system understands, as is the answer.
///
/// # Errors
/// As [`remount`].
pub fn encryption(
    root: &Path,
    request: &str,
) -> io::Result<std::result::Result<Vec<String>, RemountError>> {
    ask_in_words(root, ENCRYPTION, request)
}

fn ask_in_words(
    root: &Path,
    start: &str,
    words: &str,
) -> io::Result<std::result::Result<Vec<String>, RemountError>> {
    let room = NAME_MAX - TRUSTED.len() - start.len();
    if words.len() > room {
        return Ok(Err(RemountError(format!(
            "too many options at once (at most {room} characters): give them in several commands"
        ))));
    }
    let command = Zeroizing::new(format!("{start}{words}"));
    Ok(understand(&ask(root, &command)?))
}

/// Asks the daemon of the mount with this root to make the whole volume durable, with all data that
/// the kernel holds.
///
/// # Errors
/// `EOPNOTSUPP` if the kernel does not say when all of that has arrived (Linux before 6.16, while a
/// file is open that is written through the page cache), what the daemon answers, or as
/// [`remount`].
pub fn sync(root: &Path) -> io::Result<()> {
    ask(root, SYNC).map(drop)
}

/// Asks the daemon of the mount with this root to empty the log, with the flags of
/// `EXT4_IOC_CHECKPOINT`.
///
/// # Errors
/// `EPERM`, what the daemon answers, or as [`remount`].
pub fn checkpoint(root: &Path, flags: u32) -> io::Result<()> {
    ask(root, &format!("{CHECKPOINT}{flags}")).map(drop)
}

/// Asks it to write everything, and then nothing until the [`thaw`].
///
/// # Errors
/// As [`checkpoint`].
pub fn freeze(root: &Path) -> io::Result<()> {
    ask(root, FREEZE).map(drop)
}

/// Asks it to end a freeze.
///
/// # Errors
/// As [`checkpoint`].
pub fn thaw(root: &Path) -> io::Result<()> {
    ask(root, THAW).map(drop)
}

/// Asks it how a file lies on the volume, or, with `moved`, to move it into fewer pieces.
///
/// # Errors
/// As [`checkpoint`].
pub fn defragment(root: &Path, ino: u32, moved: bool) -> io::Result<Defragmented> {
    let answer = ask(root, &format!("{}{ino}", if moved { DEFRAG } else { FRAGMENTS }))?;
    let text = std::str::from_utf8(&answer).ok().and_then(|text| text.strip_prefix('+'));
    let understood = text.and_then(|text| text.parse().ok());
    understood.ok_or_else(other_version)
}

/// Asks it to make the volume so many bytes long, or as long as its device. It may end early: then
/// the volume has fewer blocks than the target, and the request is repeated.
///
/// # Errors
/// As [`remount`]; the inner one is the line of a refusal.
pub fn grow(
    root: &Path,
    bytes: Option<u64>,
) -> io::Result<std::result::Result<Resized, RemountError>> {
    let number = bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    let answer = ask(root, &format!("{GROW}{number}"))?;
    let text = String::from_utf8_lossy(&answer);
    match text.strip_prefix('+') {
        Some(numbers) => numbers.parse().map(Ok).map_err(|()| other_version()),
        None => Ok(Err(RemountError(text.trim_start_matches('-').to_owned()))),
    }
}

fn other_version() -> io::Error {
    io::Error::other("the mount is of another version")
}

const TRUSTED: &str = "trusted.";
/// How often a request is repeated that the daemon cannot serve yet, and how long after.
const TRIES: u32 = 500;
const BETWEEN: Duration = Duration::from_millis(10);

/// The client's side: sends a request, with the kernel's check of CAP_SYS_ADMIN if this process has
/// it, else with the daemon's.
fn ask(root: &Path, command: &str) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; ANSWER];
    let mut read = |start: &str| {
        let name = Zeroizing::new(format!("{start}{command}"));
        let mut tries = 0;
        let len = loop {
            match rustix::fs::getxattr(root, name.as_str(), &mut buffer[..]) {
                // No other thread serves the kernel's writes yet: the mount has just begun.
                Err(Os::AGAIN) if tries < TRIES => tries += 1,
                answer => break answer?,
            }
            std::thread::sleep(BETWEEN);
        };
        Ok(buffer.get(..len).unwrap_or_default().to_vec())
    };
    match read(TRUSTED) {
        // The kernel's way to refuse it; also that of other file systems.
        Err(Os::NODATA | Os::PERM | Os::OPNOTSUPP) => Ok(read("user.")?),
        answer => Ok(answer?),
    }
}

/// Makes the kernel's flags of the mount on `dir` those of `config`: read-only or not, `nosuid`,
/// `noatime` …
///
/// # Errors
/// `EBUSY` if it should become read-only while files are open for writing, `EPERM` for ordinary
/// users.
pub fn set_flags(dir: &Path, config: &MountConfig) -> io::Result<()> {
    rustix::mount::mount_remount(dir, config.kernel_flags(), c"").map_err(|error| match error {
        Os::BUSY => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "files are open for writing, or unlinked files are still open",
        ),
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        assert_eq!(understand(b"+"), Ok(vec![]));
        assert_eq!(understand(b"+one\ntwo"), Ok(vec!["one".to_owned(), "two".to_owned()]));
        assert_eq!(understand(b"-no: a reason"), Err(RemountError("no: a reason".into())));
        let long = "x".repeat(300);
        assert_eq!(
            request(b"user.extol.remount:ro"),
            Some((CheckedBy::Daemon, "extol.remount:ro"))
        );
        assert_eq!(request(b"trusted.extol.freeze"), Some((CheckedBy::Kernel, "extol.freeze")));
        for other in
            ["user.extol.stats", "user.extol.freezer", "security.extol.freeze", "trusted.x"]
        {
            assert_eq!(request(other.as_bytes()), None, "{other}");
        }
        assert!(
            remount(Path::new("/"), &long).unwrap().unwrap_err().0.contains("several commands")
        );
    }
}
