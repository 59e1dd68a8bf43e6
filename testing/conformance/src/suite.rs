//! Runs all cases on all subjects and compares.
//!
//! For each kind of volume three volumes are made by mke2fs, one for each subject, and the cases of
//! this kind run on them one after the other, each in a directory of its own; the subjects at the
//! same time. e2fsck must be content with every volume afterwards. Volumes that a case needs
//! prepared (a link count at its limit) are kinds of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use extol_testkit::{Image, Scratch, Subject, add_encryption_key, e2fsck, e2fsck_fix};
use rustix::fs::OFlags;

use crate::cases::{self, Case, Run};
use crate::known::{KNOWN, Known, Side};
use crate::{Library, Mounted, Posix, Transcript, secret};

/// A kind of volume.
#[derive(Clone, Copy)]
pub struct Volume {
    /// Name in messages, and in the list of a case.
    pub name: &'static str,
    /// Arguments of mke2fs.
    pub mke2fs: &'static [&'static str],
    /// Changes the fresh image.
    pub prepare: Option<fn(&Image)>,
    /// Arguments for the volume that Linux gets, if it does not get the same.
    pub linux: Option<&'static [&'static str]>,
    /// Another one, whose cases run on it as well.
    pub like: Option<&'static str>,
    /// All happens below an encrypted directory, whose key all subjects have.
    pub is_encrypted: bool,
}

/// What a run did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Cases, counted once for each kind of volume that they ran on.
    pub cases: usize,
    /// Lines that were compared with Linux's, on both other subjects.
    pub lines: usize,
    /// Lines that differ as the table of known differences says.
    pub known: usize,
}

const SIZE: u64 = 96 << 20;

type Transcripts = BTreeMap<&'static str, Transcript>;

/// The cases of a kind of volume, as far as `EXTOL_CASE` (a part of the name) wants them.
fn cases_on(volume: &Volume) -> Vec<Case> {
    let wanted = std::env::var("EXTOL_CASE").unwrap_or_default();
    let is_listed = |name| move |c: &Case| c.volumes.contains(&name);
    let (own, like) = (is_listed(volume.name), is_listed(volume.like.unwrap_or(volume.name)));
    // (Those that mount the volume again begin at its root.)
    let below = |c: &Case| !volume.is_encrypted || matches!(c.run, Run::Plain(_));
    let fits = |c: &&Case| (own(c) || like(c)) && c.name.contains(&wanted) && below(c);
    cases::all().filter(fits).copied().collect()
}

/// `above`: the directory below which all happens, with a slash, or nothing.
fn run_cases(subject: &dyn Posix, above: &str, cases: &[Case]) -> Transcripts {
    let run = |case: &Case| {
        let mut transcript = Transcript::default();
        let done = catch_unwind(AssertUnwindSafe(|| match case.run {
            Run::Remounting(run) => run(subject, &mut transcript),
            Run::Plain(run) => {
                let path = format!("{above}{}", case.name);
                subject.mkdir(&path, 0o755).expect("the directory of the case");
                let dir = subject
                    .open(&path, OFlags::RDONLY | OFlags::DIRECTORY, 0)
                    .expect("its directory");
                let view = subject.at(dir).expect("a view of it");
                run(&*view, &mut transcript);
                subject.close(dir);
            }
        }));
        if done.is_err() {
            transcript.value("the case", "PANICKED");
        }
        (case.name, transcript)
    };
    cases.iter().map(run).collect()
}

