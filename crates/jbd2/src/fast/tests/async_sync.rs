//! Async requests: which thread works for them, and what they are told, once.

use std::sync::mpsc;
use std::thread::{JoinHandle, ThreadId};

use super::requests::{Slow, slow, until};
use super::*;
use crate::batching::{BatchPolicy, Batching};
use crate::fast::async_requests::{MOST, MOST_TAKEN_OVER};

/// What requests were told: their inode, whether it went well, and by which thread.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Vec<(u32, bool, ThreadId)>>>);

impl Told {
    fn done(&self, ino: u32) -> Done {
        let told = Arc::clone(&self.0);
        Box::new(move |result| told.lock().push((ino, result.is_ok(), std::thread::current().id())))
    }

    /// Sorted; each was told once if they are all different.
    fn all(&self) -> Vec<(u32, bool)> {
        let mut all: Vec<_> = self.0.lock().iter().map(|(ino, ok, _)| (*ino, *ok)).collect();
        all.sort_unstable();
        all
    }
}

/// Leaves a request; true if the thread was to stay.
fn leave(journal: &Arc<Journal>, told: &Told, tid: Tid, ino: u32) -> bool {
    let mut stayed = false;
    journal.make_durable_for_then(tid, ask(ino), None, told.done(ino), &mut |job| {
        stayed = true;
        job();
    });
    stayed
}

fn none_is_left(journal: &Journal) {
    assert!(journal.state.lock().async_requests.is_idle());
}

/// A journal that is in the middle of a fast commit for the request of inode 0, with five more in
/// the next batch, which the leader of the first takes over.
struct Busy {
    rig: Rig,
    source: Arc<Slow>,
    entered: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
    tid: Tid,
    told: Told,
    leader: JoinHandle<()>,
}

impl Busy {
    fn new() -> Self {
        let (rig, source, entered, go) = slow();
        rig.journal.set_batching(Batching { policy: BatchPolicy::None, ..Batching::default() });
        let tid = rig.change(5);
        let told = Told::default();
        let leader = {
            let (journal, told) = (Arc::clone(&rig.journal), told.clone());
            std::thread::spawn(move || assert!(leave(&journal, &told, tid, 0)))
        };
        entered.recv().unwrap();
        let busy = Self { rig, source, entered, go, tid, told, leader };
        for ino in 1..6 {
            assert!(!busy.leave(ino), "there is a leader");
        }
        assert_eq!(busy.told.all(), []);
        busy
    }

    fn leave(&self, ino: u32) -> bool {
        leave(&self.rig.journal, &self.told, self.tid, ino)
    }

    /// All were told the same, by the batch leader, which has gone.
    fn over(self, ok: bool) -> Rig {
        let id = self.leader.thread().id();
        self.leader.join().unwrap();
        let expected: Vec<_> = (0..6).map(|ino| (ino, ok)).collect();
        assert_eq!(self.told.all(), expected);
        assert!(self.told.0.lock().iter().all(|(_, _, by)| *by == id));
        none_is_left(&self.rig.journal);
        self.rig
    }
}

/// Alone it is a blocking request, and its own thread works.
#[test]
fn alone() {
    let rig = Rig::live(PLAIN);
    let (tid, told) = (rig.change(5), Told::default());
    rig.source.then(records(1));
    let at = rig.log.position();
    assert!(leave(&rig.journal, &told, tid, 12));
    assert_eq!((rig.story(at).as_str(), &told.all()[..]), ("fc0-1!", &[(12, true)][..]));
    assert_eq!(rig.journal.stats().distributions.sync_wait_ns.count, 1);
    none_is_left(&rig.journal);
    // And a second one after it.
    rig.source.then(records(1));
    assert!(leave(&rig.journal, &told, tid, 13));
    assert_eq!(told.all(), [(12, true), (13, true)]);
}

/// A caller that comes when the batch has a leader goes on at once, and is told when the batch is
/// durable.
#[test]
fn one_thread_waits_for_all() {
    let busy = Busy::new();
    busy.go.send(()).unwrap();
    busy.entered.recv().unwrap();
    // While the next one is written.
    until(|| busy.told.all() == [(0, true)]);
    busy.go.send(()).unwrap();
    let asked: Vec<usize> = {
        let source = Arc::clone(&busy.source);
        let rig = busy.over(true);
        assert_eq!((rig.stats().commits, rig.stats().requests), (2, 6));
        assert_eq!(rig.journal.stats().distributions.sync_wait_ns.count, 6);
        source.inner.asked.lock().iter().map(|(_, asks)| asks.len()).collect()
    };
    assert_eq!(asked, [1, 5]);
}

