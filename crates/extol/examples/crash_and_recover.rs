//! What fsync guarantees: files are written and synced, the volume "loses power", and is opened
//! again.
//!
//! ```sh
//! cargo run --example crash_and_recover
//! ```

use std::error::Error;
use std::sync::Arc;

use extol::device::MemDevice;
use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};

const SYNCED: u32 = 200;
const UNSYNCED: u32 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {})?;

    let fs = Ext4::open(device.clone(), &MountOptions::default())?;
    fs.create_dir("/mail")?;
    for i in 0..SYNCED {
        let file = fs.create_file(format!("/mail/{i}"))?;
        file.write_all_at(body(i).as_bytes(), 0)?;
        file.sync_all()?; // From here on a crash cannot lose the message.
    }
    for i in SYNCED..SYNCED + UNSYNCED {
        fs.write_file(format!("/mail/{i}"), body(i))?;
    }
    let journal = fs.stats().journal;
    println!(
        "{SYNCED} files written and synced, {UNSYNCED} written only, {} commits",
        journal.transactions
    );
    fs.crash(); // From here on nothing reaches the device.
    drop(fs);

    // Opening recovers the journal.
    let fs = Ext4::open(device, &MountOptions::default())?;
    for i in 0..SYNCED {
        let bytes = fs.read_file(format!("/mail/{i}"))?;
        assert_eq!(bytes, body(i).as_bytes(), "a synced file was lost");
    }
    let survived = (SYNCED..SYNCED + UNSYNCED).filter(|i| fs.exists(format!("/mail/{i}"))).count();
    println!("after the crash: all {SYNCED} synced files are there, and {survived} of the others");
    fs.unmount()?;
    Ok(())
}

fn body(i: u32) -> String {
    format!("message {i}\n").repeat(1 + i as usize % 40)
}
