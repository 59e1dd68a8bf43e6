//! Resizing a damaged volume: see [`volume`](mod@super::volume) for the input. Two bytes of its
//! operations are a step: which kind, and how far.

use std::sync::Arc;

use extol::resize::{ResizeError, Resized, Target};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice as _, SharedDevice};
use extol_check::Report;

use super::volume::{MAX_REQUESTS, Recipe, verify};
use crate::disk::Disk;
use crate::tree;

/// Most steps of an input.
const MAX_STEPS: usize = 3;

/// A volume is made larger and smaller, some times. What the checker calls clean before, it must
/// call clean after each step, whether that was done or refused; it must hold the same files then,
/// and its device must be as long as it is. What is said to be the minimum is what is made.
pub fn resize(input: &[u8]) {
    let Some(recipe) = Recipe::new(input) else { return };
    let options = MountOptions::parse("errors=continue").expect("options").without_threads();
    let clean = verify(&recipe.dev).is_some_and(|report| report.is_clean());
    let files = if clean { tree::of(&recipe.dev) } else { None };
    let disk = Disk::new(recipe.dev.snapshot(), false);
    for step in recipe.operations.chunks(2).take(MAX_STEPS) {
        let amount = u64::from(step.get(1).copied().unwrap_or(0));
        let (target, done) = one(&disk, &options, step[0] % 5, amount);
        let told = || format!("{target:?}: {done:?}\n{}", recipe.damage.log.join("\n"));
        let requests = disk.requests();
        assert!(requests <= MAX_REQUESTS * MAX_STEPS as u64, "{requests} requests, {}", told());
        if clean {
            let after = verify(&disk.mem);
            assert!(
                after.as_ref().is_some_and(Report::is_clean),
                "clean before, and afterwards: {}\n{}",
                after.map_or("no report".into(), |report| report.to_string()),
                told()
            );
            assert_eq!(tree::of(&disk.mem), files, "other files after {}", told());
        }
        if done.is_none() {
            return;
        }
    }
}

/// One step; `None`: the volume cannot be opened.
fn one(
    disk: &Arc<Disk>,
    options: &MountOptions,
    kind: u8,
    amount: u64,
) -> (Target, Option<Result<Resized, ResizeError>>) {
    let shared: SharedDevice = disk.clone();
    let said = (kind == 0).then(|| {
        let read_only = Disk::new(disk.mem.snapshot(), true);
        let shared: SharedDevice = read_only.clone();
        let said = Ext4::minimum(&shared, options, &mut |_| true);
        assert!(read_only.found().is_empty(), "measuring writes");
        assert!(read_only.requests() <= MAX_REQUESTS, "{} requests", read_only.requests());
        said
    });
    let Ok(fs) = Ext4::open(shared, options) else { return (Target::Minimum, None) };
    let before = fs.stats().blocks;
    let target = match kind {
        0 | 1 => Target::Minimum,
        2 => Target::Blocks(before * amount / 256),
        3 => Target::Blocks((before + before * amount / 128).min(1 << 16)),
        _ => Target::Device,
    };
    let done = fs.resize(target, &mut |_| true);
    if let Ok(resized) = &done {
        let blocks = fs.stats().blocks;
        assert_eq!(resized.blocks, blocks, "{target:?}: {resized:?}");
        if let Some(Ok(said)) = &said {
            assert_eq!(said.minimum, blocks, "{said:?} was said");
        }
        let bytes = blocks * u64::from(fs.block_size());
        assert!(disk.mem.size() >= bytes, "{blocks} blocks on {} bytes", disk.mem.size());
    }
    // (An error is one that the resize has seen.)
    let closed = fs.unmount();
    assert!(closed.is_ok() || done.is_err(), "{target:?}: {done:?}, and then {closed:?}");
    (target, Some(done))
}
