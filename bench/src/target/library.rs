//! A volume that is open in this process: no kernel between the workload and Extol.

use std::io;
use std::sync::Arc;

use extol::vfs::{FileKind, FileSystem as _, FsError, SetAttr, SetTime, Timestamp};
use extol::{Ext4, File, OpenOptions};

use super::{DirItem, Target, TargetFile};

/// An open volume.
#[derive(Debug)]
pub struct Library(Arc<Ext4>);

impl Library {
    /// Uses this volume.
    #[must_use]
    pub fn new(fs: Arc<Ext4>) -> Self {
        Self(fs)
    }

    fn open_how(&self, path: &str, how: &OpenOptions) -> io::Result<Box<dyn TargetFile>> {
        Ok(Box::new(self.0.open_file(path, how).map_err(error)?))
    }
}

/// The same kind where std has one, and the same words.
fn error(error: FsError) -> io::Error {
    let kind = match error {
        FsError::NotFound => io::ErrorKind::NotFound,
        FsError::Exists => io::ErrorKind::AlreadyExists,
        FsError::IsADirectory => io::ErrorKind::IsADirectory,
        FsError::NoSpace => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

impl Target for Library {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.0.create_dir(path).map_err(error)
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        self.open_how(path, OpenOptions::new().read(true).write(true).create_new(true))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        self.open_how(path, OpenOptions::new().read(true).write(true))
    }

    /// There is no page cache of the kernel in between.
    fn create_bulk(
        &self,
        path: &str,
        _size: u64,
        _direct: bool,
    ) -> io::Result<Box<dyn TargetFile>> {
        self.create(path)
    }

    fn open_bulk(&self, path: &str, _direct: bool) -> io::Result<Box<dyn TargetFile>> {
        self.open(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove_file(path).map_err(error)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.0.remove_dir(path).map_err(error)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename_path(from, to).map_err(error)
    }

    fn link(&self, old: &str, new: &str) -> io::Result<()> {
        self.0.hard_link(old, new).map_err(error)
    }

    fn symlink(&self, text: &str, path: &str) -> io::Result<()> {
        self.0.symlink(text, path).map_err(error)
    }

    fn chmod(&self, path: &str, mode: u16) -> io::Result<()> {
        self.0.set_permissions(path, mode).map_err(error)
    }

    fn set_times(&self, path: &str, seconds: i64) -> io::Result<()> {
        let time = Some(SetTime::At(Timestamp { sec: seconds, nsec: 0 }));
        self.0.set_times(path, time, time).map_err(error)
    }

    fn size_of(&self, path: &str) -> io::Result<u64> {
        Ok(self.0.metadata(path).map_err(error)?.size)
    }

    fn entries(&self, path: &str) -> io::Result<Vec<DirItem>> {
        let mut items = Vec::new();
        for entry in self.0.read_dir(path).map_err(error)? {
            let entry = entry.map_err(error)?;
            let is_dir = entry.kind().map_err(error)? == FileKind::Directory;
            items.push(DirItem { name: entry.file_name().to_string_lossy().into_owned(), is_dir });
        }
        Ok(items)
    }

    fn list(&self, path: &str) -> io::Result<usize> {
        self.0
            .read_dir(path)
            .map_err(error)?
            .try_fold(0, |n, entry| entry.map(|_| n + 1).map_err(error))
    }

    fn touch(&self, path: &str) -> io::Result<()> {
        let file =
            self.0.open_file(path, OpenOptions::new().write(true).create(true)).map_err(error)?;
        let set =
            SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
        self.0.setattr(file.inode().ino(), &set).map_err(error).map(drop)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let dir = self.0.inode(path).map_err(error)?;
        self.0.fsync(dir.ino(), false).map_err(error)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync().map_err(error)
    }
}

impl TargetFile for File {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset).map_err(error)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, buf, offset).map_err(error)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata().map_err(error)?.size)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        if data_only { self.sync_data() } else { self.sync_all() }.map_err(error)
    }
}
