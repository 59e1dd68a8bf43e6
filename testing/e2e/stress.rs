//! Everything at once on one mount with a small log: many threads create, write, sync, rename,
//! link, unlink, truncate, list, set attributes, ask for space and switch files to journalled data
//! (which freezes the journal), and the volume is mounted anew now and then. Each thread knows what
//! its own files must hold; a shared directory belongs to none.
//!
//! Watched all the time: the daemon's resident memory, its threads, and its open files. After each
//! unmount: `e2fsck -fn` and `extol check` have nothing to say, and the next mount finds every file
//! as its thread left it.
//!
//! One minute; `EXTOL_SOAK=3600` makes it an hour. `scripts/soak.sh` does that with an optimised
//! build.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extol_testkit::{
    ExtolMount, Image, Need, Scratch, e2fsck, extol, over_io_uring, require, run, sync_volume,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{IFlags, XattrFlags};

const THREADS: u64 = 8;
/// Files per thread, and names in the shared directory.
const FILES: u64 = 12;
const MAX_LEN: usize = 192 << 10;
/// How the volume is mounted: caches so small that a minute fills them.
const CACHE_MB: u64 = 16;
const DIRTY_MB: u64 = 8;

/// Resident memory: the metadata cache may pin a quarter more than its size and Linux keeps freed
/// pages of a busy heap for a while, so twice the caches; the dirty pages may overshoot by one
/// write per thread; 48 MiB for the program, its request buffers (1 MiB per thread) and the inodes
/// that the kernel knows.
const MAX_RSS_KIB: u64 = (2 * (CACHE_MB + DIRTY_MB) + THREADS + 48) << 10;
/// Threads that work on requests (`max_threads=`); over io_uring on each processor.
const WORKERS: u64 = 16;
/// Threads of the daemon: its workers, one more for each request that waits (one per thread of the
/// test, and the twelve that the kernel sends ahead), and a dozen for sessions, commits,
/// checkpoints and write-back.
fn max_threads() -> u64 {
    let queues = if over_io_uring() {
        std::thread::available_parallelism().map_or(1, usize::from) as u64
    } else {
        1
    };
    WORKERS * queues + THREADS + 12 + 12
}

/// Workers that the kernel runs for rings (`iou-wrk`): by its own rule at most four per processor
/// for each thread that gives work to one. They are as many as requests that a stalled disk holds
/// up.
fn max_ring_workers() -> u64 {
    4 * std::thread::available_parallelism().map_or(1, usize::from) as u64 * max_threads()
}

/// Open files: the image, the FUSE device once per thread, rings and event files.
fn max_files() -> u64 {
    2 * max_threads() + 16
}

/// What a thread's files must hold.
type Model = BTreeMap<u64, Vec<u8>>;

struct Worker {
    rng: SmallRng,
    dir: PathBuf,
    shared: PathBuf,
    model: Model,
    /// Numbers written by `ledger`, newest durable one.
    promised: u64,
    /// The operation at work, for messages.
    kind: u32,
}

impl Worker {
    fn new(seed: u64) -> Self {
        let (dir, shared) = (PathBuf::new(), PathBuf::new());
        Self {
            rng: SmallRng::seed_from_u64(seed),
            dir,
            shared,
            model: Model::new(),
            promised: 0,
            kind: 0,
        }
    }

    fn file(&self, nr: u64) -> PathBuf {
        self.dir.join(format!("file-{nr}"))
    }

    fn some(&mut self) -> Option<u64> {
        let n = self.model.len();
        (n > 0)
            .then(|| self.rng.random_range(0..n))
            .and_then(|at| self.model.keys().nth(at).copied())
    }

