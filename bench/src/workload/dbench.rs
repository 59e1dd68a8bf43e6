//! `dbench`: what Windows clients do to a file server, in the proportions of dbench's `client.txt`.
//!
//! Each client has a directory of its own with eight directories in it. It draws steps from a
//! shuffled deck, again and again; the deck has the proportions of `client.txt`, per 100 opens:
//!
//! | step | in a deck | calls |
//! |---|---:|---|
//! | make a file | 20 | create; nothing, 4 KiB, or a byte at the end and then up to 128 KiB in pieces of 64 KiB; close |
//! | read a file | 42 | open, 3 or 4 reads of 512 bytes to 64 KiB, size, close |
//! | edit a file | 9 | open, read, one write of 4 to 64 KiB inside the file, close |
//! | save a file | 2 | open, read 4 KiB, then 3 or 4 times: write 4 KiB, fsync; close |
//! | open what is not there | 27 | open |
//! | look a name up | 91 | stat; two thirds are there |
//! | list a directory | 35 | readdir, to its end |
//! | remove a file | 20 | unlink |
//! | rename a file | 4 | rename, to a new name in its directory |
//! | set its times | 8 | open, utimes |
//!
//! That is 50 writes (1.3 MB), 158 reads (2 MB) and 7 fsyncs per deck. After 790 decks, the length
//! of `client.txt`, everything is removed, directories too, and made anew. Left out: statfs and
//! locks, which reach no device.
//!
//! With a load file ([`LoadFile`]) its lines are what clients do, instead.
//!
//! The rate is dbench's: bytes read and written per second, in thousands. What dbench does with
//! processes, threads do here. The same seed does the same steps, whatever the target.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::loadfile::{LoadFile, Player};
use super::options::positive;
use super::outcome::{Figure, Op, Outcome, Timings};
use super::{Cancel, Footprint, Limits, Watch, Workload, cancelled, on_threads};
use crate::target::{Target, TargetFile};

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Dbench {
    /// Clients: threads, each in a directory of its own.
    #[arg(long, default_value_t = 1, value_parser = positive::<u32>)]
    pub clients: u32,
    /// A load file of dbench (the package dbench has /usr/share/dbench/client.txt).
    #[arg(long, value_name = "FILE", value_parser = LoadFile::read)]
    pub loadfile: Option<Arc<LoadFile>>,
    /// Rounds of 100 opens per client, without --seconds; with a load file, how often it is played
    /// (then 1 is enough).
    #[arg(long, default_value_t = 20, value_parser = positive::<u64>)]
    pub decks: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Directories of a client.
const DIRS: u32 = 8;
/// Files of a client when it begins.
const FILES: usize = 60;
/// Decks until everything is removed and made anew.
const PASS: u64 = 790;
const KIB: usize = 1024;
/// The largest write or read.
const PIECE: usize = 64 * KIB;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Sizes of the writes, one after the other. The first step may be the last byte alone.
    Make {
        last_byte_first: bool,
        writes: &'static [usize],
    },
    Read(&'static [usize]),
    Edit(usize),
    Save {
        syncs: u32,
    },
    Miss,
    Stat {
        there: bool,
    },
    List,
    Remove,
    Rename,
    Touch,
}

impl Step {
    /// The size of the file that it makes.
    fn makes(self) -> Option<u64> {
        match self {
            Self::Make { writes, .. } => Some(writes.iter().sum::<usize>() as u64),
            _ => None,
        }
    }
}

/// How often each step is in a deck.
const DECK: [(u32, Step); 21] = [
    (6, Step::Make { last_byte_first: true, writes: &[PIECE, PIECE] }),
    (2, Step::Make { last_byte_first: true, writes: &[24 * KIB] }),
    (3, Step::Make { last_byte_first: true, writes: &[12 * KIB] }),
    (6, Step::Make { last_byte_first: false, writes: &[4 * KIB] }),
    (3, Step::Make { last_byte_first: false, writes: &[] }),
    (21, Step::Read(&[PIECE, 4 * KIB, 4 * KIB, 4 * KIB])),
    (9, Step::Read(&[12 * KIB, 4 * KIB, 4 * KIB])),
    (8, Step::Read(&[512, 4 * KIB, 4 * KIB])),
    (4, Step::Read(&[4 * KIB, 4 * KIB, 4 * KIB])),
    (6, Step::Edit(PIECE)),
    (1, Step::Edit(12 * KIB)),
    (2, Step::Edit(4 * KIB)),
    (1, Step::Save { syncs: 3 }),
    (1, Step::Save { syncs: 4 }),
    (27, Step::Miss),
    (60, Step::Stat { there: true }),
    (31, Step::Stat { there: false }),
    (35, Step::List),
    (20, Step::Remove),
    (4, Step::Rename),
    (8, Step::Touch),
];

impl Workload for Dbench {
    fn name(&self) -> &'static str {
        "dbench"
    }

    fn settings(&self) -> String {
        match &self.loadfile {
            Some(file) => {
                format!("dbench, load file of {} lines, {} clients", file.len(), self.clients)
            }
            None => format!("dbench-like, {} clients, seed {}", self.clients, self.seed),
        }
    }

    fn footprint(&self, _: &Limits) -> Footprint {
        // What a load file does is not known before.
        if self.loadfile.is_some() {
            return Footprint::default();
        }
        // In the middle of a deck there may be all of its new files, and none of its removals.
        let sizes: Vec<u64> = deck().filter_map(Step::makes).collect();
        let most = FILES + sizes.len();
        let bytes = sizes.iter().cycle().take(most).map(|size| Footprint::of(1, *size).bytes).sum();
        let one = Footprint { bytes, files: most as u64 };
        let clients = u64::from(self.clients);
        Footprint {
            bytes: one.bytes.saturating_mul(clients),
            files: one.files.saturating_mul(clients),
        }
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        if let Some(file) = &self.loadfile {
            return self.play(file, target, limits);
        }
        target.create_dir("clients")?;
        let clients = (0..self.clients)
            .map(|n| {
                let mut client = Client::new(self, n, target, &limits.cancel);
                client.set_up()?;
                client.timings = Timings::default();
                (client.written, client.read) = (0, 0);
                Ok(parking_lot::Mutex::new(client))
            })
            .collect::<io::Result<Vec<_>>>()?;
        target.sync()?;
        let watch = Watch::start(limits);
        let decks = if limits.time.is_some() { u64::MAX } else { self.decks };
        on_threads(self.clients, |n| clients[n as usize].lock().play(decks, &watch))?;
        let elapsed = watch.elapsed();
        let shares = clients.into_iter().map(|client| {
            let client = client.into_inner();
            (client.written, client.read, client.timings)
        });
        Ok(outcome(elapsed, shares))
    }
}

