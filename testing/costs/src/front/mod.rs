//! The three ways in: calls of the library, requests of FUSE, calls of NFS.

mod fuse;
mod library;
mod nfs;

use std::sync::Arc;

use extol::Ext4;

pub use fuse::Fuse;
pub use library::Library;
pub use nfs::Nfs;

/// Operations on names in the root directory, each as the users of this way in do it.
pub trait Front {
    /// The name in the table.
    fn name(&self) -> &'static str;
    /// A file is made known, and is the one that is open from now on.
    fn open(&mut self, name: &str);
    /// The open file is closed.
    fn close(&mut self);
    /// Space of the volume.
    fn statfs(&mut self);
    /// Attributes of the open file.
    fn getattr(&mut self);
    /// Looks a name up. True if it is there.
    fn lookup(&mut self, name: &str) -> bool;
    /// A new file with these contents, durable, and closed.
    fn create(&mut self, name: &str, contents: &[u8]);
    /// Writes to the open file.
    fn write(&mut self, offset: u64, data: &[u8]);
    /// Makes the open file durable.
    fn fsync(&mut self);
    /// Reads from the open file; gives how many bytes.
    fn read(&mut self, offset: u64, len: u32) -> usize;
    /// Removes a name.
    fn unlink(&mut self, name: &str);
    /// Renames.
    fn rename(&mut self, from: &str, to: &str);
    /// Lists a directory; gives how many names, without `.` and `..`.
    fn list(&mut self, dir: &str) -> usize;
    /// Makes all durable.
    fn sync(&mut self);
}

/// One of them by name.
#[must_use]
pub fn of<'a>(name: &str, fs: &'a Arc<Ext4>) -> Box<dyn Front + 'a> {
    match name {
        "fuse" => Box::new(Fuse::new(fs)),
        "nfs" => Box::new(Nfs::new(fs)),
        _ => Box::new(Library::new(fs)),
    }
}
