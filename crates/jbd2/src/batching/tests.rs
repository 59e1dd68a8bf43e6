//! The rule in virtual time: single decisions here, recorded loads in `replay`.

mod replay;
mod sim;

use super::*;

const US: u64 = 1000;
const MS: u64 = 1_000_000;

fn batching(policy: BatchPolicy, min_us: u64, max_us: u64) -> Batching {
    Batching { policy, min: Duration::from_micros(min_us), max: Duration::from_micros(max_us) }
}

/// Commits of `each_ns`, each of which serves `served` while others wait, one after the other. Ends
/// at the time that it gives.
fn after(settings: Batching, each_ns: u64, served: u32, waiting: u32) -> (Batcher<u32>, u64) {
    let mut batcher = Batcher::default();
    batcher.set(settings);
    let mut now = 0;
    for _ in 0..3 {
        (0..served).for_each(|thread| batcher.asked(thread));
        now += each_ns;
        batcher.ended(now, each_ns, served, waiting);
    }
    (batcher, now)
}

fn first(now_ns: u64) -> Moment {
    Moment { now_ns, asked_ns: now_ns, waiting: 1, handles: 1 }
}

fn wait_ns(wait: Option<BatchWait>, now_ns: u64) -> u64 {
    wait.map_or(0, |g| g.until_ns - now_ns)
}

/// GC-1, and from any thread.
#[test]
fn alone_never_waits() {
    for policy in [BatchPolicy::None, BatchPolicy::Adaptive] {
        let mut batcher = Batcher::<u32>::default();
        batcher.set(batching(policy, 0, 15_000));
        let mut now = 0;
        for i in 0..1000 {
            now += 20 * US;
            batcher.asked(i % 7);
            assert_eq!(batcher.begin(&first(now)), None, "{policy:?} at {i}");
            now += MS;
            batcher.ended(now, MS, 1, 0);
        }
    }
    let (batcher, now) = after(batching(BatchPolicy::Adaptive, 2000, 15_000), MS, 1, 0);
    assert_eq!(batcher.begin(&first(now)), None, "not even for min_batch_time");
}

/// GC-2, GC-3: two threads share a commit, whether both were served by one commit or take turns.
#[test]
fn two_threads_share() {
    for (served, waiting) in [(2, 0), (1, 1)] {
        let (batcher, now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, served, waiting);
        let wait = batcher.begin(&first(now + 100 * US)).expect("a wait");
        assert_eq!((wait.enough, wait.until_ns), (2, now + MS + 100 * US));
        let late = Moment { asked_ns: now + 100 * US, ..first(now + 600 * US) };
        assert_eq!(wait_ns(batcher.begin(&late), late.now_ns), 500 * US, "only what is left");
        let old = Moment { asked_ns: now + 100 * US, ..first(now + 1200 * US) };
        assert_eq!(batcher.begin(&old), None, "asked for longer ago than a commit takes");
        let during = Moment { asked_ns: now - 900 * US, ..first(now) };
        let waits = wait_ns(batcher.begin(&during), now);
        assert_eq!(waits, MS, "while a commit ran waiting cost nothing");
        assert_eq!(batcher.begin(&Moment { waiting: 2, ..first(now) }), None, "all are here");
    }
}

/// GC-3, GC-4.
#[test]
fn bounds() {
    let wait = |min, max, each| {
        let (batcher, now) = after(batching(BatchPolicy::Adaptive, min, max), each, 4, 0);
        wait_ns(batcher.begin(&first(now)), now)
    };
    assert_eq!(wait(0, 15_000, MS), MS, "an average commit");
    assert_eq!(wait(0, 0, MS), 0, "max_batch_time=0");
    assert_eq!(wait(2000, 0, MS), 0, "it wins over the minimum");
    assert_eq!(wait(2000, 15_000, 50 * US), 2 * MS);
    assert_eq!(wait(0, 15_000, 100 * MS), 15 * MS);
    assert_eq!(wait(20_000, 15_000, MS), 15 * MS, "never more than the most");
    assert_eq!(wait(0, 15_000, 20 * US), 0, "a commit that costs less than two thread switches");
    assert_eq!(wait(2000, 15_000, 20 * US), 2 * MS, "unless min_batch_time says so");
}

