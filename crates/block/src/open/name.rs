//! What a volume is called on a command line, and which file or device that is.
//!
//! | written | means |
//! |---|---|
//! | `disk.img`, `/dev/sdb1` | all of it |
//! | `disk.img:2`, `disk.img:root` | a partition, by its number, its name in the table, the label of its file system or its UUID |
//! | `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=`, `ID=` | a block device (`tags.rs`) |
//! | `nbd://host/export`, `nbds://`, `nbd+unix://` | an export of an NBD server (feature `network`) |
//! | `https://…` | refused: names like that are reserved |
//!
//! A file that has the very name with the colon is meant before any partition.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use extol_proc::{Shown as _, bytes_of};

use super::OpenFailed;
use crate::DeviceError;

/// A part of a device by its place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Window {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its most bytes; `None`: to the end.
    pub limit: Option<u64>,
}

impl Window {
    /// True if it is all of a device.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// What is to be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenName {
    /// As it was written.
    pub typed: PathBuf,
    /// The file or device.
    pub path: PathBuf,
    /// The address, if it is one of another host; then `path` is as it was written.
    #[cfg(feature = "network")]
    pub address: Option<extol_nbd::Uri>,
    /// The partition, by number or name.
    pub part: Option<OsString>,
    /// The part by its place.
    pub window: Window,
    /// The bytes of the file are the volume, or will be: nothing is unpacked.
    pub raw: bool,
    /// Most bytes of a compressed file when it is expanded, for what expands it.
    pub expand: Option<u64>,
    /// Which backing files of an image may be opened.
    pub backing: Backing,
}

/// Which backing files an image may have opened. (Without the feature `formats` none has any.)
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Backing {
    /// Those beside it that have its owner.
    #[default]
    Auto,
    /// None.
    None,
    /// This one, in place of the one that it names.
    Path(PathBuf),
}

impl OpenName {
    /// What a word of the command line names.
    ///
    /// # Errors
    /// A tag that no device has, or several; a name like an address.
    pub fn parse(typed: &Path, window: Window) -> Result<Self, OpenFailed> {
        let resolved = super::tags::resolve(typed)?;
        #[cfg(feature = "network")]
        if super::is_address(typed) {
            return Self::of_address(typed, window);
        }
        if let Some(scheme) = scheme(typed) {
            let why = format!("{scheme}:// is not supported yet: name a file or a device");
            return Err(OpenFailed::name(typed, io::ErrorKind::Unsupported, why));
        }
        let (path, part) = match extol_proc::split_part(&resolved) {
            Some((path, part)) => (path.to_owned(), Some(part.to_owned())),
            None => (resolved, None),
        };
        if part.is_some() && !window.is_all() {
            let why = "offset= and sizelimit= cannot be used with a partition: leave them out";
            return Err(OpenFailed::name(typed, io::ErrorKind::InvalidInput, why));
        }
        Ok(Self {
            typed: typed.to_owned(),
            path,
            #[cfg(feature = "network")]
            address: None,
            part,
            window,
            raw: false,
            expand: None,
            backing: Backing::Auto,
        })
    }

    /// An address of another host.
    #[cfg(feature = "network")]
    fn of_address(typed: &Path, window: Window) -> Result<Self, OpenFailed> {
        let fail = |why: String| OpenFailed::name(typed, io::ErrorKind::InvalidInput, why);
        let text = std::str::from_utf8(bytes_of(typed));
        let text = text.map_err(|_| fail("is no address: other bytes are written %XX".into()))?;
        let uri = extol_nbd::Uri::parse(text);
        let uri = uri.map_err(|why| fail(format!("is no address of an export: {why}")))?;
        Ok(Self {
            typed: typed.to_owned(),
            path: typed.to_owned(),
            address: Some(uri),
            part: None,
            window,
            raw: false,
            expand: None,
            backing: Backing::Auto,
        })
    }

    /// True if a name has the scheme of a kind of devices that can be opened here.
    pub(super) fn is_network(name: &Path) -> bool {
        #[cfg(feature = "network")]
        return extol_nbd::Uri::is_one(bytes_of(name));
        #[cfg(not(feature = "network"))]
        return {
            let _ = name;
            false
        };
    }