/// Threads that wait lead batches with requests in them, and the other way round. Each leads one.
#[test]
fn among_threads_that_wait() {
    let (rig, source, entered, go) = slow();
    rig.journal.set_batching(Batching { policy: BatchPolicy::None, ..Batching::default() });
    let tid = rig.change(5);
    let told = Told::default();
    let (over, is_over) = mpsc::channel();
    let waits = |ino: u32| {
        let (journal, over) = (Arc::clone(&rig.journal), over.clone());
        std::thread::spawn(move || {
            journal.make_durable_for(tid, ask(ino)).unwrap();
            over.send(ino).unwrap();
        })
    };
    let leaves = |ino: u32| {
        let (journal, told) = (Arc::clone(&rig.journal), told.clone());
        std::thread::spawn(move || leave(&journal, &told, tid, ino))
    };
    let waiting = |n: u32| until(|| rig.journal.state.lock().fast.waiting == n);
    // One that waits leads; two requests stand in the next batch with another one.
    let mut threads = vec![waits(100)];
    entered.recv().unwrap();
    let leader = leaves(1);
    waiting(1);
    threads.push(waits(101));
    waiting(2);
    assert!(!leave(&rig.journal, &told, tid, 2));
    go.send(()).unwrap();
    assert_eq!(is_over.recv().unwrap(), 100, "though others wait");
    entered.recv().unwrap();
    // While that one is written, by any thread: more of both, of which one that waits comes first.
    threads.push(waits(102));
    waiting(1);
    let last = leaves(3);
    waiting(2);
    go.send(()).unwrap();
    entered.recv().unwrap();
    assert_eq!(is_over.recv().unwrap(), 101);
    until(|| told.all() == [(1, true), (2, true)]);
    go.send(()).unwrap();
    assert_eq!(is_over.recv().unwrap(), 102);
    assert!(
        leader.join().unwrap() && !last.join().unwrap(),
        "the leader of one batch takes over the next"
    );
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(told.all(), [(1, true), (2, true), (3, true)]);
    none_is_left(&rig.journal);
    let asked: Vec<usize> = source.inner.asked.lock().iter().map(|(_, asks)| asks.len()).collect();
    assert_eq!(asked, [1, 3, 2]);
}

/// What cannot be said in records: one full commit serves them all.
#[test]
fn the_whole_batch_needs_a_full_commit() {
    let busy = Busy::new();
    busy.source.inner.then(records(1));
    busy.source.inner.then(Collected::Full(0));
    busy.go.send(()).unwrap();
    busy.entered.recv().unwrap();
    busy.go.send(()).unwrap();
    let tid = busy.tid;
    let rig = busy.over(true);
    assert_eq!(rig.journal.committed(), tid);
    assert_eq!((rig.stats().commits, rig.stats().ineligible), (1, 5));
}

/// Another thread's full commit comes in between.
#[test]
fn a_full_commit_comes_first() {
    let busy = Busy::new();
    let full = {
        let (journal, tid) = (Arc::clone(&busy.rig.journal), busy.tid);
        std::thread::spawn(move || journal.commit_wait(tid).unwrap())
    };
    until(|| busy.rig.journal.state.lock().tx.running.as_ref().is_some_and(|r| r.waiting == 1));
    busy.go.send(()).unwrap();
    full.join().unwrap();
    let rig = busy.over(true);
    assert_eq!(rig.stats().commits, 1);
}

/// Fast commits are turned off under their feet.
#[test]
fn fast_commits_end() {
    let busy = Busy::new();
    busy.rig.journal.set_fast_commits(false).unwrap();
    busy.go.send(()).unwrap();
    let tid = busy.tid;
    let rig = busy.over(true);
    assert_eq!(rig.journal.committed(), tid);
    let (tid, told) = (rig.change(5), Told::default());
    assert!(leave(&rig.journal, &told, tid, 12));
    assert_eq!((told.all(), rig.journal.committed()), (vec![(12, true)], tid));
}

