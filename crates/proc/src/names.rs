//! Names of files as bytes.
//!
//! Names on a volume are bytes, as those of Unix. Windows has names of text: there the bytes are
//! UTF-8, and a name that is not comes out with a replacement character for what it cannot show.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The bytes of a name.
#[must_use]
pub fn bytes_of(name: &(impl AsRef<OsStr> + ?Sized)) -> &[u8] {
    name.as_ref().as_encoded_bytes()
}

/// A name of these bytes.
#[must_use]
pub fn os_str(bytes: &[u8]) -> Cow<'_, OsStr> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        Cow::Borrowed(OsStr::from_bytes(bytes))
    }
    #[cfg(not(unix))]
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(OsStr::new(text)),
        Cow::Owned(text) => Cow::Owned(text.into()),
    }
}

/// The same, of bytes that are given away.
#[must_use]
pub fn os_string(bytes: Vec<u8>) -> OsString {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt as _;
        OsString::from_vec(bytes)
    }
    #[cfg(not(unix))]
    os_str(&bytes).into_owned()
}

/// A path of a volume with a name behind it: a volume's names are separated by `/` on every system.
#[must_use]
pub fn below(path: &Path, name: &[u8]) -> PathBuf {
    #[cfg(unix)]
    return path.join(os_str(name));
    #[cfg(not(unix))]
    {
        let mut joined = path.as_os_str().to_owned();
        if !joined.is_empty() && !bytes_of(&joined).ends_with(b"/") {
            joined.push("/");
        }
        joined.push(os_str(name));
        joined.into()
    }
}

/// A piece of a name, which is cut at ASCII. `None`: it is no text, where names have to be.
fn piece(bytes: &[u8]) -> Option<&OsStr> {
    match os_str(bytes) {
        Cow::Borrowed(piece) => Some(piece),
        Cow::Owned(_) => None,
    }
}

/// The file or device of a volume's name, which may name a part of it: `disk.img:2`. A file of that
/// very name is meant before any part.
#[must_use]
pub fn image_of(name: &Path) -> &Path {
    split_part(name).map_or(name, |(image, _)| image)
}

/// The file or device, and the part of it that a volume's name names. `None`: it names no part.
#[must_use]
pub fn split_part(name: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = bytes_of(name);
    // (The first colon may be that of a drive.)
    let first = if cfg!(windows) { 2 } else { 0 };
    let colons = (first..bytes.len()).rev().filter(|at| bytes.get(*at) == Some(&b':'));
    let mut splits = colons.filter_map(|at| {
        let (image, part) = (bytes.get(..at)?, bytes.get(at + 1..)?);
        (!part.is_empty()).then_some((Path::new(piece(image)?), piece(part)?))
    });
    // (Most names have no colon, and the file system is not asked. A part may have a `/` in its
    // name, if that leads into no directory.)
    let is_dir = || name.parent().is_some_and(Path::is_dir);
    let is_it = |image: &Path, part: &OsStr| match bytes_of(part).contains(&b'/') {
        false => image.exists(),
        true => std::fs::metadata(image).is_ok_and(|file| !file.is_dir()) && !is_dir(),
    };
    let found = splits.find(|(image, part)| is_it(image, part))?;
    std::fs::symlink_metadata(name).is_err().then_some(found)
}