    /// True if only a part of the file or device is used.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.part.is_some() || !self.window.is_all()
    }

    /// The failure of its file or device, with the name as it was written.
    pub(super) fn failed(&self, error: DeviceError) -> OpenFailed {
        let line = error.to_string();
        match line.strip_prefix(&format!("{}: ", self.path.shown())) {
            Some(why) if self.typed != self.path => {
                OpenFailed::name(&self.typed, error.source.kind(), why)
            }
            _ => OpenFailed::Device(error),
        }
    }

    /// The name without links, from the root directory.
    ///
    /// # Errors
    /// If it leads to nothing.
    pub fn absolute(&self) -> io::Result<PathBuf> {
        if super::is_address(&self.typed) {
            return Ok(self.typed.clone());
        }
        Ok(with_part(&self.path.canonicalize()?, self.part.as_deref()))
    }
}

/// A path and a partition, as one name.
fn with_part(path: &Path, part: Option<&OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if let Some(part) = part {
        name.push(":");
        name.push(part);
    }
    name.into()
}

/// The scheme of a name like an address, unless there is a file of that name.
pub(super) fn scheme(typed: &Path) -> Option<&str> {
    let bytes = bytes_of(typed);
    let at = bytes.windows(3).position(|part| part == b"://")?;
    let scheme = std::str::from_utf8(bytes.get(..at)?).ok()?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    (is_scheme && std::fs::symlink_metadata(typed).is_err()).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("disk.img"), b"x").unwrap();
        std::fs::write(at("a:1"), b"x").unwrap();
        std::fs::write(at("a"), b"x").unwrap();
        let parse = |name: &str| OpenName::parse(&at(name), Window::default()).unwrap();
        let part = |name: &str| {
            let name = parse(name);
            (name.path.strip_prefix(dir.path()).unwrap().to_owned(), name.part)
        };
        let expect = |path: &str, part: Option<&str>| (path.into(), part.map(OsString::from));
        assert_eq!(part("disk.img"), expect("disk.img", None));
        assert_eq!(part("disk.img:2"), expect("disk.img", Some("2")));
        assert_eq!(part("disk.img:my root"), expect("disk.img", Some("my root")));
        assert_eq!(part("disk.img:a:b"), expect("disk.img", Some("a:b")));
        // A file of that name, and a part of it.
        assert_eq!(part("a:1"), expect("a:1", None));
        assert_eq!(part("a:1:2"), expect("a:1", Some("2")));
        assert_eq!(part("a:2"), expect("a", Some("2")));
        // What is not there, and what is no part.
        std::fs::create_dir(at("dir:1")).unwrap();
        for name in ["none:1", "disk.img:", "none", "none:x/y", "dir:1/new"] {
            assert_eq!(part(name), expect(name, None), "{name}");
        }
        assert_eq!(part("disk.img:x/y"), expect("disk.img", Some("x/y")));
        assert!(parse("disk.img:1").is_part() && !parse("a:1").is_part());
        let window = Window { offset: 4096, limit: None };
        assert!(OpenName::parse(&at("disk.img"), window).unwrap().is_part());
        let both = OpenName::parse(&at("disk.img:1"), window).unwrap_err().to_string();
        assert!(both.contains("offset="), "{both}");
        let absolute = parse("disk.img:2").absolute().unwrap();
        assert_eq!(absolute, at("disk.img:2"));
    }

    #[test]
    fn addresses_are_reserved() {
        let parse = |name: &str| OpenName::parse(Path::new(name), Window::default());
        for name in ["https://a/b.img", "rbd://pool/x"] {
            let failed = parse(name).unwrap_err();
            assert!(failed.to_string().contains("not supported yet"), "{failed}");
        }
        #[cfg(not(feature = "network"))]
        assert!(parse("nbd://host/x").is_err());
        #[cfg(feature = "network")]
        {
            let name = parse("nbd://host/x").unwrap();
            assert!(name.address.is_some() && name.part.is_none());
            assert_eq!(name.absolute().unwrap(), Path::new("nbd://host/x"));
            let failed = parse("nbd+unix:///x").unwrap_err().to_string();
            assert!(failed.contains("nbd+unix:///x") && failed.contains("socket="), "{failed}");
        }
        assert!(OpenName::parse(Path::new("/x/://y"), Window::default()).is_ok());
    }
}
