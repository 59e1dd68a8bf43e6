use super::*;

const HALF: Option<FreeThreshold> = Some(FreeThreshold(50));

/// A transaction with five blocks, of which so many were not written.
fn t(tid: u32, start: u32, unwritten: usize) -> Waiting {
    Waiting { tid: Tid(tid), start, left: 5, unwritten }
}

/// A log of 1000 blocks from 0 that ends before `end`, begins with the first transaction, and has
/// the rest free.
fn view(waiting: &[Waiting], end: u32) -> View<'_> {
    let tail = waiting.first().map_or(end, |t| t.start);
    let used = if end >= tail { end - tail } else { 1000 - (tail - end) };
    View {
        wraps: true,
        log_len: 1000,
        log_free: 1000 - used,
        tail,
        end,
        waiters: 0,
        needed: 300,
        pinned: 0,
        pinned_max: 1000,
        block: 10,
        waiting,
        committed: waiting.last().map_or(Tid(0), |t| t.tid),
        committing: false,
        threshold: None,
        running: false,
        unflushed: None,
        since_move: 0,
        dry: false,
    }
}

fn round(tid: u32, spare: bool) -> Decision {
    Decision::Round { through: Tid(tid), spare }
}

mod synchronous {
    use super::*;

    #[test]
    fn acts_only_when_a_handle_waits_or_memory_is_short() {
        let w = [t(1, 10, 5), t(2, 300, 5), t(3, 600, 5)];
        let short = View { waiters: 1, ..view(&w, 910) };
        assert_eq!(decide(&View { waiters: 0, ..short.clone() }), Decision::Rest);
        assert_eq!(decide(&View { log_free: 300, ..short.clone() }), Decision::Rest);
        assert_eq!(decide(&View { waiters: 0, pinned: 1001, ..short }), Decision::Now(Tid(3)));
        assert_eq!(decide(&view(&[], 5)), Decision::Rest);
    }

    #[test]
    fn frees_half_the_log() {
        let w = [t(1, 10, 5), t(2, 300, 5), t(3, 450, 5), t(4, 600, 1)];
        // 100 free + (450 - 10) freed by writing T1 and T2 = 540.
        assert_eq!(decide(&View { waiters: 1, ..view(&w, 910) }), Decision::Now(Tid(2)));
        let wrapped = [t(1, 900, 5), t(2, 100, 5), t(3, 400, 5)];
        // T1 frees 200 (wraps), T1 and T2 free 500.
        assert_eq!(decide(&View { waiters: 1, ..view(&wrapped, 800) }), Decision::Now(Tid(2)));
    }

    /// The tail of a checkpoint that ended during a commit moves on when the space is needed.
    #[test]
    fn the_tail_catches_up() {
        let lagging =
            View { waiters: 1, tail: 10, log_free: 100, committed: Tid(8), ..view(&[], 910) };
        assert_eq!(decide(&lagging), Decision::Now(Tid(8)));
        assert_eq!(decide(&View { committing: true, ..lagging.clone() }), Decision::Rest);
        assert_eq!(decide(&View { threshold: HALF, ..lagging }), Decision::Now(Tid(8)));
    }

    /// Switched off while home writes wait for a flush: they do not wait for ever.
    #[test]
    fn what_the_other_policy_left_is_finished() {
        let v = view(&[], 5);
        assert_eq!(
            decide(&View { unflushed: Some(SHARE_NS / 5), ..v.clone() }),
            Decision::Share(SHARE_NS / 5 * 4)
        );
        assert_eq!(decide(&View { unflushed: Some(SHARE_NS), ..v }), Decision::Finish);
    }
}

mod asynchronous {
    use super::*;