    /// One operation. Everything here must succeed.
    fn step(&mut self) -> std::io::Result<()> {
        let nr = self.rng.random_range(0..FILES);
        self.kind = self.rng.random_range(0..24);
        match self.kind {
            0..=7 => {
                let at = self.rng.random_range(0..MAX_LEN / 2);
                let len = 1 + self.rng.random_range(0..MAX_LEN / 8);
                let value: u8 = self.rng.random();
                let file = OpenOptions::new()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(self.file(nr))?;
                file.write_all_at(&vec![value; len], at as u64)?;
                let bytes = self.model.entry(nr).or_default();
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].fill(value);
                if self.rng.random_range(0..4) == 0 {
                    file.sync_data()?;
                }
            }
            8..=9 => {
                let len = self.rng.random_range(0..MAX_LEN);
                if let Some(nr) = self.some() {
                    OpenOptions::new().write(true).open(self.file(nr))?.set_len(len as u64)?;
                    self.model.entry(nr).or_default().resize(len, 0);
                }
            }
            10..=11 => {
                if let Some(from) = self.some()
                    && from != nr
                {
                    fs::rename(self.file(from), self.file(nr))?;
                    let bytes = self.model.remove(&from).unwrap_or_default();
                    self.model.insert(nr, bytes);
                }
            }
            12..=13 => {
                if let Some(nr) = self.some() {
                    fs::remove_file(self.file(nr))?;
                    self.model.remove(&nr);
                }
            }
            14 => {
                let names = self.dir.read_dir()?.filter(|e| {
                    e.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().starts_with("file-"))
                });
                assert_eq!(names.count(), self.model.len(), "a listing of {}", self.dir.display());
            }
            15 => {
                if let Some(nr) = self.some() {
                    let value = vec![nr as u8; self.rng.random_range(1..3000)];
                    rustix::fs::setxattr(
                        self.file(nr),
                        "user.stress",
                        &value,
                        XattrFlags::empty(),
                    )?;
                }
            }
            16 => assert!(rustix::fs::statvfs(&self.dir)?.f_blocks > 0),
            17 => sync_volume(&self.dir)?,
            18 => self.ledger()?,
            19 => {
                if let Some(nr) = self.some() {
                    let file = File::open(self.file(nr))?;
                    let flags = rustix::fs::ioctl_getflags(&file)?;
                    rustix::fs::ioctl_setflags(&file, flags ^ IFlags::JOURNALING)?;
                }
            }
            20 => {
                if let Some(nr) = self.some() {
                    assert!(
                        fs::read(self.file(nr))? == self.model[&nr],
                        "{} differs",
                        self.file(nr).display()
                    );
                }
            }
            _ => self.meddle(),
        }
        Ok(())
    }

    /// A number that is durable when this returns.
    fn ledger(&mut self) -> std::io::Result<()> {
        let next = self.promised + 1;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.dir.join("ledger"))?;
        file.write_all_at(&next.to_le_bytes(), 0)?;
        file.sync_all()?;
        self.promised = next;
        Ok(())
    }

    /// Something in the shared directory, where another thread may have been first: any error is
    /// fine.
    fn meddle(&mut self) {
        let name = |rng: &mut SmallRng| format!("{}", rng.random_range(0..FILES));
        let (one, two) = (name(&mut self.rng), name(&mut self.rng));
        let (one, two) = (self.shared.join(one), self.shared.join(two));
        let _ = match self.rng.random_range(0..8) {
            0 => fs::create_dir(&one),
            1 => fs::remove_dir(&one),
            2 => fs::remove_file(&one),
            3 => fs::rename(&one, &two),
            4 => fs::rename(&one, two.join("inside")),
            5 => fs::hard_link(&one, &two),
            6 => std::os::unix::fs::symlink(&one, &two),
            _ => fs::write(&one, vec![7; self.rng.random_range(0..40_000)]),
        };
    }

    /// After a remount everything is as this thread left it.
    fn verify(&self) {
        for (nr, bytes) in &self.model {
            let found = fs::read(self.file(*nr))
                .unwrap_or_else(|e| panic!("{}: {e}", self.file(*nr).display()));
            assert!(found == *bytes, "{} differs after a remount", self.file(*nr).display());
        }
        let ledger = fs::read(self.dir.join("ledger")).unwrap_or_default();
        let found = ledger.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
        assert_eq!(found, self.promised, "{} lost what fsync promised", self.dir.display());
    }
}

/// The daemon's resident KiB, threads, open files, and the kernel's workers for its rings, which
/// are not among the threads.
fn usage(pid: u32) -> [u64; 4] {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon lives");
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    // (One that cannot be read has ended.)
    let is_worker = |task: fs::DirEntry| {
        Some(fs::read_to_string(task.path().join("comm")).ok()?.starts_with("iou-wrk"))
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon lives");
    let (workers, threads): (Vec<_>, Vec<_>) =
        tasks.flatten().filter_map(is_worker).partition(|worker| *worker);
    let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |dir| dir.count() as u64);
    [field("VmRSS:"), threads.len() as u64, files, workers.len() as u64]
}

