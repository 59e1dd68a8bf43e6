//! Paths: an interface for programs, shaped like [`std::fs`], on a volume that is not mounted
//! anywhere.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//!
//! use extol::device::MemDevice;
//! use extol::mkfs::{MkfsOptions, mkfs};
//! use extol::{Ext4, MountOptions, OpenOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A volume of 16 MiB in memory. `Ext4::open_path("disk.img", ..)` opens an image or a disk.
//! let device = Arc::new(MemDevice::new(16 << 20));
//! mkfs(&*device, &MkfsOptions::default(), &mut |_| {})?;
//! let fs = Ext4::open(device, &MountOptions::default())?;
//!
//! fs.create_dir_all("/etc/extol")?;
//! fs.write_file("/etc/extol/greeting", b"hello")?;
//! fs.symlink("extol/greeting", "/etc/motd")?;
//!
//! let mut file = fs.open_file("/etc/motd", &OpenOptions::new().read(true).append(true))?;
//! file.write_all(b", world")?;
//! file.sync_all()?; // From here on a crash cannot take it away.
//! let mut text = String::new();
//! file.read_to_string(&mut text)?;
//! assert_eq!(text, "");
//! assert_eq!(fs.read_file("/etc/extol/greeting")?, b"hello, world");
//!
//! for entry in fs.walk("/etc")? {
//!     let entry = entry?;
//!     println!("{:o} {}", entry.attr().perm, entry.path().display());
//! }
//! drop(file);
//! fs.unmount()?;
//! # Ok(())
//! # }
//! ```
//!
//! # How paths are read
//!
//! All paths begin at the root of the volume, with or without a leading slash. `.` and `..` are
//! followed as the volume has them; `..` of the root is the root. Symbolic links are followed,
//! absolute targets from the root of the *volume*: no path leads out of it. After 40 links a path
//! fails with [`FsError::SymlinkLoop`]. A path that ends in a slash names a directory. Permissions
//! are not checked: a process that can open the device may do everything.
//!
//! # References
//!
//! The walk along a path holds a reference ([`Inode`]) on the inode where it is, and [`File`],
//! [`ReadDir`] and [`Walk`] hold one on what they show. Each gives it back when it is dropped, so a
//! file that is removed while it is open exists until then. They also keep the volume open;
//! [`Ext4::unmount`] closes it all the same, and later calls through them fail.

mod dirs;
mod file;
mod guard;
mod remove;
mod resolve;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_proc::{os_str, os_string};
use extol_vfs::{
    Attr, Creds, FileKind, FileSystem as _, FsError, NewNode, RenameFlags, Result, SetAttr,
    SetTime, XattrSet,
};

pub use dirs::{DirItem, ReadDir, Walk, WalkItem};
pub use file::{File, OpenOptions};
pub use guard::Inode;

use crate::ext4::Ext4;
use guard::Held;
use resolve::{Last, Spot};

/// Bytes read in one go by `read_file`.
const READ_STEP: usize = 1 << 20;

/// A path of the volume. (Windows joins paths with a backslash, which separates names there.)
pub(crate) fn bytes_of(path: &Path) -> Cow<'_, [u8]> {
    let bytes = extol_proc::bytes_of(path);
    if cfg!(windows) && bytes.contains(&b'\\') {
        return bytes.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
    }
    Cow::Borrowed(bytes)
}

pub(crate) fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(os_string(bytes))
}

