//! `logs`: files that grow side by side by small synced pieces, as logs of databases and mailboxes
//! do.
//!
//! Each thread goes round its logs; in a round each gets one piece behind its end, and an fsync. In
//! a run that ends by time a log that is long enough is removed and made anew, as logs are rotated.
//! With `close` each piece has an open and a close of its own, as a mail server does it. The
//! threads share nothing but the directory.

use std::io;

use clap::Args;

use super::options::{block, positive};
use super::outcome::{Op, Outcome, Timings};
use super::{Footprint, Limits, Watch, Workload, cancelled, on_threads};
use crate::target::{Target, TargetFile};

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Logs {
    /// Threads.
    #[arg(short = 't', default_value_t = 1, value_parser = positive::<u32>)]
    pub threads: u32,
    /// Logs of each thread.
    #[arg(short = 'n', default_value_t = 2, value_parser = positive::<u32>)]
    pub files: u32,
    /// Bytes per append.
    #[arg(short = 's', default_value = "4096", value_parser = block)]
    pub size: usize,
    /// Appends to each log. With --seconds it is removed then and made anew, so that the volume is
    /// not filled.
    #[arg(long, default_value_t = 600, value_parser = positive::<u64>)]
    pub appends: u64,
    /// Open and close the log for each append.
    #[arg(long)]
    pub close: bool,
    /// fdatasync instead of fsync.
    #[arg(long = "fdatasync")]
    pub data_only: bool,
}

impl Workload for Logs {
    fn name(&self) -> &'static str {
        "logs"
    }

    fn settings(&self) -> String {
        let how = if self.close { ", closed in between" } else { "" };
        format!(
            "{} threads with {} logs each, {} bytes at a time{how}",
            self.threads, self.files, self.size
        )
    }

    fn footprint(&self, limits: &Limits) -> Footprint {
        let logs = u64::from(self.threads) * u64::from(self.files);
        // One for each thread is removed and not committed.
        let gone = if limits.time.is_some() { u64::from(self.threads) } else { 0 };
        let size = (self.size as u64).saturating_mul(self.appends);
        Footprint::of(logs.saturating_add(gone), size)
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let watch = Watch::start(limits);
        let shares = on_threads(self.threads, |thread| self.share(thread, target, &watch, limits))?;
        let elapsed = watch.elapsed();
        if watch.cancel.is_set() {
            return Err(cancelled());
        }
        let mut timings = Timings::default();
        let mut done = 0;
        for (count, part) in &shares {
            done += count;
            timings.add(part);
        }
        Ok(Outcome {
            unit: "appends",
            done,
            elapsed,
            written: done * self.size as u64,
            read: 0,
            figures: Vec::new(),
            timings,
            phases: Vec::new(),
        })
    }
}

impl Logs {
    fn share(
        &self,
        thread: u32,
        target: &dyn Target,
        watch: &Watch,
        limits: &Limits,
    ) -> io::Result<(u64, Timings)> {
        let mut timings = Timings::default();
        let data = vec![b'l'; self.size.max(1)];
        let names: Vec<String> = (0..self.files).map(|nr| format!("log{thread}-{nr}")).collect();
        let make = |name: &str, timings: &mut Timings| {
            let file = timings.time(Op::Create, || target.create(name))?;
            Ok((!self.close).then_some(file))
        };
        let mut open: Vec<Option<Box<dyn TargetFile>>> =
            names.iter().map(|name| make(name, &mut timings)).collect::<io::Result<_>>()?;
        let rounds = if limits.time.is_some() { u64::MAX } else { self.appends };
        let mut done = 0;
        for round in 0..rounds {
            let at = (round % self.appends) * data.len() as u64;
            for (open, name) in open.iter_mut().zip(&names) {
                if watch.is_over() {
                    return Ok((done, timings));
                }
                if at == 0 && round > 0 {
                    drop(open.take());
                    timings.time(Op::Remove, || target.remove(name))?;
                    *open = make(name, &mut timings)?;
                }
                match open {
                    Some(file) => self.append(&**file, &data, at, &mut timings)?,
                    None => {
                        let file = timings.time(Op::Open, || target.open(name))?;
                        self.append(&*file, &data, at, &mut timings)?;
                        timings.time(Op::Close, || {
                            drop(file);
                            Ok(())
                        })?;
                    }
                }
                done += 1;
            }
        }
        Ok((done, timings))
    }

    fn append(
        &self,
        file: &dyn TargetFile,
        data: &[u8],
        at: u64,
        timings: &mut Timings,
    ) -> io::Result<()> {
        timings.time(Op::Write, || file.write_at(data, at))?;
        timings.time(Op::Fsync, || file.sync(self.data_only))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    #[test]
    fn in_turns_and_one_fsync_for_each_piece() {
        let target = Recorder::default();
        let load = Logs { files: 3, appends: 4, ..Logs::default() };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        assert_eq!((outcome.done, outcome.written), (12, 12 * 4096));
        assert_eq!(
            (target.count("create"), target.count("open"), target.count("fsync")),
            (3, 0, 12)
        );
        let calls = target.calls();
        let synced: Vec<&str> =
            calls.iter().filter_map(|call| call.strip_prefix("fsync ")).collect();
        assert_eq!(synced[..4], ["log0-0", "log0-1", "log0-2", "log0-0"]);
    }

    #[test]
    fn closed_in_between() {
        let target = Recorder::default();
        let load = Logs { threads: 2, files: 2, appends: 5, close: true, ..Logs::default() };
        load.run(&target, &Limits::default()).unwrap();
        assert_eq!(
            (target.count("create"), target.count("open"), target.count("fsync")),
            (4, 20, 20)
        );
    }

    /// A run that ends by time has no more on the volume than it says, however long it takes.
    #[test]
    fn made_anew_when_it_ends_by_time() {
        for close in [false, true] {
            let target = Recorder::default();
            let load = Logs { files: 2, appends: 3, size: 100, close, ..Logs::default() };
            let limits =
                Limits { time: Some(std::time::Duration::from_millis(50)), ..Limits::default() };
            load.run(&target, &limits).unwrap();
            assert!(target.count("remove") > 2, "{}", target.count("remove"));
            assert_eq!(target.count("create"), target.count("remove") + 2);
            for name in ["log0-0", "log0-1"] {
                let mut pieces = 0;
                for call in target.calls().iter().filter(|c| c.split(' ').nth(1) == Some(name)) {
                    match call.split(' ').next() {
                        Some("create") => pieces = 0,
                        Some("write") => pieces += 1,
                        _ => {}
                    }
                    assert!(pieces <= 3, "{name} has {pieces} pieces");
                }
            }
            assert_eq!(load.footprint(&limits), Footprint::of(3, 300));
        }
    }
}
