//! `fsmark`: makes files of one size, as fs_mark 3.3 does.
//!
//! The parameters are called as fs_mark's options. Each thread makes `-n` files; its directory is
//! chosen among `-D` ones in turn after every `-N` files, or, without `-N`, by the clock: all
//! threads stay in one directory for 180 seconds and then go on to the next. Files are written in
//! pieces of `-w` bytes. Removing the files afterwards (unless `-k`) is not part of the time.
//!
//! | `-S` | while writing | after a thread's last file |
//! |---|---|---|
//! | 0 | nothing | nothing |
//! | 1 | fsync before each close | nothing |
//! | 2 | nothing | sync, then fsync of the first file it made |
//! | 3 | nothing | open, fsync, close each file, last one first |
//! | 4 | nothing | sync, then as 3 |
//! | 5 | nothing | open, fsync, close each file, first one first |
//! | 6 | nothing | sync, then as 5 |
//!
//! With a time limit the loop of `-n` files is repeated (fs_mark's `-L`) and cut short when the
//! time is over; what follows a loop is always done for the files it wrote, and counts.

use std::io;
use std::time::Duration;

use clap::Args;

use super::options::{block, positive};
use super::outcome::{Op, Outcome, Timings};
use super::{Footprint, Limits, Watch, Workload, cancelled, on_threads};
use crate::target::Target;

/// How files are made durable (`-S`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// 0: not at all.
    None,
    /// 1: fsync before close.
    BeforeClose,
    /// 2: sync, then fsync of the first file.
    SyncAndFirst,
    /// 3: fsync of each file after the loop, in reverse order.
    Reverse,
    /// 4: sync, then as 3.
    SyncAndReverse,
    /// 5: fsync of each file after the loop, in order.
    InOrder,
    /// 6: sync, then as 5.
    SyncAndInOrder,
}

impl SyncMode {
    /// All, by number.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::BeforeClose,
        Self::SyncAndFirst,
        Self::Reverse,
        Self::SyncAndReverse,
        Self::InOrder,
        Self::SyncAndInOrder,
    ];

    /// The number after `-S`.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The mode of a number.
    ///
    /// # Errors
    /// If there is none.
    pub fn parse(number: &str) -> Result<Self, String> {
        let mode = number.parse::<usize>().ok().and_then(|n| Self::ALL.get(n).copied());
        mode.ok_or_else(|| "the modes are 0 to 6".into())
    }

    fn syncs_all(self) -> bool {
        matches!(self, Self::SyncAndFirst | Self::SyncAndReverse | Self::SyncAndInOrder)
    }
}

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct FsMark {
    /// Threads.
    #[arg(short = 't', default_value_t = 1, value_parser = positive::<u32>)]
    pub threads: u32,
    /// Bytes per file.
    #[arg(short = 's', default_value_t = 51200)]
    pub size: u64,
    /// Files per thread and loop.
    #[arg(short = 'n', default_value_t = 1000, value_parser = positive::<u64>)]
    pub files: u64,
    /// Subdirectories; 0: none.
    #[arg(short = 'D', default_value_t = 0)]
    pub dirs: u32,
    /// Files that a thread puts into one subdirectory before it goes to the next; 0: it goes on
    /// every 180 seconds.
    #[arg(short = 'N', default_value_t = 0)]
    pub per_dir: u64,
    /// Sync mode, 0 to 6.
    #[arg(short = 'S', default_value = "1", value_parser = SyncMode::parse)]
    pub sync: SyncMode,
    /// Keep the files until the volume goes.
    #[arg(short = 'k')]
    pub keep: bool,
    /// Bytes per write.
    #[arg(short = 'w', default_value = "16384", value_parser = block)]
    pub write_size: usize,
    /// Loops of -n files. With --seconds there are as many as fit.
    #[arg(short = 'L', default_value_t = 1)]
    pub loops: u32,
}

/// How long a thread stays in one directory without `-N`.
const LINGER: Duration = Duration::from_secs(180);

