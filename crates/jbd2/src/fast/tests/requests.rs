//! Requests: which are served together, and which wait.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::batching::{BatchPolicy, Batching, Moment};

/// A source whose answers wait until the test says so; records if the test has put none into it.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) inner: Answers,
    entered: Mutex<mpsc::Sender<()>>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl FastSource for Slow {
    fn apply(&self, tid: Tid, notes: Option<Notes>, finished: bool) {
        self.inner.apply(tid, notes, finished);
    }

    fn collect(&self, tid: Tid, asks: &[SyncKey]) -> Collected {
        let _ = self.entered.lock().send(());
        let _ = self.go.lock().recv_timeout(Duration::from_secs(60));
        match self.inner.collect(tid, asks) {
            Collected::Nothing => records(1),
            answer => answer,
        }
    }

    fn closed(&self, tid: Tid) -> Box<dyn Any + Send> {
        self.inner.closed(tid)
    }

    fn reasons(&self) -> &'static [&'static str] {
        &[]
    }
}

pub(super) fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("does not happen");
}

pub(super) fn slow() -> (Rig, Arc<Slow>, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (entered, has_entered) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let source = Arc::new(Slow {
        inner: Answers::default(),
        entered: Mutex::new(entered),
        go: Mutex::new(may_go),
    });
    let mut rig = Rig::new(PLAIN);
    // The rig's own source was never asked; this one takes its place.
    Arc::get_mut(&mut rig.journal).unwrap().fast = FastCommits::default();
    rig.journal.state.lock().fast.from = None;
    rig.journal.set_fast_source(source.clone());
    rig.change(5);
    rig.journal.commit_all().unwrap();
    (rig, source, has_entered, go)
}

/// While one fast commit is written, handles come and go, and requests share the next one.
#[test]
fn those_that_ask_meanwhile_share_the_next() {
    let (rig, source, entered, go) = slow();
    rig.journal.set_batching(Batching { policy: BatchPolicy::None, ..Batching::default() });
    let tid = rig.change(5);
    let threads: Vec<_> = (0..6)
        .map(|i| {
            let journal = Arc::clone(&rig.journal);
            let thread = std::thread::spawn(move || journal.make_durable_for(tid, ask(i)).unwrap());
            if i == 0 {
                entered.recv().unwrap();
                rig.change(6);
            }
            thread
        })
        .collect();
    until(|| rig.journal.state.lock().fast.waiting == 5);
    go.send(()).unwrap();
    entered.recv().unwrap();
    go.send(()).unwrap();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let asked: Vec<usize> = source.inner.asked.lock().iter().map(|(_, asks)| asks.len()).collect();
    assert_eq!(asked, [1, 5]);
    let stats = rig.stats();
    assert_eq!((stats.commits, stats.requests), (2, 6));
    assert_eq!(rig.journal.stats().transactions, 1);
    assert_eq!(rig.journal.stats().distributions.sync_wait_ns.count, 6);
    assert_eq!(rig.journal.stats().distributions.fast_commit_ns.count, 2);
}

/// What an administrator says about waiting for others holds for fast commits as for full ones, at
/// once.
#[test]
fn the_options_hold_for_fast_commits() {
    const COMMIT: u64 = 1_000_000;
    let rig = Rig::live(PLAIN);
    let until_ns = |batching: Batching| {
        rig.journal.set_batching(batching);
        let batcher = &mut rig.journal.state.lock().fast.batcher;
        (0..3).for_each(|_| batcher.ended(0, COMMIT, 4, 0));
        batcher.asked(std::thread::current().id());
        let at = Moment { now_ns: 0, asked_ns: 0, waiting: 1, handles: 1 };
        batcher.begin(&at).map(|wait| wait.until_ns)
    };
    let adaptive = Batching::default();
    assert_eq!(until_ns(Batching { policy: BatchPolicy::Static, ..adaptive }), Some(4 * COMMIT));
    assert_eq!(until_ns(adaptive), Some(COMMIT));
    assert_eq!(until_ns(Batching { policy: BatchPolicy::None, ..adaptive }), None);
    assert_eq!(until_ns(Batching { max: Duration::ZERO, ..adaptive }), None);
    assert_eq!(until_ns(Batching { min: Duration::from_millis(9), ..adaptive }), Some(9 * COMMIT));
}

