//! Threads that work and sync in a closed loop, on a model of a machine and of a medium, in virtual time.
//!
//! Each thread needs a processor for its work, may then sleep a while (requests that travel through FUSE, reads), and
//! asks for durability. A commit takes a processor for a moment, then the device: a fixed time and some per request.
//! Being woken takes time, and a wait that runs into its deadline ends late by the timer's slack. The journal's part is
//! as in `journal/wait.rs`.
//!
//! `adaptive` must be within 3 % of the best of the three rules in every cell of machines, media and numbers of threads,
//! and must not fall when threads are added.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::*;
use super::{MS, US, batching};

const WAKE_NS: u64 = 8 * US;
const SLACK_NS: u64 = 50 * US;
const THREADS: [usize; 8] = [1, 2, 3, 4, 8, 16, 32, 64];

#[derive(Clone, Copy)]
struct Medium {
    name: &'static str,
    fixed_ns: u64,
    per_request_ns: u64,
    jitter: f64,
}

const MEDIA: [Medium; 6] = [
    Medium { name: "ramdisk", fixed_ns: 2 * US, per_request_ns: US, jitter: 0.1 },
    Medium { name: "fast nvme", fixed_ns: 20 * US, per_request_ns: US, jitter: 0.2 },
    Medium { name: "nvme", fixed_ns: 100 * US, per_request_ns: 2 * US, jitter: 0.2 },
    Medium { name: "cloud", fixed_ns: MS, per_request_ns: 10 * US, jitter: 0.1 },
    Medium { name: "raid", fixed_ns: 2 * MS, per_request_ns: 30 * US, jitter: 0.2 },
    Medium { name: "sata", fixed_ns: 20 * MS, per_request_ns: 100 * US, jitter: 0.4 },
];

#[derive(Clone, Copy)]
struct Machine {
    name: &'static str,
    processors: usize,
    work_ns: u64,
    sleep_ns: u64,
    /// Times are spread as a memoryless process's; else evenly by 30 % around their mean.
    wild: bool,
}

const MACHINES: [Machine; 5] = [
    Machine { name: "library", processors: 2, work_ns: 30 * US, sleep_ns: 0, wild: false },
    Machine { name: "fuse", processors: 2, work_ns: 120 * US, sleep_ns: 30 * US, wild: false },
    Machine { name: "wild", processors: 2, work_ns: 20 * US, sleep_ns: 300 * US, wild: true },
    Machine { name: "slow", processors: 2, work_ns: MS, sleep_ns: 0, wild: false },
    Machine { name: "large", processors: 64, work_ns: 100 * US, sleep_ns: 0, wild: true },
];

/// Numbers that are the same on every run.
struct Dice(u64);

impl Dice {
    fn below_one(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn around(&mut self, ns: u64, jitter: f64) -> u64 {
        (ns as f64 * (1.0 + jitter * (2.0 * self.below_one() - 1.0))) as u64
    }

    fn spread(&mut self, ns: u64, wild: bool) -> u64 {
        if wild { (-(1.0 - self.below_one()).ln() * ns as f64) as u64 } else { self.around(ns, 0.3) }
    }
}

/// What needs a processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Work(usize),
    /// A waiter was woken by the end of a commit and looks whether it leads the next.
    Elect,
    Commit,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready(Job),
    Done(Job),
    Asks(usize),
    CommitEnds,
    /// Ends the gather of that number, if it still runs.
    GatherEnds(u64),
}

struct World {
    medium: Medium,
    machine: Machine,
    batcher: Batcher<usize>,
    dice: Dice,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    busy: usize,
    ready: VecDeque<Job>,
    waiting: Vec<usize>,
    asked_ns: u64,
    committing: Option<Vec<usize>>,
    leader: usize,
    began_ns: u64,
    gather: Option<(Gather, u64)>,
    gathers: u64,
    served: u64,
    commits: u64,
    in_a_row: bool,
}

/// What a run gave.
struct Outcome {
    per_second: f64,
    commits: u64,
    gathers: u64,
}

