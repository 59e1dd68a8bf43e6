//! Opens a volume read-only and prints a file. Nothing is mounted, nothing is written.
//!
//! ```sh
//! cargo run --example read_file -- disk.img /etc/fstab
//! cargo run --example read_file                     # a small volume in memory
//! ```

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use extol::device::MemDevice;
use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let options = MountOptions::default().read_only();
    let (fs, path) = match &args[..] {
        [image, path] => (Ext4::open_path(image, &options)?, path.clone()),
        [] => (Ext4::open(small_volume()?, &options)?, "/greeting".into()),
        _ => return Err("usage: read_file [IMAGE PATH]".into()),
    };
    let bytes = fs.read_file(path)?;
    std::io::stdout().write_all(&bytes)?;
    Ok(())
}

/// A volume in memory that holds one file.
fn small_volume() -> Result<Arc<MemDevice>, Box<dyn Error>> {
    let device = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {})?;
    let fs = Ext4::open(device.clone(), &MountOptions::default())?;
    fs.write_file("/greeting", "Hello from a volume that is not mounted.\n")?;
    fs.unmount()?;
    Ok(device)
}
