//! Makes a volume and a tree of files in it, and closes it cleanly.
//!
//! ```sh
//! cargo run --example create_tree -- new.img   # an image of 64 MiB; e2fsck and Linux accept it
//! cargo run --example create_tree              # the same in memory
//! ```

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use extol::device::{FileDevice, MemDevice, OpenOptions, SharedDevice};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::{Creds, FileKind, FileSystem, NewNode, XattrSet};
use extol::{Ext4, MountOptions};

const SIZE: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let device: SharedDevice = match std::env::args().nth(1) {
        Some(path) => {
            Arc::new(FileDevice::open(path, &OpenOptions::read_write().create_size(SIZE))?)
        }
        None => Arc::new(MemDevice::new(SIZE)),
    };
    let made = mkfs(
        &*device,
        &MkfsOptions { label: Some("tree".into()), ..MkfsOptions::default() },
        &mut |_| {},
    )?;
    println!("{} blocks of {} bytes, {} inodes", made.blocks, made.block_size, made.inodes);

    let fs = Ext4::open(device, &MountOptions::default())?;
    for country in ["norge", "sverige", "danmark"] {
        for year in 2020..2026 {
            let dir = format!("/reports/{country}/{year}");
            fs.create_dir_all(&dir)?;
            for month in 1..=12 {
                fs.write_file(
                    format!("{dir}/{month:02}.txt"),
                    format!("{country}, {month}/{year}\n"),
                )?;
            }
        }
    }
    // A sparse file: a byte at the end of the first gigabyte takes one block.
    let mut sparse = fs.create_file("/sparse")?;
    sparse.set_len((1 << 30) - 1)?;
    sparse.write_all_at(b"!", (1 << 30) - 1)?;
    sparse.write_all(b"data at the start")?;
    drop(sparse);
    // Links, attributes, owners, device files.
    fs.symlink("reports/norge/2025", "/newest")?;
    fs.hard_link("/newest/12.txt", "/december.txt")?;
    fs.set_xattr("/december.txt", "user.checked", "yes", XattrSet::Any)?;
    fs.chown("/december.txt", Some(1000), Some(1000))?;
    fs.set_permissions("/december.txt", 0o640)?;
    fs.create_node("/pipe", NewNode::Fifo, 0o600, Creds { uid: 1000, gid: 1000 })?;

    let (mut dirs, mut files, mut bytes) = (0, 0, 0);
    for item in fs.walk("/")? {
        let item = item?;
        match item.attr().kind {
            FileKind::Directory => dirs += 1,
            _ => files += 1,
        }
        bytes += item.attr().blocks * 512;
    }
    let space = fs.statfs()?;
    println!("{dirs} directories, {files} files, {} KiB used by them", bytes / 1024);
    println!("{} of {} blocks free", space.blocks_free, space.blocks);
    fs.unmount()?;
    println!("unmounted cleanly");
    Ok(())
}
