//! `extol umount`: unmounts and waits for the daemon.
//!
//! ```text
//!   mount table ─► which mount ─► its daemon ─► umount(2) ─► end of the daemon ─► exit report
//!                                    │             │             │
//!                                    ╰── each wait is bounded, or says for what ──╯  (waiting.rs)
//! ```
//!
//! The mount itself names its daemon (a virtual extended attribute of the root); where it does not
//! answer, or lets only its own user in, `/proc` does. This command opens that process before it
//! unmounts and waits for its end afterwards: by then the journal is empty, the volume closed and
//! its lock released. The daemon's exit report (`exit_report.rs`) gives the exit code, and the line
//! that goes with it.
//!
//! Whatever asks the daemon, umount(2) included, is done by a child. It may wait out of reach of
//! every signal, and a process of which one thread waits so does not end.
//!
//! Odd cases: the daemon is dead (the mount is taken off, and a line says so); it does not answer
//! (its number is not known, so its end is not waited for); the file system is mounted in other
//! places or mount namespaces (it ends with the last of them, and they are named).

mod waiting;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use extol_cli_common::{Failure, Result, warn};
use extol_fuse::{DAEMON_XATTR, MountError};
use extol_proc::{Mount, MountTable, Process, Shown as _, Target, Users, image_of};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::args::UmountArgs;
use crate::as_typed::as_typed;
use crate::exit_report::{self, Connection};
use crate::mount_table::{is_top, mount_entry};
use crate::mounted::owner_alone;
use crate::sandbox::process;
use crate::{interrupt, start_cleanup};
use waiting::{Deadline, End, Wait};

/// Exit code of [`for_daemon`]: the mount is in use.
pub const BUSY: u8 = 16;
/// The same: it is not mounted there any more.
pub const GONE: u8 = 17;
/// The same: its daemon is dead.
const DEAD: u8 = 18;
/// Exit code of umount(8): of several mounts some were unmounted.
const SOME: u8 = 64;

/// How many seconds the daemon may take to tell its number.
const ANSWER_SECONDS: f64 = 3.0;
const FORCE_ANSWER_SECONDS: f64 = 1.0;
/// How long a forced unmount waits for write-back.
const WRITE_BACK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a forced unmount waits before the next step against the daemon.
const FORCE_STEP: Duration = Duration::from_secs(3);
/// (Two within a second are one.)
const BETWEEN_SIGNALS: Duration = Duration::from_millis(1100);
/// Between two attempts at a mount that is in use.
const RETRY: Duration = Duration::from_millis(100);

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// If it is not in use.
    Normal,
    /// Out of sight now; it ends with its last user.
    Lazy,
    /// The kernel's connection to the daemon is ended first.
    Force,
}

/// Unmounts each directory.
pub fn run(args: &UmountArgs) -> Result<()> {
    args.refused.check()?;
    let how = match (args.force, args.lazy) {
        (true, _) => How::Force,
        (_, true) => How::Lazy,
        _ => How::Normal,
    };
    if let Some(before) = &args.start_cleanup {
        if let [source, dir] = &args.dirs[..] {
            start_cleanup::run(source, dir, before);
        }
        return Ok(());
    }
    if let Some(id) = args.serving {
        return args.dirs.iter().try_for_each(|dir| match args.tell_daemon {
            true => tell_daemon(dir),
            false => for_daemon(dir, id, how),
        });
    }
    let dirs = args.dirs.iter().map(|dir| Place::of(dir)).collect::<Result<Vec<_>>>()?;
    // This process keeps no mount in use.
    let _ = std::env::set_current_dir("/");
    process::close_inherited(None);
    interrupt::exit_on_signals(waiting::end_child)?;
    let mut codes = Vec::new();
    for place in dirs {
        let done = Unmount::find(&place).and_then(|unmount| unmount.run(how, args));
        let done = done.map_err(|failure| Failure {
            line: as_typed(&failure.line, &place.path, place.typed),
            ..failure
        });
        codes.push(match done {
            Ok(()) => 0,
            Err(failure) if args.quiet && failure.code == GONE => Failure::FAILED,
            Err(failure) => {
                failure.report();
                if failure.code == GONE { Failure::FAILED } else { failure.code }
            }
        });
    }
    match codes.iter().max() {
        None | Some(0) => Ok(()),
        Some(_) if codes.contains(&0) => Err(Failure::silent(SOME)),
        Some(worst) => Err(Failure::silent(*worst)),
    }
}

