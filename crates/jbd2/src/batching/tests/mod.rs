//! The rule in virtual time: single decisions here, whole loads on models of media in `sim`,
//! recorded ones in `replay`.

mod replay;
mod sim;

use super::*;

const US: u64 = 1000;
const MS: u64 = 1_000_000;

fn batching(policy: BatchPolicy, min_us: u64, max_us: u64) -> Batching {
    Batching { policy, min: Duration::from_micros(min_us), max: Duration::from_micros(max_us) }
}

/// Commits of `each_ns`, each of which serves `served` while others wait, one after the other. Ends
/// at the time that it gives, with the requests of those served last outstanding.
fn after(settings: Batching, each_ns: u64, served: u32, waiting: u32) -> (Batcher<u32>, u64) {
    let mut batcher = Batcher::default();
    batcher.set(settings);
    let mut now = 0;
    for _ in 0..3 {
        for who in 0..served {
            batcher.asked(now + 1, who);
        }
        now += each_ns;
        batcher.ended(now, each_ns, served, waiting);
    }
    (batcher, now)
}

fn first(now_ns: u64) -> Moment {
    Moment { now_ns, asked_ns: now_ns, waiting: 1, handles: 1, in_a_row: false }
}

fn wait_ns(gather: Option<Gather>, now_ns: u64) -> u64 {
    gather.map_or(0, |g| g.until_ns - now_ns)
}

/// B3, and from any thread.
#[test]
fn alone_never_waits() {
    for policy in [BatchPolicy::None, BatchPolicy::Adaptive] {
        let mut batcher = Batcher::<u32>::default();
        batcher.set(batching(policy, 0, 15_000));
        let mut now = 0;
        for i in 0..1000 {
            now += 20 * US;
            let in_a_row = batcher.asked(now, i % 7);
            assert_eq!(
                batcher.begin(&Moment { in_a_row, ..first(now) }),
                None,
                "{policy:?} at {i}"
            );
            now += MS;
            batcher.ended(now, MS, 1, 0);
        }
    }
    let (batcher, now) = after(batching(BatchPolicy::Adaptive, 2000, 15_000), MS, 1, 0);
    assert_eq!(batcher.begin(&first(now)), None, "not even for min_batch_time");
}

/// B4.
#[test]
fn two_wait_about_a_commit_for_each_other() {
    for (served, waiting) in [(2, 0), (1, 1)] {
        let (batcher, now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, served, waiting);
        let gather = batcher.begin(&first(now + 100 * US)).expect("a wait");
        assert_eq!((gather.enough, gather.until_ns), (2, now + MS + 100 * US));
        let late = Moment { asked_ns: now + 100 * US, ..first(now + 600 * US) };
        assert_eq!(wait_ns(batcher.begin(&late), late.now_ns), 500 * US, "only what is left");
        let old = Moment { asked_ns: now + 100 * US, ..first(now + 1200 * US) };
        assert_eq!(batcher.begin(&old), None, "asked for longer ago than a commit takes");
        let during = Moment { asked_ns: now - 900 * US, ..first(now) };
        assert_eq!(
            wait_ns(batcher.begin(&during), now),
            MS,
            "while a commit ran waiting cost nothing"
        );
        assert_eq!(batcher.begin(&Moment { waiting: 2, ..first(now) }), None, "all are here");
    }
}

/// B5.
#[test]
fn bounds() {
    let wait = |min, max, each| {
        let (batcher, now) = after(batching(BatchPolicy::Adaptive, min, max), each, 4, 0);
        wait_ns(batcher.begin(&first(now)), now)
    };
    assert_eq!(wait(0, 0, MS), 0, "max_batch_time=0");
    assert_eq!(wait(2000, 0, MS), 0, "it wins over the minimum");
    assert_eq!(wait(2000, 15_000, 50 * US), 2 * MS);
    assert_eq!(wait(0, 15_000, 100 * MS), 15 * MS);
    assert_eq!(wait(20_000, 15_000, MS), 15 * MS, "never more than the most");
    assert_eq!(wait(0, 15_000, 20 * US), 0, "a commit that costs less than a switch of threads");
    assert_eq!(wait(2000, 15_000, 20 * US), 2 * MS, "unless the administrator says so");
}

