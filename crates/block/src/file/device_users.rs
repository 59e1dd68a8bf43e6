//! What uses a block device: a mount of the kernel or another process.

use super::busy::is_busy;
use super::holder::{self, MountedAt};
use crate::sys;
use extol_proc::{DeviceNumber, Process, Shown as _};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Err if a loop device over this image is in use, but for what `daemon` claims itself. For a
/// process that asks the daemon of the image to write again: it may see and open what the daemon's
/// sandbox does not allow.
///
/// # Errors
/// One line that names the image and what uses it.
pub fn check_loop_devices(image: &Path, daemon: Option<Process>) -> crate::Result<()> {
    let Ok(meta) = std::fs::metadata(image) else { return Ok(()) };
    for device in extol_proc::loop_devices_over(meta.dev(), meta.ino()) {
        let node = device.node.as_path();
        let opened = sys::open_exclusively(node);
        let is_its = || {
            let users = extol_proc::device_users(device.number).users;
            daemon.is_none_or(|daemon| users.iter().any(|user| user.process == daemon))
        };
        let why = match holder::kernel_mount(&numbers_below(&device.sysfs)) {
            Some(at) => at.sentence(),
            None if is_busy(&opened) && !is_its() => device_holder(node),
            None => continue,
        };
        let why = format!("backs {}, which {why}", node.shown());
        return Err(super::options::refuse(image, std::io::ErrorKind::ResourceBusy, why));
    }
    Ok(())
}

/// True if the kernel refuses writes to this block device. (Opening it for writing succeeds.)
pub(super) fn is_write_protected(device: &File) -> bool {
    let number = device.metadata().map(|meta| DeviceNumber::of(meta.rdev()));
    number.is_ok_and(|n| extol_proc::read_number(format!("/sys/dev/block/{n}/ro")) == Some(1))
}

/// Names what holds a block device, as the end of a sentence that begins with its path.
pub(super) fn device_holder(path: &Path) -> String {
    let Ok(meta) = std::fs::metadata(path) else { return "is in use".into() };
    let mounted = mounted_device(path).or_else(|| holder::mount_of(&meta));
    if let Some(at) = mounted {
        return at.sentence();
    }
    let users = extol_proc::device_users(DeviceNumber::of(meta.rdev())).users;
    let users: Vec<_> = users.into_iter().map(|user| user.process).collect();
    if let Some(at) = holder::mount_elsewhere(&meta, &users) {
        return at.sentence();
    }
    if let Some(line) = holder::left_behind(&users) {
        return line;
    }
    let process = holder::named(&users);
    format!(
        "is in use by another process{process} or by the kernel: stop that one first, or open it \
         read-only"
    )
}

/// True if the kernel has a block device mounted.
pub(super) fn is_mounted(path: &Path) -> bool {
    mounted_device(path).is_some()
}

/// Where a block device, or a partition of it, is mounted.
fn mounted_device(path: &Path) -> Option<MountedAt> {
    let number = DeviceNumber::of(std::fs::metadata(path).ok()?.rdev());
    holder::kernel_mount(&numbers_below(Path::new(&format!("/sys/dev/block/{number}"))))
}

/// The numbers of a device in sysfs and of its partitions.
pub(super) fn numbers_below(sysfs: &Path) -> Vec<DeviceNumber> {
    let number = |dir: &Path| DeviceNumber::parse(&extol_proc::read(dir.join("dev"))?);
    let parts = std::fs::read_dir(sysfs).into_iter().flatten().flatten().map(|e| e.path());
    number(sysfs).into_iter().chain(parts.filter_map(|dir| number(&dir))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mount that the kernel has made of a device is found by the device's number.
    #[test]
    fn finds_the_root_mount() {
        let table = extol_proc::MountTable::own().expect("mount table");
        let first = table.iter().next().expect("a mount");
        assert!(holder::kernel_mount(&[first.device]).is_some());
        let none = DeviceNumber { major: 4095, minor: 1_048_575 };
        assert_eq!(holder::kernel_mount(&[none]), None);
    }
}
