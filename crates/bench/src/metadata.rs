//! `extol bench metadata`: what a mount costs for names and inodes, and for small files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use crate::subject::{Loop, Mounted, SubjectKind};
use crate::{BenchError, Result};

/// What to run.
#[derive(Clone, Debug)]
pub struct MetadataBench {
    /// Files per thread.
    pub files: u32,
    /// Threads, each in its own directory.
    pub threads: u32,
    /// Rounds; the median counts.
    pub rounds: u32,
    /// Size of the volume in MiB.
    pub megabytes: u64,
    /// Where the image is made.
    pub dir: PathBuf,
    /// The extol program.
    pub extol: PathBuf,
    /// Who takes part.
    pub subjects: Vec<SubjectKind>,
}

/// One phase of one subject.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseResult {
    /// Which phase.
    pub phase: &'static str,
    /// Who.
    pub subject: SubjectKind,
    /// Operations per second, median of the rounds.
    pub per_second: f64,
}

/// All results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct MetadataReport {
    /// Files per thread.
    pub files: u32,
    /// Threads.
    pub threads: u32,
    /// Rounds.
    pub rounds: u32,
    /// The figures.
    pub results: Vec<PhaseResult>,
}

type Phase = (&'static str, fn(&Path, u32) -> std::io::Result<()>);

/// Each phase does `files` operations per thread. `unmount` counts all files once: it is when delayed work is paid.
const PHASES: &[Phase] = &[
    ("create (empty)", |dir, n| each(n, |i| File::create(dir.join(format!("e{i}"))).map(drop))),
    ("stat", |dir, n| each(n, |i| fs::metadata(dir.join(format!("e{i}"))).map(drop))),
    ("chmod", |dir, n| {
        use std::os::unix::fs::PermissionsExt;
        each(n, |i| fs::set_permissions(dir.join(format!("e{i}")), fs::Permissions::from_mode(0o600)))
    }),
    ("rename", |dir, n| each(n, |i| fs::rename(dir.join(format!("e{i}")), dir.join(format!("r{i}"))))),
    ("link", |dir, n| each(n, |i| fs::hard_link(dir.join(format!("r{i}")), dir.join(format!("l{i}"))))),
    ("symlink", |dir, n| each(n, |i| std::os::unix::fs::symlink("target", dir.join(format!("s{i}"))))),
    ("mkdir", |dir, n| each(n, |i| fs::create_dir(dir.join(format!("d{i}"))))),
    ("create 4 KiB", |dir, n| {
        each(n, |i| File::create(dir.join(format!("f{i}"))).and_then(|mut f| f.write_all(&[i as u8; 4096])))
    }),
    ("list", |dir, n| {
        let found = fs::read_dir(dir)?.filter(|e| e.is_ok()).count();
        if found < n as usize { Err(std::io::Error::other("entries are missing")) } else { Ok(()) }
    }),
    ("rmdir", |dir, n| each(n, |i| fs::remove_dir(dir.join(format!("d{i}"))))),
    ("unlink", |dir, n| {
        each(n, |i| {
            fs::remove_file(dir.join(format!("r{i}")))?;
            fs::remove_file(dir.join(format!("f{i}")))
        })
    }),
];

fn each(n: u32, mut f: impl FnMut(u32) -> std::io::Result<()>) -> std::io::Result<()> {
    (0..n).try_for_each(&mut f)
}

impl MetadataBench {
    /// Runs it. `progress` is told what is being measured.
    ///
    /// # Errors
    /// If a subject cannot be mounted or an operation fails.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<MetadataReport> {
        let place = Loop::new(&self.dir, self.megabytes)?;
        let mount_dir = self.dir.join(format!("extol-bench-{}", std::process::id()));
        fs::create_dir_all(&mount_dir)
            .map_err(|e| BenchError(format!("cannot make {}: {e}", mount_dir.display())))?;
        let result = self.rounds(&place, &mount_dir, progress);
        let _ = fs::remove_dir(&mount_dir);
        result
    }

    fn rounds(
        &self,
        place: &Loop,
        mount_dir: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<MetadataReport> {
        let mut samples: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
        for round in 0..self.rounds {
            for (s, subject) in self.subjects.iter().enumerate() {
                progress(&format!("round {} of {}: {}", round + 1, self.rounds, subject.name()));
                for (p, per_second) in self.one(place, mount_dir, *subject)?.into_iter().enumerate() {
                    samples.entry((p, s)).or_default().push(per_second);
                }
            }
        }
        let mut results = Vec::new();
        for ((p, s), mut values) in samples {
            values.sort_by(f64::total_cmp);
            let phase = PHASES.get(p).map_or("unmount", |(name, _)| name);
            results.push(PhaseResult {
                phase,
                subject: self.subjects[s],
                per_second: values[values.len() / 2],
            });
        }
        Ok(MetadataReport { files: self.files, threads: self.threads, rounds: self.rounds, results })
    }

    fn one(&self, place: &Loop, mount_dir: &Path, subject: SubjectKind) -> Result<Vec<f64>> {
        place.mke2fs()?;
        let mounted = Mounted::mount(subject, &place.device, mount_dir, &self.extol, "")?;
        let dirs: Vec<PathBuf> = (0..self.threads).map(|t| mount_dir.join(format!("t{t}"))).collect();
        for dir in &dirs {
            fs::create_dir(dir).map_err(|e| BenchError(format!("{}: {e}", subject.name())))?;
        }
        let mut rates = Vec::new();
        let all = f64::from(self.files) * f64::from(self.threads);
        for (name, phase) in PHASES {
            let began = Instant::now();
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    dirs.iter().map(|dir| scope.spawn(move || phase(dir, self.files))).collect();
                threads.into_iter().try_for_each(|t| {
                    t.join()
                        .map_err(|_| BenchError("a benchmark thread panicked".into()))?
                        .map_err(|e| BenchError(format!("{} on {}: {e}", name, subject.name())))
                })
            })?;
            rates.push(all / began.elapsed().as_secs_f64().max(1e-9));
        }
        let began = Instant::now();
        mounted.unmount(&self.extol, &place.device)?;
        rates.push(all / began.elapsed().as_secs_f64().max(1e-9));
        Ok(rates)
    }
}

