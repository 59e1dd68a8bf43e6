//! The table of mounts: `/proc/PID/mountinfo`.
//!
//! A line, from proc_pid_mountinfo(5), with what stands between the options of the mount and the
//! dash left out here:
//!
//! ```text
//!   id parent major:minor root dir options … - type source options-of-the-file-system
//! ```

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::loops::loop_devices_over;
use crate::names::image_of;
use crate::text::number;

/// The number of a device, as the kernel writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_dev` or `st_rdev` of stat(2).
    #[must_use]
    pub fn of(dev: u64) -> Self {
        // (The type has another width and sign on each system.)
        let dev = dev as rustix::fs::Dev;
        Self { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) }
    }

    /// From `major:minor`.
    #[must_use]
    pub fn parse(field: &[u8]) -> Option<Self> {
        let colon = field.iter().position(|byte| *byte == b':')?;
        let (major, minor) = (field.get(..colon)?, field.get(colon + 1..)?);
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Its number. Linux gives the number of a mount that is gone to the next.
    pub id: u64,
    /// The number of the mount that it stands on.
    pub parent: u64,
    /// The device number of its file system.
    pub device: DeviceNumber,
    /// The directory of the file system that is shown there.
    pub root: PathBuf,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Its own options.
    pub options: Vec<OsString>,
    /// `fuse.extol`, `ext4` …
    pub kind: OsString,
    /// What is mounted.
    pub source: OsString,
    /// The options of its file system.
    pub volume_options: Vec<OsString>,
}

impl Mount {
    /// A mount of FUSE.
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.kind.as_bytes().starts_with(b"fuse")
    }

    /// A mount by Extol.
    #[must_use]
    pub fn is_extol(&self) -> bool {
        self.is_fuse() && self.kind.as_bytes().ends_with(b".extol")
    }

    /// This is one of its options, or of those of its file system.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        let is = |word: &OsString| word.as_os_str() == OsStr::new(option);
        self.options.iter().any(is) || self.volume_options.iter().any(is)
    }

    /// The user whose daemon serves a mount of FUSE.
    #[must_use]
    pub fn user_id(&self) -> Option<u32> {
        let value = |word: &OsString| number(word.as_bytes().strip_prefix(b"user_id=")?);
        self.volume_options.iter().find_map(value)
    }

    /// The group of that user.
    #[must_use]
    pub fn group_id(&self) -> Option<u32> {
        let value = |word: &OsString| number(word.as_bytes().strip_prefix(b"group_id=")?);
        self.volume_options.iter().find_map(value)
    }

    /// A line of mountinfo.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
        let device = DeviceNumber::parse(fields.next()?)?;
        let (root, dir) = (unescape(fields.next()?), unescape(fields.next()?));
        let options = list(fields.next()?);
        fields.find(|field| *field == b"-")?;
        let (kind, source) = (unescape(fields.next()?), unescape(fields.next()?));
        let volume_options = list(fields.next().unwrap_or_default());
        let (root, dir) = (root.into(), dir.into());
        Some(Self { id, parent, device, root, dir, options, kind, source, volume_options })
    }
}

/// The options of a list. (A comma inside one is not told from one between two.)
fn list(field: &[u8]) -> Vec<OsString> {
    field.split(|byte| *byte == b',').map(unescape).collect()
}

/// Everything that is mounted in a mount namespace, in the order of the kernel: of several mounts
/// on one directory the topmost is the last.
#[derive(Clone, Default, Debug)]
pub struct MountTable(Vec<Mount>);

impl MountTable {
    /// What this process sees.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn own() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// What another process sees.
    ///
    /// # Errors
    /// If it has ended, or if `/proc` hides it.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read(format!("/proc/{pid}/mountinfo"))?))
    }

    /// From the text of mountinfo. A line that makes no sense is left out.
    #[must_use]
    pub fn parse(table: &[u8]) -> Self {
        Self(table.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    /// All mounts.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mount> {
        self.0.iter()
    }

    /// The mounts by Extol of a volume, an image or a block device, the oldest first. An image may
    /// be mounted through a loop device over it. The table's paths are those below `root`.
    #[must_use]
    pub fn of_volume(&self, volume: &Metadata, root: &Path) -> Vec<&Mount> {
        let over = match volume.is_file() {
            true => loop_devices_over(volume.dev(), volume.ino()),
            false => Vec::new(),
        };
        let is_it = |meta: Metadata| match volume.rdev() {
            0 if meta.rdev() == 0 => meta.dev() == volume.dev() && meta.ino() == volume.ino(),
            0 => over.iter().any(|device| device.number == DeviceNumber::of(meta.rdev())),
            rdev => meta.rdev() == rdev,
        };
        let shows = |mount: &&Mount| {
            let source = Path::new(&mount.source);
            let below = |source: &Path| {
                let whole = root.join(source);
                std::fs::metadata(image_of(&whole)).is_ok_and(is_it)
            };
            mount.is_extol() && source.strip_prefix("/").is_ok_and(below)
        };
        self.iter().filter(shows).collect()
    }

    /// The mount that a path is on, which is absolute and without symbolic links.
    #[must_use]
    pub fn holding(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|dir| self.top(dir))
    }

    /// What is mounted on exactly this directory, the topmost last.
    #[must_use]
    pub fn on(&self, dir: &Path) -> Vec<&Mount> {
        self.iter().filter(|mount| mount.dir == dir).collect()
    }

    /// The topmost mount on exactly this directory.
    #[must_use]
    pub fn top(&self, dir: &Path) -> Option<&Mount> {
        self.on(dir).pop()
    }
}

