//! A mail server's kind of work, without a mount: several threads make small files and sync each of
//! them.
//!
//! ```sh
//! cargo run --release --example demo_library -- disk.img 4000 8   # files and threads
//! cargo run --release --example demo_library                      # in memory
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use extol::device::MemDevice;
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::FsError;
use extol::{Ext4, MountOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next();
    let mut number = |default: u32| args.next().map_or(Ok(default), |n| n.parse());
    let (files, threads) = (number(4000)?, number(4)?.clamp(1, 64));
    let each = files / threads;
    let files = each * threads;
    let options = MountOptions::default();
    let fs = match image {
        Some(path) => Ext4::open_path(path, &options)?,
        None => {
            let device = Arc::new(MemDevice::new(128 << 20));
            mkfs(&*device, &MkfsOptions::default(), &mut |_| {})?;
            Ext4::open(device, &options)?
        }
    };
    // A second run on the same volume starts afresh.
    match fs.remove_dir_all("/demo") {
        Ok(()) => println!("removed what the last run left"),
        Err(FsError::NotFound) => {}
        Err(e) => return Err(e.into()),
    }
    let start = Instant::now();
    let bytes = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let fs = &fs;
                scope.spawn(move || deliver(fs, n, each))
            })
            .collect();
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or(Err(FsError::Io("a thread panicked".into()))))
            .sum::<Result<u64, _>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{files} files, {} KiB, made and synced one by one by {threads} threads in {seconds:.2} s: \
         {:.0} files/s",
        bytes / 1024,
        f64::from(files) / seconds
    );
    // Look at what is there, in another order than it was made.
    let mut seen = 0;
    for item in fs.walk("/demo")? {
        let item = item?;
        if item.depth() == 2 {
            let name = item.path().to_string_lossy().into_owned();
            if fs.read_file(item.path())? != body(&name) {
                return Err(format!("{name} does not read back as it was written").into());
            }
            seen += 1;
        }
    }
    if seen != files {
        return Err(format!("{seen} files found instead of {files}").into());
    }
    println!("all of them read back as they were written");
    println!("\nThe journal, as Linux would show it:\n{}", fs.stats().journal.jbd2_info());
    fs.unmount()?;
    Ok(())
}

/// One thread's share; returns the bytes written.
fn deliver(fs: &Arc<Ext4>, thread: u32, files: u32) -> Result<u64, FsError> {
    let dir = format!("/demo/{thread}");
    fs.create_dir_all(&dir)?;
    let mut bytes = 0;
    for i in 0..files {
        let path = format!("{dir}/message-{i:05}");
        let body = body(&path);
        let file = fs.create_file(&path)?;
        file.write_all_at(&body, 0)?;
        file.sync_all()?;
        bytes += body.len() as u64;
    }
    Ok(bytes)
}

/// The contents of a file follow from its path.
fn body(path: &str) -> Vec<u8> {
    let line = format!("This is {path}.\n");
    let lines = 1 + path.bytes().map(usize::from).sum::<usize>() % 100;
    line.repeat(lines).into_bytes()
}
