//! A host that is stopped dead, or stands still and goes on later, and another one that takes its
//! volume over. Both reach it over the network, with multi-mount protection alone between them.
//!
//! The server notes every request with its connection, so what a host writes after another one has
//! the volume is seen, whatever becomes of it.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use extol_testkit::{
    ExtolMount, Image, NbdServer, Need, Scratch, Tree, e2fsck, extol_ok, require, text,
};
use rustix::process::{Pid, Signal, kill_process};

const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Tool("nbdkit"), Need::Tool("e2fsck")];
const WRITERS: u64 = 3;
const RECORD: usize = 1024;
/// A record begins a new file each so many.
const OF_A_FILE: u64 = 40;

/// How the first host is stopped.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// For good.
    Dead,
    /// Until the other host has the volume and works on it.
    Still,
}

/// A thread that appends records, each with an fsync, until that fails.
struct Writer {
    /// Records of which fsync has said that they are durable.
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

fn record(writer: u64, nr: u64) -> Vec<u8> {
    let word = (writer << 48 | nr).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(RECORD / 8)
}

/// The file of a record, and its place there.
fn place(dir: &Path, writer: u64, nr: u64) -> (PathBuf, u64) {
    (dir.join(format!("{writer}.{}", nr / OF_A_FILE)), nr % OF_A_FILE * RECORD as u64)
}

fn append(dir: &Path, writer: u64, nr: u64) -> std::io::Result<()> {
    let (path, offset) = place(dir, writer, nr);
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.write_all_at(&record(writer, nr), offset)?;
    file.sync_all()
}

impl Writer {
    fn start(dir: &Path, writer: u64) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let (dir, count) = (dir.to_owned(), Arc::clone(&acknowledged));
        let thread = std::thread::spawn(move || {
            for nr in 0.. {
                if append(&dir, writer, nr).is_err() {
                    return;
                }
                count.store(nr + 1, Ordering::Release);
            }
        });
        Self { acknowledged, thread }
    }
}

/// The first records of a writer that are there, one behind the other.
fn found(dir: &Path, writer: u64) -> u64 {
    let is_there = |nr: &u64| {
        let (path, offset) = place(dir, writer, *nr);
        let mut bytes = vec![0; RECORD];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset));
        read.is_ok() && bytes == record(writer, *nr)
    };
    (0..).take_while(is_there).count() as u64
}

/// The connection of a line of the server's log, and the kind of the request.
fn request(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split(' ').skip_while(|word| !word.starts_with("connection="));
    let connection = words.next()?.strip_prefix("connection=")?.parse().ok()?;
    Some((connection, words.next()?))
}

/// Changes in the log that came over connections up to `last`, behind `from` bytes.
fn changes(log: &Path, from: usize, last: u64) -> Vec<String> {
    let is_change = |line: &&str| {
        request(line).is_some_and(|(connection, kind)| {
            connection <= last && matches!(kind, "Write" | "Zero" | "Trim")
        })
    };
    let log = std::fs::read_to_string(log).unwrap();
    log[from..].lines().filter(is_change).map(str::to_owned).collect()
}

fn pid(mount: &ExtolMount) -> Pid {
    let pid = mount.pid().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("a live daemon")
}

fn work_of_the_second(dir: &Path, part: u8) {
    let dir = dir.join(format!("second {part}"));
    std::fs::create_dir(&dir).unwrap();
    for nr in 0..12_u8 {
        let mut file = File::create(dir.join(nr.to_string())).unwrap();
        file.write_all(&vec![nr ^ part; 150_000]).unwrap();
        file.sync_all().unwrap();
    }
}

/// What a round has seen.
#[derive(Debug, Default)]
struct Seen {
    acknowledged: u64,
    /// Changes that the first host made after the second had the volume.
    late: usize,
    took_over: Duration,
}

