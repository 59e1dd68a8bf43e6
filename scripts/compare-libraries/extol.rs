//! The crate `extol`.

mod shared;

use std::os::unix::ffi::OsStrExt as _;

use extol::vfs::FileKind;
use extol::{Ext4, MountOptions, OpenOptions};
use shared::Found;

fn main() {
    shared::run(|image, tally| {
        let fs = Ext4::open_path(image, &MountOptions::default().read_only()).unwrap();
        for item in fs.walk("/").unwrap() {
            let item = item.unwrap();
            if item.depth() == 0 {
                continue;
            }
            let attr = item.attr();
            let found = Found {
                path: item.path().as_os_str().as_bytes(),
                is_dir: attr.kind == FileKind::Directory,
                mode: attr.mode(),
                size: attr.size,
                mtime: attr.mtime.sec,
            };
            tally.found(&found, || {
                let file = fs.open_file(item.path(), OpenOptions::new().read(true)).unwrap();
                move |at, buffer: &mut [u8]| file.read_at(buffer, at).unwrap()
            });
        }
        fs.unmount().unwrap();
    });
}
