//! The crate `rust-fs-ext4`.

mod shared;

use std::sync::Arc;

use fs_ext4::block_io::FileDevice;
use fs_ext4::fs::Filesystem;
use shared::{Found, Tally};

fn main() {
    shared::run(|image, tally| {
        let fs = Filesystem::mount(Arc::new(FileDevice::open(image).unwrap())).unwrap();
        walk(&fs, 2, &mut Vec::new(), tally);
    });
}

fn walk(fs: &Filesystem, dir: u32, path: &mut Vec<u8>, tally: &mut Tally) {
    for entry in fs.read_dir_ino(dir).unwrap() {
        if entry.name == b"." || entry.name == b".." {
            continue;
        }
        let inode = fs.stat_ino(entry.inode).unwrap();
        let above = path.len();
        path.push(b'/');
        path.extend(&entry.name);
        let found = Found {
            path,
            is_dir: inode.is_dir(),
            mode: inode.mode.into(),
            size: inode.size,
            mtime: inode.mtime,
        };
        tally.found(&found, || {
            |at, buffer: &mut [u8]| fs.read_ino(entry.inode, at, buffer).unwrap()
        });
        if inode.is_dir() {
            walk(fs, entry.inode, path, tally);
        }
        path.truncate(above);
    }
}