/// Files by path. See the [module](crate::path) for how paths are read.
impl Ext4 {
    fn spot(self: &Arc<Self>, path: impl AsRef<Path>, last: Last) -> Result<Spot<'_>> {
        resolve::resolve(self, &bytes_of(path.as_ref()), last)
    }

    /// The inode that a path names, links followed.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `SymlinkLoop`, `NameTooLong`, and what reading the volume may
    /// give.
    pub fn inode(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Inode> {
        Ok(self.spot(path, Last::Follow)?.found()?.keep())
    }

    /// The root directory.
    ///
    /// # Errors
    /// If the root cannot be read.
    pub fn root_dir(self: &Arc<Self>) -> Result<Inode> {
        Ok(Held::root(self)?.keep())
    }

    /// The whole contents of a file.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `IsADirectory`; `FileTooLarge` if memory cannot hold the file.
    pub fn read_file(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let node = self.inode(path)?;
        self.check_place(node.ino())?;
        let mut bytes = Vec::new();
        // A few bytes on a damaged volume can be a hole of terabytes: either there is memory for
        // all of it or for none.
        let size =
            usize::try_from(self.getattr(node.ino())?.size).map_err(|_| FsError::FileTooLarge)?;
        bytes.try_reserve_exact(size).map_err(|_| FsError::FileTooLarge)?;
        loop {
            let size = self.getattr(node.ino())?.size;
            let left = size.saturating_sub(bytes.len() as u64).min(READ_STEP as u64);
            let step = usize::try_from(left).unwrap_or(READ_STEP).max(1);
            let at = bytes.len();
            bytes.resize(at + step, 0);
            let n = self.read(node.ino(), at as u64, &mut bytes[at..])?;
            bytes.truncate(at + n);
            if n == 0 {
                return Ok(bytes);
            }
        }
    }

    /// Makes a file of these contents, or replaces the contents of the one that is there. Durable
    /// after [`sync`](extol_vfs::FileSystem::sync), or use [`open_file`](Self::open_file) and
    /// [`File::sync_all`].
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file); `NoSpace`.
    pub fn write_file(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        contents: impl AsRef<[u8]>,
    ) -> Result<()> {
        let file =
            self.open_file(path, OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all_at(contents.as_ref(), 0)
    }

    /// Opens a file as the options say.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `Exists` with `create_new`; `IsADirectory` for writing to one.
    pub fn open_file(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<File> {
        file::open(self, &bytes_of(path.as_ref()), options)
    }

    /// Makes a file for writing, or empties the one that is there.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file).
    pub fn create_file(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<File> {
        self.open_file(path, OpenOptions::new().read(true).write(true).create(true).truncate(true))
    }

    /// Makes a regular file without a name; it is deleted when it is closed, unless
    /// [`File::link_to`] gives it a name.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NoSpace`.
    pub fn create_unnamed_file(self: &Arc<Self>, dir: impl AsRef<Path>) -> Result<File> {
        let dir = self.inode(dir)?;
        let attr = self.create_unnamed(dir.ino(), 0o600, 0, Creds::default())?;
        Ok(File::of(Inode::from_attr(self, &attr), OpenOptions::new().read(true).write(true)))
    }

    /// Makes anything that has a name: a directory, a device file, a named pipe …
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `Exists`, `NoSpace`.
    pub fn create_node(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        new: NewNode,
        perm: u16,
        owner: Creds,
    ) -> Result<Inode> {
        let is_dir = new == NewNode::Directory;
        let spot = self.spot(path, Last::Keep)?;
        let (dir, name) = match (&spot.node, &spot.name) {
            (None, Some(name)) => (&spot.dir, name),
            _ => return Err(FsError::Exists),
        };
        if spot.slash && !is_dir {
            return Err(FsError::NotFound);
        }
        let attr = self.create(dir.ino(), name, new, perm, 0, owner)?;
        Ok(Inode::from_attr(self, &attr))
    }

    /// Makes a directory (mode 0755, owned by root).
    ///
    /// # Errors
    /// As [`create_node`](Self::create_node).
    pub fn create_dir(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<()> {
        self.create_node(path, NewNode::Directory, 0o755, Creds::default()).map(drop)
    }

    /// Makes a directory and all missing ones above it. Fine if it is there already.
    ///
    /// # Errors
    /// As [`create_node`](Self::create_node); `NotADirectory`.
    pub fn create_dir_all(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<()> {
        let path = bytes_of(path.as_ref());
        let ends = (0..=path.len()).filter(|i| path.get(*i).is_none_or(|b| *b == b'/'));
        for end in ends.filter(|i| *i > 0) {
            let part = os_str(&path[..end]);
            let part = Path::new(&part);
            let made = match self.inode(part) {
                Ok(node) if node.kind() != FileKind::Directory => Err(FsError::NotADirectory),
                Err(FsError::NotFound) => self.create_dir(part),
                found => found.map(drop),
            };
            // Another thread may make the same one.
            if !matches!(made, Err(FsError::Exists)) {
                made?;
            }
        }
        Ok(())
    }

    /// Makes a symbolic link at `path` to `target`.
    ///
    /// # Errors
    /// As [`create_node`](Self::create_node); `NotFound` for an empty target.
    pub fn symlink(
        self: &Arc<Self>,
        target: impl AsRef<Path>,
        path: impl AsRef<Path>,
    ) -> Result<()> {
        let target = bytes_of(target.as_ref()).to_vec();
        self.create_node(path, NewNode::Symlink(target), 0o777, Creds::default()).map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `Invalid` if it is none.
    pub fn read_link(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.readlink(self.spot(path, Last::Keep)?.found()?.ino()).map(path_of)
    }

    /// Gives a file a second name. A symbolic link gets it itself.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `Exists`, `NotPermitted` for a directory, `TooManyLinks`.
    pub fn hard_link(
        self: &Arc<Self>,
        original: impl AsRef<Path>,
        path: impl AsRef<Path>,
    ) -> Result<()> {
        self.link_inode(self.spot(original, Last::Keep)?.found()?.ino(), path.as_ref())
    }

    fn link_inode(self: &Arc<Self>, ino: u32, path: &Path) -> Result<()> {
        let spot = self.spot(path, Last::Keep)?;
        let (None, Some(name)) = (&spot.node, &spot.name) else { return Err(FsError::Exists) };
        if spot.slash {
            return Err(FsError::NotFound);
        }
        let attr = self.link(ino, spot.dir.ino(), name)?;
        drop(Held::from_attr(self, &attr));
        Ok(())
    }

    /// Removes the name of a file or symbolic link.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `IsADirectory`.
    pub fn remove_file(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<()> {
        // (Without a reference on the file, so that it is deleted in one transaction with its
        // name.)
        let spot = self.spot(path, Last::Unseen)?;
        if spot.slash && spot.node.is_none() {
            return Err(FsError::NotFound);
        }
        self.unlink(spot.dir.ino(), spot.name.as_deref().ok_or(FsError::IsADirectory)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NotADirectory`, `NotEmpty`, `Busy` for the root.
    pub fn remove_dir(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<()> {
        let Spot { dir, name, node, .. } = self.spot(path, Last::Keep)?;
        let name = name.ok_or(FsError::Busy)?;
        drop(node.ok_or(FsError::NotFound)?);
        self.rmdir(dir.ino(), &name)
    }

    /// Removes whatever the path names, a directory with all that is in it. Links are removed, not
    /// followed. Stops at the first thing that cannot be removed.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `Busy` for the root; `NotPermitted` for immutable files.
    pub fn remove_dir_all(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<()> {
        remove::all(self, self.spot(path, Last::Keep)?)
    }

    /// Renames, replacing a file or empty directory that has the new name already. (`rename` on the
    /// trait [`FileSystem`](extol_vfs::FileSystem) is the same on inodes.)
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NotEmpty`, `IsADirectory`, `NotADirectory`, `Invalid` for a
    /// directory into itself.
    pub fn rename_path(
        self: &Arc<Self>,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Renames as `flags` say: without replacing, or exchanging two names.
    ///
    /// # Errors
    /// As [`rename_path`](Self::rename_path); `Exists` with `NOREPLACE`.
    pub fn rename_with(
        self: &Arc<Self>,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let from = self.spot(from, Last::Keep)?;
        // (Without a reference on what is replaced.)
        let Spot { dir: to_dir, name: to_name, slash, .. } = self.spot(to, Last::Unseen)?;
        let is_dir = from.node.as_ref().ok_or(FsError::NotFound)?.kind() == FileKind::Directory;
        if slash && !is_dir {
            return Err(FsError::NotADirectory);
        }
        let (from_dir, from_name) = from.entry()?;
        let to_name = to_name.ok_or(FsError::Busy)?;
        self.rename(from_dir.ino(), from_name, to_dir.ino(), &to_name, flags)
    }

    /// Attributes, links followed.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub fn metadata(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Attr> {
        self.attributes(path.as_ref(), Last::Follow)
    }

    /// Attributes; those of a link itself if the path names one.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub fn symlink_metadata(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Attr> {
        self.attributes(path.as_ref(), Last::FollowIfSlash)
    }

    fn attributes(self: &Arc<Self>, path: &Path, last: Last) -> Result<Attr> {
        // (Never a link, so `last` does not matter.)
        let cached = self.lookup_cached(&bytes_of(path));
        cached.map_or_else(|| self.spot(path, last)?.attributes(), Ok)
    }

    /// True if the path leads to something. Errors count as "no".
    #[must_use]
    pub fn exists(self: &Arc<Self>, path: impl AsRef<Path>) -> bool {
        self.metadata(path).is_ok()
    }

    /// Entries of a directory, without `.` and `..`, in the order in which the directory has them.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NotADirectory`.
    pub fn read_dir(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<ReadDir> {
        ReadDir::of(self.inode(path.as_ref())?, path.as_ref())
    }

    /// Everything below a path, itself first, directories before what is in them. Links are shown,
    /// not followed.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub fn walk(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Walk> {
        Ok(Walk::of(self.inode(path.as_ref())?, path.as_ref()))
    }

    /// Sets the permission bits (07777).
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NotPermitted` for immutable files.
    pub fn set_permissions(self: &Arc<Self>, path: impl AsRef<Path>, perm: u16) -> Result<()> {
        self.set(path, Last::Follow, &SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    /// Sets owner and group; `None` leaves one alone.
    ///
    /// # Errors
    /// As [`set_permissions`](Self::set_permissions).
    pub fn chown(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set(path, Last::Follow, &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Like [`chown`](Self::chown), for a link itself.
    ///
    /// # Errors
    /// As [`set_permissions`](Self::set_permissions).
    pub fn lchown(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set(path, Last::Keep, &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets access and modification time; `None` leaves one alone.
    ///
    /// # Errors
    /// As [`set_permissions`](Self::set_permissions).
    pub fn set_times(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Result<()> {
        self.set(path, Last::Follow, &SetAttr { atime, mtime, ..SetAttr::default() })
    }

    fn set(self: &Arc<Self>, path: impl AsRef<Path>, last: Last, set: &SetAttr) -> Result<()> {
        self.setattr(self.spot(path, last)?.found()?.ino(), set).map(drop)
    }

    /// Value of an extended attribute, by its full name (`user.x`).
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NoAttribute`.
    pub fn get_xattr(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
    ) -> Result<Vec<u8>> {
        self.getxattr(self.inode(path)?.ino(), name.as_ref())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NoSpace`, `Exists` and `NoAttribute` as `how` asks for.
    pub fn set_xattr(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        how: XattrSet,
    ) -> Result<()> {
        self.setxattr(self.inode(path)?.ino(), name.as_ref(), value.as_ref(), how)
    }

    /// Full names of all extended attributes.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub fn list_xattrs(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        self.listxattr(self.inode(path)?.ino())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); `NoAttribute`.
    pub fn remove_xattr(
        self: &Arc<Self>,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.removexattr(self.inode(path)?.ino(), name.as_ref())
    }
}
