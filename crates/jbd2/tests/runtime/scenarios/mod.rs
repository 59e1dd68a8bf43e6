//! Single rules, one test each.

mod checkpoint;
mod commit;
mod failure;
mod log_less;
mod opening;
mod revoke;
mod space;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use extol_block::{BlockDevice, BlockNr, MemDevice};
use extol_jbd2::{Journal, Tid};

use crate::devices::Gate;
use crate::lab::{PLAIN, Variant};

const BS: u64 = 1024;
/// Enough memory that only log space makes a checkpoint run.
const ROOMY: Variant = Variant { cache_bytes: 8 << 20, ..PLAIN };

/// Fills blocks in one transaction.
fn fill(journal: &Arc<Journal>, blocks: impl IntoIterator<Item = u64>, byte: u8) -> Tid {
    let blocks: Vec<u64> = blocks.into_iter().collect();
    let mut h = journal.start(blocks.len() as u32).unwrap();
    for nr in blocks {
        let buf = h.create(BlockNr(nr)).unwrap();
        h.modify(&buf, |b| b.fill(byte)).unwrap();
    }
    let tid = h.tid();
    h.stop().unwrap();
    tid
}

fn free(journal: &Arc<Journal>, nr: u64, revoke: bool) -> Tid {
    let mut h = journal.start(2).unwrap();
    h.forget(BlockNr(nr), revoke).unwrap();
    let tid = h.tid();
    h.stop().unwrap();
    tid
}

fn byte(device: &dyn BlockDevice, nr: u64) -> u8 {
    let mut block = vec![0; BS as usize];
    device.read_at(&mut block, nr * BS).unwrap();
    assert!(block.iter().all(|b| *b == block[0]), "block {nr} is a mixture");
    block[0]
}

/// What the volume holds if the machine stops now.
fn after_crash(variant: &Variant, device: &MemDevice) -> MemDevice {
    let image = device.snapshot();
    variant.recover(&image, None).unwrap();
    image
}

/// Runs `f` on a thread; tells when it is done.
fn background<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> (JoinHandle<T>, Arc<AtomicBool>) {
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    let thread = std::thread::spawn(move || {
        let result = f();
        flag.store(true, Ordering::SeqCst);
        result
    });
    (thread, done)
}

/// Long enough for a thread to do what it must not do.
fn a_moment() {
    std::thread::sleep(Duration::from_millis(40));
}

fn gated(variant: Variant) -> (Arc<Journal>, Arc<Gate>, Arc<MemDevice>) {
    let device = Arc::new(variant.media().0);
    let gate = Gate::new(device.clone());
    (variant.open(gate.clone(), gate.clone()), gate, device)
}
