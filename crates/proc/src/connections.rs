//! FUSE connections: which process serves a mount, and which file that is of.
//!
//! The kernel names a connection by the device number of its file system. Newer kernels show it in
//! `fdinfo` of each open `/dev/fuse` that belongs to it; older ones show nothing, and then no
//! process is found.

use std::fmt;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use crate::holders::bounded;
use crate::mounts::{DeviceNumber, MountTable};
use crate::process::{Process, processes};
use crate::shown::Shown as _;
use crate::sys::look_at;
use crate::text::{field, number, read};
use crate::users::{Stat, open_files};

/// `/dev/fuse`.
const FUSE: DeviceNumber = DeviceNumber { major: 10, minor: 229 };
/// The kernel's own form of a device number has so many bits for the minor one.
const MINOR_BITS: u32 = 20;

/// The file systems that a process serves, one of them mostly.
#[must_use]
pub fn served_by(process: Process) -> Vec<DeviceNumber> {
    let links = open_files(process).unwrap_or_default();
    let of_fuse = |link: &Path| look_at(link).is_some_and(|stat| stat.rdev == FUSE);
    let info = |link: &Path| read(process.file("fdinfo").join(link.file_name()?));
    let links = links.iter().filter(|link| of_fuse(link));
    let mut served: Vec<_> = links.filter_map(|link| connection(&info(link)?)).collect();
    served.sort_unstable();
    served.dedup();
    served
}

/// The processes that serve a file system, and have its volume open where that is known.
///
/// The number alone does not name a mount: it is free again once the file system is unmounted,
/// while the process that has served that still writes, and keeps its connection.
#[must_use]
pub fn daemons_of(device: DeviceNumber, volume: Option<&Metadata>) -> Vec<Process> {
    let has_volume =
        |process| volume.is_none_or(|volume| open_stats(process).any(|file| file.is(volume)));
    let serves = |process: &Process| served_by(*process).contains(&device) && has_volume(*process);
    processes().into_iter().filter(serves).collect()
}

/// What a process has open.
fn open_stats(process: Process) -> impl Iterator<Item = Stat> {
    open_files(process).unwrap_or_default().into_iter().filter_map(|link| look_at(&link))
}

/// A process that has a file mounted through FUSE, and has it open for writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherServer {
    /// It.
    pub process: Process,
    /// Where, if that is known.
    pub dir: Option<PathBuf>,
}

/// As the end of a sentence that begins with the file: where it is, and what to do.
impl fmt::Display for OtherServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = self.process;
        match self.dir.as_deref().map(Path::shown) {
            Some(dir) => {
                write!(f, "is mounted at {dir} by {process}: unmount it first (umount {dir})")
            }
            None => {
                write!(f, "is open for writing in {process}, which serves a mount: end that first")
            }
        }
    }
}

/// What has an image mounted that is not Extol: fuse2fs and its kind lock no image. Looks for a
/// bounded time.
#[must_use]
pub fn other_server_over(file: &Metadata) -> Option<OtherServer> {
    let table = MountTable::own().ok()?;
    // Without such a mount no process needs to be looked at.
    table.iter().find(|mount| mount.is_fuse() && !mount.is_extol())?;
    let file = file.clone();
    bounded(move || {
        let mut servers = processes().into_iter().filter(|one| is_server_over(*one, &file));
        servers.find_map(|process| {
            let served = served_by(process);
            let mount = table.iter().find(|mount| served.contains(&mount.device));
            // (An Extol locks what it uses, which may be another part of the file.)
            let is_other = !mount.is_some_and(|mount| mount.is_extol());
            let dir = mount.map(|mount| mount.dir.clone());
            is_other.then_some(OtherServer { process, dir })
        })
    })
}

fn is_server_over(process: Process, file: &Metadata) -> bool {
    if process == Process::own() {
        return false;
    }
    let (mut serves, mut writes) = (false, false);
    for link in open_files(process).unwrap_or_default() {
        let Some(stat) = look_at(&link) else { continue };
        serves |= stat.rdev == FUSE;
        writes |= stat.is(file) && is_open_for_writing(process, &link);
    }
    serves && writes
}

fn is_open_for_writing(process: Process, link: &Path) -> bool {
    const ACCESS: u32 = 0o3;
    let info = link.file_name().and_then(|number| read(process.file("fdinfo").join(number)));
    let flags = info.as_deref().and_then(|info| field(info, "flags"));
    let flags = flags.and_then(|flags| std::str::from_utf8(flags).ok());
    flags.and_then(|flags| u32::from_str_radix(flags, 8).ok()).is_some_and(|f| f & ACCESS != 0)
}

/// The connection in a file of `fdinfo`.
fn connection(info: &[u8]) -> Option<DeviceNumber> {
    let name: u32 = number(field(info, "fuse_connection")?)?;
    Some(DeviceNumber { major: name >> MINOR_BITS, minor: name & ((1 << MINOR_BITS) - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_connection_is_a_device_number() {
        let of = |number: &str| connection(format!("pos:\t0\n{number}").as_bytes());
        let expected = |major, minor| Some(DeviceNumber { major, minor });
        assert_eq!(of("fuse_connection:\t39"), expected(0, 39));
        assert_eq!(of(&format!("fuse_connection:\t{}", 7 << 20 | 3)), expected(7, 3));
        assert_eq!(of("mnt_id:\t39"), None);
        assert_eq!(of("fuse_connection:\tx"), None);
    }

    #[test]
    fn this_process_serves_nothing() {
        assert_eq!(served_by(Process::own()), []);
    }
}
