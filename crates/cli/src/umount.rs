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
    let kind = mount_entry(dir).map(|entry| entry.kind);
    match kind.as_deref() {
        Some(kind) if kind.starts_with("fuse") => {}
        Some(kind) => {
            return Err(Failure::new(format_args!(
                "{} is mounted as {kind}: use umount",
                dir.display()
            )));
        }
        None => return Err(Failure::new(format_args!("{} is not a mount point", dir.display()))),
    }
    let daemon = daemon_of(dir);
    extol_fuse::unmount(dir, lazy).map_err(|error| match error {
        MountError::Busy { .. } => Failure::new(format_args!("{error} (or use -l)")),
        error => error.into(),
    })?;
    if lazy || kind.is_none_or(|kind| !kind.ends_with(".extol")) {
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

/// An entry of the kernel's table of mounts.
#[derive(Debug)]
pub struct MountEntry {
    /// Its number.
    pub id: u64,
    /// `fuse.extol`, `ext4` …
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Options of the mount, then those of the file system.
    pub options: Vec<String>,
}

/// What is mounted on top of exactly `dir`.
pub fn mount_entry(dir: &Path) -> Option<MountEntry> {
    mounts_on(dir).pop()
}

/// True if the mount with this number is on top of `dir`, and of FUSE: Linux gives the number of a
/// mount that is gone to the next. (Where the table of mounts cannot be read, any mount there
/// counts.)
pub fn is_top(dir: &Path, id: u64) -> bool {
    let Ok(table) = table() else { return true };
    find(&table, &dir.to_string_lossy())
        .pop()
        .is_some_and(|top| top.id == id && top.kind.starts_with("fuse"))
}

/// All that is mounted on exactly `dir`, the topmost last.
pub fn mounts_on(dir: &Path) -> Vec<MountEntry> {
    table().map(|table| find(&table, &dir.to_string_lossy())).unwrap_or_default()
}

/// Everything that is mounted.
fn table() -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read("/proc/self/mountinfo")?).into_owned())
}

fn find(table: &str, dir: &str) -> Vec<MountEntry> {
    let mut found = Vec::new();
    for (mount, volume) in table.lines().filter_map(|line| line.split_once(" - ")) {
        let mut mount = mount.split(' ');
        let id = mount.next().and_then(|number| number.parse().ok()).unwrap_or_default();
        if mount.nth(3).is_some_and(|point| unescape(point) == dir) {
            let mut volume = volume.split(' ');
            let kind = volume.next().unwrap_or_default().to_owned();
            let source = unescape(volume.next().unwrap_or_default());
            let lists = [mount.next(), volume.next()];
            let options = lists.into_iter().flatten().flat_map(|list| list.split(','));
            found.push(MountEntry {
                id,
                kind,
                source,
                options: options.map(str::to_owned).collect(),
            });
        }
    }
    found
}

/// Mountinfo writes blanks as `\040`.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, escaped)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = escaped.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code.into());
                rest = escaped.get(3..).unwrap_or_default();
            }
            None => {
                plain.push('\\');
                rest = escaped;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let table = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
90 22 0:50 / /mnt/a\\040b rw - ext4 /dev/loop0 rw\n\
91 90 0:51 / /mnt/a\\040b rw,nosuid shared:7 - fuse.extol /disk.img rw,user_id=0\n";
        let entry = find(table, "/mnt/a b").pop().unwrap();
        assert_eq!((entry.id, entry.kind.as_str()), (91, "fuse.extol"));
        assert_eq!(entry.source, "/disk.img");
        assert_eq!(entry.options, ["rw", "nosuid", "rw", "user_id=0"]);
        assert_eq!(find(table, "/mnt/a b").len(), 2);
        assert_eq!(find(table, "/").pop().unwrap().kind, "ext4");
        assert!(find(table, "/mnt").is_empty());
        assert_eq!(unescape(r"a\134b\"), r"a\b\");
    }
}