impl World {
    fn run(medium: Medium, machine: Machine, threads: usize, policy: BatchPolicy, requests: u64) -> Outcome {
        let mut batcher = Batcher::default();
        batcher.set(batching(policy, 0, 15_000));
        Self::with(batcher, medium, machine, threads, requests)
    }

    fn with(
        batcher: Batcher<usize>,
        medium: Medium,
        machine: Machine,
        threads: usize,
        requests: u64,
    ) -> Outcome {
        let mut world = Self {
            medium,
            machine,
            batcher,
            dice: Dice(0x9E37_79B9_7F4A_7C15),
            // A clock does not begin at zero.
            now: 1_000_000 * MS,
            events: BinaryHeap::new(),
            sequence: 0,
            busy: 0,
            ready: VecDeque::new(),
            waiting: Vec::new(),
            asked_ns: 0,
            committing: None,
            leader: 0,
            began_ns: 0,
            gather: None,
            gathers: 0,
            served: 0,
            commits: 0,
            in_a_row: false,
        };
        let start = world.now;
        for thread in 0..threads {
            let delay = world.dice.around(20 * US, 0.9);
            world.after(delay, Event::Ready(Job::Work(thread)));
        }
        while world.served < requests {
            let Some(Reverse((at, _, event))) = world.events.pop() else {
                panic!("everybody waits for ever")
            };
            world.now = at;
            world.happens(event);
        }
        let per_second = world.served as f64 * 1e9 / (world.now - start) as f64;
        Outcome { per_second, commits: world.commits, gathers: world.gathers }
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + ns, self.sequence, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Ready(job) => {
                // A scheduler prefers who slept.
                match job {
                    Job::Work(_) => self.ready.push_back(job),
                    Job::Elect | Job::Commit => self.ready.push_front(job),
                }
                self.dispatch();
            }
            Event::Done(job) => {
                self.busy -= 1;
                match job {
                    Job::Work(thread) => {
                        let sleep = self.dice.spread(self.machine.sleep_ns, self.machine.wild);
                        self.after(sleep, Event::Asks(thread));
                    }
                    Job::Elect => self.elect(),
                    Job::Commit => {
                        let count = self.committing.as_ref().map_or(0, Vec::len) as u64;
                        let fixed = self.dice.around(self.medium.fixed_ns, self.medium.jitter);
                        self.after(fixed + self.medium.per_request_ns * count, Event::CommitEnds);
                    }
                }
                self.dispatch();
            }
            Event::Asks(thread) => self.asks(thread),
            Event::CommitEnds => self.commit_ends(),
            Event::GatherEnds(number) => {
                let at = self.moment();
                if let Some((gather, running)) = &mut self.gather
                    && *running == number
                {
                    if self.batcher.goes_on(gather, &at) {
                        let left = gather.until_ns - at.now_ns;
                        self.after(left + SLACK_NS, Event::GatherEnds(number));
                    } else {
                        self.gather = None;
                        self.commit();
                    }
                }
            }
        }
    }

    fn dispatch(&mut self) {
        while self.busy < self.machine.processors {
            let Some(job) = self.ready.pop_front() else { return };
            self.busy += 1;
            let takes = match job {
                Job::Work(_) => self.dice.spread(self.machine.work_ns, self.machine.wild),
                Job::Elect => 2 * US,
                Job::Commit => 15 * US + US * self.committing.as_ref().map_or(0, Vec::len) as u64,
            };
            self.after(takes, Event::Done(job));
        }
    }

    fn moment(&self) -> Moment {
        let count = self.waiting.len() as u32;
        Moment {
            now_ns: self.now,
            asked_ns: self.asked_ns,
            waiting: count,
            handles: u64::from(count),
            in_a_row: self.in_a_row,
        }
    }

    fn asks(&mut self, thread: usize) {
        if self.waiting.is_empty() {
            self.asked_ns = self.now;
        }
        self.waiting.push(thread);
        self.in_a_row = self.batcher.asked(self.now, thread);
        match &mut self.gather {
            None => self.elect(),
            Some((gather, number)) if self.waiting.len() >= gather.enough as usize => {
                // The leader is woken; its timer finds another number.
                *number += 1;
                let number = *number;
                gather.enough = u32::MAX;
                self.after(WAKE_NS, Event::GatherEnds(number));
            }
            Some(_) => {}
        }
    }

    fn elect(&mut self) {
        if self.committing.is_some() || self.gather.is_some() {
            return;
        }
        let Some(leader) = self.waiting.first() else { return };
        self.leader = *leader;
        match self.batcher.begin(&self.moment()) {
            None => self.commit(),
            Some(gather) => {
                self.gathers += 1;
                let number = self.gathers * 2;
                self.gather = Some((gather, number));
                self.after(gather.until_ns - self.now + SLACK_NS, Event::GatherEnds(number));
            }
        }
    }

    fn commit(&mut self) {
        self.began_ns = self.now;
        self.committing = Some(std::mem::take(&mut self.waiting));
        self.happens(Event::Ready(Job::Commit));
    }

    fn commit_ends(&mut self) {
        let served = self.committing.take().unwrap_or_default();
        self.commits += 1;
        self.served += served.len() as u64;
        let took = self.now - self.began_ns;
        self.batcher.ended(self.now, took, served.len() as u32, self.waiting.len() as u32);
        if !self.waiting.is_empty() {
            self.after(WAKE_NS, Event::Ready(Job::Elect));
        }
        for thread in served {
            let wake = if thread == self.leader { 0 } else { WAKE_NS };
            self.after(wake, Event::Ready(Job::Work(thread)));
        }
    }
}

