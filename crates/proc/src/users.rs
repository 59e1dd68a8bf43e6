//! Which processes use a mount, a file system, or a block device.
//!
//! What a process has open are links in `/proc/PID`. Their targets are looked at by statx(2)
//! without a request to the file system (`AT_STATX_DONT_SYNC`), because its daemon may be dead or
//! may never answer. A mount that lets only its own user in refuses even that to root; then the
//! number of the mount in `fdinfo`, or the name that the link shows, decides.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::mounts::{DeviceNumber, unescape};
use crate::process::{Process, processes};
use crate::shown::Shown as _;
use crate::sys::look_at;
use crate::text::{field, number, read, words};

/// What may be in use.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// One mount: its number, the number of its file system, and where it is.
    Mount(u64, DeviceNumber, &'a Path),
    /// A file system, by all of its mounts in all namespaces.
    FileSystem(DeviceNumber),
}

/// How a process uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Usage {
    /// Its current directory is there.
    CurrentDirectory,
    /// Its root directory is there.
    Root,
    /// Its program is there.
    Program,
    /// It has a file or a directory open.
    Open(PathBuf),
    /// It has a file mapped into memory.
    Mapped(PathBuf),
}

/// A process that uses it. (The first use that was found.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// The process.
    pub process: Process,
    /// How it uses it.
    pub usage: Usage,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = self.process;
        match &self.usage {
            Usage::CurrentDirectory => write!(f, "{process}: current directory"),
            Usage::Root => write!(f, "{process}: root directory"),
            Usage::Program => write!(f, "{process}: program"),
            Usage::Open(path) => write!(f, "{process}: {} open", path.shown()),
            Usage::Mapped(path) => write!(f, "{process}: {} mapped", path.shown()),
        }
    }
}

/// All that were found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Users {
    /// The processes.
    pub users: Vec<User>,
    /// How many processes did not let this one look.
    pub hidden: usize,
}

impl Users {
    /// The most processes that a message names.
    pub const SHOWN: usize = 4;
}

/// `bash (1234): current directory, vim (1240): /mnt/a open, and 3 more`. Empty if none was found.
impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, user) in self.users.iter().take(Self::SHOWN).enumerate() {
            write!(f, "{}{user}", if n == 0 { "" } else { ", " })?;
        }
        match self.users.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// The processes that use a mount or a file system.
#[must_use]
pub fn users_of(target: Target<'_>) -> Users {
    let mut found = Users::default();
    for process in processes() {
        match usage(process, target) {
            Ok(Some(usage)) => found.users.push(User { process, usage }),
            Ok(None) => {}
            Err(Hidden) => found.hidden += 1,
        }
    }
    found
}

/// The processes that have a block device open.
#[must_use]
pub fn device_users(device: DeviceNumber) -> Users {
    let mut found = Users::default();
    for process in processes() {
        let Ok(links) = open_files(process) else {
            found.hidden += 1;
            continue;
        };
        let is_it = |link: &PathBuf| {
            let stat = look_at(link);
            stat.is_some_and(|stat| stat.rdev == device && stat.is_block_device)
        };
        if let Some(link) = links.iter().find(|link| is_it(link)) {
            let usage = Usage::Open(std::fs::read_link(link).unwrap_or_default());
            found.users.push(User { process, usage });
        }
    }
    found
}

/// A process that may not be looked at.
pub(crate) struct Hidden;

fn usage(process: Process, target: Target<'_>) -> Result<Option<Usage>, Hidden> {
    for (name, usage) in
        [("cwd", Usage::CurrentDirectory), ("root", Usage::Root), ("exe", Usage::Program)]
    {
        if is_on(&process.file(name), None, target) {
            return Ok(Some(usage));
        }
    }
    for link in open_files(process)? {
        let info = link.file_name().map(|number| process.file("fdinfo").join(number));
        if is_on(&link, info.as_deref(), target) {
            return Ok(Some(Usage::Open(std::fs::read_link(&link).unwrap_or_default())));
        }
    }
    Ok(mapped(process, target).map(Usage::Mapped))
}