/// A freeze waits only for open handles, and commits what the requests wait for.
#[test]
fn a_freeze() {
    let busy = Busy::new();
    let freeze = {
        let journal = Arc::clone(&busy.rig.journal);
        std::thread::spawn(move || journal.freeze().unwrap())
    };
    until(|| busy.rig.journal.state.lock().gate.barriers == 1);
    busy.go.send(()).unwrap();
    // The freeze or the next batch comes first.
    busy.go.send(()).unwrap();
    freeze.join().unwrap();
    let rig = busy.over(true);
    // While it lasts, everything is durable.
    let told = Told::default();
    assert!(!leave(&rig.journal, &told, rig.journal.committed(), 12));
    assert_eq!(told.all(), [(12, true)]);
    rig.journal.thaw();
}

/// After an abort no request is told that anything is durable.
#[test]
fn an_abort() {
    let busy = Busy::new();
    busy.rig.journal.abort("planned");
    busy.go.send(()).unwrap();
    let tid = busy.tid;
    let rig = busy.over(false);
    let told = Told::default();
    leave(&rig.journal, &told, tid, 12);
    leave(&rig.journal, &told, rig.journal.committed(), 13);
    assert_eq!(told.all(), [(12, false), (13, false)]);
    assert_eq!(rig.journal.stats().distributions.sync_wait_ns.count, 0);
}

/// The file data that was written before it is durable when one is told, also if the fast commit
/// has written nothing, or none was needed.
#[test]
fn data_is_flushed_before_they_are_told() {
    let rig = Rig::live(PLAIN);
    let old = rig.journal.committed();
    for (tid, story) in [(rig.change(5), "data flush"), (old, "data flush")] {
        let at = rig.log.position();
        rig.write_data();
        let (seen, fs) = (Arc::new(Mutex::new(0)), Arc::clone(&rig.fs));
        let done = {
            let seen = Arc::clone(&seen);
            Box::new(move |result: Result<()>| {
                result.unwrap();
                *seen.lock() = fs.position();
            })
        };
        let mut stayed = false;
        rig.journal.make_durable_for_then(tid, ask(12), None, done, &mut |job| {
            stayed = true;
            job();
        });
        assert!(stayed, "it waits for a flush");
        assert_eq!(rig.story(at), story);
        assert_eq!(*seen.lock(), rig.fs.position(), "told afterwards");
    }
    let (at, told) = (rig.log.position(), Told::default());
    assert!(!leave(&rig.journal, &told, old, 12), "nothing to wait for");
    assert_eq!((rig.story(at).as_str(), told.all()), ("", vec![(12, true)]));
}

/// Leaves a request; its function leaves the next one, down to that of inode 0. Counts those for
/// which a thread was to stay.
fn chain(journal: &Arc<Journal>, told: &Told, tid: Tid, ino: u32, stayed: &Arc<Mutex<u32>>) {
    let done = {
        let (journal, told, stayed) = (Arc::clone(journal), told.clone(), Arc::clone(stayed));
        Box::new(move |result: Result<()>| {
            told.done(ino)(result);
            if ino > 0 {
                chain(&journal, &told, tid, ino - 1, &stayed);
            }
        })
    };
    journal.make_durable_for_then(tid, ask(ino), None, done, &mut |job| {
        *stayed.lock() += 1;
        job();
    });
}

/// One that is left by a function that is told is kept like any other, by the same leader, but not
/// for ever.
#[test]
fn one_leads_to_another() {
    for (ino, leaders) in
        [(1, 1), (MOST_TAKEN_OVER - 1, 1), (MOST_TAKEN_OVER + 2, 2), (2 * MOST_TAKEN_OVER + 2, 3)]
    {
        let rig = Rig::live(PLAIN);
        let (tid, told, stayed) = (rig.change(5), Told::default(), Arc::default());
        chain(&rig.journal, &told, tid, ino, &stayed);
        assert_eq!(told.all(), (0..=ino).map(|ino| (ino, true)).collect::<Vec<_>>());
        assert_eq!(
            (*stayed.lock(), rig.stats().skipped),
            (leaders, u64::from(ino) + 1),
            "nothing was to be written"
        );
        none_is_left(&rig.journal);
    }
}

