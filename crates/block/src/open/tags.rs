//! `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=` and `ID=` as the name of a volume.
//!
//! mount(8) resolves them itself before it calls a helper. For the commands, udev's links are asked
//! first. Where there is no udev (containers, small systems), the superblocks of all block devices
//! are read for a label or UUID of a volume. Those of a partition are in sysfs, or (older kernels)
//! in the table of its disk.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use extol_proc::{Shown as _, bytes_of, os_str};

use super::OpenFailed;
use super::found::{Ext, Found, identify_with};
use super::partitions::{self, Partition};
use crate::{Direct, FileDevice, OpenOptions};

/// A kind of tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag {
    Label,
    Uuid,
    PartLabel,
    PartUuid,
    Id,
}

/// Each tag as it is written, and udev's directory for it.
const TAGS: [(&str, &str, Tag); 5] = [
    ("LABEL", "by-label", Tag::Label),
    ("UUID", "by-uuid", Tag::Uuid),
    ("PARTLABEL", "by-partlabel", Tag::PartLabel),
    ("PARTUUID", "by-partuuid", Tag::PartUuid),
    ("ID", "by-id", Tag::Id),
];

/// The device of a tag; another name as it is.
///
/// # Errors
/// No device has the tag, or several have it.
pub fn resolve(name: &Path) -> Result<PathBuf, OpenFailed> {
    let Some((tag, dir, value)) = parse(name.as_os_str()) else { return Ok(name.into()) };
    let link = Path::new("/dev/disk").join(dir).join(os_str(&encode(value)));
    if !value.is_empty() && link.exists() {
        return Ok(link);
    }
    let is_it = |node: &PathBuf| !value.is_empty() && has(node, tag, value);
    let devices: Vec<PathBuf> = block_devices().filter(is_it).collect();
    let failed = |why: String| Err(OpenFailed::name(name, io::ErrorKind::NotFound, why));
    match &devices[..] {
        [device] => Ok(device.clone()),
        [] => failed("no such volume (of devices that this user may read)".into()),
        [one, another, ..] => {
            failed(format!("{} and {} have it: name the device", one.shown(), another.shown()))
        }
    }
}

/// Tag, udev's directory, and the value without its quotes.
fn parse(name: &OsStr) -> Option<(Tag, &'static str, &[u8])> {
    TAGS.iter().find_map(|(word, dir, tag)| {
        let value = bytes_of(name).strip_prefix(word.as_bytes())?.strip_prefix(b"=")?;
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
fn has(node: &Path, tag: Tag, value: &[u8]) -> bool {
    let is_uuid = |uuid: Vec<u8>| uuid.eq_ignore_ascii_case(value);
    match tag {
        Tag::Label => volume(node).is_some_and(|ext| ext.label == value),
        Tag::Uuid => volume(node).is_some_and(|ext| is_uuid(ext.uuid_text().into_bytes())),
        Tag::PartLabel => {
            let name = sysfs_field(node, "PARTNAME")
                .or_else(|| in_table(node).map(|part| part.name.into_bytes()));
            name.is_some_and(|name| name == value)
        }
        Tag::PartUuid => {
            let uuid = sysfs_field(node, "PARTUUID")
                .or_else(|| in_table(node).map(|part| part.uuid.into_bytes()));
            uuid.is_some_and(is_uuid)
        }
        Tag::Id => false,
    }
}

/// A partition of the kernel's, as the table of its disk has it.
fn in_table(node: &Path) -> Option<Partition> {
    /// The unit of sysfs, whatever the sectors of the device are.
    const UNIT: u64 = 512;
    let dir = Path::new("/sys/class/block").join(node.file_name()?).canonicalize().ok()?;
    let number = extol_proc::read_number::<u32>(dir.join("partition"))?;
    let start = extol_proc::read_number::<u64>(dir.join("start"))?.checked_mul(UNIT)?;
    let disk = shared(&Path::new("/dev").join(dir.parent()?.file_name()?))?;
    let parts = partitions::read_table(&disk)?.parts;
    // (The kernel may have read another table than is there now.)
    parts.into_iter().find(|part| part.number == number && part.start == start)
}

/// A device for reading, even if it is in use.
fn shared(node: &Path) -> Option<FileDevice> {
    let how = OpenOptions::read_only().exclusive(false).direct(Direct::Off);
    FileDevice::open(node, &how).ok()
}

/// The volume on a device.
fn volume(node: &Path) -> Option<Ext> {
    match identify_with(&shared(node)?, false) {
        Found::Ext(ext) => Some(ext),
        _ => None,
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
        assert_eq!(parsed("LABEL=my data"), Some((Tag::Label, &b"my data"[..])));
        assert_eq!(parsed("UUID=\"ab-cd\""), Some((Tag::Uuid, &b"ab-cd"[..])));
        assert_eq!(parsed("PARTUUID=1"), Some((Tag::PartUuid, &b"1"[..])));
        assert_eq!(parsed("label=x"), None);
        assert_eq!(parsed("/dev/LABEL=x"), None);
        assert_eq!(encode(b"my/da\\ta"), b"my\\x2fda\\x5cta");
        assert!(resolve(Path::new("LABEL=")).is_err(), "what has no label");
        let failed = resolve(Path::new("LABEL=extol-no-such-label")).unwrap_err();
        let line = failed.to_string();
        assert!(line.starts_with("LABEL=extol-no-such-label: no such"), "{line}");
    }
}
