//! A directory of the host, by `std::fs`: what is mounted, or was extracted.

mod shared;

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use shared::{Found, Tally};

fn main() {
    shared::run(|top, tally| walk(Path::new(top), top.len(), tally));
}

fn walk(dir: &Path, top: usize, tally: &mut Tally) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let path = entry.path();
        let found = Found {
            path: &path.as_os_str().as_bytes()[top..],
            is_dir: metadata.is_dir(),
            mode: metadata.mode(),
            size: metadata.len(),
            mtime: metadata.mtime(),
        };
        tally.found(&found, || {
            let mut file = File::open(&path).unwrap();
            move |_, buffer: &mut [u8]| file.read(buffer).unwrap()
        });
        if metadata.is_dir() {
            walk(&path, top, tally);
        }
    }
}
