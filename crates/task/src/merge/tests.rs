use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::*;
use crate::TestClock;

/// Operations that last until the test says so. Asks are bits; an answer is (number of the
/// operation, its bits).
struct Doors {
    began: Mutex<Sender<(u64, u32)>>,
    go_on: Mutex<Receiver<()>>,
    count: AtomicU64,
}

impl Issue for Doors {
    type Ask = u32;
    type Answer = (u64, u32);

    fn join(a: u32, b: u32) -> u32 {
        a | b
    }

    fn issue(&self, ask: u32) -> (u64, u32) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.began.lock().send((number, ask)).expect("the test listens");
        self.go_on.lock().recv().expect("the test opens");
        assert_ne!(ask, 0xBAD, "the operation breaks");
        (number, ask)
    }

    fn broken() -> (u64, u32) {
        (0, 0)
    }
}

struct Lab {
    merger: Arc<Merger<Doors>>,
    clock: Arc<TestClock>,
    began: Receiver<(u64, u32)>,
    go_on: Sender<()>,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Lab {
    fn new() -> Self {
        let (began_tx, began) = channel();
        let (go_on, go_on_rx) = channel();
        let doors = Doors {
            began: Mutex::new(began_tx),
            go_on: Mutex::new(go_on_rx),
            count: AtomicU64::new(0),
        };
        let clock = Arc::new(TestClock::default());
        let merger = Merger::new(doors, Arc::clone(&clock) as Arc<dyn Clock>);
        Self { merger, clock, began, go_on }
    }

    fn ask(&self, what: u32) -> std::thread::JoinHandle<(u64, u32)> {
        let merger = Arc::clone(&self.merger);
        std::thread::spawn(move || merger.ask(what))
    }

    fn wait_queued(&self, n: u64) {
        let began = Instant::now();
        // In the queue, not only counted as such.
        while self.merger.stats().queued != n {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.merger.stats());
            std::thread::yield_now();
        }
    }

    fn queue_len(&self) -> usize {
        self.merger.state.lock().queue.len()
    }

    fn next(&self) -> (u64, u32) {
        self.began.recv_timeout(PATIENCE).expect("an operation begins")
    }
}

/// MG-1: a request that comes while an operation runs gets the next one, together with all others.
#[test]
fn no_request_joins_what_has_begun() {
    let lab = Lab::new();
    lab.merger.start("t").expect("start");
    let first = lab.ask(1);
    assert_eq!(lab.next(), (1, 1));
    let others: Vec<_> = (0..99).map(|i| lab.ask(if i % 2 == 0 { 2 } else { 4 })).collect();
    lab.wait_queued(100);
    while lab.queue_len() < 99 {
        std::thread::yield_now();
    }
    lab.clock.advance(Duration::from_millis(30));
    lab.go_on.send(()).expect("open");
    assert_eq!(first.join().expect("the first"), (1, 1));
    assert_eq!(lab.next(), (2, 6), "one operation with all that was asked for");
    lab.clock.advance(Duration::from_millis(15));
    lab.go_on.send(()).expect("open");
    for other in others {
        assert_eq!(other.join().expect("another"), (2, 6));
    }
    let stats = lab.merger.stats();
    let expected = MergeStats {
        enabled: true,
        queued: 0,
        issued: 2,
        total: 100,
        cur_time_ms: 45,
        peak_time_ms: 45,
    };
    assert_eq!(stats, expected);
    assert_eq!(
        stats.line(),
        "CP merge (Queued:    0, Issued:    2, Total:  100, \
         Cur time:   45(ms), Peak time:   45(ms))"
    );
    let last = lab.ask(1);
    lab.next();
    lab.go_on.send(()).expect("open");
    last.join().expect("the last");
    assert_eq!((lab.merger.stats().cur_time_ms, lab.merger.stats().peak_time_ms), (0, 45));
    lab.merger.stop();
}

/// MG-2: a stop answers the waiters, and later callers do the operation themselves; so again and
/// again.
#[test]
fn a_stop_leaves_no_request_behind() {
    let lab = Lab::new();
    for round in 0..3 {
        lab.merger.start("t").expect("start");
        lab.merger.start("t").expect("running already");
        let first = lab.ask(1);
        let (number, _) = lab.next();
        let others: Vec<_> = (0..5).map(|_| lab.ask(2)).collect();
        lab.wait_queued(6);
        while lab.queue_len() < 5 {
            std::thread::yield_now();
        }
        let merger = Arc::clone(&lab.merger);
        let stop = std::thread::spawn(move || merger.stop());
        while lab.merger.stats().enabled {
            std::thread::yield_now();
        }
        lab.go_on.send(()).expect("open");
        lab.go_on.send(()).expect("open");
        assert_eq!(first.join().expect("the first"), (number, 1));
        assert_eq!(lab.next(), (number + 1, 2));
        for other in others {
            assert_eq!(other.join().expect("another"), (number + 1, 2));
        }
        stop.join().expect("stop");
        let issued = lab.merger.stats().issued;
        lab.go_on.send(()).expect("open");
        assert_eq!(lab.merger.ask(8), (number + 2, 8), "directly");
        lab.next();
        assert_eq!(lab.merger.stats(), MergeStats { enabled: false, issued, ..lab.merger.stats() });
        assert_eq!((issued, lab.merger.stats().total), (2 * (round + 1), 6 * (round + 1)));
    }
    lab.merger.stop();
}