/// A thread needs the full commit while a fast one is written: the full one comes next and serves
/// all waiters.
#[test]
fn a_full_commit_serves_those_that_wait_for_a_fast_one() {
    let (rig, source, entered, go) = slow();
    let tid = rig.change(5);
    let spawn = |i: u32| {
        let journal = Arc::clone(&rig.journal);
        std::thread::spawn(move || match i {
            9 => journal.commit_wait(tid).unwrap(),
            _ => journal.make_durable_for(tid, ask(i)).unwrap(),
        })
    };
    let mut threads = vec![spawn(0)];
    entered.recv().unwrap();
    threads.push(spawn(1));
    until(|| rig.journal.state.lock().fast.waiting == 1);
    threads.push(spawn(9));
    until(|| rig.journal.state.lock().tx.running.as_ref().is_some_and(|r| r.waiting == 1));
    // Comes when a full commit is on its way.
    threads.push(spawn(2));
    until(|| rig.journal.state.lock().tx.running.as_ref().is_some_and(|r| r.waiting == 2));
    go.send(()).unwrap();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(source.inner.asked.lock().len(), 1);
    assert_eq!(rig.journal.committed(), tid);
    assert_eq!(rig.stats().cleared, 2);
}

/// What became durable in full, or never held anything, needs no fast commit.
#[test]
fn nothing_to_wait_for() {
    let rig = Rig::live(PLAIN);
    let old = rig.journal.committed();
    rig.change(5);
    let at = rig.log.position();
    rig.journal.make_durable_for(old, ask(12)).unwrap();
    let h = rig.journal.start(1).unwrap();
    drop(h);
    rig.journal.commit_all().unwrap();
    let h = rig.journal.start(1).unwrap();
    let empty = h.tid();
    drop(h);
    rig.journal.make_durable_for(empty, ask(12)).unwrap();
    assert!(rig.source.asked.lock().is_empty());
    assert_eq!(rig.story(at), "log flush log!");
}

/// The time of fast commits is averaged apart from that of full ones.
#[test]
fn averages_do_not_mix() {
    #[derive(Debug)]
    struct Timed(Arc<TestClock>, Mutex<u64>);
    impl FastSource for Timed {
        fn apply(&self, _: Tid, _: Option<Notes>, _: bool) {}
        fn collect(&self, _: Tid, _: &[SyncKey]) -> Collected {
            self.0.advance(Duration::from_micros(*self.1.lock()));
            records(1)
        }
        fn closed(&self, _: Tid) -> Box<dyn Any + Send> {
            Box::new(())
        }
        fn reasons(&self) -> &'static [&'static str] {
            &[]
        }
    }
    let mut rig = Rig::new(PLAIN);
    let source = Arc::new(Timed(Arc::clone(&rig.clock), Mutex::new(100)));
    Arc::get_mut(&mut rig.journal).unwrap().fast = FastCommits::default();
    rig.journal.state.lock().fast.from = None;
    rig.journal.set_fast_source(source.clone());
    rig.change(5);
    rig.journal.commit_all().unwrap();
    for (time, average) in [(100, 100), (500, 200), (200, 200)] {
        *source.1.lock() = time;
        let tid = rig.change(5);
        rig.journal.make_durable_for(tid, ask(12)).unwrap();
        assert_eq!(rig.stats().average_ns, average * 1000);
    }
    assert_eq!(rig.journal.stats().average_commit_ns, 0, "the clock stood still in full commits");
}
