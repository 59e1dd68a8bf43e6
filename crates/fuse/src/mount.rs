//! Mounting and unmounting: with mount(2) if the process has the right, else with the set-user-id
//! helper `fusermount3`.
//!
//! For mount(2) this process opens `/dev/fuse` and passes the descriptor to the kernel.
//! `fusermount3` opens `/dev/fuse` itself and sends the descriptor over a socket, whose number is
//! in `_FUSE_COMMFD`. The socket is the helper's standard input, because safe Rust lets a child
//! inherit no other descriptor.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use extol_proc::MountTable;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::mount::UnmountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::config::{BlockMount, MountConfig};
use extol_proc::Shown as _;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// Where programs are without PATH.
const STANDARD_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Read-ahead of a mount: several requests of the largest size, so that the device reads while the
/// last one is being copied.
pub(crate) const READ_AHEAD_KB: &str = "4096";

/// Why there is no mount. Each says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error(
        "no {DEVICE} on this machine: load the kernel module (modprobe fuse), or give the \
         container the device"
    )]
    NoFuse,
    /// Ordinary users need the helper.
    #[error(
        "mounting as an ordinary user needs {HELPER}: install the package fuse3, or run as root"
    )]
    NoHelper,
    /// A mount whose daemon has died stands there.
    #[error(
        "{}: the daemon of the mount there has died; take it away (extol umount {}) and mount \
         again",
        dir.shown(),
        dir.shown()
    )]
    Dead {
        /// The mount point.
        dir: PathBuf,
    },
    /// A mount that lets in only its user is there.
    #[error("{}: {} is mounted there: unmount it first (extol umount {})", dir.shown(),
        source_path.shown(), dir.shown())]
    Covered {
        /// The mount point.
        dir: PathBuf,
        /// What is mounted.
        source_path: PathBuf,
    },
    /// Not allowed.
    #[error("not allowed to mount on {}: {why}", dir.shown())]
    Permission {
        /// The mount point.
        dir: PathBuf,
        /// What was said.
        why: String,
    },
    /// Not allowed.
    #[error("not allowed to unmount {}: {why}", dir.shown())]
    UnmountPermission {
        /// The mount point.
        dir: PathBuf,
        /// What was said.
        why: String,
    },
    /// The mount cannot be taken off.
    #[error("cannot unmount {}: {why}", dir.shown())]
    Unmount {
        /// The mount point.
        dir: PathBuf,
        /// The reason.
        why: String,
    },
    /// The mount point is no usable directory.
    #[error("cannot mount on {}: {source}", dir.shown())]
    Dir {
        /// The mount point.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The kernel's FUSE is too old.
    #[error("the kernel speaks too old a FUSE protocol (before 7.{})", crate::abi::MIN_MINOR)]
    TooOld,
    /// Something that io_uring needs could not be had after it was agreed upon.
    #[error(
        "FUSE over io_uring lacks something ({0}): raise the limit (ulimit -n, ulimit -v), or \
         mount with -o noio_uring"
    )]
    Short(io::Error),
    /// Still in use.
    #[error(
        "{} is in use: close the files, or leave the directories, that are open on it",
        dir.shown()
    )]
    Busy {
        /// The mount point.
        dir: PathBuf,
    },
    /// Anything else.
    #[error("FUSE: {0}")]
    Io(#[from] io::Error),
}