/// MG-4: after a start that failed everything is as before, and the next one works.
#[test]
fn a_failed_start_leaves_nothing() {
    let lab = Lab::new();
    let failed = lab.merger.start_with(|_, _| Err(std::io::Error::other("no threads today")));
    assert_eq!(failed.expect_err("it fails").to_string(), "no threads today");
    assert!(!lab.merger.stats().enabled);
    lab.go_on.send(()).expect("open");
    assert_eq!(lab.merger.ask(3), (1, 3), "directly");
    lab.next();
    lab.merger.start("t").expect("start");
    lab.go_on.send(()).expect("open");
    assert_eq!(lab.merger.ask(3), (2, 3));
    assert_eq!(lab.merger.stats().total, 1);
    lab.merger.stop();
}

/// MG-3: all callers of a batch get the failure, and the thread goes on.
#[test]
fn a_panic_is_an_answer() {
    let lab = Lab::new();
    lab.merger.start("t").expect("start");
    let first = lab.ask(1);
    lab.next();
    let others: Vec<_> = [0xBA0, 0x00D].into_iter().map(|bits| lab.ask(bits)).collect();
    while lab.queue_len() < 2 {
        std::thread::yield_now();
    }
    lab.go_on.send(()).expect("open");
    lab.go_on.send(()).expect("open");
    first.join().expect("the first");
    for other in others {
        assert_eq!(other.join().expect("another"), Doors::broken());
    }
    lab.go_on.send(()).expect("open");
    assert_eq!(lab.merger.ask(1), (3, 1));
    lab.merger.stop();
}

/// The issuing thread waits for the callers of the last operation: at most half as long as it took.
#[test]
fn expected_callers_are_waited_for() {
    let ms = |n: u64| n * 1_000_000;
    let callers = Callers { count: 3, ended_ns: ms(100), took_ns: ms(8) };
    assert_eq!(callers.pause(ms(101), 1), Some(Duration::from_millis(3)));
    assert_eq!(callers.pause(ms(103), 2), Some(Duration::from_millis(1)));
    assert_eq!(callers.pause(ms(101), 3), None, "all are there");
    assert_eq!(callers.pause(ms(104), 1), None, "too late");
    assert_eq!(callers.pause(ms(101), 0), None, "no caller is there");
    assert_eq!(Callers { count: 1, ..callers }.pause(ms(101), 1), None, "alone");
    assert_eq!(
        Callers { took_ns: ms(5000), ..callers }.pause(ms(100), 1),
        Some(Duration::from_millis(10))
    );
    assert_eq!(Callers::default().pause(0, 1), None);
}

#[test]
fn one_operation_for_callers_that_come_one_by_one() {
    let lab = Lab::new();
    lab.merger.state.lock().thread = Some(Wakeup::new());
    lab.merger.state.lock().callers = Callers { count: 2, ended_ns: 0, took_ns: 8_000_000 };
    let mut service = IssueService { merger: Arc::clone(&lab.merger), begun: None, pauses: 0 };
    let wait_for = |n| {
        let began = Instant::now();
        while lab.queue_len() != n {
            assert!(began.elapsed() < PATIENCE, "{} wait", lab.queue_len());
            std::thread::yield_now();
        }
    };
    let first = lab.ask(1);
    wait_for(1);
    assert_eq!(service.step(), Progress::Idle(Some(Duration::from_millis(4))));
    let second = lab.ask(2);
    wait_for(2);
    lab.go_on.send(()).expect("open");
    assert_eq!(service.step(), Progress::More);
    assert_eq!(first.join().expect("first"), (1, 3));
    assert_eq!(second.join().expect("second"), (1, 3));
    // A clock that stands still ends no wait: there are no more waits than callers.
    let third = lab.ask(4);
    wait_for(1);
    lab.merger.state.lock().callers = Callers { count: 2, ended_ns: 0, took_ns: 8_000_000 };
    for _ in 0..2 {
        assert!(matches!(service.step(), Progress::Idle(Some(_))));
    }
    lab.go_on.send(()).expect("open");
    assert_eq!(service.step(), Progress::More);
    assert_eq!(third.join().expect("third"), (2, 4));
}
