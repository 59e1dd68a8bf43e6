//! Merged requests: no caller is answered by work that began before it asked, and none is
//! forgotten, whenever the issuing thread starts and stops.

use std::sync::Arc;

use extol_sync::atomic::{AtomicU32, Ordering};
use extol_sync::thread;
use extol_task::{Clock, Issue, Merger, TestClock};

use crate::explore::{below, explore};

/// The answer of an operation is how many requests had been announced when it began.
struct Count {
    announced: Arc<AtomicU32>,
    issued: Arc<AtomicU32>,
}

impl Issue for Count {
    type Ask = ();
    type Answer = u32;

    fn join(_: (), _: ()) {}

    fn issue(&self, (): ()) -> u32 {
        let seen = self.announced.load(Ordering::SeqCst);
        self.issued.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        seen
    }

    fn broken() -> u32 {
        panic!("the operation does not fail");
    }
}

/// Callers beside one that starts and stops the thread: every answer is younger than its question,
/// and the counters agree.
#[test]
fn answers_are_younger_than_questions() {
    explore("answers_are_younger_than_questions", 12000, || {
        let (announced, issued) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let count = Count { announced: Arc::clone(&announced), issued: Arc::clone(&issued) };
        let merger = Merger::new(count, Arc::new(TestClock::default()) as Arc<dyn Clock>);
        if below(2) == 0 {
            merger.start("issue").unwrap();
        }
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (merger, announced) = (Arc::clone(&merger), Arc::clone(&announced));
                thread::spawn(move || {
                    for _ in 0..2 {
                        let mine = announced.fetch_add(1, Ordering::SeqCst) + 1;
                        let seen = merger.ask(());
                        assert!(
                            seen >= mine,
                            "asked as number {mine}, answered by work that began at {seen}"
                        );
                    }
                })
            })
            .collect();
        for _ in 0..below(3) {
            merger.start("issue").unwrap();
            merger.stop();
        }
        if below(2) == 0 {
            merger.start("issue").unwrap();
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        merger.stop();
        let stats = merger.stats();
        assert_eq!(stats.queued, 0);
        assert!(stats.total <= 6 && stats.issued <= stats.total);
        assert_eq!(u64::from(issued.load(Ordering::SeqCst)), stats.issued + (6 - stats.total));
    });
}