#[test]
fn as_good_as_the_best_of_all_rules_everywhere() {
    for machine in MACHINES {
        for medium in MEDIA {
            let mut most: f64 = 0.0;
            for threads in THREADS {
                let cell = format!("{}, {}, {threads} threads", machine.name, medium.name);
                let run = |policy, requests| World::run(medium, machine, threads, policy, requests);
                let requests = 1500 * threads as u64;
                let adaptive = run(BatchPolicy::Adaptive, requests);
                let none = run(BatchPolicy::None, requests).per_second;
                let fixed = run(BatchPolicy::Static, requests / 5).per_second;
                let best = none.max(fixed);
                assert!(
                    adaptive.per_second >= 0.97 * best,
                    "{cell}: {:.0} per second; none {none:.0}, static {fixed:.0}",
                    adaptive.per_second
                );
                // Where the medium takes a time for each request more threads can cost a little, with any rule.
                assert!(adaptive.per_second >= 0.95 * most, "{cell}: a dip from {most:.0} per second");
                most = most.max(adaptive.per_second);
                if threads == 1 {
                    assert_eq!(adaptive.gathers, 0, "{cell}: nobody to wait for");
                }
            }
        }
    }
}

/// The figures of the change that brought the measured wait to ext3: with the fixed one four threads on a ramdisk lost
/// nearly everything. And on a slow disk two threads share each commit.
#[test]
fn the_published_cases() {
    let ramdisk = |policy| World::run(MEDIA[0], MACHINES[0], 4, policy, 5000).per_second;
    assert!(ramdisk(BatchPolicy::Adaptive) >= 4.4 * ramdisk(BatchPolicy::Static));
    let sata = World::run(MEDIA[5], MACHINES[0], 2, BatchPolicy::Adaptive, 2000);
    assert!(sata.commits < 1050, "{} commits for 2000 requests of two threads", sata.commits);
}

/// A rule that always waits for the crowd, as a model alone would have it, loses much where the threads' work fills
/// the time. That is what the judge is for; this shows that the simulation can tell.
#[test]
fn waiting_always_would_be_worse() {
    let (medium, machine) = (MEDIA[3], MACHINES[1]);
    let mut forced = Vec::new();
    for min in [0, 1] {
        let mut batcher = Batcher::default();
        batcher.set(batching(BatchPolicy::Adaptive, min, 15_000));
        forced.push(World::with(batcher, medium, machine, 32, 32_000).per_second);
    }
    assert!(forced[1] < 0.9 * forced[0], "{forced:?}");
}
