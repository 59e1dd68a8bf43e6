//! Semantics through a mount, compared with Linux's ext4 in the same run.
//!
//! A scenario is a function that does things below a directory and writes a transcript: what was tried, and which
//! value or errno came back. It runs on a volume mounted by Linux and on the same kind of volume mounted by the
//! subject; the transcripts must be equal, line by line. Facts that Linux's transcript could hide are asserted
//! inside the scenarios.

mod attributes;
mod data;
mod directories;
mod files;
mod names;
mod permissions;
mod space;
mod transcript;

use extol_testkit::{Image, Need, Scratch, Subject, e2fsck, require};
use std::path::Path;
use transcript::Transcript;

/// What every test here needs.
const NEEDS: [Need; 5] = [Need::Root, Need::Loop, Need::Fuse, Need::Kernel("ext4"), Need::Tool("mke2fs")];

fn subject() -> Subject {
    Subject::under_test(env!("CARGO_BIN_EXE_extol"))
}

/// Runs a scenario on Linux and on the subject and compares.
fn compare(mke2fs: &[&str], scenario: impl Fn(&Path, &mut Transcript)) {
    compare_prepared(mke2fs, |_| {}, |_| true, scenario);
}

/// Like [`compare`]; `prepare` changes each fresh image first, and `check` says whether e2fsck must be clean after.
fn compare_prepared(
    mke2fs: &[&str],
    prepare: impl Fn(&Image),
    check: impl Fn(&Subject) -> bool,
    scenario: impl Fn(&Path, &mut Transcript),
) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let mut transcripts = Vec::new();
    for (name, subject) in [("linux", Subject::Kernel), ("subject", subject())] {
        let image = Image::mke2fs(scratch.path(), &format!("{name}.img"), 96 << 20, mke2fs);
        prepare(&image);
        let mount = subject.mount(&image, &scratch.dir(name), &[]);
        let mut transcript = Transcript::default();
        scenario(mount.path(), &mut transcript);
        mount.unmount();
        if check(&subject) {
            e2fsck(&image).assert_clean(name);
        }
        transcripts.push(transcript);
    }
    assert!(!transcripts[0].is_empty(), "the scenario must record something");
    transcripts[0].assert_same(&transcripts[1]);
}
