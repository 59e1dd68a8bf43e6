//! `metadata`: single calls on names and inodes, phase by phase.
//!
//! | phase | each thread, for each of its files |
//! |---|---|
//! | create | makes an empty file, closes it |
//! | create 4 KiB | makes a file of 4 KiB, closes it |
//! | stat | stat of each empty file |
//! | readdir | reads its directory to the end; entries are counted |
//! | chmod | of each empty file |
//! | rename | each empty file to a new name in its directory |
//! | link | a second name for each |
//! | symlink | a symbolic link |
//! | mkdir | an empty directory |
//! | rmdir | removes these |
//! | unlink | removes the renamed files and those of 4 KiB |
//! | rm -rf | reads the directory and removes what is left (links and symbolic links) |
//!
//! All threads do the same phase at the same time: each in a directory of its own, or all in one
//! (`shared`), where the last phase's names are shared out. Nothing is synced. All of it is done
//! again until create, stat and unlink have lasted [`LEAST`] each. With a time limit it is done
//! once: the phases that make files end after their part of it, and the others work on what was
//! made.

use std::io;
use std::time::Duration;

use clap::Args;

use super::options::positive;
use super::outcome::{Op, Outcome};
use super::phases::{LEAST, Part, Phases};
use super::{Footprint, Limits, Workload};
use crate::target::{Target, TargetFile};

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Metadata {
    /// Threads.
    #[arg(long, default_value_t = 4, value_parser = positive::<u32>)]
    pub threads: u32,
    /// Files of each kind per thread.
    #[arg(long, default_value_t = 2000, value_parser = positive::<u64>)]
    pub files: u64,
    /// All threads in one directory, not each in its own.
    #[arg(long)]
    pub shared: bool,
    /// What a phase lasts at least.
    #[arg(skip = LEAST)]
    pub least: Duration,
}

/// Phases, for shares of a time limit.
const PHASES: u32 = 12;
const SMALL: usize = 4096;

impl Workload for Metadata {
    fn name(&self) -> &'static str {
        "metadata"
    }

    fn settings(&self) -> String {
        let dirs = if self.shared { "one directory" } else { "a directory each" };
        format!("metadata, {} threads, {} files each, {dirs}", self.threads, self.files)
    }

    fn footprint(&self, limits: &Limits) -> Footprint {
        if limits.time.is_some() {
            return Footprint::default();
        }
        Footprint::of(self.files.saturating_mul(self.threads.into()), 0)
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let mut phases = Phases::new(limits, self.threads);
        if self.shared {
            target.create_dir(&self.dir(0))?;
        }
        phases.laps(self.least, &["create", "stat", "unlink"], |phases| {
            self.lap(target, limits, phases)
        })?;
        Ok(Outcome::of_phases("operations", phases.finish()))
    }
}