/// True for what the kernel answers on a mount whose daemon has died: ENOTCONN; while the
/// connection goes down, ECONNABORTED for a request under way, and ECANCELED for one that the
/// kernel was handing to a ring of the dying task.
#[must_use]
pub fn is_dead(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

/// Checks that a mount on `dir` is possible, before the volume is opened.
///
/// # Errors
/// If `dir` is no directory, or the machine has no FUSE, or the helper is needed and missing.
pub fn check(dir: &Path) -> Result<(), MountError> {
    let dir_error = |source: io::Error| match rustix::io::Errno::from_io_error(&source) {
        Some(error) if is_dead(error) => MountError::Dead { dir: dir.to_path_buf() },
        _ => MountError::Dir { dir: dir.to_path_buf(), source },
    };
    if !std::fs::metadata(dir).map_err(dir_error)?.is_dir() {
        return Err(dir_error(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoFuse);
    }
    if !rustix::process::geteuid().is_root() {
        helper()?;
    }
    Ok(())
}

/// The path of the helper.
fn helper() -> Result<PathBuf, MountError> {
    find_program(HELPER, std::env::var_os("PATH")).ok_or(MountError::NoHelper)
}

/// The helper, which calls itself by its bare name in what it says.
fn helper_command() -> Result<Command, MountError> {
    let mut command = Command::new(helper()?);
    command.arg0(HELPER);
    Ok(command)
}

/// Looks for a program in the directories of `path`. mount(8) starts its helpers without PATH:
/// then in the standard ones.
fn find_program(program: &str, path: Option<OsString>) -> Option<PathBuf> {
    let path = path.unwrap_or_else(|| STANDARD_PATH.into());
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The kernel's end of a mount.
pub(crate) struct Attached {
    /// The FUSE device of the mount.
    pub(crate) device: OwnedFd,
    /// It is of type `fuseblk`.
    pub(crate) is_block: bool,
}

/// Mounts on `dir`.
pub(crate) fn attach(dir: &Path, config: &MountConfig) -> Result<Attached, MountError> {
    check(dir)?;
    let dir_error = |source| MountError::Dir { dir: dir.to_path_buf(), source };
    if rustix::process::geteuid().is_root() {
        let mode = std::fs::metadata(dir).map_err(dir_error)?.mode();
        if let Some(device) = attach_block_device(dir, mode, config)? {
            return Ok(Attached { device, is_block: true });
        }
        match attach_directly(dir, mode, config, None) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(dir_error(error)),
            Ok(device) => return Ok(Attached { device, is_block: false }),
        }
    }
    attach_with_helper(dir, config).map(|device| Attached { device, is_block: false })
}

/// Mounts as `fuseblk`. `None`: not wanted, or not possible here (no such file system in the
/// kernel, a device that others read, a container without the device); an ordinary mount is.
fn attach_block_device(
    dir: &Path,
    rootmode: u32,
    config: &MountConfig,
) -> Result<Option<OwnedFd>, MountError> {
    let Some(block) = &config.block else { return Ok(None) };
    block.claim.release();
    let began = Instant::now();
    loop {
        match attach_directly(dir, rootmode, config, Some(block)) {
            Ok(device) => return Ok(Some(device)),
            // A process that has just been started closes what it inherited a moment later.
            Err(error) if is_busy(&error) && began.elapsed() < IN_USE => thread::sleep(TRY),
            Err(_) => break,
        }
    }
    block.claim.take()?;
    Ok(None)
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

fn attach_directly(
    dir: &Path,
    rootmode: u32,
    config: &MountConfig,
    block: Option<&BlockMount>,
) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let mut data = format!(
        "fd={},rootmode={rootmode:o},user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if config.default_permissions {
        data.push_str(",default_permissions");
    }
    if config.allow_other {
        data.push_str(",allow_other");
    }
    let (source, kind) = match block {
        None => (Path::new(&config.source), "fuse"),
        Some(block) => {
            // Linux takes no block larger than a page.
            let size =
                block.block_size.min(u32::try_from(rustix::param::page_size()).unwrap_or(4096));
            data.push_str(&format!(",blksize={size}"));
            (block.device.as_path(), "fuseblk")
        }
    };
    let data = std::ffi::CString::new(data)?;
    let kind = format!("{kind}.{}", config.subtype);
    rustix::mount::mount(source, dir, kind.as_str(), config.kernel_flags(), data.as_c_str())?;
    Ok(device.into())
}

fn attach_with_helper(dir: &Path, config: &MountConfig) -> Result<OwnedFd, MountError> {
    let mut options = if config.read_only { "ro" } else { "rw" }.to_owned();
    let further = [
        config.default_permissions.then_some("default_permissions"),
        config.allow_other.then_some("allow_other"),
    ];
    for word in further.into_iter().flatten().chain(config.helper_flags()) {
        options.push(',');
        options.push_str(word);
    }
    let mut options = OsString::from(options);
    for (name, value) in
        [(",fsname=", &config.source), (",subtype=", &config.subtype.as_str().into())]
    {
        options.push(name);
        options.push(escape(value));
    }

    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(io::Error::from)?;
    let mut child = helper_command()?
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => MountError::Io(error),
        })?;
    let device = receive(&ours);
    drop(ours);
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let status = child.wait()?;
    if status.success() && !matches!(device, Ok(Some(_))) {
        // The mount stands, and nothing would ever answer.
        undo(dir);
        let short = "the device of the mount has not arrived: raise the limit (ulimit -n)";
        return Err(MountError::Io(device.err().unwrap_or_else(|| io::Error::other(short))));
    }
    match device {
        Ok(Some(device)) if status.success() => Ok(device),
        Ok(_) => {
            let why = match said.trim() {
                "" => format!("{HELPER} failed ({status})"),
                said => said.lines().next().unwrap_or(said).to_owned(),
            };
            // The helper has no allow_root: the kernel lets all in, and the daemon root alone.
            let why = match config.allow_root {
                true => why.replace("option allow_other", "option allow_root"),
                false => why,
            };
            let dir = dir.to_path_buf();
            Err(match what_is_mounted(&dir) {
                Some(source_path) => MountError::Covered { dir, source_path },
                None => MountError::Permission { dir, why },
            })
        }
        Err(error) => Err(MountError::Io(error)),
    }
}

