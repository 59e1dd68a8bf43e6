//! An open volume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use extol::device::SharedDevice;
use extol::vfs::{
    Creds, FileKind, FileSystem as _, NewNode, Rdev, RenameFlags, SetTime, Timestamp, XattrSet,
};
use extol::{Ext4, FsError, Metadata, MountOptions, OpenOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::attributes::{birth, stat_result};
use crate::device::{PythonDevice, interrupted};
use crate::file::RawFile;
use crate::{EBADF, Home, Nanoseconds, fs_error, fs_error_at, invalid, open_error, os_error};

/// An open volume. Paths are bytes.
#[pyclass(frozen, module = "extol._extol")]
pub(crate) struct RawVolume {
    /// Nothing once it was closed.
    fs: Mutex<Option<Arc<Ext4>>>,
    home: Home,
}

/// A path of the volume.
fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn perm(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

fn time(ns: Option<Nanoseconds>) -> PyResult<Option<SetTime>> {
    let at = |ns: Nanoseconds| {
        const SECOND: Nanoseconds = 1_000_000_000;
        let sec = i64::try_from(ns.div_euclid(SECOND)).ok()?;
        let nsec = u32::try_from(ns.rem_euclid(SECOND)).ok()?;
        Some(SetTime::At(Timestamp { sec, nsec }))
    };
    ns.map(|ns| at(ns).ok_or_else(|| invalid("the time is out of range"))).transpose()
}

fn bytes<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytes)
}

impl RawVolume {
    fn of(fs: Arc<Ext4>) -> Self {
        Self { fs: Mutex::new(Some(fs)), home: Home::here() }
    }

    fn fs(&self) -> PyResult<Arc<Ext4>> {
        self.home.check()?;
        let fs = self.fs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        fs.ok_or_else(|| os_error(EBADF, "the volume is closed"))
    }

    /// Does work on the volume, detached from the interpreter (PB-1). `names` are those that it is
    /// about.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        names: &[&[u8]],
        work: impl FnOnce(&Arc<Ext4>) -> extol::vfs::Result<T> + Send,
    ) -> PyResult<T> {
        let fs = self.fs()?;
        let done = py.detach(move || work(&fs));
        interrupted()?;
        done.map_err(|error| fs_error_at(&error, names))
    }

    fn attributes(&self, py: Python<'_>, name: &[u8], follow: bool) -> PyResult<Metadata> {
        self.with(py, &[name], |fs| match follow {
            true => fs.metadata(path(name)),
            false => fs.symlink_metadata(path(name)),
        })
    }

    /// The volume, if it is to be closed here.
    fn take(&mut self) -> Option<Arc<Ext4>> {
        let fs = self.fs.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !self.home.is_here() {
            std::mem::forget(fs);
            return None;
        }
        fs
    }
}

#[pymethods]
impl RawVolume {
    /// Opens a volume by the name that the commands take.
    #[staticmethod]
    fn open(py: Python<'_>, name: &[u8], options: &str) -> PyResult<Self> {
        let options = MountOptions::parse(options).map_err(invalid)?;
        py.detach(|| Ext4::open_path(path(name), &options)).map(Self::of).map_err(open_error)
    }

    /// Opens the volume that a binary file of Python holds.
    #[staticmethod]
    fn of_file(
        py: Python<'_>,
        file: Py<PyAny>,
        size: u64,
        writable: bool,
        options: &str,
    ) -> PyResult<Self> {
        let options = MountOptions::parse(options).map_err(invalid)?;
        let device: SharedDevice = Arc::new(PythonDevice::new(file, size, writable));
        let opened = py.detach(|| Ext4::open(device, &options));
        interrupted()?;
        opened.map(Self::of).map_err(open_error)
    }