/// A crowd of 16 of which half is back when a commit ends: to wait for all is worth a try, twice as
/// long as they need.
#[test]
fn a_large_crowd_that_is_slow_may_be_waited_for_as_a_whole() {
    let longest = |crowd: u32| {
        let (mut batcher, mut now, mut longest) = (Batcher::default(), 0, 0);
        batcher.set(batching(BatchPolicy::Adaptive, 0, 15_000));
        for _ in 0..2000 {
            for who in 0..crowd / 2 {
                batcher.asked(now + 90 * US, who);
            }
            now += 100 * US;
            batcher.ended(now, 100 * US, crowd / 2, crowd / 2);
            longest = longest.max(wait_ns(batcher.begin(&first(now)), now));
        }
        longest
    };
    assert_eq!(longest(16), 360 * US, "they need 180");
    assert_eq!(longest(8), 100 * US, "a commit");
}

#[test]
fn nobody_is_expected_after_a_pause() {
    let (mut batcher, now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, 4, 0);
    let soon = now + PAUSE_NS;
    batcher.asked(soon, 0);
    assert!(batcher.begin(&first(soon)).is_some());
    batcher.asked(soon + MS, 0);
    assert_eq!((batcher.begin(&first(soon + MS)), batcher.syncers()), (None, 0));
}

#[test]
fn commits_by_time_change_no_crowd() {
    let (mut batcher, now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, 4, 0);
    for i in 1..10 {
        batcher.ended(now + i * MS, MS, 0, 0);
    }
    assert_eq!(batcher.syncers(), 4);
}

/// The old rule: a jiffy, and another as long as handles come; but not twice in a row for one
/// thread.
#[test]
fn static_waits_jiffies() {
    let mut batcher = Batcher::<u32>::default();
    batcher.set(batching(BatchPolicy::Static, 0, 15_000));
    let at = |now_ns, handles| Moment { handles, ..first(now_ns) };
    assert!(!batcher.asked(0, 1));
    let mut gather = batcher.begin(&at(0, 1)).expect("a wait");
    assert_eq!((gather.until_ns, gather.enough), (4 * MS, u32::MAX));
    assert!(batcher.goes_on(&mut gather, &at(4 * MS, 2)), "somebody joined");
    assert_eq!(gather.until_ns, 8 * MS);
    assert!(!batcher.goes_on(&mut gather.clone(), &at(8 * MS, 2)), "nobody did");
    assert!(batcher.goes_on(&mut gather, &at(8 * MS, 3)));
    assert!(batcher.goes_on(&mut gather, &at(12 * MS, 4)));
    assert_eq!(gather.until_ns, 15 * MS, "max_batch_time");
    assert!(!batcher.goes_on(&mut gather, &at(15 * MS, 5)));
    let in_a_row = batcher.asked(20 * MS, 1);
    assert!(in_a_row);
    assert_eq!(
        batcher.begin(&Moment { in_a_row, ..at(20 * MS, 1) }),
        None,
        "the same thread again"
    );
    assert!(!batcher.asked(30 * MS, 2), "another");
    assert!(!batcher.asked(40 * MS, 1), "and the first one, after it");
}

/// A rule that never waits does not go on with a wait that another began.
#[test]
fn a_changed_rule_ends_waits() {
    let (mut batcher, now) = after(batching(BatchPolicy::Static, 0, 15_000), MS, 2, 0);
    let mut gather = batcher.begin(&first(now)).expect("a wait");
    batcher.set(batching(BatchPolicy::None, 0, 15_000));
    assert!(!batcher.goes_on(&mut gather, &Moment { handles: 9, ..first(now + 4 * MS) }));
    assert_eq!(batcher.begin(&first(now)), None);
}

#[test]
fn names() {
    for (name, policy) in BatchPolicy::NAMES {
        assert_eq!(policy.name(), name);
    }
}