/// The source of a mount that FUSE keeps for its own user: the helper is root's, and is not let in.
fn what_is_mounted(dir: &Path) -> Option<PathBuf> {
    let table = MountTable::own().ok()?;
    let mount = table.top(dir).filter(|mount| mount.is_fuse())?;
    (!mount.has_option("allow_other")).then(|| PathBuf::from(&mount.source))
}

/// A value in a list of the helper, which splits at commas.
fn escape(value: &OsStr) -> OsString {
    let escaped = value.as_bytes().iter().flat_map(|byte| {
        let escape = matches!(byte, b'\\' | b',').then_some(b'\\');
        escape.into_iter().chain([*byte])
    });
    OsString::from_vec(escaped.collect())
}

/// The descriptor that the helper sends; `None` if it hangs up.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

/// Unmounts after a start that failed. The connection is aborted first, where that is possible: the
/// kernel may make requests during the unmount, and there may be no thread that answers.
pub fn undo(dir: &Path) {
    if let Some((major, minor)) = device_number(dir) {
        abort(major, minor);
    }
    let _ = unmount(dir, true);
}

/// Ends the connection of a file system with this device number: every request that waits, and
/// every later one, fails. Where `/sys/fs/fuse/connections` is mounted, the mounting user may.
pub fn abort(major: u32, minor: u32) {
    // The kernel writes its own form of a device number.
    let name = u64::from(major) << 20 | u64::from(minor);
    let _ = std::fs::write(format!("/sys/fs/fuse/connections/{name}/abort"), "1");
}

/// Takes the mount off `dir` though it is in use and its daemon does not answer. What the kernel
/// has not written back is lost.
///
/// # Errors
/// As [`unmount`], but for [`MountError::Busy`].
pub fn unmount_by_force(dir: &Path) -> Result<(), MountError> {
    // Ends the connection, too, where `/sys` does not offer that.
    match rustix::mount::unmount(dir, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(_) => unmount(dir, true),
    }
}

/// The device number of the mount on `dir`, from the kernel's own state. A request to the mount
/// could wait for ever: if the process that serves it is killed first, no signal ends the wait.
fn device_number(dir: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let known = rustix::fs::statx(rustix::fs::CWD, dir, flags, StatxFlags::empty()).ok()?;
    Some((known.stx_dev_major, known.stx_dev_minor))
}

/// Makes the kernel write its dirty pages of the mount on `dir` back.
pub fn write_back(dir: &Path) {
    if let Ok(dir) = std::fs::File::open(dir) {
        let _ = rustix::fs::syncfs(&dir);
    }
}

