//! A directory on whatever is mounted there.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Advice, AtFlags, OFlags, SeekFrom, Timespec, Timestamps};

use super::{DirItem, Target, TargetFile};

/// A directory of a mounted file system.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    root: File,
    is_fuse: bool,
}

/// `f_type` of a FUSE file system (statfs(2)).
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

impl Dir {
    /// Uses this directory.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let root = File::open(&path)?;
        let is_fuse = rustix::fs::fstatfs(&root)?.f_type as u64 == FUSE_SUPER_MAGIC;
        Ok(Self { path, root, is_fuse })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }
}

/// How bulk data is opened.
fn bulk(direct: bool) -> OpenOptions {
    let mut how = OpenOptions::new();
    how.read(true).write(true);
    if direct {
        how.custom_flags(OFlags::DIRECT.bits().cast_signed());
    }
    how
}

/// Makes everything below a directory durable, and takes the files' data out of the page cache.
pub(crate) fn forget_pages(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget_pages(&entry.path())?;
        } else if kind.is_file() {
            forget_file(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes a file durable, and takes its data out of the page cache.
pub(crate) fn forget_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}

impl Target for Dir {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.at(path))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        Ok(Box::new(
            OpenOptions::new().read(true).write(true).create_new(true).open(self.at(path))?,
        ))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(self.at(path))?))
    }

    fn create_bulk(&self, path: &str, _size: u64, direct: bool) -> io::Result<Box<dyn TargetFile>> {
        Ok(Box::new(bulk(direct).create_new(true).open(self.at(path))?))
    }

    fn open_bulk(&self, path: &str, direct: bool) -> io::Result<Box<dyn TargetFile>> {
        Ok(Box::new(bulk(direct).open(self.at(path))?))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn link(&self, old: &str, new: &str) -> io::Result<()> {
        fs::hard_link(self.at(old), self.at(new))
    }

    fn symlink(&self, text: &str, path: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(text, self.at(path))
    }

    fn chmod(&self, path: &str, mode: u16) -> io::Result<()> {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode.into()))
    }

    fn set_times(&self, path: &str, seconds: i64) -> io::Result<()> {
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::utimensat(&self.root, path, &times, AtFlags::empty())?)
    }

    fn size_of(&self, path: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.at(path))?.len())
    }

    fn entries(&self, path: &str) -> io::Result<Vec<DirItem>> {
        let item = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Ok(DirItem { name, is_dir: entry.file_type()?.is_dir() })
        };
        fs::read_dir(self.at(path))?.map(item).collect()
    }

    fn list(&self, path: &str) -> io::Result<usize> {
        fs::read_dir(self.at(path))?.try_fold(0, |n, entry| entry.map(|_| n + 1))
    }

    fn touch(&self, path: &str) -> io::Result<()> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).open(self.at(path))?;
        file.set_modified(SystemTime::now())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        File::open(self.at(path))?.sync_all()
    }

    /// syncfs(2). The kernel writes its cached pages to a FUSE file system then, but does not tell
    /// it to make them durable; the fsync of a directory does.
    fn sync(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.root)?;
        if self.is_fuse { self.root.sync_all() } else { Ok(()) }
    }
}

impl TargetFile for File {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn end(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(self, SeekFrom::End(0))?)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        if data_only { self.sync_data() } else { self.sync_all() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_end_is_its_length() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open(scratch.path()).unwrap();
        let file = dir.create("a").unwrap();
        assert_eq!((file.end().unwrap(), file.len().unwrap()), (0, 0));
        file.write_at(b"one", 2).unwrap();
        assert_eq!((file.end().unwrap(), file.len().unwrap()), (5, 5));
        // The offset of the file does not matter to a call that has its own.
        file.write_at(b"two", 0).unwrap();
        assert_eq!((file.end().unwrap(), file.len().unwrap()), (5, 5));
    }
}
