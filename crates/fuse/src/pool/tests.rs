use super::*;

/// A pool with two workers that read, and room for so many.
fn pool(limit: usize) -> State {
    let mut state = Pool::new(2, limit).state.into_inner();
    state.add();
    state.add();
    state
}

fn counts(state: &State) -> [usize; 4] {
    [state.alive, state.reading, state.working, state.idle.len()]
}

fn started(action: Action) -> Id {
    match action {
        Action::Start(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn short_requests_wake_no_other_worker() {
    let (mut state, now) = (pool(8), Instant::now());
    assert!(matches!(state.take(0, false, now), Action::Nothing));
    state.watchdog_sleeps = true;
    assert!(matches!(state.take(1, false, now), Action::Watch));
    assert_eq!(counts(&state), [2, 0, 2, 0]);
    assert_eq!([state.finish(0, false), state.finish(1, false)], [After::Read; 2]);
    assert_eq!(counts(&state), [2, 2, 0, 0]);
}

#[test]
fn another_worker_is_started_when_all_wait() {
    let (mut state, now) = (pool(8), Instant::now());
    assert!(matches!(state.take(0, true, now), Action::Nothing), "one still reads");
    let third = started(state.take(1, false, now));
    assert_eq!(counts(&state), [3, 1, 1, 0]);
    let fourth = started(state.take(third, true, now));
    assert_eq!(counts(&state), [4, 1, 1, 0]);
    assert_eq!(state.finish(1, false), After::Read);
    assert_eq!([state.finish(0, false), state.finish(third, false)], [After::Sleep; 2]);
    assert_eq!(counts(&state), [4, 2, 0, 2]);
    // The last one that became idle is woken first.
    state.take(1, true, now);
    assert!(matches!(state.take(fourth, true, now), Action::Wake(_)));
    assert_eq!((state.idle.as_slice(), state.slots[third].doing), (&[0][..], Doing::Reading));
}

#[test]
fn a_worker_that_takes_long_is_replaced() {
    let (mut state, now) = (pool(8), Instant::now());
    state.take(0, false, now);
    state.take(1, false, now + PATIENCE);
    assert!(matches!(state.overdue(now), Action::Nothing));
    let third = started(state.overdue(now + PATIENCE));
    assert_eq!(counts(&state), [3, 1, 1, 0]);
    assert_eq!(state.slots[0].doing, Doing::Waiting);
    assert!(matches!(state.overdue(now + 9 * PATIENCE), Action::Nothing), "one reads");
    state.take(third, false, now);
    started(state.overdue(now + 9 * PATIENCE));
    assert_eq!(counts(&state), [4, 1, 0, 0]);
    assert_eq!(state.finish(0, false), After::Read, "there is room for one");
    assert_eq!(state.finish(third, false), After::Sleep);
}

#[test]
fn where_no_worker_can_be_had_the_next_that_finishes_reads() {
    let (mut state, now) = (pool(2), Instant::now());
    state.take(0, true, now);
    assert!(matches!(state.take(1, true, now), Action::Nothing));
    assert_eq!(counts(&state), [2, 0, 0, 0]);
    state.dependent = 1;
    let third = started(state.take(1, true, Instant::now()));
    state.set(third, Doing::Free);
    assert!(matches!(state.call_reader(false), Action::Nothing), "it could not be started");
    assert_eq!(state.finish(0, false), After::Read);
    assert_eq!(counts(&state), [2, 1, 0, 0]);
}

#[test]
fn surplus_workers_and_large_buffers_go() {
    let (mut state, now) = (pool(2), Instant::now());
    state.dependent = 1;
    state.take(0, true, now);
    let third = started(state.take(1, true, now));
    state.dependent = 0;
    state.take(third, false, now);
    assert_eq!(state.finish(third, false), After::Read);
    assert_eq!(state.finish(1, false), After::Read);
    assert_eq!(state.finish(0, false), After::End, "more than the limit");
    assert_eq!(state.alive, 2);

    let mut state = Pool::new(1, 20).state.into_inner();
    let ids: Vec<Id> = (0..10).map(|_| state.add()).collect();
    ids.iter().for_each(|&id| drop(state.take(id, true, now)));
    let after: Vec<After> = ids.iter().map(|&id| state.finish(id, true)).collect();
    let of = |what| after.iter().filter(|after| **after == what).count();
    assert_eq!([of(After::Read), of(After::Sleep)], [0, LARGE_KEPT]);
    assert_eq!(state.idle.len() + state.reading, state.alive);
}

/// Any sequence keeps the rules: never too many active, and always a reader while there is room and
/// a thread to be had.
#[test]
fn rules_hold_for_every_short_history() {
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Take(bool),
        Wait,
        Finish,
        Overdue,
    }
    fn copy(state: &State) -> State {
        let slots = state.slots.iter();
        let slots = slots.map(|slot| Slot { doing: slot.doing, thread: slot.thread.clone() });
        State { slots: slots.collect(), idle: state.idle.clone(), ..*state }
    }
    fn explore(state: &State, now: Instant, depth: u32) {
        let count =
            |what: fn(&Doing) -> bool| state.slots.iter().filter(|slot| what(&slot.doing)).count();
        assert_eq!(state.reading, count(|doing| *doing == Doing::Reading));
        assert_eq!(state.working, count(|doing| matches!(doing, Doing::Working(_))));
        assert_eq!(state.alive, count(|doing| *doing != Doing::Free));
        assert_eq!(state.idle.len(), count(|doing| *doing == Doing::Idle));
        assert!(state.reading + state.working <= state.active, "WP-1: {state:?}");
        assert!(
            state.reading > 0
                || state.working == state.active
                || (state.alive == state.limit && state.idle.is_empty()),
            "WP-2: {state:?}"
        );
        if depth == 0 {
            return;
        }
        for (id, event) in (0..state.slots.len()).flat_map(|id| {
            [Event::Take(false), Event::Take(true), Event::Wait, Event::Finish, Event::Overdue]
                .map(|event| (id, event))
        }) {
            let mut next = copy(state);
            match (event, next.slots[id].doing) {
                (Event::Take(waits), Doing::Reading) => drop(next.take(id, waits, now)),
                (Event::Wait, Doing::Working(_) | Doing::Waiting) => drop(next.take(id, true, now)),
                (Event::Finish, Doing::Working(_) | Doing::Waiting) => {
                    next.finish(id, false);
                }
                (Event::Overdue, _) if id == 0 => drop(next.overdue(now + PATIENCE)),
                _ => continue,
            }
            explore(&next, now, depth - 1);
        }
    }
    explore(&pool(4), Instant::now(), 7);
}