impl Workload for FsMark {
    fn name(&self) -> &'static str {
        "fsmark"
    }

    fn settings(&self) -> String {
        let mut s = format!("fs_mark -t {} -s {} -n {}", self.threads, self.size, self.files);
        if self.dirs > 0 {
            s += &format!(" -D {}", self.dirs);
        }
        if self.per_dir > 0 {
            s += &format!(" -N {}", self.per_dir);
        }
        s += &format!(" -S {} -w {}", self.sync.number(), self.write_size);
        if self.keep {
            s += " -k";
        }
        s
    }

    fn footprint(&self, limits: &Limits) -> Footprint {
        if limits.time.is_some() {
            return Footprint::default();
        }
        let files = u64::from(self.threads) * u64::from(self.loops);
        Footprint::of(files.saturating_mul(self.files), self.size)
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        for n in 0..self.dirs {
            target.create_dir(&format!("{n:02x}"))?;
        }
        let watch = Watch::start(limits);
        let shares = on_threads(self.threads, |thread| self.share(thread, target, &watch, limits))?;
        let elapsed = watch.elapsed();
        if watch.cancel.is_set() {
            return Err(cancelled());
        }
        let mut timings = Timings::default();
        let mut done = 0;
        for share in &shares {
            timings.add(&share.timings);
            done += share.count;
        }
        if !self.keep {
            let removals = on_threads(self.threads, |thread| {
                let mut timings = Timings::default();
                for name in &shares[thread as usize].names {
                    timings.time(Op::Remove, || target.remove(name))?;
                }
                Ok(timings)
            })?;
            removals.iter().for_each(|t| timings.add(t));
        }
        Ok(Outcome {
            unit: "files",
            done,
            elapsed,
            written: done * self.size,
            read: 0,
            figures: Vec::new(),
            timings,
            phases: Vec::new(),
        })
    }
}

/// What one thread did.
struct Share {
    count: u64,
    /// Files to be removed.
    names: Vec<String>,
    timings: Timings,
}

impl FsMark {
    fn share(
        &self,
        thread: u32,
        target: &dyn Target,
        watch: &Watch,
        limits: &Limits,
    ) -> io::Result<Share> {
        let data = vec![b'x'; self.write_size.max(1)];
        let mut share = Share { count: 0, names: Vec::new(), timings: Timings::default() };
        let loops = if limits.time.is_some() { u32::MAX } else { self.loops };
        for _ in 0..loops {
            let mut names = Vec::new();
            for _ in 0..self.files {
                if watch.is_over() {
                    break;
                }
                let name = self.path(thread, share.count, watch.elapsed());
                self.write(target, &name, &data, &mut share.timings)?;
                share.count += 1;
                names.push(name);
            }
            self.make_durable(target, &names, &watch.cancel, &mut share.timings)?;
            if !self.keep {
                share.names.append(&mut names);
            }
            if watch.is_over() {
                break;
            }
        }
        Ok(share)
    }

    fn write(
        &self,
        target: &dyn Target,
        name: &str,
        data: &[u8],
        timings: &mut Timings,
    ) -> io::Result<()> {
        let file = timings.time(Op::Create, || target.create(name))?;
        let mut at = 0;
        while at < self.size {
            let piece = &data[..data.len().min((self.size - at) as usize)];
            timings.time(Op::Write, || file.write_at(piece, at))?;
            at += piece.len() as u64;
        }
        if self.sync == SyncMode::BeforeClose {
            timings.time(Op::Fsync, || file.sync(false))?;
        }
        timings.time(Op::Close, || {
            drop(file);
            Ok(())
        })
    }

    /// What follows a loop.
    fn make_durable(
        &self,
        target: &dyn Target,
        names: &[String],
        cancel: &super::Cancel,
        timings: &mut Timings,
    ) -> io::Result<()> {
        if self.sync.syncs_all() {
            timings.time(Op::Sync, || target.sync())?;
        }
        let mut fsync = |name: &String| {
            if cancel.is_set() {
                return Err(cancelled());
            }
            let file = timings.time(Op::Open, || target.open(name))?;
            timings.time(Op::Fsync, || file.sync(false))
        };
        match self.sync {
            SyncMode::None | SyncMode::BeforeClose => Ok(()),
            SyncMode::SyncAndFirst => names.iter().take(1).try_for_each(&mut fsync),
            SyncMode::Reverse | SyncMode::SyncAndReverse => {
                names.iter().rev().try_for_each(&mut fsync)
            }
            SyncMode::InOrder | SyncMode::SyncAndInOrder => names.iter().try_for_each(&mut fsync),
        }
    }

