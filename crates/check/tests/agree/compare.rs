//! The comparison of results on damaged volumes.

use std::sync::Arc;

use extol_testkit::{FsckReport, Scratch, e2fsck, new_e2fsck, run_ok, tool};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use crate::checker;
use crate::editor::ImageEditor;
use crate::images::{Variant, empty, fill_by_extol, fill_by_linux, in_memory};
use crate::mutate::damage;

/// What came of many comparisons.
#[derive(Default)]
pub struct Tally {
    pub tried: u32,
    pub both_clean: u32,
    pub both_bad: u32,
    /// Errors that only the checker counts, all of an accepted kind.
    pub stricter: u32,
    /// Damage to one version of e2fsck and none to the other.
    pub apart: u32,
    /// Where e2fsck checks what the checker leaves alone, or fails itself.
    pub not_compared: u32,
    pub failures: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.tried += other.tried;
        self.both_clean += other.both_clean;
        self.both_bad += other.both_bad;
        self.stricter += other.stricter;
        self.apart += other.apart;
        self.not_compared += other.not_compared;
        self.failures.extend(other.failures);
    }
}

/// A filled volume, ready to be damaged.
pub fn volume(scratch: &Scratch, variant: Variant, seed: u64) -> ImageEditor {
    let image = empty(scratch.path(), variant);
    let by_extol = || {
        let device = in_memory(&image);
        let filled = image.journal.is_none() && fill_by_extol(&device, seed);
        if filled {
            let mut bytes = vec![0; device.size() as usize];
            device.read_at(&mut bytes, 0).expect("read");
            std::fs::write(&image.path, &bytes).expect("write");
        }
        filled
    };
    // (On an empty volume e2fsck finds nothing once it has taken the copy of the superblock.)
    let filled = match seed.is_multiple_of(2) {
        true => by_extol() || fill_by_linux(scratch, &image, variant, seed),
        false => fill_by_linux(scratch, &image, variant, seed) || by_extol(),
    };
    if variant.0 == "shared-blocks" {
        // Nothing writes such a volume.
        run_ok(tool("debugfs").args(["-w", "-R", "feature shared_blocks"]).arg(&image.path));
    }
    assert!(filled, "neither Extol nor Linux writes volumes of the kind {}", variant.0);
    ImageEditor::new(image)
}

/// Compares the results for one damage. What either version of e2fsck calls damaged must be an
/// error of the checker; what is an error of e2fsck's to the checker must be one to either version.
pub fn compare(v: &mut ImageEditor, name: &str, seed: u64, tally: &mut Tally) {
    let salt = name.bytes().fold(seed, |s, b| s.wrapping_mul(0x0100_0000_01B3) ^ u64::from(b));
    let mut rng = SmallRng::seed_from_u64(salt);
    let what = damage(v, &mut rng);
    tally.tried += 1;
    let old = e2fsck(&v.image);
    // With -n it fails when it tries to write an aborted journal; the newer one waits for ever.
    if old.output.contains("Bad file descriptor") {
        tally.not_compared += 1;
        v.restore();
        return;
    }
    let theirs = [("e2fsck", old), ("new e2fsck", new_e2fsck(&v.image))];
    let ours = checker::report_on(Arc::new(v.device()), v.journal());
    v.restore();
    let (common, any) = match &ours {
        Ok(report) => (report.errors_of_e2fsck > 0, report.errors > 0),
        Err(_) => (true, true),
    };
    let bad = theirs.iter().filter(|(_, theirs)| theirs.code != 0).count();
    tally.apart += u32::from(bad == 1);
    match (bad > 0, any) {
        (true, true) => tally.both_bad += 1,
        (false, false) => tally.both_clean += 1,
        (false, true) if !common => tally.stricter += 1,
        (expected, _) => {
            let ours = ours.map_or_else(|e| e.to_string(), |r| r.to_string());
            let side = if expected { "only e2fsck" } else { "only the checker" };
            let theirs = theirs.map(|(by, theirs)| format!("  {by}: {}\n", told(&theirs))).concat();
            let failure =
                format!("{side} objects: {name}:{seed}: {what}\n{theirs}  ours: {ours}\n");
            tally.failures.push(failure);
        }
    }
}

/// The beginning of what e2fsck said.
fn told(theirs: &FsckReport) -> String {
    let lines = theirs.output.lines().filter(|l| !l.trim().is_empty()).take(30);
    format!("{}: {}", theirs.code, lines.collect::<Vec<_>>().join("\n    "))
}