/// jbd2's average: a new sample weighs a quarter.
#[test]
fn the_average_is_that_of_jbd2() {
    let mut batcher = Batcher::<u32>::default();
    let averages = [100_000, 200_000, 400_000].map(|took| {
        batcher.ended(0, took, 1, 0);
        batcher.average_ns()
    });
    assert_eq!(averages, [100_000, 125_000, 193_750]);
    batcher.ended(0, u64::MAX, 1, 0);
    assert!(batcher.average_ns() > 193_750, "no overflow");
}

#[test]
fn syncers_that_left_are_forgotten() {
    let (mut batcher, mut now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, 4, 4);
    for _ in 0..LOOK_BACK {
        assert_eq!(batcher.syncers(), 8);
        now += MS;
        batcher.ended(now, MS, 1, 0);
    }
    assert_eq!(batcher.syncers(), 1);
}

#[test]
fn no_other_is_expected_after_a_pause() {
    let (mut batcher, now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, 4, 0);
    assert!(batcher.begin(&first(now + PAUSE_NS)).is_some());
    let later = now + PAUSE_NS + 1;
    assert_eq!(batcher.begin(&first(later)), None);
    batcher.ended(later + MS, MS, 1, 0);
    assert_eq!(batcher.syncers(), 1);
}

#[test]
fn commits_by_time_change_no_syncers() {
    let (mut batcher, now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, 4, 0);
    for i in 1..10 {
        batcher.ended(now + i * MS, MS, 0, 0);
    }
    assert_eq!(batcher.syncers(), 4);
}

/// A full commit between fast ones: until its end waiting cost nothing.
#[test]
fn a_commit_of_another_kind_delays_the_wait() {
    let (mut batcher, now) = after(batching(BatchPolicy::Adaptive, 0, 15_000), MS, 2, 0);
    batcher.interrupted(now + 5 * MS);
    let at = Moment { asked_ns: now + MS, ..first(now + 5 * MS) };
    assert_eq!(wait_ns(batcher.begin(&at), at.now_ns), MS);
}

/// The old rule: a jiffy, and another as long as handles come; but not for one thread alone.
#[test]
fn static_waits_jiffies() {
    let mut batcher = Batcher::<u32>::default();
    batcher.set(batching(BatchPolicy::Static, 0, 15_000));
    let at = |now_ns, handles| Moment { handles, ..first(now_ns) };
    batcher.asked(1);
    let mut wait = batcher.begin(&at(0, 1)).expect("a wait");
    assert_eq!((wait.until_ns, wait.enough), (4 * MS, u32::MAX));
    assert!(batcher.goes_on(&mut wait, &at(4 * MS, 2)), "a handle joined");
    assert_eq!(wait.until_ns, 8 * MS);
    assert!(!batcher.goes_on(&mut wait.clone(), &at(8 * MS, 2)), "none did");
    assert!(batcher.goes_on(&mut wait, &at(8 * MS, 3)));
    assert!(batcher.goes_on(&mut wait, &at(12 * MS, 4)));
    assert_eq!(wait.until_ns, 15 * MS, "max_batch_time");
    assert!(!batcher.goes_on(&mut wait, &at(15 * MS, 5)));
    batcher.ended(16 * MS, MS, 1, 0);
    batcher.asked(1);
    assert_eq!(batcher.begin(&at(20 * MS, 1)), None, "the same thread again");
    batcher.asked(2);
    assert!(batcher.begin(&at(30 * MS, 1)).is_some(), "another");
    batcher.ended(31 * MS, MS, 1, 0);
    batcher.asked(1);
    assert!(batcher.begin(&at(40 * MS, 1)).is_some(), "and the first one, after it");
}

/// A rule that never waits does not go on with a wait that another began.
#[test]
fn a_changed_rule_ends_waits() {
    let mut batcher = Batcher::<u32>::default();
    batcher.set(batching(BatchPolicy::Static, 0, 15_000));
    batcher.asked(1);
    let mut wait = batcher.begin(&first(0)).expect("a wait");
    batcher.set(batching(BatchPolicy::None, 0, 15_000));
    assert!(!batcher.goes_on(&mut wait, &Moment { handles: 9, ..first(4 * MS) }));
    assert_eq!(batcher.begin(&first(0)), None);
}

#[test]
fn names() {
    for (name, policy) in BatchPolicy::NAMES {
        assert_eq!(BatchPolicy::by_name(name), Some(policy));
    }
    assert_eq!(BatchPolicy::by_name("kernel"), None);
}
