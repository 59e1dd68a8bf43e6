use std::fs;

use super::*;

const SPAN: Duration = Duration::from_millis(1);

fn is_on(awake: &Awake) -> bool {
    Streak::unpack(awake.0.streak.load(Ordering::Relaxed)).is_on()
}

/// One that does not poll: no processor is its own.
fn quiet(queues: usize) -> Awake {
    Awake::new(queues, SPAN, CpuSet::new())
}

#[test]
fn who_asks_alone_is_noticed() {
    let awake = quiet(2);
    for turn in 1..=CHUNK * ENOUGH {
        assert!(!is_on(&awake), "{turn}");
        awake.asked(0, 7);
    }
    assert!(is_on(&awake));
    // It may go where it likes, and what the kernel asks for itself is nobody's.
    for turn in 0..100 {
        awake.asked(turn % 2, 7);
        awake.asked(1, 0);
    }
    assert!(is_on(&awake));
    assert_eq!(halves(awake.0.places.load(Ordering::Relaxed)), (1, 0));
    awake.asked(1, 8);
    assert!(!is_on(&awake), "another one");
    for _ in 0..CHUNK * (ENOUGH - 1) {
        awake.asked(0, 7);
    }
    assert!(!is_on(&awake), "a streak has to be earned again");
}

#[test]
fn two_are_not_alone_whichever_queues_they_use() {
    for queues in [[0, 1], [0, 0]] {
        let awake = quiet(2);
        for turn in 0..10_000 {
            awake.asked(queues[0], 7);
            // The second one asks half as often.
            if turn % 2 == 0 {
                awake.asked(queues[1], 8);
            }
            assert!(!is_on(&awake), "{queues:?} {turn}");
        }
    }
    // While one waits for its disk the other is alone no sooner than after so many.
    let awake = quiet(2);
    for _ in 0..100 {
        for _ in 0..CHUNK * (ENOUGH - 1) {
            awake.asked(0, 7);
        }
        for _ in 0..CHUNK {
            awake.asked(1, 8);
        }
        assert!(!is_on(&awake));
    }
}

#[test]
fn a_poller_sleeps_where_there_is_nothing_to_wait_for() {
    let [zero, short, long] = [0, 3, 30].map(Duration::from_micros);
    for (on, silence, took, step) in [
        (true, zero, zero, Step::GiveWay),
        (true, short, OTHERS, Step::GiveWay),
        (true, short, long, Step::Rest),
        (true, SPAN, zero, Step::Sleep),
        (true, SPAN, long, Step::Sleep),
        (false, zero, zero, Step::Sleep),
        (false, zero, long, Step::Sleep),
    ] {
        assert_eq!(decide(on, silence, took, SPAN), step, "{on} {silence:?} {took:?}");
    }
}

#[test]
fn nobody_polls_without_time_or_queues() {
    for awake in [Awake::default(), Awake::new(2, Duration::ZERO, CpuSet::new())] {
        for _ in 0..1000 {
            awake.asked(0, 7);
        }
        assert!(!is_on(&awake));
        awake.end();
    }
}

/// Fields of `/proc/self/task/*/stat` from the state on, of the threads of that name (whose tail
/// the kernel cuts).
fn threads(name: &str) -> Vec<Vec<String>> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let of = |stat: String| {
        let (head, tail) = stat.rsplit_once(')')?;
        head.ends_with(name).then(|| tail.split_whitespace().map(str::to_owned).collect())
    };
    stats.filter_map(of).collect()
}

/// A poller has the lowest policy, sleeps when there are no requests, is called back, and ends with
/// the mount.
#[test]
fn a_poller_comes_and_goes() {
    let all = crate::ring::processor::allowed();
    let number = (0..CpuSet::MAX_CPU).find(|&number| all.is_set(number)).unwrap();
    let name = format!("fuse-poll{number}");
    let wait = |what: &dyn Fn() -> bool, why: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < deadline, "{why}: {:?}", threads(&name));
            thread::sleep(Duration::from_millis(1));
        }
    };
    let awake = Awake::new(number + 1, SPAN, all);
    let seat = &awake.0.seats[number];
    for round in 0..3 {
        for _ in 0..CHUNK * ENOUGH {
            awake.asked(number, 7);
        }
        let called = seat.poller.get().unwrap().is_some();
        assert!(called, "{round}");
        wait(
            &|| seat.asleep.load(Ordering::SeqCst) && !is_on(&awake),
            "it sleeps after the last request",
        );
        let found = threads(&name);
        assert_eq!(found.len(), 1, "{round}");
        // The 41st field of all is the policy: SCHED_IDLE.
        assert_eq!(found[0][38], "5", "{round}");
    }
    for _ in 0..CHUNK * ENOUGH {
        awake.asked(number, 7);
    }
    awake.end();
    wait(&|| threads(&name).is_empty(), "it ends with the mount");
}
