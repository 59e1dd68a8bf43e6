//! How fast are scattered 4 KiB writes: one call each, or a batch at a time?
//!
//! ```text
//! cargo run --release -p extol-block --example scattered -- DIR [MIB]
//! ```
//!
//! Makes a file of MIB mebibytes (256) in DIR, fills it, and measures
//! [`BlockDevice::write_vectored_at`] in a loop against [`BlockDevice::write_scattered`], direct
//! and buffered, in rounds of 1, 8, 64 and 256 writes to random blocks. "+ flush" ends each round
//! with a flush, as a checkpoint does. The memory is not aligned, as that of cached metadata is
//! not. A single write, and all on a buffered device, are the same system calls both ways; any
//! difference there is noise. The file is deleted afterwards.

use extol_block::{BlockDevice, Direct, FileDevice, OpenOptions, ScatteredWrite};
use std::io::IoSlice;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const TIME: Duration = Duration::from_millis(1500);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Loop,
    Batch,
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: scattered DIR [MIB]")?;
    let size = args.next().map_or(Ok(256), |text| text.parse::<u64>())?.max(4) << 20;
    let path = Path::new(&dir).join("scattered.img");
    let result = measure(&path, size);
    std::fs::remove_file(&path)?;
    result
}

fn measure(path: &Path, size: u64) -> Outcome<()> {
    println!(
        "{:<17} {:>13} {:>9} {:>8} {:>23} {:>15} {:>8}",
        "writes/s",
        "one call each",
        "batch",
        "factor",
        "one call each + flush",
        "batch + flush",
        "factor"
    );
    for (name, direct) in [("direct", Direct::On), ("buffered", Direct::Off)] {
        let options = OpenOptions::read_write().direct(direct).create_size(size);
        let device = match FileDevice::open(path, &options) {
            Ok(device) => device,
            Err(e) => {
                println!("{name}: {e}");
                continue;
            }
        };
        let filling = vec![0xA5; 1 << 20];
        for at in (0..size).step_by(filling.len()) {
            device.write_at(&filling, at)?;
        }
        device.flush()?;
        for count in [1, 8, 64, 256] {
            let mut rates = [0.0; 4];
            for (i, rate) in rates.iter_mut().enumerate() {
                let way = if i % 2 == 0 { Way::Loop } else { Way::Batch };
                *rate = rate_of(&device, way, count, i >= 2)?;
                // The next round begins without dirty pages.
                device.flush()?;
            }
            let [one, batch, one_flushed, batch_flushed] = rates;
            println!(
                "{name:8} {count:>8} {one:>13.0} {batch:>9.0} {:>8.1} {one_flushed:>23.0} \
                 {batch_flushed:>15.0} {:>8.1}",
                batch / one,
                batch_flushed / one_flushed
            );
        }
    }
    Ok(())
}

/// Writes per second.
fn rate_of(device: &FileDevice, way: Way, count: usize, flush: bool) -> Outcome<f64> {
    let memory: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8; BLOCK]).collect();
    let bufs: Vec<[IoSlice<'_>; 1]> = memory.iter().map(|block| [IoSlice::new(block)]).collect();
    let blocks = device.size() / BLOCK as u64;
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let begin = Instant::now();
    let mut written = 0;
    while begin.elapsed() < TIME {
        // One block out of each of `count` parts of the file: scattered, ascending, never two the
        // same.
        let part = blocks / count as u64;
        let writes: Vec<ScatteredWrite<'_>> = (0u64..)
            .zip(&bufs)
            .map(|(i, bufs)| {
                random =
                    random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                ScatteredWrite { offset: (i * part + (random >> 33) % part) * BLOCK as u64, bufs }
            })
            .collect();
        match way {
            Way::Loop => {
                writes.iter().try_for_each(|w| device.write_vectored_at(w.bufs, w.offset))?
            }
            Way::Batch => device.write_scattered(&writes)?,
        }
        if flush {
            device.flush()?;
        }
        written += count;
    }
    Ok(written as f64 / begin.elapsed().as_secs_f64())
}