/// Undoes the octal escapes of the kernel's tables and of fstab: `\040` is a blank.
#[must_use]
pub fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| *first == b'\\').and_then(octal);
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    OsString::from_vec(plain)
}

/// The byte of three octal digits.
fn octal(digits: &[u8]) -> Option<u8> {
    let value = digits.iter().try_fold(0_u32, |value, digit| {
        (b'0'..=b'7').contains(digit).then(|| value * 8 + u32::from(digit - b'0'))
    })?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
23 22 0:4 / /mnt/\xff\\040\xfe rw - tmpfs \xff rw\n\
nonsense\n\
90 22 0:50 / /mnt/a\\040b rw - ext4 /dev/loop0 rw\n\
91 90 0:51 / /mnt/a\\040b rw,nosuid shared:7 - fuse.extol /disk\\134\xff.img rw,user_id=0\n\
92 22 7:0 /sub /mnt/- rw - fuseblk.extol /dev/loop0 ro\n";

    #[test]
    fn the_topmost_mount_counts() {
        let table = MountTable::parse(TABLE);
        let top = table.top(Path::new("/mnt/a b")).unwrap();
        assert_eq!((top.id, top.parent), (91, 90));
        assert!(top.is_fuse() && top.is_extol());
        assert_eq!(top.device, DeviceNumber { major: 0, minor: 51 });
        assert!(top.has_option("nosuid") && top.has_option("user_id=0") && !top.has_option("ro"));
        assert_eq!(table.on(Path::new("/mnt/a b")).len(), 2);
        assert_eq!(table.top(Path::new("/")).unwrap().kind, "ext4");
        assert_eq!(table.top(Path::new("/mnt")), None);
        let block = table.top(Path::new("/mnt/-")).unwrap();
        assert!(block.is_extol() && block.has_option("ro"));
        assert_eq!(block.root, Path::new("/sub"));
    }

    /// A name that is no text is a name as every other, and hides none of the others.
    #[test]
    fn names_are_bytes() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.iter().count(), 5);
        let odd = Path::new(OsStr::from_bytes(b"/mnt/\xff \xfe"));
        assert_eq!(table.top(odd).unwrap().source.as_bytes(), b"\xff");
        let image = table.top(Path::new("/mnt/a b")).unwrap();
        assert_eq!(image.source.as_bytes(), b"/disk\\\xff.img");
    }

    #[test]
    fn a_path_is_on_the_innermost_mount() {
        let table = MountTable::parse(TABLE);
        let id = |path: &str| table.holding(Path::new(path)).map(|mount| mount.id);
        assert_eq!(
            (id("/mnt/a b/c/d"), id("/mnt/a b"), id("/mnt/a")),
            (Some(91), Some(91), Some(22))
        );
        assert_eq!(table.holding(Path::new("/mnt/a b/c")).unwrap().user_id(), Some(0));
        assert_eq!(table.holding(Path::new("/")).unwrap().user_id(), None);
    }

    #[test]
    fn escapes_are_octal() {
        for (field, plain) in [
            (&br"a\134b\"[..], &br"a\b\"[..]),
            (br"\040\011\012", b" \t\n"),
            (br"/mnt/\9\04", br"/mnt/\9\04"),
            (br"\777\08x\+12", br"\777\08x\+12"),
            (b"\\377\xff", b"\xff\xff"),
        ] {
            assert_eq!(unescape(field).as_bytes(), plain, "{field:?}");
        }
    }

    #[test]
    fn the_root_is_mounted() {
        let table = MountTable::own().unwrap();
        assert!(table.top(Path::new("/")).is_some());
        assert!(MountTable::of(std::process::id()).unwrap().iter().count() > 0);
    }
}
