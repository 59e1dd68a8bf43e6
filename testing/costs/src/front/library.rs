//! Calls of programs that use the library, by path.

use std::sync::Arc;

use extol::vfs::FileSystem as _;
use extol::{Ext4, File, OpenOptions};

use super::Front;

/// The library.
#[derive(Debug)]
pub struct Library<'a> {
    fs: &'a Arc<Ext4>,
    open: Option<File>,
}

impl<'a> Library<'a> {
    /// On this volume.
    #[must_use]
    pub fn new(fs: &'a Arc<Ext4>) -> Self {
        Self { fs, open: None }
    }

    fn file(&self) -> &File {
        self.open.as_ref().expect("an open file")
    }
}

impl Front for Library<'_> {
    fn name(&self) -> &'static str {
        "library"
    }

    fn open(&mut self, name: &str) {
        let how = OpenOptions::new().read(true).write(true).clone();
        self.open = Some(self.fs.open_file(format!("/{name}"), &how).expect("open"));
    }

    fn close(&mut self) {
        self.open = None;
    }

    fn statfs(&mut self) {
        self.fs.statfs().expect("statfs");
    }

    fn getattr(&mut self) {
        self.file().metadata().expect("attributes");
    }

    fn lookup(&mut self, name: &str) -> bool {
        self.fs.inode(name).is_ok()
    }

    fn create(&mut self, name: &str, contents: &[u8]) {
        let how = OpenOptions::new().write(true).create_new(true).clone();
        let file = self.fs.open_file(name, &how).expect("create");
        file.write_all_at(contents, 0).expect("write");
        file.sync_all().expect("fsync");
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.file().write_all_at(data, offset).expect("write");
    }

    fn fsync(&mut self) {
        self.file().sync_all().expect("fsync");
    }

    fn read(&mut self, offset: u64, len: u32) -> usize {
        let mut buffer = vec![0; len as usize];
        self.file().read_at(&mut buffer, offset).expect("read")
    }

    fn unlink(&mut self, name: &str) {
        self.fs.remove_file(name).expect("unlink");
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.fs.rename_path(from, to).expect("rename");
    }

    fn list(&mut self, dir: &str) -> usize {
        let entries = self.fs.read_dir(dir).expect("a directory");
        entries.inspect(|entry| assert!(entry.is_ok(), "an entry")).count()
    }

    fn sync(&mut self) {
        self.fs.sync().expect("sync");
    }
}
