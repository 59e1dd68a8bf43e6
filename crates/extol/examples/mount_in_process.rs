//! Makes a volume, mounts it in this process, and works on it by system calls.
//!
//! ```sh
//! cargo run --example mount_in_process --features fuse -- new.img /mnt   # an image of 64 MiB
//! cargo run --example mount_in_process --features fuse                   # in memory
//! ```
//!
//! Needs `/dev/fuse`, and root or fusermount3.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use extol::device::{FileDevice, MemDevice, OpenOptions, SharedDevice};
use extol::fuse::{self, MountConfig};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};

const SIZE: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (device, dir): (SharedDevice, PathBuf) = match &args[..] {
        [image, dir] => {
            let options = OpenOptions::read_write().create_size(SIZE);
            (Arc::new(FileDevice::open(image, &options)?), dir.clone())
        }
        [] => {
            let dir = std::env::temp_dir().join(format!("extol-{}", std::process::id()));
            fs::create_dir(&dir)?;
            (Arc::new(MemDevice::new(SIZE)), dir)
        }
        _ => return Err("usage: mount_in_process [IMAGE DIRECTORY]".into()),
    };
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {})?;

    let volume = Ext4::open(device, &MountOptions::default())?;
    let mut mounted = fuse::mount(&volume, &dir, &MountConfig::default())?;
    fs::create_dir(dir.join("notes"))?;
    fs::write(dir.join("notes/first"), "written by a system call\n")?;
    println!("{}", fs::read_to_string(dir.join("notes/first"))?.trim_end());
    mounted.unmount()?;

    // The directory is empty, and the volume is still open here.
    assert!(!dir.join("notes").exists());
    print!("{}", String::from_utf8(volume.read_file("/notes/first")?)?);
    volume.unmount()?;
    if args.is_empty() {
        fs::remove_dir(&dir)?;
    }
    Ok(())
}
