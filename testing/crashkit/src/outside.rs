//! Oracles from elsewhere: e2fsck, and Linux over a loop device.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use extol_block::{BlockDevice as _, MemDevice};
use extol_testkit::{Image, KernelMount, Scratch, add_encryption_key, e2fsck, e2fsck_fix};

use crate::recover::{Recovered, look_after};
use crate::variant::{MASTER_KEY, Variant};
use crate::view::View;

const STEP: usize = 64 << 10;

/// Writes a device into a sparse file.
fn save(device: &MemDevice, path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.set_len(device.size())?;
    let mut buf = vec![0; STEP];
    for at in (0..device.size()).step_by(STEP) {
        let n = STEP.min((device.size() - at) as usize);
        device.read_at(&mut buf[..n], at).map_err(std::io::Error::other)?;
        if buf[..n].iter().any(|b| *b != 0) {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&buf[..n])?;
        }
    }
    Ok(())
}

/// Writes a crash state into files `NAME` and, with an external journal, `NAME.journal`.
///
/// # Errors
/// If that fails.
pub fn save_all(devices: &[MemDevice], dir: &Path, name: &str) -> Result<Image, String> {
    let mut image = Image::existing(dir.join(name));
    let fail = |e: std::io::Error| format!("saving an image: {e}");
    if let Some(volume) = devices.first() {
        save(volume, &image.path).map_err(fail)?;
    }
    if let Some(journal) = devices.get(1) {
        let path = dir.join(format!("{name}.journal"));
        save(journal, &path).map_err(fail)?;
        image.journal = Some(path);
    }
    Ok(image)
}

/// Reads what [`save_all`] wrote.
///
/// # Errors
/// If that fails.
pub fn load_all(image: &Image) -> Result<Vec<MemDevice>, String> {
    let load = |path: &Path| {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path).and_then(|mut f| f.read_to_end(&mut bytes));
        read.map(|_| MemDevice::from_bytes(&bytes)).map_err(|e| format!("loading an image: {e}"))
    };
    let mut devices = vec![load(&image.path)?];
    if let Some(journal) = &image.journal {
        devices.push(load(journal)?);
    }
    Ok(devices)
}

fn clean(image: &Image, what: &str) -> Result<(), String> {
    let report = e2fsck(image);
    if report.is_clean() {
        Ok(())
    } else {
        Err(format!("{what}: e2fsck -fn ends with {}:\n{}", report.code, report.output))
    }
}

/// What to do if the outcome is another than Extol's: `None` forbids it, else the model decides.
///
/// A torn commit block is complete for Extol and for Linux since 6.10, as all that counts is in its
/// first sector; e2fsck 1.47 and older kernels let the transaction go. It was not acknowledged, so
/// both are right.
pub type Other<'a> = Option<&'a dyn Fn(&View) -> Result<(), String>>;

fn compare(ours: &Recovered, theirs: &View, other: Other<'_>, by: &str) -> Result<(), String> {
    match (ours.view.difference(theirs), other) {
        (None, _) => Ok(()),
        (Some(lines), None) => Err(format!("Extol's recovery and that of {by} differ:\n  {lines}")),
        (Some(_), Some(verify)) => {
            verify(theirs).map_err(|e| format!("the recovery of {by} breaks a promise: {e}"))
        }
    }
}

/// e2fsck 1.47 marks the groups that a fast commit touches as if the volume had checksums of
/// groups, and then repairs its own mark, after every replay on a volume without them, also one
/// that only Linux has ever mounted.
fn own_mark(repair: &str) -> bool {
    let group =
        repair.trim().strip_prefix("Group descriptor ").and_then(|rest| rest.split_once(' '));
    group.is_some_and(|(nr, rest)| {
        nr.parse::<u32>().is_ok() && rest == "marked uninitialized without feature set. Fix? yes"
    })
}

/// e2fsck has nothing to say about what Extol's recovery left, recovers the same state with nothing
/// to repair, and what it made of it shows the same.
///
/// `Ok(true)`: it repaired a mark of its own, as it always does on volumes with fast commits and
/// without checksums.
///
/// # Errors
/// What it said, or the difference.
pub fn ask_e2fsck(
    variant: &Variant,
    crashed: &[MemDevice],
    ours: &Recovered,
    other: Other<'_>,
    dir: &Scratch,
) -> Result<bool, String> {
    let image = save_all(&ours.devices, dir.path(), "ours")?;
    clean(&image, "after Extol's recovery")?;
    let image = save_all(crashed, dir.path(), "theirs")?;
    let report = e2fsck_fix(&image);
    // See `Other`: it takes a torn commit block for damage, and then leaves the orphans to its
    // later passes.
    let gave_up = other.is_some() && report.output.contains("replay was aborted");
    let mut marks = false;
    let known = |repair: &str| {
        let mark = variant.without_group_checksums() && own_mark(repair);
        marks |= mark;
        mark
    };
    if let Some(repairs) = report.unexpected_repairs_but(known).filter(|_| !gave_up) {
        return Err(format!(
            "e2fsck's own recovery (exit code {}) repaired: {repairs}",
            report.code
        ));
    }
    clean(&image, "after e2fsck's recovery")?;
    let theirs = look_after(variant, &load_all(&image)?)?;
    compare(ours, &theirs.view, other, "e2fsck")?;
    Ok(marks)
}

/// Linux recovers the same state to the same tree, and leaves it clean.
///
/// # Errors
/// What it said, or the difference.
pub fn ask_linux(
    variant: &Variant,
    crashed: &[MemDevice],
    ours: &Recovered,
    other: Other<'_>,
    dir: &Scratch,
) -> Result<(), String> {
    let image = save_all(crashed, dir.path(), "linux")?;
    let point = dir.path().join("mnt");
    std::fs::create_dir_all(&point).map_err(|e| format!("a mount point: {e}"))?;
    let mount = KernelMount::try_mount(&image, &point, &[])?;
    if variant.is_encrypted() {
        add_encryption_key(mount.path(), None, &MASTER_KEY);
    }
    let theirs = View::of_dir(mount.path());
    mount.unmount();
    let theirs = theirs?;
    clean(&image, "after Linux's recovery")?;
    compare(ours, &theirs, other, "Linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_mark_is_known() {
        assert!(own_mark("Group descriptor 3 marked uninitialized without feature set. Fix? yes"));
        assert!(!own_mark("Group descriptor 3 checksum is 0x1, should be 0x2. FIXED."));
        assert!(!own_mark("Group descriptor x marked uninitialized without feature set. Fix? yes"));
    }
}