    fn view<'a>(waiting: &'a [Waiting], end: u32) -> View<'a> {
        View { threshold: HALF, ..super::view(waiting, end) }
    }

    #[test]
    fn begins_under_the_threshold_and_goes_on_beyond_it() {
        let w = [t(1, 0, 5), t(2, 100, 5), t(3, 200, 5), t(4, 300, 5), t(5, 400, 5)];
        assert_eq!(decide(&view(&w, 500)), Decision::Rest, "half is free");
        // 499 free; a round aims at an eighth more, which T1 and T2 free.
        assert_eq!(decide(&view(&w, 501)), round(2, true));
        assert_eq!(decide(&View { running: true, ..view(&w, 500) }), round(2, true), "until 625");
        assert_eq!(
            decide(&View { running: true, ..view(&w, 376) }),
            round(1, true),
            "no further than the goal"
        );
        assert_eq!(decide(&View { running: true, ..view(&w, 375) }), Decision::Rest);
        for percent in [1, 30, 99] {
            let v = View { threshold: FreeThreshold::new(percent), ..view(&w, 500) };
            assert_eq!(decide(&v) != Decision::Rest, percent > 50, "{percent}");
        }
    }

    /// What was written counts as free, so that the next round goes on behind it, and ends at the
    /// goal.
    #[test]
    fn written_blocks_are_not_waited_for() {
        let w = [t(1, 0, 0), t(2, 100, 0), t(3, 200, 5), t(4, 300, 5), t(5, 400, 5)];
        let v = View { running: true, unflushed: Some(7), ..view(&w, 600) };
        assert_eq!(v.promised(), 600);
        assert_eq!(decide(&v), round(3, true));
        let w = [t(1, 0, 0), t(2, 100, 0), t(3, 200, 0), t(4, 300, 5), t(5, 400, 5)];
        let v = View { running: true, unflushed: Some(7), ..view(&w, 600) };
        assert_eq!(decide(&v), Decision::Share(SHARE_NS - 7), "a commit's flush will do");
        assert_eq!(decide(&View { unflushed: Some(SHARE_NS), ..v.clone() }), Decision::Finish);
        // Commits take space faster than they flush.
        assert_eq!(decide(&View { log_free: 240, ..v }), round(4, true));
    }

    /// A handle that waits gets what it needs, no more, at once.
    #[test]
    fn a_waiter_is_served_first() {
        let w = [t(1, 0, 5), t(2, 200, 5), t(3, 400, 5), t(4, 600, 5)];
        let short = View { waiters: 1, ..view(&w, 950) };
        assert_eq!(decide(&short), Decision::Now(Tid(2)), "50 + 400 is more than 300");
        let w = [t(1, 0, 0), t(2, 200, 0), t(3, 400, 5), t(4, 600, 5)];
        let short = View { waiters: 1, unflushed: Some(1), dry: true, ..view(&w, 950) };
        assert_eq!(decide(&short), Decision::Finish, "it is written already");
    }

    /// Nothing but hot blocks left: wait for their commit. With little space they are written, too.
    #[test]
    fn hot_blocks() {
        let w = [t(1, 0, 5), t(2, 500, 5)];
        assert_eq!(decide(&View { dry: true, ..view(&w, 700) }), Decision::Rest);
        assert_eq!(decide(&view(&w, 700)), round(1, true));
        assert_eq!(decide(&view(&w, 701)), round(1, false), "the largest transaction may not fit");
        let small = View { needed: 100, ..view(&w, 750) };
        assert_eq!(decide(&small), round(1, true));
        assert_eq!(decide(&View { log_free: 249, ..small }), round(1, false), "half the threshold");
    }

    /// Newer versions replaced all that the oldest transactions held. The tail follows, but not at
    /// every commit.
    #[test]
    fn the_tail_moves_without_writes() {
        let w = [t(1, 0, 0), t(2, 100, 0), t(3, 900, 5)];
        assert_eq!(decide(&view(&w, 990)), Decision::Finish);
        let w = [t(1, 0, 0), t(2, 100, 5), t(3, 900, 5)];
        let little = View { dry: true, since_move: 1, ..view(&w, 990) };
        assert_eq!(decide(&little), Decision::Share(SHARE_NS - 1));
        assert_eq!(decide(&View { since_move: SHARE_NS, ..little }), Decision::Finish);
        assert_eq!(decide(&view(&w, 490)), Decision::Rest, "enough is free");
    }

    #[test]
    fn memory() {
        let w = [t(1, 0, 5), t(2, 100, 5), t(3, 200, 5)];
        let v = View { pinned: 150, pinned_max: 149, ..view(&w, 300) };
        assert_eq!(decide(&v), round(1, true), "100 is less than three quarters");
        assert_eq!(decide(&View { dry: true, ..v.clone() }), Decision::Rest);
        assert_eq!(decide(&View { pinned_max: 150, ..v }), Decision::Rest);
    }
}

