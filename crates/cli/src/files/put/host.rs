//! Files of this host that are put into a volume: each opened once, by its directory.
//!
//! The files may be those of another user and change meanwhile: a directory becomes a link to
//! another one, a file a link to one that only root reads. So nothing below an operand is found by
//! a path. A [`HostNode`] is a descriptor that was opened in the descriptor of its directory and
//! through no link; what it is, what it holds and its attributes are asked of that descriptor. The
//! path is for messages.
//!
//! - PU-1: what an operand puts is below that operand, whatever is renamed meanwhile
//!   ([`HostNode::entry`]).

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

/// Bytes of the longest path, with the NUL behind it.
const PATH_MAX: usize = 4096;
/// Bytes of the longest attribute, and of the longest list of them.
const MOST_ATTRIBUTE: usize = 65_536;

/// A file of this host.
#[derive(Debug)]
pub(super) struct HostNode {
    path: PathBuf,
    /// It can be asked about, and is not open for reading.
    node: File,
    metadata: Metadata,
}

impl HostNode {
    /// The file of an operand. The links on the way are the user's own; one at the end is followed
    /// if `follow`.
    pub fn operand(path: &Path, follow: bool) -> io::Result<Self> {
        let last = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        Self::open(CWD, path.as_os_str(), path.to_owned(), last)
    }

    /// The file of this name in this directory.
    pub fn entry(&self, name: &OsStr) -> io::Result<Self> {
        let path = self.path.join(name);
        // A tree that is deeper than paths can be ends here, and with it the walk.
        if path.as_os_str().len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        Self::open(&self.node, name, path, OFlags::NOFOLLOW)
    }

    fn open(dir: impl AsFd, name: &OsStr, path: PathBuf, how: OFlags) -> io::Result<Self> {
        let how = how | OFlags::PATH | OFlags::CLOEXEC;
        let node = File::from(rustix::fs::openat(dir, name, how, Mode::empty())?);
        let metadata = node.metadata()?;
        Ok(Self { path, node, metadata })
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The names in this directory, in the order of their bytes.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(rustix::fs::openat(&self.node, c".", how, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// This regular file, open for reading.
    pub fn contents(&self) -> io::Result<File> {
        // (By its descriptor, it is the same one.)
        File::open(self.by_descriptor())
    }

    /// The target of this symbolic link.
    pub fn target(&self) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.node, c"", Vec::new())?.into_bytes())
    }

    /// Its extended attributes. What this user may not read is left out.
    pub fn attributes(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let path = self.by_descriptor();
        let mut names = vec![0; MOST_ATTRIBUTE];
        let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap_or(0);
        names.truncate(len);
        let names: Vec<_> = names.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
        names.into_iter().filter(|name| !name.is_empty()).filter_map(move |name| {
            let mut value = vec![0; MOST_ATTRIBUTE];
            let named = OsStr::from_bytes(&name);
            let len = rustix::fs::getxattr(&path, named, &mut value[..]).ok()?;
            value.truncate(len);
            Some((name, value))
        })
    }

    /// A path that leads to this very file.
    fn by_descriptor(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.node.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    /// What takes the place of a file or of a directory above it is not read.
    #[test]
    fn what_was_opened_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        for (dir, contents) in [("tree", "own"), ("secret", "foreign")] {
            std::fs::create_dir_all(at(dir).join("sub")).unwrap();
            std::fs::write(at(dir).join("sub/file"), contents).unwrap();
        }
        let read = |file: &HostNode| {
            let mut text = String::new();
            file.contents().unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let tree = HostNode::operand(&at("tree"), false).unwrap();
        let sub = tree.entry("sub".as_ref()).unwrap();
        let file = sub.entry("file".as_ref()).unwrap();
        // The file becomes a link.
        std::fs::rename(at("tree/sub/file"), at("tree/sub/kept")).unwrap();
        symlink(at("secret/sub/file"), at("tree/sub/file")).unwrap();
        assert_eq!(read(&file), "own");
        let link = sub.entry("file".as_ref()).unwrap();
        assert!(link.metadata().is_symlink());
        assert_eq!(link.target().unwrap(), at("secret/sub/file").as_os_str().as_bytes());
        assert!(link.contents().is_err());
        // The directory becomes a link.
        std::fs::rename(at("tree/sub"), at("tree/moved")).unwrap();
        symlink(at("secret/sub"), at("tree/sub")).unwrap();
        assert_eq!(sub.names().unwrap(), ["file", "kept"]);
        assert_eq!(read(&sub.entry("kept".as_ref()).unwrap()), "own");
        let gone = tree.entry("sub".as_ref()).unwrap();
        assert!(gone.metadata().is_symlink() && gone.names().is_err());
        // That of the operand is followed if the user says so.
        let operand = |follow| HostNode::operand(&at("tree/sub"), follow).unwrap();
        assert!(operand(false).metadata().is_symlink() && operand(true).metadata().is_dir());
    }
}