/// Lets all threads work for a while; gives the largest usage seen.
fn period(
    mount: &ExtolMount,
    workers: &mut [Worker],
    length: Duration,
    ops: &AtomicU64,
) -> [u64; 4] {
    let pid = mount.pid().expect("a live daemon");
    let over = AtomicBool::new(false);
    let mut most = [0; 4];
    let limits = [MAX_RSS_KIB, max_threads(), max_files(), max_ring_workers()];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for worker in workers.iter_mut() {
            worker.dir = mount.path().join(worker.dir.file_name().expect("a name"));
            worker.shared = mount.path().join("shared");
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if let Err(e) = worker.step() {
                        panic!("operation {} in {}: {e}", worker.kind, worker.dir.display());
                    }
                    ops.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut told = Instant::now();
        while start.elapsed() < length {
            std::thread::sleep(Duration::from_millis(250));
            let now = usage(pid);
            most = std::array::from_fn(|i| most[i].max(now[i]));
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let [rss, threads, files, _] = now;
                let done = ops.load(Ordering::Relaxed);
                println!(
                    "{done} operations, {rss} KiB resident, {threads} threads, {files} open files"
                );
            }
            if most.iter().zip(limits).any(|(most, limit)| *most > limit) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let names = ["KiB resident", "threads", "open files", "of the kernel's workers"];
    for (what, (most, limit)) in names.iter().zip(most.iter().zip(limits)) {
        assert!(*most <= limit, "{most} {what}, at most {limit} are right");
    }
    most
}

fn check(image: &Path) {
    let done = run(extol().arg("check").arg(image), Duration::from_secs(300));
    let is_clean = done.success() && done.output.contains("clean: ");
    assert!(is_clean, "extol check: {:?}\n{}", done.code, done.output);
}

#[test]
fn everything_at_once() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let seconds = std::env::var("EXTOL_SOAK").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let seed: u64 = std::env::var("EXTOL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let total = Duration::from_secs(seconds);
    // A minute has three mounts; a soak gives each ten minutes, so that growth has time to show.
    let length = (total / 3).clamp(Duration::from_secs(1), Duration::from_secs(600));
    let scratch = Scratch::new();
    let image = Image::mke2fs(
        scratch.path(),
        "a.img",
        192 << 20,
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    );
    let options = [
        format!("cache_mb={CACHE_MB}"),
        format!("dirty_mb={DIRTY_MB}"),
        format!("max_threads={WORKERS}"),
        "commit=1".into(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let dir = scratch.dir("mnt");
    let mut workers: Vec<_> = (0..THREADS).map(|t| Worker::new(seed * 1000 + t)).collect();
    let ops = AtomicU64::new(0);
    let start = Instant::now();
    let mut first = true;
    println!(
        "seed {seed}, {seconds} s, at most {MAX_RSS_KIB} KiB, {} threads, {} open files",
        max_threads(),
        max_files()
    );
    while start.elapsed() < total {
        let mount = ExtolMount::start(&image.path, &dir, &options);
        if first {
            fs::create_dir(dir.join("shared")).expect("a fresh volume");
            for (t, worker) in workers.iter_mut().enumerate() {
                worker.dir = dir.join(format!("thread-{t}"));
                fs::create_dir(&worker.dir).expect("a fresh volume");
            }
        } else {
            workers.iter().for_each(Worker::verify);
        }
        first = false;
        let [rss, threads, files, _] =
            period(&mount, &mut workers, length.min(total - start.elapsed().min(total)), &ops);
        println!("mount ends: at most {rss} KiB resident, {threads} threads, {files} open files");
        mount.unmount();
        e2fsck(&image).assert_clean("after a period of stress");
        check(&image.path);
    }
    let mount = ExtolMount::start(&image.path, &dir, &options);
    workers.iter().for_each(Worker::verify);
    mount.unmount();
    println!("{} operations in {:.0?}", ops.load(Ordering::Relaxed), start.elapsed());
}
