//! Recovery of a crash state by Extol, and what is verified of it.

use std::sync::Arc;

use extol::Ext4;
use extol::check::{CheckOptions, Recovery as Replay, Severity, check};
use extol_block::{MemDevice, SharedDevice};
use extol_check::inode_tables;

use crate::tape::{Event, Tape};
use crate::variant::Variant;
use crate::view::View;

/// A volume that was recovered, looked at, and closed.
#[derive(Debug)]
pub struct Recovered {
    /// What it showed.
    pub view: View,
    /// The devices afterwards.
    pub devices: Vec<MemDevice>,
}

/// Recovers (changing nothing of the caller's copies), looks, closes, and has the independent
/// checker look at what is left.
///
/// # Errors
/// What went wrong.
pub fn recover(variant: &Variant, devices: &[MemDevice]) -> Result<Recovered, String> {
    let recovered = look_after(variant, devices)?;
    zeroed_as_claimed(&recovered.devices)?;
    Ok(recovered)
}

/// As [`recover`], of devices on which another recovery has run. (e2fsck counts inodes that
/// were freed among those that were never used, so what they held is not zero although their table
/// was zeroed.)
///
/// # Errors
/// What went wrong.
pub fn look_after(variant: &Variant, devices: &[MemDevice]) -> Result<Recovered, String> {
    let copies: Vec<Arc<MemDevice>> = devices.iter().map(|d| Arc::new(d.snapshot())).collect();
    let view = mount_and_look(
        variant,
        &copies.iter().map(|d| Arc::clone(d) as SharedDevice).collect::<Vec<_>>(),
    )?;
    let devices: Vec<MemDevice> = copies.iter().map(|d| d.snapshot()).collect();
    checked(&devices, Replay::Ignore)?;
    Ok(Recovered { view, devices })
}

/// As [`recover`], on a tape: gives every change that recovery, mount and close made.
///
/// # Errors
/// What went wrong.
pub fn recover_on_tape(variant: &Variant, devices: &[MemDevice]) -> Result<Vec<Event>, String> {
    let tape = Tape::new(devices.iter().map(MemDevice::snapshot).collect());
    let taped: Vec<_> = (0..devices.len()).map(|nr| tape.device(nr)).collect();
    mount_and_look(variant, &taped)?;
    Ok(tape.finish().0)
}

fn mount_and_look(variant: &Variant, devices: &[SharedDevice]) -> Result<View, String> {
    let options = variant.recovery_options(devices.get(1).cloned());
    let volume = devices.first().cloned().ok_or("no device")?;
    let fs = Ext4::open(volume, &options).map_err(|e| format!("cannot be mounted: {e}"))?;
    let view = View::of(&fs)?;
    fs.unmount().map_err(|e| format!("cannot be closed: {e}"))?;
    Ok(view)
}

/// No inode table may claim to be zeroed that is not.
fn zeroed_as_claimed(devices: &[MemDevice]) -> Result<(), String> {
    let volume = devices.first().ok_or("no device")?;
    let tables =
        inode_tables(Arc::new(volume.snapshot())).map_err(|e| format!("the inode tables: {e}"))?;
    if tables.wrong.is_empty() {
        return Ok(());
    }
    Err(format!("the inode tables of groups {:?} claim to be zeroed and are not", tables.wrong))
}

/// The independent checker's report on a volume as it lies, with its log and its fast commits
/// replayed in memory.
///
/// # Errors
/// Its first findings.
pub fn checked_in_memory(devices: &[MemDevice]) -> Result<(), String> {
    checked(devices, Replay::InMemory)
}

/// Recovers without a mount. What is left is as after a mount that was closed: nothing to do for
/// another recovery, and nothing for the checker to find.
///
/// # Errors
/// What went wrong.
pub fn replayed(variant: &Variant, devices: &[MemDevice]) -> Result<(), String> {
    let copies: Vec<Arc<MemDevice>> = devices.iter().map(|d| Arc::new(d.snapshot())).collect();
    let volume: SharedDevice = copies.first().cloned().ok_or("no device")?;
    let journal = copies.get(1).map(|d| Arc::clone(d) as SharedDevice);
    let options = variant.recovery_options(journal);
    extol::replay(&volume, &options).map_err(|e| format!("cannot be replayed: {e}"))?;
    let left: Vec<MemDevice> = copies.iter().map(|d| d.snapshot()).collect();
    checked(&left, Replay::Ignore)?;
    let again =
        extol::replay(&volume, &options).map_err(|e| format!("cannot be replayed again: {e}"))?;
    if again.was_needed { Err("a second replay finds something to do".into()) } else { Ok(()) }
}

/// The independent checker's report.
///
/// # Errors
/// Its first findings.
pub fn checked(devices: &[MemDevice], recovery: Replay) -> Result<(), String> {
    let shared =
        |nr: usize| devices.get(nr).map(|d: &MemDevice| Arc::new(d.snapshot()) as SharedDevice);
    let options = CheckOptions {
        recovery,
        superblock: None,
        journal: shared(1),
        threads: 1,
        max_findings: 20,
        paths: false,
        ..CheckOptions::default()
    };
    let device = shared(0).ok_or("no device")?;
    let report = check(device, &options, &mut |_| {}).map_err(|e| format!("the checker: {e}"))?;
    if report.is_clean() {
        return Ok(());
    }
    let errors = report.findings.iter().filter(|f| f.severity == Severity::Error);
    let lines: Vec<String> = errors.take(6).map(|f| format!("  {f}")).collect();
    Err(format!("the checker finds {} errors:\n{}", report.errors, lines.join("\n")))
}