/// A log in virtual time: transactions of recorded sizes are committed, one every so often; each
/// one's blocks are hot again with some chance. The policy runs between them, on a device that
/// writes so many blocks in that time.
mod traces {
    use super::*;

    struct Model {
        free: u32,
        head: u32,
        waiting: Vec<Waiting>,
        unflushed: bool,
        running: bool,
        flushes: u32,
        moves: u32,
        waits: u32,
        least_free: u32,
    }

    const LEN: u32 = 1000;

    impl Model {
        fn new() -> Self {
            Self {
                free: LEN,
                head: 0,
                waiting: Vec::new(),
                unflushed: false,
                running: false,
                flushes: 0,
                moves: 0,
                waits: 0,
                least_free: LEN,
            }
        }

        fn move_tail(&mut self) {
            self.waiting.iter_mut().filter(|t| t.unwritten == 0).for_each(|t| t.left = 0);
            self.unflushed = false;
            let before = self.waiting.len();
            let done = self.waiting.iter().take_while(|t| t.left == 0).count();
            self.waiting.drain(..done);
            let tail = self.waiting.first().map_or(self.head, |t| t.start);
            let used = if self.head >= tail { self.head - tail } else { LEN - (tail - self.head) };
            self.free = LEN - used;
            self.moves += u32::from(self.waiting.len() < before);
        }

        /// Works until there is nothing to do, or so many blocks were written.
        fn checkpoint(
            &mut self,
            threshold: Option<FreeThreshold>,
            waiters: u32,
            mut budget: usize,
        ) {
            loop {
                let waiting = self.waiting.clone();
                let decision = decide(&View {
                    log_free: self.free,
                    waiters,
                    threshold,
                    running: self.running,
                    unflushed: self.unflushed.then_some(0),
                    tail: waiting.first().map_or(self.head, |t| t.start),
                    ..super::view(&waiting, self.head)
                });
                self.running = matches!(decision, Decision::Round { .. } | Decision::Now(_));
                let (through, now) = match decision {
                    Decision::Rest | Decision::Share(_) => return,
                    Decision::Finish => {
                        self.flushes += u32::from(self.unflushed);
                        self.move_tail();
                        continue;
                    }
                    Decision::Rewind => unreachable!("this log wraps"),
                    Decision::Now(through) => (through, true),
                    Decision::Round { through, .. } => (through, false),
                };
                for t in self.waiting.iter_mut().filter(|t| through.at_least(t.tid)) {
                    if !now && budget < t.unwritten {
                        return;
                    }
                    budget = budget.saturating_sub(t.unwritten);
                    t.unwritten = 0;
                    self.unflushed = true;
                }
                if now {
                    self.flushes += 1;
                    self.move_tail();
                }
            }
        }

        fn run(&mut self, sizes: &[u32], threshold: Option<FreeThreshold>, budget: usize) {
            for (i, size) in sizes.iter().enumerate() {
                // Room for this transaction, with the slack that handles ask for.
                if self.free < size + 40 {
                    self.waits += 1;
                    self.checkpoint(threshold, 1, budget);
                }
                assert!(self.free > *size, "a handle was let in without room");
                let left = (*size / 2) as usize;
                let tid = Tid(i as u32);
                self.waiting.push(Waiting { tid, start: self.head, left, unwritten: left });
                self.head = (self.head + size) % LEN;
                self.free -= size;
                self.least_free = self.least_free.min(self.free);
                // The commit's flush covers what was written before it.
                if self.unflushed {
                    self.move_tail();
                }
                self.checkpoint(threshold, 0, budget);
            }
        }
    }

    /// Log blocks per transaction: creates with an fsync each, by 32 threads; one that deletes a
    /// tree in between; and a load without fsync, whose transactions are as large as they may be.
    const CREATES: [u32; 12] = [9, 11, 34, 12, 9, 41, 38, 10, 12, 9, 55, 12];
    const DELETES: [u32; 7] = [9, 11, 180, 240, 12, 250, 10];
    const LARGE: [u32; 3] = [250, 249, 250];