fn round(stop: Stop, load: Duration, slow: bool) -> Seen {
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 128 << 20);
    let log = scratch.join("requests");
    let logfile = format!("logfile={}", log.display());
    // (With a delay more requests are under way when the host stops.)
    let delay = if slow { "wdelay=3ms" } else { "wdelay=0ms" };
    let filters = ["--filter=log", "--filter=delay"];
    let args = ["file", text(&image.path), &logfile, delay];
    let server = NbdServer::nbdkit(&[&filters[..], &args].concat());
    let uri = server.uri();
    extol_ok(&["mkfs", "-q", &uri]);
    let (dir, other) = (scratch.dir("first"), scratch.dir("second"));
    let first = ExtolMount::start(Path::new(&uri), &dir, &[]);
    std::fs::create_dir(dir.join("first")).unwrap();
    let work = dir.join("first");
    let writers: Vec<_> = (0..WRITERS).map(|writer| Writer::start(&work, writer)).collect();
    std::thread::sleep(load);
    let signal = match stop {
        Stop::Dead => Signal::KILL,
        Stop::Still => Signal::STOP,
    };
    kill_process(pid(&first), signal).expect("stopped");
    let began = Instant::now();
    // (What is in the server's socket is carried out at once.)
    std::thread::sleep(Duration::from_millis(200));
    let known = std::fs::read_to_string(&log).unwrap();
    let last = known.lines().filter_map(request).map(|(connection, _)| connection).max();
    let last = last.expect("the first has written");

    let second = ExtolMount::start(Path::new(&uri), &other, &[]);
    let took_over = began.elapsed();
    let recovered: Vec<u64> =
        (0..WRITERS).map(|writer| found(&other.join("first"), writer)).collect();
    work_of_the_second(&other, 1);
    let trees = || ["first", "second 1"].map(|name| Tree::of(&other.join(name)));
    let before = trees();
    let mut late = changes(&log, known.len(), last);
    if let Stop::Still = stop {
        assert!(late.is_empty(), "a host that stands still writes nothing: {late:?}");
        kill_process(pid(&first), Signal::CONT).expect("goes on");
    }
    let begin = Instant::now();
    while writers.iter().any(|writer| !writer.thread.is_finished()) {
        assert!(begin.elapsed() < Duration::from_secs(30), "a writer of the first host hangs");
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Stop::Still = stop {
        // (Its claim is renewed at least once in this time.)
        std::thread::sleep(Duration::from_secs(6));
        let log = first.log();
        assert!(log.contains("claimed by another host"), "{log}");
    }
    work_of_the_second(&other, 2);
    late = changes(&log, known.len(), last);
    let mut acknowledged = 0;
    for (nr, (writer, recovered)) in writers.into_iter().zip(&recovered).enumerate() {
        writer.thread.join().unwrap();
        let its = writer.acknowledged.load(Ordering::Acquire);
        assert!(its <= *recovered, "writer {nr}: {its} records were acknowledged, {recovered} are");
        acknowledged += its;
    }
    assert!(acknowledged > 0, "the first host has done nothing");
    drop(first);
    for (now, before) in trees().iter().zip(&before) {
        now.assert_same(before, "after the first host went on", "before");
    }
    second.unmount();
    drop(server);
    e2fsck(&image).assert_clean("after the second host");
    Seen { acknowledged, late: late.len(), took_over }
}

#[test]
fn what_a_host_has_acknowledged_is_there_for_the_next() {
    if !require(&NEEDS) {
        return;
    }
    if std::env::var_os("EXTOL_LONG").is_some() {
        return many_rounds();
    }
    let rounds = [(Stop::Dead, 700), (Stop::Still, 900)].map(|(stop, millis)| {
        std::thread::spawn(move || round(stop, Duration::from_millis(millis), false))
    });
    for round in rounds {
        let seen = round.join().unwrap();
        let Seen { acknowledged, took_over, .. } = seen;
        eprintln!("{acknowledged} records acknowledged, taken over after {took_over:?}");
        assert_eq!(seen.late, 0, "the first host writes after the second has the volume");
    }
}

/// Rounds side by side for `EXTOL_MINUTES`: they wait most of the time.
fn many_rounds() {
    let minutes = std::env::var("EXTOL_MINUTES").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(60 * minutes.unwrap_or(10));
    let totals: Arc<[AtomicUsize; 4]> = Arc::default();
    let lanes: Vec<_> = (0..8)
        .map(|lane: u64| {
            let totals = Arc::clone(&totals);
            std::thread::spawn(move || {
                for nr in (0..).take_while(|_| Instant::now() < end) {
                    let stop = if (lane + nr).is_multiple_of(2) { Stop::Dead } else { Stop::Still };
                    let load = Duration::from_millis(200 + (lane * 389 + nr * 613) % 2500);
                    let seen = round(stop, load, lane % 4 > 1);
                    totals[stop as usize].fetch_add(1, Ordering::Relaxed);
                    totals[2].fetch_add(seen.acknowledged as usize, Ordering::Relaxed);
                    totals[3].fetch_add(seen.late, Ordering::Relaxed);
                    eprintln!("{stop:?}: {seen:?}; in all {totals:?}");
                }
            })
        })
        .collect();
    let failed = lanes.into_iter().filter_map(|lane| lane.join().err()).count();
    eprintln!("rounds dead, rounds still, acknowledged, late: {totals:?}; failed: {failed}");
    assert_eq!(failed, 0);
}
