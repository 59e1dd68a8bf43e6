//! FUSE connections: which process serves a mount.
//!
//! The kernel names a connection by the device number of its file system. Newer kernels show it in
//! `fdinfo` of each open `/dev/fuse` that belongs to it; older ones show nothing, and then no
//! process is found.

use std::path::Path;

use crate::mounts::DeviceNumber;
use crate::process::{Process, processes};
use crate::text::{field, number, read};
use crate::users::{look_at, open_files};

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

/// The processes that serve a file system.
#[must_use]
pub fn daemons_of(device: DeviceNumber) -> Vec<Process> {
    processes().into_iter().filter(|process| served_by(*process).contains(&device)).collect()
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
