//! `extol umount`: unmounts and waits for the daemon.
//!
//! The mount itself names its daemon (a virtual extended attribute of the root). This command opens
//! that process before it unmounts and waits for its end afterwards: by then the journal is empty,
//! the volume closed and its lock released. The daemon's exit report (`exit_report.rs`) gives the
//! exit code, and the line that goes with it.

use std::path::Path;

use extol_cli_common::{Failure, Result, warn};
use extol_fuse::{DAEMON_XATTR, MountError};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::args::UmountArgs;
use crate::exit_report::{self, Connection};
use crate::mount_table::{is_top, mount_entry};
use crate::start_cleanup;

/// Exit code of [`for_daemon`]: the mount is in use.
pub const BUSY: u8 = 16;
/// The same: it is not mounted there any more.
pub const GONE: u8 = 17;

/// Unmounts each directory.
pub fn run(args: &UmountArgs) -> Result<()> {
    let mut outcome = Ok(());
    if let Some(before) = &args.start_cleanup {
        if let [source, dir] = &args.dirs[..] {
            start_cleanup::run(source, dir, before);
        }
        return Ok(());
    }
    if let Some(id) = args.serving {
        return args.dirs.iter().try_for_each(|dir| for_daemon(dir, id, args.lazy));
    }
    for dir in &args.dirs {
        if let Err(failure) = unmount(dir, args.lazy) {
            failure.report();
            outcome = Err(Failure::silent(failure.code));
        }
    }
    outcome
}

/// Unmounts for a daemon that a signal ends, in its child or its monitor. The daemon does not do it
/// itself: an unmount waits for the daemon's answers, and a daemon that is killed while a thread of
/// its own waits for them never ends.
pub fn for_daemon(dir: &Path, id: u64, lazy: bool) -> Result<()> {
    // Another mount may stand there by now, and stays.
    if !is_top(dir, id) {
        return Err(Failure::silent(GONE));
    }
    if lazy {
        extol_fuse::write_back(dir);
    }
    extol_fuse::unmount(dir, lazy).map_err(|error| match error {
        MountError::Busy { .. } => Failure::silent(BUSY),
        error => error.into(),
    })
}

fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    // The path to the mount of a dead daemon cannot be resolved.
    let dir = &dir.canonicalize().or_else(|_| std::path::absolute(dir)).map_err(Failure::new)?;
    let mount = mount_entry(dir);
    match &mount {
        Some(mount) if mount.is_fuse() => {}
        Some(mount) => {
            return Err(Failure::new(format_args!(
                "{} is mounted as {}: use umount",
                dir.display(),
                mount.kind.display()
            )));
        }
        None => return Err(Failure::new(format_args!("{} is not a mount point", dir.display()))),
    }
    let daemon = daemon_of(dir);
    extol_fuse::unmount(dir, lazy).map_err(|error| match error {
        MountError::Busy { .. } => Failure::new(format_args!("{error} (or use -l)")),
        error => error.into(),
    })?;
    if lazy || mount.is_none_or(|mount| !mount.is_extol()) {
        return Ok(());
    }
    let (daemon, report) = match daemon {
        Ok(daemon) => daemon,
        Err(Errno::NOTCONN | Errno::CONNABORTED) => {
            let died = "is unmounted, but its daemon had died: mount the volume again to recover \
                        what was synced";
            warn(format_args!("{} {died}", dir.display()));
            return Ok(());
        }
        Err(_) => {
            let unknown = "is unmounted, but its daemon is not known and may still write";
            warn(format_args!("{} {unknown}", dir.display()));
            return Ok(());
        }
    };
    let mut wait = [PollFd::new(&daemon, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, None))
        .map_err(|error| Failure::system(format_args!("cannot wait for the daemon: {error}")))?;
    match report {
        Some(report) => report.read(),
        None => {
            let unknown =
                "is unmounted, but its daemon has sent no exit report: see the system log";
            warn(format_args!("{} {unknown}", dir.display()));
            Ok(())
        }
    }
}

/// The process that serves the mount on `dir`, and the connection for its exit report. An error if
/// it is dead, does not answer, or is not extol's.
fn daemon_of(dir: &Path) -> std::result::Result<(OwnedFd, Option<Connection>), Errno> {
    let mut text = [0; 32];
    let len = rustix::fs::getxattr(dir, DAEMON_XATTR, &mut text[..])?;
    let number =
        std::str::from_utf8(text.get(..len).unwrap_or_default()).ok().and_then(|n| n.parse().ok());
    let pid = number.and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    // While the process is open, its number is not given to another.
    let daemon = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok((daemon, exit_report::connect(pid)))
}