    /// Writes everything and closes the volume; a second time, and in another process, it does
    /// nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.home.is_here() {
            return Ok(());
        }
        let fs = self.fs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = py.detach(move || fs.map_or(Ok(()), |fs| fs.unmount()));
        interrupted()?;
        closed.map_err(fs_error)
    }

    /// True once it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.fs().is_err()
    }

    /// True if nothing may be changed.
    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        Ok(self.fs()?.is_read_only())
    }

    /// Makes everything durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, &[], |fs| fs.sync())
    }

    /// Block size, blocks, free ones, those for users, inodes, free ones, longest name.
    fn statfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64, u32)> {
        let s = self.with(py, &[], |fs| fs.statfs())?;
        let blocks = (s.block_size, s.blocks, s.blocks_free, s.blocks_available);
        Ok((blocks.0, blocks.1, blocks.2, blocks.3, s.inodes, s.inodes_free, s.name_max))
    }

    /// Opens a file.
    #[pyo3(signature = (name, *, read, write, create, exclusive, truncate, mode))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    fn open_file(
        &self,
        py: Python<'_>,
        name: &[u8],
        read: bool,
        write: bool,
        create: bool,
        exclusive: bool,
        truncate: bool,
        mode: u32,
    ) -> PyResult<RawFile> {
        let mut how = OpenOptions::new();
        how.read(read).write(write).create(create).create_new(exclusive).truncate(truncate);
        how.mode(perm(mode));
        let opened = self.with(py, &[name], |fs| {
            let file = fs.open_file(path(name), &how)?;
            // (The library opens directories for their fsync.)
            match file.inode().kind() {
                FileKind::Directory => Err(FsError::IsADirectory),
                _ => Ok(file),
            }
        });
        opened.map(RawFile::of)
    }

    /// Attributes; of a link itself without `follow`.
    fn stat<'py>(&self, py: Python<'py>, name: &[u8], follow: bool) -> PyResult<Bound<'py, PyAny>> {
        stat_result(py, &self.attributes(py, name, follow)?)
    }

    /// The same, and when it was made, in seconds since 1970.
    fn stat_and_birth<'py>(
        &self,
        py: Python<'py>,
        name: &[u8],
        follow: bool,
    ) -> PyResult<(Bound<'py, PyAny>, f64)> {
        let attr = self.attributes(py, name, follow)?;
        Ok((stat_result(py, &attr)?, birth(&attr)))
    }

    /// Names, inode numbers and kinds of a directory's entries.
    fn entries<'py>(
        &self,
        py: Python<'py>,
        name: &[u8],
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, u32, u32)>> {
        let found = self.with(py, &[name], |fs| {
            let entries = fs.read_dir(path(name))?;
            entries
                .map(|entry| {
                    let entry = entry?;
                    let kind = entry.kind().map_or(0, FileKind::mode_bits);
                    Ok((entry.file_name(), entry.ino(), kind))
                })
                .collect::<extol::vfs::Result<Vec<_>>>()
        })?;
        let named = |(name, ino, kind): (std::ffi::OsString, u32, u32)| {
            (bytes(py, name.as_bytes()), ino, kind)
        };
        Ok(found.into_iter().map(named).collect())
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, name: &[u8], mode: u32) -> PyResult<()> {
        self.with(py, &[name], |fs| {
            let new = NewNode::Directory;
            fs.create_node(path(name), new, perm(mode), Creds::default()).map(drop)
        })
    }

    /// Makes a device file, a pipe, a socket or an empty file.
    fn mknod(
        &self,
        py: Python<'_>,
        name: &[u8],
        mode: u32,
        major: u32,
        minor: u32,
    ) -> PyResult<()> {
        let rdev = Rdev { major, minor };
        let no_such = || invalid(format_args!("mode {mode:#o} is no such file"));
        let new = NewNode::of_mode(mode, rdev).ok_or_else(no_such)?;
        self.with(py, &[name], |fs| {
            fs.create_node(path(name), new, perm(mode), Creds::default()).map(drop)
        })
    }

    /// Removes a file's name.
    fn unlink(&self, py: Python<'_>, name: &[u8]) -> PyResult<()> {
        self.with(py, &[name], |fs| fs.remove_file(path(name)))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, name: &[u8]) -> PyResult<()> {
        self.with(py, &[name], |fs| fs.remove_dir(path(name)))
    }

    /// Removes all that a name leads to.
    fn remove_all(&self, py: Python<'_>, name: &[u8]) -> PyResult<()> {
        self.with(py, &[name], |fs| fs.remove_dir_all(path(name)))
    }

    /// Renames.
    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8], flags: u32) -> PyResult<()> {
        let flags = RenameFlags::from_bits(flags).ok_or_else(|| invalid("unknown flags"))?;
        self.with(py, &[from, to], |fs| fs.rename_with(path(from), path(to), flags))
    }

    /// Gives a file a second name.
    fn link(&self, py: Python<'_>, original: &[u8], name: &[u8]) -> PyResult<()> {
        self.with(py, &[original, name], |fs| fs.hard_link(path(original), path(name)))
    }

    /// Makes a symbolic link.
    fn symlink(&self, py: Python<'_>, target: &[u8], name: &[u8]) -> PyResult<()> {
        self.with(py, &[target, name], |fs| fs.symlink(path(target), path(name)))
    }

    /// The target of a symbolic link.
    fn readlink<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.with(py, &[name], |fs| fs.read_link(path(name)))?;
        Ok(bytes(py, target.as_os_str().as_bytes()))
    }

    /// Sets the permission bits.
    fn chmod(&self, py: Python<'_>, name: &[u8], mode: u32) -> PyResult<()> {
        self.with(py, &[name], |fs| fs.set_permissions(path(name), perm(mode)))
    }

    /// Sets owner and group.
    fn chown(
        &self,
        py: Python<'_>,
        name: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        self.with(py, &[name], |fs| match follow {
            true => fs.chown(path(name), uid, gid),
            false => fs.lchown(path(name), uid, gid),
        })
    }

    /// Sets times; without any, to the present moment.
    fn utime(
        &self,
        py: Python<'_>,
        name: &[u8],
        times: Option<(Nanoseconds, Nanoseconds)>,
    ) -> PyResult<()> {
        let (atime, mtime) = match times {
            Some((atime, mtime)) => (time(Some(atime))?, time(Some(mtime))?),
            None => (Some(SetTime::Now), Some(SetTime::Now)),
        };
        self.with(py, &[name], |fs| fs.set_times(path(name), atime, mtime))
    }

    /// The value of an extended attribute.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        name: &[u8],
        attribute: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.with(py, &[name], |fs| fs.get_xattr(path(name), attribute))?;
        Ok(bytes(py, &value))
    }

    /// Sets an extended attribute.
    fn setxattr(
        &self,
        py: Python<'_>,
        name: &[u8],
        attribute: &[u8],
        value: &[u8],
        flags: u32,
    ) -> PyResult<()> {
        let how = match flags {
            0 => XattrSet::Any,
            1 => XattrSet::Create,
            2 => XattrSet::Replace,
            _ => return Err(invalid("unknown flags")),
        };
        self.with(py, &[name], |fs| fs.set_xattr(path(name), attribute, value, how))
    }

    /// Names of extended attributes.
    fn listxattr<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = self.with(py, &[name], |fs| fs.list_xattrs(path(name)))?;
        Ok(names.iter().map(|name| bytes(py, name)).collect())
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, name: &[u8], attribute: &[u8]) -> PyResult<()> {
        self.with(py, &[name], |fs| fs.remove_xattr(path(name), attribute))
    }
}

/// A volume that was forgotten is closed all the same.
impl Drop for RawVolume {
    fn drop(&mut self) {
        let Some(fs) = self.take() else { return };
        Python::attach(|py| {
            // An exception may be on its way, and a device that is a Python file runs Python code.
            let on_its_way = PyErr::take(py);
            if let Err(error) = py.detach(|| fs.unmount()) {
                fs_error(error).write_unraisable(py, None);
            }
            if let Some(exception) = on_its_way {
                exception.restore(py);
            }
        });
    }
}