/// A function that panics ends alone.
#[test]
fn one_panics() {
    let busy = Busy::new();
    let panics = Box::new(|_: Result<()>| panic!("planned"));
    busy.rig.journal.make_durable_for_then(busy.tid, ask(6), None, panics, &mut |_| unreachable!());
    busy.go.send(()).unwrap();
    busy.entered.recv().unwrap();
    assert!(!busy.leave(7));
    assert_eq!(busy.told.all(), [(0, true)]);
    busy.go.send(()).unwrap();
    busy.entered.recv().unwrap();
    assert_eq!(busy.told.all().len(), 6, "those before it, and of those behind it all");
    busy.go.send(()).unwrap();
    busy.leader.join().unwrap();
    assert_eq!(busy.told.all().last(), Some(&(7, true)));
    none_is_left(&busy.rig.journal);
}

/// More than that many wait themselves.
#[test]
fn there_is_an_end() {
    let busy = Busy::new();
    for ino in 6..MOST as u32 {
        assert!(!busy.leave(ino));
    }
    let one_more = {
        let (journal, told, tid) = (Arc::clone(&busy.rig.journal), busy.told.clone(), busy.tid);
        std::thread::spawn(move || leave(&journal, &told, tid, 5000))
    };
    until(|| busy.rig.journal.state.lock().fast.waiting == MOST as u32);
    busy.go.send(()).unwrap();
    busy.go.send(()).unwrap();
    assert!(one_more.join().unwrap(), "it waits");
    busy.leader.join().unwrap();
    let all = busy.told.all();
    assert_eq!((all.len(), all.last()), (MOST + 1, Some(&(5000, true))));
    none_is_left(&busy.rig.journal);
}

/// AsyncRequests for the full commit of one transaction, which waits for a handle. Their leader is
/// the one that left that of inode 0.
struct Draining {
    rig: Rig,
    tid: Tid,
    told: Told,
    leader: JoinHandle<()>,
    holder: JoinHandle<()>,
    go: mpsc::Sender<()>,
}

impl Draining {
    fn new() -> Self {
        let rig = Rig::live(PLAIN);
        rig.journal.set_fast_commits(false).unwrap();
        rig.journal.set_batching(Batching { policy: BatchPolicy::None, ..Batching::default() });
        let (tid, told) = (rig.change(5), Told::default());
        let (go, wait) = mpsc::channel();
        let (opened, is_open) = mpsc::channel();
        let journal = Arc::clone(&rig.journal);
        let holder = std::thread::spawn(move || {
            let handle = journal.start(1).unwrap();
            opened.send(()).unwrap();
            wait.recv().unwrap();
            let _ = handle.stop();
        });
        is_open.recv().unwrap();
        let (journal, tells) = (Arc::clone(&rig.journal), told.clone());
        let leader = std::thread::spawn(move || assert!(leave(&journal, &tells, tid, 0)));
        until(|| rig.journal.state.lock().role.taken);
        for ino in 1..6 {
            assert!(!leave(&rig.journal, &told, tid, ino), "there is a leader");
        }
        assert_eq!(told.all(), []);
        Self { rig, tid, told, leader, holder, go }
    }

    fn over(self, ok: bool) -> Rig {
        let id = self.leader.thread().id();
        self.go.send(()).unwrap();
        self.holder.join().unwrap();
        self.leader.join().unwrap();
        assert_eq!(self.told.all(), (0..6).map(|ino| (ino, ok)).collect::<Vec<_>>());
        assert!(self.told.0.lock().iter().all(|(_, _, by)| *by == id));
        assert_eq!(self.rig.journal.committed().at_least(self.tid), ok);
        none_is_left(&self.rig.journal);
        self.rig
    }
}

/// Without fast commits one thread waits for all requests for the same full commit.
#[test]
fn one_thread_waits_for_a_full_commit() {
    let rig = Draining::new().over(true);
    let stats = rig.journal.stats();
    assert_eq!(
        (stats.distributions.batch_size.max, stats.distributions.sync_wait_ns.count),
        (6, 6)
    );
    // The next one has a leader of its own, and one that changed nothing since needs none.
    let (tid, told) = (rig.change(5), Told::default());
    assert!(leave(&rig.journal, &told, tid, 12));
    assert!(!leave(&rig.journal, &told, tid, 13));
    assert_eq!((told.all(), rig.journal.committed()), (vec![(12, true), (13, true)], tid));
}

#[test]
fn an_abort_of_a_full_commit() {
    let draining = Draining::new();
    draining.rig.journal.abort("planned");
    draining.over(false);
}
