//! The crate `ext4-view`.

mod shared;

use std::path::Path;

use ext4_view::{Ext4, PathBuf};
use shared::{Found, Tally};

fn main() {
    shared::run(|image, tally| {
        let fs = Ext4::load_from_path(Path::new(image)).unwrap();
        walk(&fs, PathBuf::new("/"), tally);
    });
}

fn walk(fs: &Ext4, dir: PathBuf, tally: &mut Tally) {
    for entry in fs.read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        if matches!(entry.file_name().as_ref(), b"." | b"..") {
            continue;
        }
        let metadata = entry.metadata().unwrap();
        let path = entry.path();
        let found = Found {
            path: path.as_ref(),
            is_dir: metadata.is_dir(),
            mode: metadata.mode().into(),
            size: metadata.len(),
            mtime: metadata.modified().seconds(),
        };
        tally.found(&found, || {
            let mut file = fs.open(&path).unwrap();
            move |_, buffer: &mut [u8]| file.read_bytes(buffer).unwrap()
        });
        if metadata.is_dir() {
            walk(fs, path, tally);
        }
    }
}