/// The links of what a process has open.
pub(crate) fn open_files(process: Process) -> Result<Vec<PathBuf>, Hidden> {
    match std::fs::read_dir(process.file("fd")) {
        Ok(links) => Ok(links.flatten().map(|link| link.path()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(Hidden),
        // It has ended.
        Err(_) => Ok(Vec::new()),
    }
}

/// What [`look_at`] tells of the target of a link.
pub(crate) struct Stat {
    /// The number of its mount, if the kernel tells it.
    pub(crate) mount: Option<u64>,
    pub(crate) dev: DeviceNumber,
    pub(crate) ino: u64,
    pub(crate) rdev: DeviceNumber,
    pub(crate) is_block_device: bool,
}

impl Stat {
    /// True if it is this file, or another node of this block device.
    pub(crate) fn is(&self, file: &Metadata) -> bool {
        if file.file_type().is_block_device() {
            return self.is_block_device && self.rdev == DeviceNumber::of(file.rdev());
        }
        self.dev == DeviceNumber::of(file.dev()) && self.ino == file.ino()
    }
}

/// True if what a link leads to is on the target. `info` is its file in `fdinfo`.
fn is_on(link: &Path, info: Option<&Path>, target: Target<'_>) -> bool {
    let stat = look_at(link);
    match (target, stat) {
        (Target::FileSystem(device), Some(stat)) => stat.dev == device,
        (Target::FileSystem(_), None) => false,
        (Target::Mount(id, _, _), Some(Stat { mount: Some(mount), .. })) => mount == id,
        (Target::Mount(id, device, dir), stat) => {
            if stat.is_some_and(|stat| stat.dev != device) {
                return false;
            }
            match info
                .and_then(read)
                .as_deref()
                .and_then(|info| number::<u64>(field(info, "mnt_id")?))
            {
                Some(mount) => mount == id,
                None => std::fs::read_link(link).is_ok_and(|shown| shown.starts_with(dir)),
            }
        }
    }
}

/// A mapped file of the target's file system. (The table names no mount.)
fn mapped(process: Process, target: Target<'_>) -> Option<PathBuf> {
    let (Target::Mount(_, device, _) | Target::FileSystem(device)) = target;
    let table = std::fs::read(process.file("maps")).ok()?;
    table.split(|byte| *byte == b'\n').find_map(|line| {
        // addresses rights offset device inode name; the device in hexadecimal.
        let mut fields = words(line).skip(3);
        if hexadecimal(fields.next()?)? != device || fields.next()? == b"0" {
            return None;
        }
        let name = line.iter().position(|byte| *byte == b'/').and_then(|at| line.get(at..))?;
        Some(PathBuf::from(unescape(name)))
    })
}

/// `major:minor` in hexadecimal digits.
fn hexadecimal(field: &[u8]) -> Option<DeviceNumber> {
    let text = std::str::from_utf8(field).ok()?;
    let (major, minor) = text.split_once(':')?;
    let digits = |text| u32::from_str_radix(text, 16).ok();
    Some(DeviceNumber { major: digits(major)?, minor: digits(minor)? })
}

/// The loop devices over files below a directory, which keep its mount in use as well.
#[must_use]
pub fn loops_below(dir: &Path) -> Vec<crate::LoopDevice> {
    let below = |device: &crate::LoopDevice| {
        device.backing.as_os_str().as_bytes().starts_with(b"/") && device.backing.starts_with(dir)
    };
    crate::LoopDevice::all().into_iter().filter(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::process::Command;

    fn target(table: &crate::MountTable, path: &Path) -> (u64, DeviceNumber) {
        let stat = look_at(path).unwrap();
        let mount = table.iter().find(|mount| Some(mount.id) == stat.mount);
        (mount.map_or(0, |mount| mount.id), stat.dev)
    }

    #[test]
    fn a_process_is_found_by_what_it_has_open() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(OsStr::from_bytes(b"\xff file"));
        std::fs::write(&file, b"x").unwrap();
        let mut child = Command::new("sleep")
            .arg("60")
            .current_dir("/")
            .stdin(std::fs::File::open(&file).unwrap())
            .spawn()
            .unwrap();
        let (id, device) = target(&crate::MountTable::own().unwrap(), dir.path());
        let process = Process(child.id());
        let here = |target| users_of(target).users.into_iter().find(|u| u.process == process);
        let on_mount = here(Target::Mount(id, device, Path::new("/")));
        let on_volume = here(Target::FileSystem(device));
        let elsewhere = here(Target::Mount(u64::MAX, device, Path::new("/nonexistent")));
        child.kill().unwrap();
        child.wait().unwrap();
        // (The current directory or the program may be on the same file system.)
        assert!(on_mount.is_some() && on_volume.is_some());
        assert!(elsewhere.is_none_or(|user| matches!(user.usage, Usage::Mapped(_))));
        let open = is_on(&Process::own().file("root"), None, Target::FileSystem(device));
        assert_eq!(
            open,
            std::fs::metadata("/").unwrap().dev() == dir.path().metadata().unwrap().dev()
        );
    }

    #[test]
    fn a_message_names_a_few() {
        let user = |n| User { process: Process(n), usage: Usage::CurrentDirectory };
        let users =
            |n| Users { users: (0..n).map(|n| user(4_000_000_000 + n)).collect(), hidden: 0 };
        assert_eq!(users(0).to_string(), "");
        assert_eq!(users(1).to_string(), "process 4000000000: current directory");
        assert!(
            users(7).to_string().ends_with("process 4000000003: current directory, and 3 more")
        );
    }
}