/// How long a mount that is in use is tried again: a process that is just closing a file of it is
/// gone by then.
const IN_USE: Duration = Duration::from_millis(500);
/// Between two tries.
const TRY: Duration = Duration::from_millis(5);

/// Takes the mount off `dir`. With `lazy` it goes out of sight at once and ends when its last file
/// is closed.
///
/// # Errors
/// [`MountError::Busy`] if it is in use, and half a second later, too (and not `lazy`), others if
/// nothing is mounted or the process has no right to unmount it.
pub fn unmount(dir: &Path, lazy: bool) -> Result<(), MountError> {
    let began = Instant::now();
    loop {
        match unmount_now(dir, lazy) {
            Err(MountError::Busy { .. }) if began.elapsed() < IN_USE => thread::sleep(TRY),
            result => return result,
        }
    }
}

fn unmount_now(dir: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::Busy { dir: dir.to_path_buf() }),
        Err(rustix::io::Errno::PERM) => unmount_with_helper(dir, lazy),
        Err(rustix::io::Errno::INVAL) => Err(cannot_unmount(dir, "nothing is mounted there")),
        Err(error) => Err(cannot_unmount(dir, &io::Error::from(error).to_string())),
    }
}

fn cannot_unmount(dir: &Path, why: &str) -> MountError {
    MountError::Unmount { dir: dir.to_path_buf(), why: why.to_owned() }
}

fn unmount_with_helper(dir: &Path, lazy: bool) -> Result<(), MountError> {
    let output = helper_command()?
        .arg("-u")
        .args(lazy.then_some("-z"))
        .arg("--")
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => MountError::Io(error),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("busy") {
        return Err(MountError::Busy { dir: dir.to_path_buf() });
    }
    let why = match said.trim().lines().next() {
        // What it says of a mount of another user.
        Some(line) if line.contains("not found in /etc/mtab") => {
            "only root and the user that mounted it can unmount it"
        }
        line => line.unwrap_or("fusermount3 failed"),
    };
    Err(MountError::UnmountPermission { dir: dir.to_path_buf(), why: why.to_owned() })
}

/// Percent of the dirty memory of all file systems that this mount may have, as a disk may. The
/// kernel gives FUSE mounts one percent, because a daemon might hang.
const MAX_RATIO: &str = "40";

/// Sets how much of the mount on `dir` may be dirty, and opens the file that sets how much is read
/// ahead. Best effort: only root may.
pub(crate) fn tune_cache(dir: &Path) -> Option<File> {
    let (major, minor) = device_number(dir)?;
    let name = format!("{major}:{minor}");
    // A mount of a block device shares the device's number, but not how it writes back.
    let bdis = Path::new("/sys/class/bdi");
    let own = bdis.join(format!("{name}-fuseblk"));
    let bdi = if own.exists() { own } else { bdis.join(name) };
    let _ = std::fs::write(bdi.join("max_ratio"), MAX_RATIO);
    File::options().write(true).open(bdi.join("read_ahead_kb")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mount(8) starts a helper without PATH.
    #[test]
    fn without_a_path_programs_are_in_the_standard_directories() {
        let shell = find_program("sh", None).unwrap();
        assert!(STANDARD_PATH.split(':').any(|dir| shell.parent() == Some(Path::new(dir))));
        assert_eq!(find_program("sh", Some("/nonexistent:/bin".into())), Some("/bin/sh".into()));
        assert_eq!(find_program("sh", Some("/nonexistent".into())), None);
        assert_eq!(find_program("extol-no-such-program", None), None);
    }

    #[test]
    fn an_unmount_that_fails_says_so() {
        let error = unmount(Path::new("/nonexistent"), false).unwrap_err();
        assert!(matches!(error, MountError::Unmount { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot unmount /nonexistent: "), "{error}");
        let error = MountError::UnmountPermission { dir: "/x".into(), why: "no".into() };
        assert_eq!(error.to_string(), "not allowed to unmount /x: no");
    }
}
