//! `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=` and `ID=` as the source of a mount.
//!
//! mount(8) resolves them itself before it calls a helper. For `extol mount`, udev's links are
//! asked first. Where there is no udev (containers, small systems), the superblocks of all block
//! devices are read for a label or UUID of a volume, and sysfs for those of partitions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

use crate::volume;

/// Each tag, and udev's directory for it.
const TAGS: [(&str, &str); 5] = [
    ("LABEL", "by-label"),
    ("UUID", "by-uuid"),
    ("PARTLABEL", "by-partlabel"),
    ("PARTUUID", "by-partuuid"),
    ("ID", "by-id"),
];

/// The device of a tag; another source as it is.
pub(super) fn resolve(source: &Path) -> Result<PathBuf> {
    let Some((tag, dir, value)) = parse(source.as_os_str()) else { return Ok(source.into()) };
    let link = Path::new("/dev/disk").join(dir).join(OsStr::from_bytes(&encode(value)));
    if link.exists() {
        return Ok(link);
    }
    let devices: Vec<PathBuf> = block_devices().filter(|node| has(node, tag, value)).collect();
    match &devices[..] {
        [device] => Ok(device.clone()),
        [] => Err(Failure::about(
            source.shown(),
            "no such volume (of devices that this user may read)",
        )),
        [one, another, ..] => Err(Failure::about(
            source.shown(),
            format_args!("{} and {} have it: name the device", one.shown(), another.shown()),
        )),
    }
}

/// Tag, udev's directory, and the value without its quotes.
fn parse(source: &OsStr) -> Option<(&'static str, &'static str, &[u8])> {
    TAGS.iter().find_map(|(tag, dir)| {
        let value = source.as_bytes().strip_prefix(tag.as_bytes())?.strip_prefix(b"=")?;
        let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        Some((*tag, *dir, bare.unwrap_or(value)))
    })
}

/// A value as udev writes it into the name of a link.
fn encode(value: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"#+-.:=@_".contains(byte);
    let one = |byte: &u8| {
        if plain(byte) || !byte.is_ascii() {
            vec![*byte]
        } else {
            format!("\\x{byte:02x}").into_bytes()
        }
    };
    value.iter().flat_map(one).collect()
}

fn block_devices() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let has_size = |path: &Path| {
        extol_proc::read_number::<u64>(path.join("size")).is_some_and(|size| size > 0)
    };
    entries
        .filter(move |entry| has_size(&entry.path()))
        .map(|entry| Path::new("/dev").join(entry.file_name()))
}

/// True if a device has this tag.
fn has(node: &Path, tag: &str, value: &[u8]) -> bool {
    let of_volume = || volume::info(node, &volume::VolumeOptions::default()).ok();
    match tag {
        "LABEL" => of_volume().is_some_and(|info| info.label == extol_vfs::bytes_text(value)),
        "UUID" => of_volume().is_some_and(|info| info.uuid.as_bytes().eq_ignore_ascii_case(value)),
        "PARTLABEL" => sysfs_field(node, "PARTNAME").is_some_and(|name| name == value),
        "PARTUUID" => {
            sysfs_field(node, "PARTUUID").is_some_and(|uuid| uuid.eq_ignore_ascii_case(value))
        }
        _ => false,
    }
}

/// The line `name=` of a device's `uevent`.
fn sysfs_field(node: &Path, name: &str) -> Option<Vec<u8>> {
    let text =
        extol_proc::read(Path::new("/sys/class/block").join(node.file_name()?).join("uevent"));
    text?
        .split(|byte| *byte == b'\n')
        .find_map(|line| Some(line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_told_from_paths() {
        let parsed =
            |text: &'static str| parse(OsStr::new(text)).map(|(tag, _, value)| (tag, value));
        assert_eq!(parsed("LABEL=my data"), Some(("LABEL", &b"my data"[..])));
        assert_eq!(parsed("UUID=\"ab-cd\""), Some(("UUID", &b"ab-cd"[..])));
        assert_eq!(parsed("PARTUUID=1"), Some(("PARTUUID", &b"1"[..])));
        assert_eq!(parsed("label=x"), None);
        assert_eq!(parsed("/dev/LABEL=x"), None);
        assert_eq!(encode(b"my/da\\ta"), b"my\\x2fda\\x5cta");
        let failure = resolve(Path::new("LABEL=extol-no-such-label")).unwrap_err();
        assert_eq!(failure.code, Failure::FAILED);
        assert!(failure.line.starts_with("LABEL=extol-no-such-label: no such"), "{}", failure.line);
    }
}
