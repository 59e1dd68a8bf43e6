//! What a workload runs on: a few calls that every file system has.
//!
//! The same workload code runs on a directory of a mounted file system ([`Dir`]), on an open volume
//! in this process ([`Library`]), for plain reads and writes on the bare device ([`Raw`]), and in
//! tests on `recorder::Recorder`, which only writes down what it was asked. A target holds no clock
//! and no counters: time is taken by the workload around each call.

mod dir;
mod library;
mod raw;
#[cfg(test)]
pub(crate) mod recorder;

use std::io;

pub use dir::Dir;
pub(crate) use dir::{forget_file, forget_pages};
pub use library::Library;
pub use raw::Raw;

/// A file system, or a directory of one. Paths are relative to it, with `/` between names.
pub trait Target: Send + Sync {
    /// Makes a directory.
    fn create_dir(&self, path: &str) -> io::Result<()>;

    /// Makes a file that is not there yet and opens it for reading and writing.
    fn create(&self, path: &str) -> io::Result<Box<dyn TargetFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Box<dyn TargetFile>>;

    /// Makes a file for about `size` bytes of bulk data. `direct`: past the page cache of the
    /// kernel, where there is one.
    fn create_bulk(&self, path: &str, size: u64, direct: bool) -> io::Result<Box<dyn TargetFile>>;

    /// Opens such a file.
    fn open_bulk(&self, path: &str, direct: bool) -> io::Result<Box<dyn TargetFile>>;

    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;

    /// Gives a file another name; a file that has it already goes.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file one more name.
    fn link(&self, old: &str, new: &str) -> io::Result<()>;

    /// Makes a symbolic link that says `text`.
    fn symlink(&self, text: &str, path: &str) -> io::Result<()>;

    /// Sets the permission bits (07777).
    fn chmod(&self, path: &str, mode: u16) -> io::Result<()>;

    /// Sets access and modification time, in seconds since 1970.
    fn set_times(&self, path: &str, seconds: i64) -> io::Result<()>;

    /// Size of a file or directory (stat).
    fn size_of(&self, path: &str) -> io::Result<u64>;

    /// The entries of a directory, without `.` and `..`.
    fn entries(&self, path: &str) -> io::Result<Vec<DirItem>>;

    /// Number of entries of a directory, all of them read.
    fn list(&self, path: &str) -> io::Result<usize>;

    /// Makes the file if need be, and sets its times to now (touch(1)).
    fn touch(&self, path: &str) -> io::Result<()>;

    /// Makes a directory durable (fsync of it).
    fn sync_dir(&self, path: &str) -> io::Result<()>;

    /// Makes everything on the file system durable (syncfs).
    fn sync(&self) -> io::Result<()>;
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirItem {
    /// Name.
    pub name: String,
    /// It is a directory.
    pub is_dir: bool,
}

/// An open file. Dropping it closes it.
pub trait TargetFile: Send + Sync {
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Reads at `offset`; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Where it ends, for an append: by lseek, as filebench. (`len` asks for all
    /// attributes; of FUSE that is a request.)
    fn end(&self) -> io::Result<u64> {
        self.len()
    }

    /// True without any byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// fsync, or fdatasync with `data_only`.
    fn sync(&self, data_only: bool) -> io::Result<()>;
}