/// Unmounts in a child or in the monitor of a daemon that a signal ends, or in a child of
/// `extol umount`. The daemon does not do it itself: an unmount waits for the daemon's answers, and
/// a daemon that is killed while a thread of its own waits for them never ends.
pub fn for_daemon(dir: &Path, id: u64, how: How) -> Result<()> {
    // Another mount may stand there by now, and stays.
    let mount = mount_entry(dir);
    if !is_top(dir, id) {
        return Err(Failure::silent(GONE));
    }
    let done = match how {
        How::Normal => extol_fuse::unmount(dir, false),
        How::Lazy => {
            extol_fuse::write_back(dir);
            extol_fuse::unmount(dir, true)
        }
        How::Force => {
            write_back_for(dir, WRITE_BACK_TIMEOUT);
            if let Some(device) = mount.map(|mount| mount.device) {
                extol_fuse::abort(device.major, device.minor);
            }
            extol_fuse::unmount_by_force(dir)
        }
    };
    done.map_err(|error| match error {
        MountError::Busy { .. } => Failure::silent(BUSY),
        error => error.into(),
    })
}

/// Write-back by a daemon that may not answer.
fn write_back_for(dir: &Path, limit: Duration) {
    let (done, wait) = mpsc::channel();
    let dir = dir.to_owned();
    let started = std::thread::Builder::new().spawn(move || {
        extol_fuse::write_back(&dir);
        let _ = done.send(());
    });
    if started.is_ok() {
        let _ = wait.recv_timeout(limit);
    }
}

/// What was named on the command line.
struct Place<'a> {
    typed: &'a Path,
    path: PathBuf,
    /// Why it does not resolve.
    error: Option<std::io::Error>,
}

impl<'a> Place<'a> {
    fn of(typed: &'a Path) -> Result<Self> {
        let about = |error: std::io::Error| Failure::system_call(typed.shown(), error);
        Ok(match typed.canonicalize() {
            Ok(path) => Self { typed, path, error: None },
            // The path to the mount of a dead daemon may not resolve.
            Err(error) => {
                let path = std::path::absolute(typed).map_err(about)?;
                Self { typed, path, error: Some(error) }
            }
        })
    }

    /// The failure for what is no mount.
    fn is_no_mount(&self) -> Failure {
        let what = self.typed.shown();
        let failure = match &self.error {
            Some(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Failure::about(what, error)
            }
            _ => Failure::new(format_args!("{what} is not a mount point")),
        };
        Failure { code: GONE, ..failure }
    }
}

/// A mount that is to go.
struct Unmount {
    mount: Mount,
    /// Where it is, for messages: as it was typed, unless that is the image or the device.
    shown: String,
}

/// The process that serves a mount, and the connection for its exit report.
struct Daemon {
    pid: Pid,
    process: OwnedFd,
    report: Option<Connection>,
}

impl Unmount {
    /// What is mounted on a directory, or what this image or device is mounted as.
    fn find(place: &Place<'_>) -> Result<Self> {
        let path = &place.path;
        let table = MountTable::own().map_err(|error| Failure::about("/proc", error))?;
        let mount = match table.top(path) {
            Some(mount) => Some(mount),
            None => of_volume(&table, path)?,
        };
        match mount {
            Some(mount) if mount.is_fuse() => {
                let shown = if mount.dir == *path { place.typed } else { mount.dir.as_path() };
                Ok(Self { mount: mount.clone(), shown: shown.shown().to_string() })
            }
            Some(mount) => Err(Failure::new(format_args!(
                "{} is mounted as {}: use umount",
                path.shown(),
                mount.kind.shown()
            ))),
            None => Err(place.is_no_mount()),
        }
    }

