//! The rule over traces of the real journal on emulated media (`examples/batching.rs` records
//! them): the threads, the locks and the scheduler are real, the decisions are made again here.

use super::super::*;
use super::batching;

/// What the rule made of a trace.
#[derive(Default, Debug)]
struct Replay {
    commits: u32,
    syncers: u32,
    /// Commits whose leader would wait, and those of them where all concurrent syncers had joined
    /// before the time was over.
    waits: u32,
    complete: u32,
}

enum Event {
    Asks,
    Ends(u32),
}

fn parse(text: &str) -> Vec<(u64, Event)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["a", at] => (at.parse().unwrap(), Event::Asks),
            ["e", at, served] => (at.parse().unwrap(), Event::Ends(served.parse().unwrap())),
            _ => panic!("not a line of a trace: {line}"),
        })
        .collect()
}

/// Feeds a trace to the rule and asks it at each moment when a leader would be elected.
fn replay(text: &str) -> Replay {
    let mut events = parse(text);
    events.sort_by_key(|(at, _)| *at);
    let mut batcher = Batcher::<u32>::default();
    batcher.set(batching(BatchPolicy::Adaptive, 0, 15_000));
    let mut out = Replay::default();
    let (mut waiting, mut asked_ns, mut ended_ns) = (0u32, 0, 0);
    let mut wait: Option<BatchWait> = None;
    for (now_ns, event) in events {
        match event {
            Event::Asks => {
                if waiting == 0 {
                    asked_ns = now_ns;
                }
                waiting += 1;
                batcher.asked(0);
            }
            Event::Ends(served) => {
                waiting = waiting.saturating_sub(served);
                let took = now_ns - asked_ns.max(ended_ns).min(now_ns);
                batcher.ended(now_ns, took, served, waiting);
                ended_ns = now_ns;
                asked_ns = asked_ns.max(ended_ns);
                out.commits += 1;
                out.syncers = out.syncers.max(batcher.syncers());
                wait = None;
            }
        }
        let at = Moment { now_ns, asked_ns, waiting, handles: u64::from(waiting) };
        if let Some(running) = &wait {
            if waiting >= running.enough && now_ns <= running.until_ns {
                out.complete += 1;
                wait = None;
            }
        } else if waiting > 0 && out.waits < out.commits {
            wait = batcher.begin(&at);
            if let Some(wait) = &wait {
                assert!(wait.until_ns - now_ns <= 15_000_000, "never longer than max_batch_time");
                assert!(wait.enough > waiting && wait.enough <= batcher.syncers());
                out.waits += 1;
            }
        }
    }
    out
}

#[test]
fn one_thread_never_waits() {
    let r = replay(include_str!("traces/nvme-1-none.txt"));
    assert_eq!((r.syncers, r.waits), (1, 0), "{r:?}");
}

#[test]
fn a_ramdisk_is_not_worth_a_wait() {
    let r = replay(include_str!("traces/ramdisk-4-none.txt"));
    assert!(r.commits >= 100 && r.waits <= r.commits / 10, "{r:?}");
}

/// The concurrent syncers are known from groups that alternate, and back long before a commit's
/// time is over.
#[test]
fn where_a_flush_costs_all_syncers_are_waited_for() {
    for (text, threads) in [
        (include_str!("traces/nvme-4-none.txt"), 4),
        (include_str!("traces/cloud-8-none.txt"), 8),
        (include_str!("traces/cloud-8-adaptive.txt"), 8),
    ] {
        let r = replay(text);
        assert_eq!(r.syncers, threads, "{r:?}");
        assert!(r.waits > r.commits / 2, "{r:?}");
        assert!(r.complete > r.waits * 8 / 10, "{r:?}");
    }
}