impl MetadataReport {
    fn get(&self, phase: &str, subject: SubjectKind) -> Option<f64> {
        self.results.iter().find(|r| r.phase == phase && r.subject == subject).map(|r| r.per_second)
    }

    /// A table with ratios of Extol to each peer, and their geometric means.
    #[must_use]
    pub fn table(&self) -> String {
        let mut subjects: Vec<SubjectKind> = Vec::new();
        let mut phases: Vec<&str> = Vec::new();
        for r in &self.results {
            if !subjects.contains(&r.subject) {
                subjects.push(r.subject);
            }
            if !phases.contains(&r.phase) {
                phases.push(r.phase);
            }
        }
        let peers: Vec<SubjectKind> = subjects.iter().copied().filter(|s| *s != SubjectKind::Extol).collect();
        let mut s = format!(
            "Metadata through a mount: {} threads x {} files, median of {} rounds, operations per second\n\n",
            self.threads, self.files, self.rounds
        );
        let _ = write!(s, "{:<16}", "phase");
        for subject in &subjects {
            let _ = write!(s, "{:>14}", subject.name());
        }
        for peer in &peers {
            let _ = write!(s, "{:>18}", format!("/ {}", peer.name()));
        }
        s.push('\n');
        let mut logs: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
        for phase in phases {
            let _ = write!(s, "{phase:<16}");
            for subject in &subjects {
                let _ = write!(s, "{:>14.0}", self.get(phase, *subject).unwrap_or(f64::NAN));
            }
            for peer in &peers {
                match (self.get(phase, SubjectKind::Extol), self.get(phase, *peer)) {
                    (Some(a), Some(b)) => {
                        let entry = logs.entry(peer.name()).or_default();
                        entry.0 += (a / b).ln();
                        entry.1 += 1;
                        let _ = write!(s, "{:>18.2}", a / b);
                    }
                    _ => {
                        let _ = write!(s, "{:>18}", "-");
                    }
                }
            }
            s.push('\n');
        }
        for (peer, (sum, n)) in logs {
            let _ = writeln!(s, "\ngeometric mean of extol / {peer}: {:.2}", (sum / f64::from(n)).exp());
        }
        s
    }
}