impl Dbench {
    /// Each client goes through a load file.
    fn play(&self, file: &LoadFile, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let watch = Watch::start(limits);
        let times = if limits.time.is_some() { u64::MAX } else { self.decks };
        let shares = on_threads(self.clients, |n| {
            let mut player = Player::new(target, n);
            player.play(file, times, &watch)?;
            Ok((player.written, player.read, player.timings))
        })?;
        Ok(outcome(watch.elapsed(), shares))
    }
}

/// Of what each client wrote and read.
fn outcome(elapsed: Duration, shares: impl IntoIterator<Item = (u64, u64, Timings)>) -> Outcome {
    let mut timings = Timings::default();
    let (mut written, mut read) = (0, 0);
    for share in shares {
        written += share.0;
        read += share.1;
        timings.add(&share.2);
    }
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let fsyncs = timings.of(Op::Fsync).map_or(0, |t| t.count);
    let figures = vec![
        Figure { name: "MB/s", value: (written + read) as f64 / 1e6 / seconds },
        Figure { name: "fsyncs/s", value: fsyncs as f64 / seconds },
    ];
    let done = (written + read) / 1000;
    Outcome { unit: "kB", done, elapsed, written, read, figures, timings, phases: Vec::new() }
}

/// A file of a client.
struct Known {
    dir: u32,
    number: u64,
    size: u64,
}

/// One client.
struct Client<'a> {
    target: &'a dyn Target,
    cancel: &'a Cancel,
    root: String,
    rng: SmallRng,
    files: Vec<Known>,
    made: u64,
    data: Vec<u8>,
    buf: Vec<u8>,
    written: u64,
    read: u64,
    timings: Timings,
}

impl<'a> Client<'a> {
    fn new(load: &Dbench, number: u32, target: &'a dyn Target, cancel: &'a Cancel) -> Self {
        Self {
            target,
            cancel,
            root: format!("clients/client{number}"),
            rng: SmallRng::seed_from_u64(
                load.seed.wrapping_mul(1000).wrapping_add(u64::from(number)),
            ),
            files: Vec::new(),
            made: 0,
            data: vec![b'd'; PIECE],
            buf: vec![0; PIECE],
            written: 0,
            read: 0,
            timings: Timings::default(),
        }
    }