    fn dir(&self) -> &Path {
        &self.mount.dir
    }

    fn run(&self, how: How, args: &UmountArgs) -> Result<()> {
        let deadline = Deadline::after(args.timeout);
        let daemon = self.daemon(how, args.timeout);
        let process = daemon.as_ref().ok().map(|daemon| &daemon.process);
        self.detach(how, &deadline, process)?;
        if how == How::Lazy || !self.mount.is_extol() {
            self.say(args);
            return Ok(());
        }
        let dir = &self.shown;
        match daemon {
            Ok(daemon) => {
                if how == How::Force {
                    Self::signal_until_end(&daemon.process, &daemon.process)?;
                }
                self.wait_for_end(daemon, &deadline)?;
            }
            Err(error) if extol_fuse::is_dead(error) => warn(format_args!(
                "{dir} is unmounted, but its daemon had died: mount the volume again to recover \
                 what was synced"
            )),
            Err(_) => warn(format_args!(
                "{dir} is unmounted, but its daemon is not known and may still write"
            )),
        }
        self.say(args);
        Ok(())
    }

    fn say(&self, args: &UmountArgs) {
        if args.verbose {
            let source = Path::new(&self.mount.source);
            warn(format_args!("{} ({}) is unmounted", self.shown, source.shown()));
        }
    }

    /// Its daemon. An error if that is dead, does not answer in time, or is not extol's.
    fn daemon(&self, how: How, timeout: Option<f64>) -> std::result::Result<Daemon, Errno> {
        if !self.mount.is_extol() {
            return Err(Errno::SRCH);
        }
        let seconds = if how == How::Force { FORCE_ANSWER_SECONDS } else { ANSWER_SECONDS };
        let limit = Deadline::after(Some(timeout.map_or(seconds, |t| seconds.min(t.max(1.0)))));
        let asks = || format!("waiting for an answer of the daemon of {}", self.shown);
        let asked = self
            .start_child(&["--tell-daemon"])
            .and_then(|child| Wait::new(&limit).for_child(child, asks));
        match asked {
            Ok(Some(End { code: 0, said })) => open_daemon(said.trim()),
            Ok(Some(End { code: DEAD, .. })) => Err(Errno::NOTCONN),
            // FUSE does not let even root into the mount of an ordinary user.
            Ok(Some(_)) | Err(_) => self.daemon_in_proc().ok_or_else(|| self.state_for_owner()),
            Ok(None) => {
                warn(format_args!("the daemon of {} does not answer", self.shown));
                self.daemon_in_proc().ok_or(Errno::TIMEDOUT)
            }
        }
    }

    /// Its daemon, known by its connection to the kernel, or by the volume that it has locked or
    /// open.
    fn daemon_in_proc(&self) -> Option<Daemon> {
        let device = self.mount.device;
        let volume = std::fs::metadata(image_of(Path::new(&self.mount.source))).ok();
        let known = volume.clone();
        let mut found = extol_proc::bounded(move || extol_proc::daemons_of(device, known.as_ref()));
        if let Some(volume) = volume.filter(|_| found.is_empty()) {
            found = extol_proc::volume_holders(&volume);
        }
        let [daemon] = found[..] else { return None };
        open_daemon(&daemon.0.to_string()).ok()
    }

