//! `extol umount`: unmounts and waits for the daemon.
//!
//! The mount itself names its daemon (a virtual extended attribute of the root). We hold on to that process before we
//! unmount and wait for its end afterwards: by then the journal is empty, the volume closed and its lock released.

use std::path::Path;

use extol_fuse::{DAEMON_XATTR, MountError};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags};

use crate::args::UmountArgs;
use crate::error::{Failure, Result};

/// Exit code of the daemon's child: the mount is in use.
pub const BUSY: u8 = 16;

/// Unmounts each directory.
pub fn run(args: &UmountArgs) -> Result<()> {
    let mut outcome = Ok(());
    if args.serving {
        return args.dirs.iter().try_for_each(|dir| for_daemon(dir, args.lazy));
    }
    for dir in &args.dirs {
        if let Err(failure) = unmount(dir, args.lazy) {
            failure.report();
            outcome = Err(Failure::silent(failure.code));
        }
    }
    outcome
}

/// What a daemon that was told to end has its child do. It does not do it itself: an unmount waits for the daemon's answers,
/// and a daemon that is killed while a thread of its own waits for them never ends.
fn for_daemon(dir: &Path, lazy: bool) -> Result<()> {
    if lazy {
        extol_fuse::write_back(dir);
    }
    extol_fuse::unmount(dir, lazy).map_err(|error| match error {
        MountError::Busy { .. } => Failure::silent(BUSY),
        error => error.into(),
    })
}

fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    // A dead daemon's mount cannot be looked at, but its path is as good as resolved.
    let dir = &dir.canonicalize().or_else(|_| std::path::absolute(dir)).map_err(Failure::new)?;
    match mounted_type(dir).as_deref() {
        Some(kind) if kind.starts_with("fuse") => {}
        Some(kind) => {
            return Err(Failure::new(format_args!("{} is mounted as {kind}: use umount", dir.display())));
        }
        None => return Err(Failure::new(format_args!("{} is no mount point", dir.display()))),
    }
    let daemon = daemon_of(dir);
    extol_fuse::unmount(dir, lazy).map_err(|error| match error {
        MountError::Busy { .. } => Failure::new(format_args!("{error} (or use -l)")),
        error => error.into(),
    })?;
    if let Some(daemon) = daemon.filter(|_| !lazy) {
        let mut wait = [PollFd::new(&daemon, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, None))
            .map_err(|error| Failure::system(format_args!("cannot wait for the daemon: {error}")))?;
    }
    Ok(())
}

/// The process that serves the mount on `dir`. `None` if it is dead, or not ours.
fn daemon_of(dir: &Path) -> Option<OwnedFd> {
    let mut text = [0; 32];
    let len = rustix::fs::getxattr(dir, DAEMON_XATTR, &mut text[..]).ok()?;
    let number = std::str::from_utf8(text.get(..len)?).ok()?.parse().ok()?;
    rustix::process::pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()
}

/// What the kernel knows of a mount.
#[derive(Debug)]
pub struct MountEntry {
    /// `fuse.extol`, `ext4` …
    pub kind: String,
    /// Options of the mount, then those of the file system.
    pub options: Vec<String>,
}

/// What is mounted on top of exactly `dir`.
pub fn mount_entry(dir: &Path) -> Option<MountEntry> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    find(&table, dir.to_str()?)
}

/// The type of what is mounted on top of exactly `dir`.
fn mounted_type(dir: &Path) -> Option<String> {
    mount_entry(dir).map(|entry| entry.kind)
}

fn find(table: &str, dir: &str) -> Option<MountEntry> {
    let mut found = None;
    for line in table.lines() {
        let (mount, volume) = line.split_once(" - ")?;
        if mount.split(' ').nth(4).is_some_and(|point| unescape(point) == dir) {
            let (mut mount, mut volume) = (mount.split(' ').skip(5), volume.split(' '));
            let kind = volume.next().unwrap_or_default().to_owned();
            let lists = [mount.next(), volume.nth(1)];
            let options = lists.into_iter().flatten().flat_map(|list| list.split(','));
            found = Some(MountEntry { kind, options: options.map(str::to_owned).collect() });
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
        let entry = find(table, "/mnt/a b").unwrap();
        assert_eq!(entry.kind, "fuse.extol");
        assert_eq!(entry.options, ["rw", "nosuid", "rw", "user_id=0"]);
        assert_eq!(find(table, "/").unwrap().kind, "ext4");
        assert!(find(table, "/mnt").is_none());
        assert_eq!(unescape(r"a\134b\"), r"a\b\");
    }
}