    /// Directories and the first files.
    fn set_up(&mut self) -> io::Result<()> {
        self.target.create_dir(&self.root)?;
        for n in 0..DIRS {
            self.target.create_dir(&format!("{}/d{n}", self.root))?;
        }
        let makes: Vec<Step> = deck().filter(|s| matches!(s, Step::Make { .. })).collect();
        for n in 0..FILES {
            self.step(makes[n % makes.len()])?;
        }
        Ok(())
    }

    fn tear_down(&mut self) -> io::Result<()> {
        while !self.files.is_empty() {
            self.step(Step::Remove)?;
        }
        for n in 0..DIRS {
            self.target.remove_dir(&format!("{}/d{n}", self.root))?;
        }
        self.target.remove_dir(&self.root)
    }

    fn play(&mut self, decks: u64, watch: &Watch) -> io::Result<()> {
        let mut cards: Vec<Step> = deck().collect();
        for n in 1..=decks {
            cards.shuffle(&mut self.rng);
            for step in &cards {
                if watch.is_over() {
                    return if self.cancel.is_set() { Err(cancelled()) } else { Ok(()) };
                }
                self.step(*step)?;
            }
            if n % PASS == 0 {
                self.tear_down()?;
                self.set_up()?;
            }
        }
        Ok(())
    }

    fn path(&self, dir: u32, number: u64) -> String {
        format!("{}/d{dir}/{number:08}.doc", self.root)
    }

    fn path_of(&self, at: usize) -> String {
        self.path(self.files[at].dir, self.files[at].number)
    }

    /// A file at random. There are always some: removals and new files are equally many, and the
    /// deck is shorter than what was there at the start.
    fn pick(&mut self) -> usize {
        self.rng.random_range(0..self.files.len().max(1))
    }

    fn step(&mut self, step: Step) -> io::Result<()> {
        let target = self.target;
        match step {
            Step::Make { last_byte_first, writes } => self.make(last_byte_first, writes),
            Step::Read(sizes) => {
                let at = self.pick();
                let file = self.open(at)?;
                let mut offset = 0;
                for size in sizes {
                    offset += self.read(&*file, offset, *size)?;
                }
                file.len()?;
                self.close(file)
            }
            Step::Edit(size) => {
                let at = self.pick();
                let file = self.open(at)?;
                self.read(&*file, 0, 4 * KIB)?;
                let room = self.files[at].size.saturating_sub(size as u64) / 4096;
                let offset = self.rng.random_range(0..=room) * 4096;
                self.write(&*file, at, offset, size)?;
                self.close(file)
            }
            Step::Save { syncs } => {
                let at = self.pick();
                let file = self.open(at)?;
                self.read(&*file, 0, 4 * KIB)?;
                for _ in 0..syncs {
                    self.write(&*file, at, 0, 4 * KIB)?;
                    self.timings.time(Op::Fsync, || file.sync(false))?;
                }
                self.close(file)
            }
            Step::Miss => {
                let path = self.missing();
                not_there(self.timings.time(Op::Open, || Ok(target.open(&path).map(drop)))?)
            }
            Step::Stat { there: true } => {
                let at = self.pick();
                let path = self.path_of(at);
                self.timings.time(Op::Stat, || target.size_of(&path)).map(drop)
            }
            Step::Stat { there: false } => {
                let path = self.missing();
                not_there(self.timings.time(Op::Stat, || Ok(target.size_of(&path).map(drop)))?)
            }
            Step::List => {
                let path = format!("{}/d{}", self.root, self.rng.random_range(0..DIRS));
                self.timings.time(Op::List, || target.list(&path)).map(drop)
            }
            Step::Remove => {
                let at = self.pick();
                let path = self.path_of(at);
                self.files.swap_remove(at);
                self.timings.time(Op::Remove, || target.remove(&path))
            }
            Step::Rename => {
                let at = self.pick();
                let from = self.path_of(at);
                self.files[at].number = self.made;
                self.made += 1;
                let to = self.path_of(at);
                self.timings.time(Op::Rename, || target.rename(&from, &to))
            }
            Step::Touch => {
                let at = self.pick();
                target.touch(&self.path_of(at))
            }
        }
    }

    fn missing(&mut self) -> String {
        format!("{}/d{}/{}.jnk", self.root, self.rng.random_range(0..DIRS), self.made)
    }

