//! What else may change a volume: the kernel, which has it mounted, or another server.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use extol_block::open::{OpenName, Window, claim, is_address};
use extol_block::{Direct, FileDevice, OpenOptions};
use extol_cli_common::Failure;
use extol_proc::{DeviceNumber, LoopDevice, MountTable, Shown as _};

use super::{Source, place};

/// True if a volume that was to be written to lies on something that is write-protected: a device,
/// or a file on a file system that is mounted read-only.
pub fn is_write_protected(source: Source<'_>) -> bool {
    let how = OpenOptions::read_write().exclusive(false).direct(Direct::Off);
    if is_address(source.path) {
        let claimed = super::name(source).ok().map(|name| claim(&name, &how));
        return claimed.is_some_and(|claimed| {
            claimed.is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem)
        });
    }
    FileDevice::open(extol_proc::image_of(source.path), &how)
        .is_err_and(|error| error.source.kind() == ErrorKind::ReadOnlyFilesystem)
}

/// The failure for reading a volume that the kernel has mounted read-write, itself or through a
/// loop device, or that fuse2fs has: what is read may be half written. (Where another Extol writes
/// it, the open fails.)
pub fn written_by_others(source: Source<'_>) -> Option<Failure> {
    let named = OpenName::parse(source.path, source.part.window).ok()?;
    let about = |why: &dyn std::fmt::Display| Failure::about(source.path.shown(), why);
    let meta = std::fs::metadata(&named.path).ok()?;
    let table = MountTable::own().ok()?;
    let of = |number| mounted_writable(&table, number);
    if meta.file_type().is_block_device() {
        let dir = of(DeviceNumber::of(meta.rdev()))?;
        return Some(about(&is_mounted_at(&dir)));
    }
    if let Some(server) = extol_proc::other_server_over(&meta) {
        return Some(about(&server));
    }
    let Window { offset, limit } = if named.is_part() { place(&named).ok()? } else { named.window };
    let part = offset..limit.map_or(u64::MAX, |len| offset.saturating_add(len));
    let over = extol_proc::loop_devices_over(meta.dev(), meta.ino());
    let shown = over.iter().flat_map(LoopDevice::with_partitions);
    shown.filter(|device| device.overlaps(&part)).find_map(|device| {
        let dir = of(device.number)?;
        let why = format!("backs {}, which {}", device.node.shown(), is_mounted_at(&dir));
        Some(about(&why))
    })
}

fn is_mounted_at(dir: &Path) -> String {
    let dir = dir.shown();
    format!("is mounted at {dir}: unmount it first (umount {dir})")
}

/// Where a device is mounted, if the file system is writable.
fn mounted_writable(table: &MountTable, device: DeviceNumber) -> Option<PathBuf> {
    // The options of the file system itself: a read-only mount of a writable one is still a
    // writable one.
    let is_writable = |options: &[OsString]| options.iter().any(|option| option == "rw");
    let mut mounts = table.iter();
    let mount =
        mounts.find(|mount| mount.device == device && is_writable(&mount.volume_options))?;
    Some(mount.dir.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_told_apart() {
        let line = "36 35 98:0 /mnt1 /mnt/my\\040disk rw,noatime master:1 - ext4 /dev/loop0 \
                    rw,errors=continue";
        let found =
            |line: &str, number| mounted_writable(&MountTable::parse(line.as_bytes()), number);
        let number = |major, minor| DeviceNumber { major, minor };
        assert_eq!(found(line, number(98, 0)), Some(PathBuf::from("/mnt/my disk")));
        assert_eq!(found(line, number(98, 1)), None);
        assert_eq!(found(&line.replace(" rw,errors", " ro,errors"), number(98, 0)), None);
        assert_eq!(found("nonsense", number(98, 0)), None);
    }
}