impl Metadata {
    /// All phases once.
    fn lap(&self, target: &dyn Target, limits: &Limits, phases: &mut Phases<'_>) -> io::Result<()> {
        for thread in 0..if self.shared { 0 } else { self.threads } {
            target.create_dir(&self.dir(thread))?;
        }
        let time = limits.time.map(|t| t / PHASES);
        let empty = self.make(phases, "create", time, |path, part| {
            let file = part.timings.time(Op::Create, || target.create(path))?;
            close(file, part)
        })?;
        let full = self.make(phases, "create 4 KiB", time, |path, part| {
            part.timings.time(Op::Make, || target.create(path)?.write_at(&[7; SMALL], 0))
        })?;
        self.each(phases, "stat", &empty, |n, part| {
            let path = self.path(part.thread, 'e', n);
            part.timings.time(Op::Stat, || target.size_of(&path)).map(drop)
        })?;
        phases.run("readdir", "entries", None, |part| {
            let dir = self.dir(part.thread);
            Ok(part.timings.time(Op::List, || target.list(&dir))? as f64)
        })?;
        self.each(phases, "chmod", &empty, |n, part| {
            let path = self.path(part.thread, 'e', n);
            part.timings.time(Op::Chmod, || target.chmod(&path, 0o600))
        })?;
        self.each(phases, "rename", &empty, |n, part| {
            let (from, to) = (self.path(part.thread, 'e', n), self.path(part.thread, 'r', n));
            part.timings.time(Op::Rename, || target.rename(&from, &to))
        })?;
        self.each(phases, "link", &empty, |n, part| {
            let (old, new) = (self.path(part.thread, 'r', n), self.path(part.thread, 'l', n));
            part.timings.time(Op::Link, || target.link(&old, &new))
        })?;
        self.each(phases, "symlink", &empty, |n, part| {
            let path = self.path(part.thread, 's', n);
            part.timings.time(Op::Symlink, || target.symlink("target", &path))
        })?;
        self.each(phases, "mkdir", &empty, |n, part| {
            let path = self.path(part.thread, 'd', n);
            part.timings.time(Op::Mkdir, || target.create_dir(&path))
        })?;
        self.each(phases, "rmdir", &empty, |n, part| {
            let path = self.path(part.thread, 'd', n);
            part.timings.time(Op::Rmdir, || target.remove_dir(&path))
        })?;
        phases.run("unlink", "files", None, |part| {
            let thread = part.thread;
            let of = |kind, count: f64| (0..count as u64).map(move |n| (kind, n));
            let (empty, full) = (empty[thread as usize], full[thread as usize]);
            for (kind, n) in of('r', empty).chain(of('f', full)) {
                part.check()?;
                let path = self.path(thread, kind, n);
                part.timings.time(Op::Remove, || target.remove(&path))?;
            }
            Ok(empty + full)
        })?;
        phases.run("rm -rf", "names", None, |part| self.remove_rest(target, part)).map(drop)
    }
}

fn close(file: Box<dyn TargetFile>, part: &mut Part<'_>) -> io::Result<()> {
    part.timings.time(Op::Close, || {
        drop(file);
        Ok(())
    })
}

impl Metadata {
    fn dir(&self, thread: u32) -> String {
        if self.shared { "shared".into() } else { format!("t{thread}") }
    }

    fn path(&self, thread: u32, kind: char, n: u64) -> String {
        if self.shared {
            format!("shared/{kind}{thread}.{n}")
        } else {
            format!("t{thread}/{kind}{n}")
        }
    }

    /// A phase that makes files, until there are enough or its time is over; gives how many each
    /// thread made.
    fn make(
        &self,
        phases: &mut Phases<'_>,
        name: &'static str,
        time: Option<Duration>,
        one: impl Fn(&str, &mut Part<'_>) -> io::Result<()> + Sync,
    ) -> io::Result<Vec<f64>> {
        let kind = if name == "create" { 'e' } else { 'f' };
        phases.run(name, "files", time, |part| {
            let mut made = 0;
            while made < self.files && !part.is_over() {
                part.check()?;
                one(&self.path(part.thread, kind, made), part)?;
                made += 1;
            }
            Ok(made as f64)
        })
    }

    /// A phase that does something for each of the files.
    fn each(
        &self,
        phases: &mut Phases<'_>,
        name: &'static str,
        counts: &[f64],
        one: impl Fn(u64, &mut Part<'_>) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        let done = phases.run(name, "files", None, |part| {
            let count = counts[part.thread as usize];
            for n in 0..count as u64 {
                part.check()?;
                one(n, part)?;
            }
            Ok(count)
        });
        done.map(drop)
    }

    /// Removes what is left, as `rm -rf` does. In a shared directory each thread removes its own
    /// names, and the first one the directory.
    fn remove_rest(&self, target: &dyn Target, part: &mut Part<'_>) -> io::Result<f64> {
        let dir = self.dir(part.thread);
        if !self.shared {
            return remove_tree(target, &dir, part);
        }
        let mut done = 0.0;
        let own = [format!("l{}.", part.thread), format!("s{}.", part.thread)];
        for item in part.timings.time(Op::List, || target.entries(&dir))? {
            if own.iter().any(|start| item.name.starts_with(start)) {
                part.check()?;
                let path = format!("{dir}/{}", item.name);
                part.timings.time(Op::Remove, || target.remove(&path))?;
                done += 1.0;
            }
        }
        Ok(done)
    }
}