    /// What a process of the mount's owner finds that asks for the daemon, where root is not let in
    /// and no process is found. (A number that it gives is not used: it would be the owner's word.)
    fn state_for_owner(&self) -> Errno {
        let limit = Deadline::after(Some(FORCE_ANSWER_SECONDS));
        let asks = || format!("waiting for an answer of the daemon of {}", self.dir().shown());
        let Some(uid) = owner_alone(&self.mount).filter(|_| rustix::process::geteuid().is_root())
        else {
            return Errno::SRCH;
        };
        let mut child = self.child(&["--tell-daemon"]);
        child.uid(uid).gid(self.mount.group_id().unwrap_or(uid));
        let asked = waiting::start(&mut child);
        match asked.and_then(|child| Wait::new(&limit).for_child(child, asks)) {
            Ok(Some(End { code: DEAD, .. })) => Errno::NOTCONN,
            _ => Errno::SRCH,
        }
    }

    /// Takes the mount off.
    fn detach(&self, how: How, deadline: &Deadline, daemon: Option<&OwnedFd>) -> Result<()> {
        let dir = &self.shown;
        let mut wait = Wait::new(deadline);
        let flag = match how {
            How::Normal => &[][..],
            How::Lazy => &["--lazy"],
            How::Force => &["--force"],
        };
        loop {
            let child = self.start_child(flag)?;
            if how == How::Force {
                Self::end_by_force(&child, daemon)?;
            }
            match wait.for_child(child, || self.detach_waits())? {
                None => {
                    let by = match self.suffix() {
                        by if by.is_empty() => by,
                        by => format!(": it is in use{by}"),
                    };
                    return Err(Failure::new(format_args!(
                        "{dir} is not unmounted after {deadline}{by}; the unmount goes on"
                    )));
                }
                Some(End { code: 0, .. }) => return Ok(()),
                Some(End { code: BUSY, .. }) if deadline.is_given() && !deadline.is_over() => {
                    wait.tell(|| format!("{dir} is in use{}", self.suffix()));
                    std::thread::sleep(RETRY);
                }
                Some(End { code: BUSY, .. }) if deadline.is_given() => {
                    return Err(Failure::new(format_args!(
                        "{dir} is not unmounted after {deadline}: it is in use{}",
                        self.suffix()
                    )));
                }
                Some(End { code: BUSY, .. }) => {
                    return Err(Failure::new(format_args!(
                        "{dir} is in use{}: close that first, or use -l, or --timeout to wait",
                        self.suffix()
                    )));
                }
                Some(End { code: GONE, .. }) => {
                    return Err(Failure::new(format_args!("{dir} was unmounted meanwhile")));
                }
                Some(End { code, said }) => return Err(Failure { line: said, code }),
            }
        }
    }

    /// Ends a daemon on which an unmount by force waits: over io_uring the kernel waits for the
    /// threads of the daemon, which may be stopped.
    fn end_by_force(child: &Child, daemon: Option<&OwnedFd>) -> Result<()> {
        let Some(daemon) = daemon else { return Ok(()) };
        let unmount = waiting::open_child(child)?;
        Self::signal_until_end(&unmount, daemon)
    }