    /// A medium that keeps up: no handle ever waits, and there are no more flushes.
    #[test]
    fn no_handle_waits_when_the_medium_keeps_up() {
        for trace in [&CREATES[..], &DELETES, &LARGE] {
            let sizes: Vec<u32> = trace.iter().copied().cycle().take(600).collect();
            let mut now = Model::new();
            now.run(&sizes, HALF, 250);
            assert_eq!(now.waits, 0, "{trace:?}");
            assert!(now.least_free >= 100, "{trace:?}: {} free", now.least_free);
            assert!(now.free >= 500, "{trace:?}: {} free at the end", now.free);
            let mut before = Model::new();
            before.run(&sizes, None, 250);
            assert!(
                before.waits > 5 && before.flushes >= before.waits,
                "{trace:?}: {}",
                before.waits
            );
            // Where commits are small, theirs are enough.
            let own = if trace == CREATES { 0 } else { before.flushes };
            assert!(
                now.flushes <= own,
                "{trace:?}: {} flushes, {} before",
                now.flushes,
                before.flushes
            );
            // Each move of the tail is a write that must be durable: not much more of them.
            assert!(
                now.moves <= 5 * before.moves,
                "{trace:?}: {} moves, {} before",
                now.moves,
                before.moves
            );
        }
    }

    /// A medium that is too slow: waits, but never a handle without room, and no worse than the
    /// other policy.
    #[test]
    fn a_slow_medium() {
        let sizes: Vec<u32> = CREATES.iter().copied().cycle().take(2000).collect();
        let mut now = Model::new();
        now.run(&sizes, HALF, 8);
        let mut before = Model::new();
        before.run(&sizes, None, 8);
        assert!(now.waits > 0, "it was to be too slow");
        assert!(now.flushes <= now.waits, "{} flushes for {} waits", now.flushes, now.waits);
    }
}

mod without_wrap {
    use super::*;

    fn straight(waiting: &[Waiting], end: u32) -> View<'_> {
        // Whatever came before the first transaction is not free.
        View { wraps: false, log_free: 1000 - end, ..view(waiting, end) }
    }

    #[test]
    fn everything_or_nothing_comes_free() {
        let w = [t(1, 10, 0), t(2, 300, 5), t(3, 600, 5)];
        let view = straight(&w, 900);
        assert_eq!(view.promised(), 100, "the first transaction gives nothing");
        let w = w.map(|t| Waiting { unwritten: 0, ..t });
        assert_eq!(straight(&w, 900).promised(), 1000);
        assert_eq!(View { committing: true, ..straight(&w, 900) }.promised(), 100);
        assert_eq!(straight(&[], 900).promised(), 1000);
    }

    #[test]
    fn a_handle_that_waits_makes_the_log_begin_anew() {
        let w = [t(1, 10, 5), t(2, 300, 5)];
        for threshold in [None, HALF] {
            let short = View { waiters: 1, threshold, ..straight(&w, 910) };
            assert_eq!(decide(&short), Decision::Rewind);
            assert_eq!(
                decide(&View { waiting: &[], ..short.clone() }),
                Decision::Rewind,
                "the head must go back"
            );
            assert_eq!(decide(&View { needed: 50, threshold: None, ..short }), Decision::Rest);
        }
    }

    /// What is cold goes home under the threshold; the rest when the next large transaction may not
    /// fit, between two commits. Catches: handles that wait although there was time.
    #[test]
    fn before_the_room_is_gone() {
        let w = [t(1, 10, 5), t(2, 300, 5)];
        let at = |end: u32| View { threshold: HALF, ..straight(&w, end) };
        assert_eq!(decide(&at(400)), Decision::Rest);
        assert_eq!(decide(&at(600)), round(2, true));
        assert_eq!(decide(&View { dry: true, ..at(600) }), Decision::Rest);
        assert_eq!(decide(&at(800)), Decision::Rewind);
        assert_eq!(
            decide(&View { committing: true, ..at(800) }),
            round(2, true),
            "the commit's end will be the moment"
        );
        let home = w.map(|t| Waiting { unwritten: 0, ..t });
        let written = View { waiting: &home, unflushed: Some(0), ..at(600) };
        assert_eq!(decide(&written), Decision::Share(SHARE_NS));
        assert_eq!(decide(&View { unflushed: Some(SHARE_NS), ..written }), Decision::Finish);
    }
}
