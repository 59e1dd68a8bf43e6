//! Threads that change one block each and sync it, on an emulated medium, with each rule of fsync
//! batching.
//!
//! ```sh
//! cargo run --release -p extol-jbd2 --example batching -- cloud 1,2,4,8 [SECONDS]
//! cargo run --release -p extol-jbd2 --example batching -- record cloud 4 none FILE   # for tests
//! ```
//!
//! Of a trace, `a NS` is a request, `e NS N` the end of a commit that served N, in nanoseconds
//! since its start.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use extol_block::{BlockNr, BlockSize, MemDevice};
use extol_devices::{EmulatedMedia, Profile};
use extol_jbd2::batching::{BatchPolicy, Batching};
use extol_jbd2::format::{Features, JournalSuperblock};
use extol_jbd2::{Journal, JournalConfig, LogConfig, LogMap, Services, Tid};
use extol_task::SystemClock;

const BS: u32 = 4096;
const BLOCKS: u64 = 20_000;
const LOG_BLOCKS: u32 = 8192;

fn journal(medium: &str, policy: BatchPolicy) -> Arc<Journal> {
    let profile =
        Profile::by_name(medium).unwrap_or_else(|| panic!("a medium: {:?}", Profile::names()));
    let device = Arc::new(EmulatedMedia::new(MemDevice::new(BLOCKS * u64::from(BS)), profile));
    let size = BlockSize::new(BS).expect("a block size");
    let map = LogMap::from_extents(size, vec![(0, 10_000, LOG_BLOCKS)]).expect("a log");
    let features = Features { incompat: 0x13, ..Features::default() };
    let superblock = JournalSuperblock::new(size, LOG_BLOCKS, 1, features, [1; 16]);
    let journal = Journal::open(JournalConfig {
        device: device.clone(),
        block_size: size,
        blocks: BLOCKS,
        log: Some(LogConfig { device, external: false, map, superblock, next_tid: Tid(1) }),
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: false,
        cache_bytes: 64 << 20,
        clock: Arc::new(SystemClock::new()),
    })
    .expect("a journal");
    journal.set_batching(Batching { policy, ..Batching::default() });
    journal
}

#[derive(Clone, Copy)]
enum Event {
    Asks,
    Ends(u32),
}

/// Requests, and what happened when.
fn run(journal: &Arc<Journal>, threads: usize, time: Duration) -> (u64, Vec<(u128, Event)>) {
    let services = Services::start(journal).expect("threads");
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let trace = Arc::new(Mutex::new(Vec::new()));
    let requests = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                let (over, trace) = (&over, &trace);
                scope.spawn(move || {
                    let mut count = 0;
                    while !over.load(Ordering::Relaxed) {
                        let mut h = journal.start(4).expect("a handle");
                        let buf = h.create(BlockNr(100 + 8 * t as u64)).expect("a block");
                        h.modify(&buf, |b| b.fill(count as u8)).expect("a change");
                        let ends = Arc::clone(trace);
                        h.on_commit(move |_| {
                            let now = start.elapsed().as_nanos();
                            let mut trace = ends.lock().expect("a trace");
                            match trace.last_mut() {
                                Some((at, Event::Ends(n))) => {
                                    *at = now;
                                    *n += 1;
                                }
                                _ => trace.push((now, Event::Ends(1))),
                            }
                        });
                        let tid = h.tid();
                        h.stop().expect("a change");
                        trace
                            .lock()
                            .expect("a trace")
                            .push((start.elapsed().as_nanos(), Event::Asks));
                        journal.make_durable(tid).expect("durability");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|w| w.join().expect("a worker")).sum()
    });
    drop(services);
    let trace = std::mem::take(&mut *trace.lock().expect("a trace"));
    (requests, trace)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["record", medium, threads, policy, file] = words[..] {
        let threads = threads.parse().expect("a number of threads");
        let rule = BatchPolicy::by_name(policy).expect("a rule");
        let (_, trace) = run(&journal(medium, rule), threads, Duration::from_millis(1500));
        let mut out = std::fs::File::create(file).expect("a file");
        writeln!(out, "# {medium}, {threads} threads, {policy}").expect("space");
        let mut ends = 0;
        for (at, event) in trace {
            match event {
                Event::Asks => writeln!(out, "a {at}").expect("space"),
                Event::Ends(n) => {
                    writeln!(out, "e {at} {n}").expect("space");
                    ends += 1;
                }
            }
            if ends == 150 {
                break;
            }
        }
        return;
    }
    let [medium, threads, ..] = words[..] else { panic!("MEDIUM THREADS,THREADS… [SECONDS]") };
    let seconds = words.get(2).map_or(2.0, |s| s.parse().expect("seconds"));
    println!(
        "{medium:10} threads      none    static  adaptive   \
         requests per second (requests per commit)"
    );
    for threads in threads.split(',').map(|t| t.parse::<usize>().expect("a number of threads")) {
        let mut line = format!("{:10} {threads:7}", "");
        for (_, policy) in BatchPolicy::NAMES {
            let journal = journal(medium, policy);
            let (requests, _) = run(&journal, threads, Duration::from_secs_f64(seconds));
            let stats = journal.stats();
            line += &format!(
                " {:9.0} ({:.1}, {:.2})",
                requests as f64 / seconds,
                requests as f64 / stats.transactions.max(1) as f64,
                stats.batching.waits as f64 / stats.transactions.max(1) as f64,
            );
        }
        println!("{line}");
    }
}