    fn make(&mut self, last_byte_first: bool, writes: &[usize]) -> io::Result<()> {
        let (dir, number) = (self.rng.random_range(0..DIRS), self.made);
        self.made += 1;
        let (target, path) = (self.target, self.path(dir, number));
        let file = self.timings.time(Op::Create, || target.create(&path))?;
        self.files.push(Known { dir, number, size: 0 });
        let at = self.files.len() - 1;
        if last_byte_first {
            self.write(&*file, at, writes.iter().sum::<usize>() as u64 - 1, 1)?;
        }
        let mut offset = 0;
        for size in writes {
            self.write(&*file, at, offset, *size)?;
            offset += *size as u64;
        }
        self.close(file)
    }

    fn open(&mut self, at: usize) -> io::Result<Box<dyn TargetFile>> {
        let (target, path) = (self.target, self.path_of(at));
        self.timings.time(Op::Open, || target.open(&path))
    }

    fn write(
        &mut self,
        file: &dyn TargetFile,
        at: usize,
        offset: u64,
        size: usize,
    ) -> io::Result<()> {
        let (data, timings) = (&self.data[..size], &mut self.timings);
        timings.time(Op::Write, || file.write_at(data, offset))?;
        let end = offset + size as u64;
        let known = &mut self.files[at];
        known.size = known.size.max(end);
        self.written += size as u64;
        Ok(())
    }

    /// Gives how much was read: less at the end of the file.
    fn read(&mut self, file: &dyn TargetFile, offset: u64, size: usize) -> io::Result<u64> {
        let (buf, timings) = (&mut self.buf[..size], &mut self.timings);
        let n = timings.time(Op::Read, || file.read_at(buf, offset))? as u64;
        self.read += n;
        Ok(n)
    }

    fn close(&mut self, file: Box<dyn TargetFile>) -> io::Result<()> {
        self.timings.time(Op::Close, || {
            drop(file);
            Ok(())
        })
    }
}

/// The steps of a deck, unshuffled.
fn deck() -> impl Iterator<Item = Step> {
    DECK.iter().flat_map(|(count, step)| (0..*count).map(|_| *step))
}

/// What must not be there was not there.
fn not_there(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(()) => Err(io::Error::other("a file is there that was not made")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::target::recorder::Recorder;

    fn play(clients: u32, decks: u64, seed: u64) -> (Recorder, Outcome) {
        let target = Recorder::default();
        let outcome = Dbench { clients, decks, seed, loadfile: None }
            .run(&target, &Limits::default())
            .unwrap();
        (target, outcome)
    }

    /// One deck has the proportions of client.txt.
    #[test]
    fn proportions() {
        let (target, outcome) = play(1, 10, 1);
        let setup = FILES;
        let opens = target.count("open") + target.count("create") - setup;
        assert_eq!(opens, 1000);
        assert_eq!(
            (target.count("fsync"), target.count("rename"), target.count("remove")),
            (70, 40, 200)
        );
        assert_eq!(
            (target.count("stat"), target.count("list"), target.count("touch")),
            (910, 350, 80)
        );
        assert_eq!((target.count("create") - setup, target.files()), (200, setup));
        let of = |op| outcome.timings.of(op).map_or(0, |t| t.count);
        assert_eq!(
            (of(Op::Write), of(Op::Read), of(Op::Fsync)),
            (500, 1580, 70),
            "set-up is not counted"
        );
        assert!((12_000_000..14_500_000).contains(&outcome.written), "{}", outcome.written);
        assert_eq!(outcome.done, (outcome.written + outcome.read) / 1000);
        assert!(outcome.figure("MB/s").unwrap() > 0.0);
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let calls = |seed| play(1, 1, seed).0.calls();
        assert_eq!(calls(7), calls(7));
        assert_ne!(calls(7), calls(8));
    }

    #[test]
    fn clients_keep_to_their_own_directories() {
        let (target, outcome) = play(3, 1, 1);
        assert_eq!((target.count("mkdir"), target.files()), (1 + 3 * 9, 3 * FILES));
        assert_eq!(outcome.timings.of(Op::Fsync).unwrap().count, 21);
    }

    /// After the length of client.txt all is removed and made anew.
    #[test]
    fn passes() {
        let target = Recorder::default();
        let load = Dbench::default();
        let cancel = Cancel::default();
        let mut client = Client::new(&load, 0, &target, &cancel);
        client.set_up().unwrap();
        client.tear_down().unwrap();
        assert_eq!((target.files(), target.count("rmdir")), (0, 9));
        client.set_up().unwrap();
        assert_eq!(target.files(), FILES);
    }

    #[test]
    fn ends_by_time() {
        let limits = Limits { time: Some(Duration::from_millis(20)), ..Limits::default() };
        let outcome = Dbench::default().run(&Recorder::default(), &limits).unwrap();
        assert!(outcome.done > 0);
    }
}