    /// Signals a daemon until `process` ends: first as asked to end, twice, so that it does not
    /// wait for files that are open; then it is killed.
    fn signal_until_end(process: &OwnedFd, daemon: &OwnedFd) -> Result<()> {
        for signals in [&[Signal::TERM, Signal::TERM][..], &[Signal::KILL]] {
            if waiting::ends_within(process, FORCE_STEP)? {
                return Ok(());
            }
            for signal in signals {
                let _ = rustix::process::pidfd_send_signal(daemon, *signal);
                if waiting::ends_within(process, BETWEEN_SIGNALS)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Starts a child that has this mount to itself.
    fn start_child(&self, flags: &[&str]) -> Result<Child> {
        waiting::start(&mut self.child(flags))
    }

    fn child(&self, flags: &[&str]) -> Command {
        let mut child = Command::new("/proc/self/exe");
        child.arg0("extol").args(["umount", "--serving", &self.mount.id.to_string()]).args(flags);
        // It may outlive this process, and keeps nothing of the caller open.
        child.arg("--").arg(self.dir());
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        child
    }

    /// Why umount(2) has not returned.
    fn detach_waits(&self) -> String {
        let dir = &self.shown;
        format!("waiting for {dir}: its daemon still writes, or does not answer (-f ends that)")
    }

    /// ` by bash (1234): current directory, …` where that is known.
    fn suffix(&self) -> String {
        let Mount { id, device, dir, .. } = &self.mount;
        let table = MountTable::own().unwrap_or_default();
        if let Some(above) = table.iter().find(|mount| mount.parent == *id) {
            return format!(" by the mount on {}", above.dir.shown());
        }
        let (id, device, place) = (*id, *device, dir.clone());
        let mut users =
            extol_proc::bounded(move || extol_proc::users_of(Target::Mount(id, device, &place)));
        users.users.retain(|user| user.process != Process::own());
        if !users.users.is_empty() {
            return format!(" by {users}");
        }
        if let Some(device) = extol_proc::loops_below(dir).first() {
            let (node, file) = (device.node.shown(), device.backing.shown());
            return format!(" by {node} over {file}");
        }
        hidden(&users)
    }

    /// Waits for the end of the daemon, and reads how it ended.
    fn wait_for_end(&self, daemon: Daemon, deadline: &Deadline) -> Result<()> {
        let Daemon { pid, process, report } = daemon;
        let dir = &self.shown;
        let device = self.mount.device;
        let reason = || match extol_proc::holder_of(device) {
            Some(holder) => format!("the volume {holder}"),
            None => "it still writes".to_owned(),
        };
        let waits = || format!("{dir} is unmounted; waiting for its daemon ({pid}): {}", reason());
        if !Wait::new(deadline).for_process(&process, waits)? {
            return Err(Failure::new(format_args!(
                "{dir} is unmounted, but its daemon ({pid}) has not ended after {deadline}: {}",
                reason()
            )));
        }
        match report {
            Some(report) => report.read(),
            None => {
                let unknown =
                    "is unmounted, but its daemon has sent no exit report: see the system log";
                warn(format_args!("{dir} {unknown}"));
                Ok(())
            }
        }
    }
}

/// The mount of an image or a device, which may be gone by now. Of an image with several volumes it
/// is not said which is meant.
fn of_volume<'t>(table: &'t MountTable, path: &Path) -> Result<Option<&'t Mount>> {
    let named = || table.iter().rev().find(|m| m.is_extol() && m.source == *path);
    if extol_proc::split_part(path).is_some() {
        return Ok(named());
    }
    let Ok(volume) = std::fs::metadata(path) else { return Ok(named()) };
    let found = table.of_volume(&volume, Path::new("/"));
    let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(named()) };
    if found.iter().all(|mount| mount.device == last.device) {
        return Ok(Some(last));
    }
    Err(Failure::new(format_args!(
        "{} holds several volumes that are mounted (at {}, {} ...): name the directory",
        path.shown(),
        first.dir.shown(),
        last.dir.shown()
    )))
}

/// Why no process is named.
fn hidden(users: &Users) -> String {
    match users.hidden {
        0 => String::new(),
        _ => " (perhaps by processes of other users, which root sees)".to_owned(),
    }
}

/// Tells the parent which process serves the mount on `dir`, as text.
fn tell_daemon(dir: &Path) -> Result<()> {
    let mut text = [0; 32];
    match rustix::fs::getxattr(dir, DAEMON_XATTR, &mut text[..]) {
        Ok(len) => {
            let text = text.get(..len).unwrap_or_default();
            let _ = std::io::stderr().write_all(text);
            Ok(())
        }
        Err(error) if extol_fuse::is_dead(error) => Err(Failure::silent(DEAD)),
        Err(_) => Err(Failure::silent(Failure::FAILED)),
    }
}

/// Opens the process with this number and connects to it.
fn open_daemon(number: &str) -> std::result::Result<Daemon, Errno> {
    let pid = number.parse().ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    // While the process is open, its number is not given to another.
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Daemon { pid, process, report: exit_report::connect(pid) })
}