/// Runs on one subject; a fresh volume comes and goes.
fn on(
    side: Side,
    subject: &Subject,
    volume: &Volume,
    scratch: &Path,
    cases: &[Case],
) -> Transcripts {
    let dir = scratch.join(side.name());
    std::fs::create_dir(&dir).expect("a directory for a subject");
    let by_linux = side != Side::Library && !subject.is_extol();
    let of_linux = volume.linux.filter(|_| by_linux);
    let image = Image::mke2fs(&dir, "image", SIZE, of_linux.unwrap_or(volume.mke2fs));
    if let Some(prepare) = volume.prepare {
        prepare(&image);
    }
    let path = image.path.clone();
    let point = dir.join("mnt");
    std::fs::create_dir(&point).expect("a mount point");
    let mut above = String::new();
    if volume.is_encrypted {
        secret::prepare(&image, &point);
        above = format!("{}/", secret::DIR);
    }
    let transcripts = match side {
        Side::Library => {
            let library = Library::with_key(path.clone(), "", volume.is_encrypted);
            let transcripts = run_cases(&library, &above, cases);
            library.unmount();
            transcripts
        }
        Side::Linux | Side::Mount => {
            let image = Image { path: path.clone(), journal: None };
            let option = if volume.is_encrypted { secret::option(subject, &path) } else { None };
            let options: Vec<&str> = option.iter().map(String::as_str).collect();
            let mounted = Mounted::new(subject.clone(), image, point.clone(), &options);
            if volume.is_encrypted && matches!(subject, Subject::Kernel) {
                add_encryption_key(&point, None, &secret::key());
            }
            let transcripts = run_cases(&mounted, &above, cases);
            mounted.unmount();
            transcripts
        }
    };
    // What was prepared is wrong on purpose.
    if volume.prepare.is_none() {
        let image = Image { path, journal: None };
        if side == Side::Linux && volume.name == "revision 0" {
            assert_only_stale_types(&image);
        } else {
            e2fsck(&image).assert_clean(side.name());
        }
    }
    transcripts
}

/// Linux 6.18 neither clears a directory's first block nor sets the types of "." and ".." on
/// volumes without the feature filetype: what a long symbolic link left in a block that is used
/// again stands there then, and e2fsck calls it a type.
fn assert_only_stale_types(image: &Image) {
    let stale =
        |repair: &str| repair.starts_with("Entry '.") && repair.contains(" has filetype set.");
    if let Some(repairs) = e2fsck_fix(image).unexpected_repairs_but(stale) {
        panic!("linux: e2fsck found more than types in volumes without types:\n{repairs}");
    }
}

/// Runs everything. `subject` is the mount that is compared with Linux's, beside the library.
///
/// # Errors
/// All differences that the table of known ones does not name, as text, and entries of the table
/// that nothing met.
///
/// # Panics
/// If a subject cannot be set up.
pub fn run(subject: &Subject) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    let mut met: BTreeSet<usize> = BTreeSet::new();
    for volume in cases::VOLUMES {
        let cases = cases_on(volume);
        if cases.is_empty() {
            continue;
        }
        let scratch = Scratch::new();
        let sides =
            [(Side::Linux, &Subject::Kernel), (Side::Mount, subject), (Side::Library, subject)];
        let [linux, mount, library] = std::thread::scope(|scope| {
            let (scratch, cases) = (scratch.path(), &cases);
            sides
                .map(|(side, subject)| {
                    scope.spawn(move || on(side, subject, volume, scratch, cases))
                })
                .map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
        });
        counts.cases += cases.len();
        for case in &cases {
            let ours = &linux[case.name];
            if ours.lines().is_empty() || ours.lines().iter().any(|l| l.contains("PANICKED")) {
                failures.push(format!(
                    "{} on {}: Linux's run is not usable: {ours:?}",
                    case.name, volume.name
                ));
            }
            for (side, theirs) in
                [(Side::Mount, &mount[case.name]), (Side::Library, &library[case.name])]
            {
                counts.lines += ours.lines().len();
                for (n, a, b) in ours.differences(theirs) {
                    match Known::find(side, case.name, a) {
                        Some(nr) => {
                            met.insert(nr);
                            counts.known += 1;
                        }
                        None => failures.push(format!(
                            "{} on {}, {}, line {n}:\n  Linux: {a}\n  here:  {b}",
                            case.name,
                            volume.name,
                            side.name()
                        )),
                    }
                }
            }
        }
    }
    let everything = std::env::var_os("EXTOL_CASE").is_none() && subject.is_extol();
    for (nr, known) in KNOWN.iter().enumerate().filter(|(nr, _)| everything && !met.contains(nr)) {
        failures
            .push(format!("known difference {nr} ({}: {}) was not met", known.case, known.line));
    }
    if failures.is_empty() { Ok(counts) } else { Err(failures.join("\n")) }
}
