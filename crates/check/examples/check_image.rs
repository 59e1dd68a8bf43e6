//! Checks disk images and prints the time that it takes: `cargo run -p extol-check --example
//! check_image -- IMAGE...`

use std::sync::Arc;
use std::time::Instant;

use extol_block::MemDevice;
use extol_check::{CheckOptions, check};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let device = Arc::new(MemDevice::from_bytes(&std::fs::read(&path)?));
        let start = Instant::now();
        let report = check(device, &CheckOptions::default(), &mut |_| {})?;
        println!("{path}: {:.2} ms\n{report}", start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(())
}