/// Removes a directory and everything in it, as `rm -rf` does; gives the number of names removed.
pub(super) fn remove_tree(target: &dyn Target, dir: &str, part: &mut Part<'_>) -> io::Result<f64> {
    let mut done = 1.0;
    for item in part.timings.time(Op::List, || target.entries(dir))? {
        part.check()?;
        let path = format!("{dir}/{}", item.name);
        if item.is_dir {
            done += remove_tree(target, &path, part)?;
        } else {
            part.timings.time(Op::Remove, || target.remove(&path))?;
            done += 1.0;
        }
    }
    part.timings.time(Op::Rmdir, || target.remove_dir(dir))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    const ONCE: Metadata = Metadata { threads: 1, files: 1, shared: false, least: Duration::ZERO };

    fn run(load: &Metadata, limits: &Limits) -> (Recorder, Outcome) {
        let target = Recorder::default();
        let outcome = load.run(&target, limits).unwrap();
        (target, outcome)
    }

    #[test]
    fn every_phase_does_each_file_once() {
        let (target, outcome) = run(&Metadata { threads: 2, files: 5, ..ONCE }, &Limits::default());
        assert_eq!(outcome.phases.len(), PHASES as usize);
        let counts = [
            ("create", 20),
            ("write", 10),
            ("stat", 10),
            ("list", 2),
            ("chmod", 10),
            ("rename", 10),
            ("link", 10),
            ("symlink", 10),
            ("mkdir", 2 + 10),
            ("rmdir", 2 + 10),
            ("remove", 20 + 20),
        ];
        for (call, want) in counts {
            assert_eq!(target.count(call), want, "{call}");
        }
        assert_eq!((target.files(), target.dirs()), (0, 0), "rm -rf leaves nothing");
        let done = |name| outcome.phase(name).unwrap().done;
        assert_eq!((done("readdir"), done("unlink"), done("rm -rf")), (20.0, 20.0, 22.0));
        assert_eq!(outcome.phase("stat").unwrap().timings.of(Op::Stat).unwrap().count, 10);
        assert!(
            outcome.phases.iter().all(|p| p.cpu.is_none()),
            "processor time is not measured here"
        );
    }

    #[test]
    fn one_directory_for_all() {
        let (target, outcome) =
            run(&Metadata { threads: 3, files: 4, shared: true, ..ONCE }, &Limits::default());
        assert_eq!((target.files(), target.dirs()), (0, 1));
        assert_eq!(outcome.phase("rm -rf").unwrap().done, 24.0);
        assert!(
            target
                .calls()
                .iter()
                .filter(|c| c.starts_with("create"))
                .all(|c| c.contains(" shared/"))
        );
    }

    /// Each lap leaves what it found, and does as much as the first.
    #[test]
    fn again_until_it_has_lasted() {
        for shared in [false, true] {
            // (Long enough that no pause of the machine lasts through it.)
            let load = Metadata { threads: 2, files: 5, shared, least: Duration::from_millis(50) };
            let (target, outcome) = run(&load, &Limits::default());
            assert_eq!(outcome.phases.len(), PHASES as usize);
            assert_eq!((target.files(), target.dirs()), (0, usize::from(shared)));
            let laps = outcome.phase("create").unwrap().done / 10.0;
            assert!(laps >= 2.0, "{laps} laps");
            assert_eq!(outcome.phase("unlink").unwrap().done, laps * 20.0);
            assert_eq!(outcome.phase("stat").unwrap().done, laps * 10.0);
            assert!(outcome.phase("stat").unwrap().elapsed >= load.least);
        }
    }

    /// Without time nothing is made, and later phases do not miss it.
    #[test]
    fn a_time_limit_ends_the_making() {
        let limits = Limits { time: Some(Duration::ZERO), ..Limits::default() };
        let (target, outcome) = run(&Metadata::default(), &limits);
        assert_eq!((target.count("create"), outcome.phase("rename").unwrap().done), (0, 0.0));
    }

    #[test]
    fn processor_time_by_phase() {
        let ticks = std::sync::atomic::AtomicU64::new(0);
        let meter = super::super::Meter::new(move || {
            Duration::from_millis(ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        });
        let (_, outcome) =
            run(&Metadata { threads: 1, files: 1, ..ONCE }, &Limits { meter, ..Limits::default() });
        assert!(outcome.phases.iter().all(|p| p.cpu == Some(Duration::from_millis(1))));
    }
}