    /// Names are 40 bytes long, as fs_mark's.
    fn path(&self, thread: u32, number: u64, elapsed: Duration) -> String {
        let name = format!("{thread:08x}~~{number:030x}");
        if self.dirs == 0 {
            return name;
        }
        let turn = number.checked_div(self.per_dir).unwrap_or(elapsed.as_secs() / LINGER.as_secs());
        format!("{:02x}/{name}", turn % u64::from(self.dirs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    fn run(mark: &FsMark, limits: &Limits) -> (Recorder, Outcome) {
        let target = Recorder::default();
        let outcome = mark.run(&target, limits).unwrap();
        (target, outcome)
    }

    #[test]
    fn makes_what_it_is_told() {
        let mark = FsMark {
            threads: 3,
            size: 10_000,
            files: 5,
            write_size: 4096,
            keep: true,
            ..FsMark::default()
        };
        let (target, outcome) = run(&mark, &Limits::default());
        assert_eq!((outcome.done, outcome.written), (15, 150_000));
        assert_eq!((target.files(), target.count("create"), target.count("write")), (15, 15, 45));
        assert_eq!(
            (target.count("fsync"), target.count("sync"), target.count("remove")),
            (15, 0, 0)
        );
        assert_eq!(outcome.timings.of(Op::Fsync).unwrap().count, 15);
        assert!(target.calls().iter().any(|c| c.ends_with(" 1808")), "the last piece is shorter");
    }

    #[test]
    fn removes_unless_kept() {
        let (target, outcome) =
            run(&FsMark { files: 4, loops: 3, ..FsMark::default() }, &Limits::default());
        assert_eq!((outcome.done, target.count("remove"), target.files()), (12, 12, 0));
    }

    /// What each mode does for one thread with three files, by the initials of the calls.
    #[test]
    fn sync_modes() {
        let expected = [
            (SyncMode::None, "ccc"),
            (SyncMode::BeforeClose, "cF0cF1cF2"),
            (SyncMode::SyncAndFirst, "cccSF0"),
            (SyncMode::Reverse, "cccF2F1F0"),
            (SyncMode::SyncAndReverse, "cccSF2F1F0"),
            (SyncMode::InOrder, "cccF0F1F2"),
            (SyncMode::SyncAndInOrder, "cccSF0F1F2"),
        ];
        for (number, (mode, want)) in expected.into_iter().enumerate() {
            assert_eq!(SyncMode::parse(&number.to_string()), Ok(mode));
            assert_eq!(usize::from(mode.number()), number);
            let mark = FsMark { files: 3, sync: mode, keep: true, ..FsMark::default() };
            let (target, _) = run(&mark, &Limits::default());
            let mut got = String::new();
            for call in target.calls() {
                match call.split_once(' ').unwrap_or((&call, "")) {
                    ("create", _) => got.push('c'),
                    ("sync", _) => got.push('S'),
                    ("fsync", path) => got.push_str(&format!("F{}", &path[path.len() - 1..])),
                    _ => {}
                }
            }
            assert_eq!(got, want, "-S {number}");
        }
        assert!(SyncMode::parse("7").is_err());
    }

    #[test]
    fn directories_by_number_and_by_clock() {
        let mark = FsMark { dirs: 3, per_dir: 2, ..FsMark::default() };
        let dir = |mark: &FsMark, n, s| mark.path(1, n, Duration::from_secs(s))[..2].to_owned();
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6].map(|n| dir(&mark, n, 1000)),
            ["00", "00", "01", "01", "02", "02", "00"]
        );
        let mark = FsMark { dirs: 3, ..FsMark::default() };
        assert_eq!([0, 179, 180, 540].map(|s| dir(&mark, 9, s)), ["00", "00", "01", "00"]);
        assert_eq!(FsMark::default().path(1, 2, Duration::ZERO).len(), 40);
    }

    #[test]
    fn a_time_limit_repeats_the_loop() {
        let limits = Limits { time: Some(Duration::from_millis(20)), ..Limits::default() };
        let mark =
            FsMark { files: 2, sync: SyncMode::SyncAndFirst, keep: true, ..FsMark::default() };
        let (target, outcome) = run(&mark, &limits);
        assert_eq!(target.files() as u64, outcome.done);
        assert!(
            outcome.done > 2 && target.count("sync") as u64 >= outcome.done / 2,
            "{}",
            outcome.done
        );
    }

    #[test]
    fn cancelled_is_an_error() {
        let cancel = super::super::Cancel::new(std::sync::Arc::new(true.into()));
        let limits = Limits { cancel, ..Limits::default() };
        let error = FsMark::default().run(&Recorder::default(), &limits).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
