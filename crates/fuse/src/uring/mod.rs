//! The transport over io_uring, if the kernel offers it (Linux 6.14 and later, once it is switched
//! on by the administrator).
//!
//! *Purpose.* The kernel has a queue of requests for each processor, and puts a request into the
//! queue of the processor on which it was made. So a request wakes no other processor, and the
//! reply and the wait for the next request are one system call.
//!
//! ```text
//!   processor 0             processor 1             any
//!   ┌─────────────┐         ┌─────────────┐         ┌──────────────┐
//!   │ queue 0     │         │ queue 1     │         │ /dev/fuse    │  forget, interrupt;
//!   └─┬────┬────┬─┘         └─┬────┬────┬─┘         └─┬────┬───────┘  notifications go in here
//!    queue workers, fixed    queue workers           worker pool (device.rs)
//!
//!   queue worker:  next ──► message ──► handle ──► message ──► commit, next …
//! ```
//!
//! *Depth.* Each queue has a fixed number of entries ([`depth`]), and each entry a thread, the
//! *queue worker*, which handles the request of its entry from beginning to end. The kernel gives a
//! request to the entry that was busy last, whose memory is warm, and keeps it in the queue if all
//! are busy. Entries are registered before the mount is used and never later: the kernel would not
//! give a new entry the requests that wait already.
//!
//! *Beginning.* The threads are made, with their rings and memory, before INIT is answered
//! ([`prepare`]); only if that works does the reply accept io_uring. From then on the kernel keeps
//! all requests back until each queue has an entry. If it refuses one of them, it sends the
//! requests to `/dev/fuse` after all. If an entry cannot even be sent to the kernel (descriptors or
//! memory are short), every request would wait for ever: then the start fails
//! ([`Prepared::start`]).
//!
//! *Memory.* Each entry has room for the largest request, whose pages exist once they are touched.
//! An entry frees the pages of large requests when it has been idle for [`IDLE`].
//!
//! *End.* After an unmount every entry comes back with an error, and its thread ends. If the
//! ring of a thread fails, the mount ends: requests of its queue might wait for ever.
//!
//! *Invariants*
//! - UR-1: a reply is always delivered, or the mount has ended; so references are dropped only
//!   where the reply is an error.
//! - UR-2: one entry of each queue never waits for other requests (a thaw, a write-back): it serves
//!   them ([`Queue::may_wait`]). A request that came before all entries were registered does
//!   not wait either ([`QueueWorker::began_early`]).

mod affinity;
mod message;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use extol_fuse_uring::{Entry, RegisterError};

use self::affinity::Affinity;
pub(crate) use self::affinity::processors;
use self::message::Handler;
use crate::buffer::LARGE;
use crate::connection::{End, Shared};
use crate::handle::handle;
use crate::init;
use crate::ops::{self, Server};
use crate::wire::{Reply, Request};

/// Most queues of a mount, and entries of a queue and of all queues: each takes a descriptor and a
/// thread.
const MOST_QUEUES: usize = 64;
const DEEPEST: usize = 24;
const MOST_ENTRIES: usize = 128;
/// Smallest room that the kernel accepts, whatever was agreed upon.
const SMALLEST_PAYLOAD: usize = 8192;
/// An entry that is idle for so long gives the memory of large requests back.
const IDLE: Duration = Duration::from_secs(1);

/// Entries of each of so many queues.
fn depth(queues: usize) -> usize {
    (MOST_ENTRIES / queues.max(1)).clamp(2, DEEPEST)
}

/// The queues of a mount.
#[derive(Debug)]
struct Queues {
    queues: Vec<Queue>,
    /// All entries are registered.
    complete: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Entries that the kernel has.
    entries: AtomicUsize,
    /// How many of them wait for other requests.
    waiting: AtomicUsize,
}

impl Queue {
    /// Counts an entry as waiting for other requests; false if it would be the last one that serves
    /// them (UR-2).
    fn may_wait(&self) -> bool {
        let most = self.entries.load(Ordering::SeqCst).saturating_sub(1);
        let more = |waiting| (waiting < most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn waited(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a queue worker gets once the mount exists; the last is for the number of its queue, with
/// the result of registering its entry.
type Go = (Arc<Shared>, Arc<Queues>, Sender<(usize, Result<(), RegisterError>)>);

/// Queue workers that wait for the mount, with the number of their queues.
#[derive(Debug)]
pub(crate) struct Prepared {
    queues: usize,
    workers: Vec<Sender<Go>>,
}

/// Makes the queue workers for a machine with so many processors.
pub(crate) fn prepare(queues: usize) -> io::Result<Prepared> {
    if queues > MOST_QUEUES {
        return Err(io::Error::other(format!("there are more than {MOST_QUEUES} processors")));
    }
    let (tell, told) = channel();
    let mut workers = Vec::new();
    for queue in (0..queues).flat_map(|queue| std::iter::repeat_n(queue, depth(queues))) {
        let (sender, receiver) = channel();
        let tell = tell.clone();
        let name = format!("fuse-q{queue}");
        thread::Builder::new().name(name).spawn(move || run(queue, &tell, &receiver))?;
        workers.push(sender);
    }
    for _ in &workers {
        told.recv().map_err(io::Error::other)??;
    }
    Ok(Prepared { queues, workers })
}

impl Prepared {
    /// Lets the queue workers begin, and waits until their entries are with the kernel.
    ///
    /// # Errors
    /// If there is a queue without an entry: [`RegisterError::Refused`] if the kernel has refused
    /// one, and so uses none of them. Else it goes on waiting for that queue, and answers no
    /// request: the mount is of no use.
    pub(crate) fn start(self, shared: &Arc<Shared>) -> Result<(), RegisterError> {
        let queues = (0..self.queues).map(|_| Queue::default()).collect();
        let queues = Arc::new(Queues { queues, complete: AtomicBool::new(false) });
        let (registered, outcomes) = channel();
        for go in self.workers {
            shared.thread_begins();
            if go.send((Arc::clone(shared), Arc::clone(&queues), registered.clone())).is_err() {
                shared.thread_ends(End::NotNeeded);
            }
        }
        drop(registered);
        let mut served = vec![false; self.queues];
        let mut lacking = RegisterError::Failed(io::Error::other("a thread has ended"));
        for (queue, outcome) in outcomes {
            match outcome {
                Ok(()) => served[queue] = true,
                // A refusal counts, whatever else has failed.
                Err(_) if matches!(lacking, RegisterError::Refused(_)) => {}
                Err(error) => lacking = error,
            }
        }
        if served.contains(&false) {
            if matches!(lacking, RegisterError::Refused(_)) {
                shared.over_io_uring.store(false, Ordering::Relaxed);
            }
            return Err(lacking);
        }
        queues.complete.store(true, Ordering::Release);
        Ok(())
    }
}

/// The thread of an entry.
fn run(queue: usize, tell: &Sender<io::Result<()>>, go: &Receiver<Go>) {
    let mut entry = match Entry::new((init::max_data() as usize).max(SMALLEST_PAYLOAD)) {
        Ok(entry) => entry,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(()));
    let Ok((shared, queues, registered)) = go.recv() else { return };
    // Counted before it may have a request.
    let entries = &queues.queues[queue].entries;
    entries.fetch_add(1, Ordering::SeqCst);
    let outcome = entry.register(shared.device.as_fd(), queue as u16);
    let takes_part = outcome.is_ok();
    if !takes_part {
        entries.fetch_sub(1, Ordering::SeqCst);
    }
    let _ = registered.send((queue, outcome));
    drop(registered);
    let end = if takes_part {
        let shared = Arc::clone(&shared);
        QueueWorker { shared, queues: Arc::clone(&queues), queue, began_early: true }
            .serve(&mut entry)
    } else {
        End::NotNeeded
    };
    drop(entry);
    shared.thread_ends(end);
}

/// A thread that serves an entry of a queue.
struct QueueWorker {
    shared: Arc<Shared>,
    queues: Arc<Queues>,
    queue: usize,
    /// The request came while entries were still being registered.
    began_early: bool,
}

impl QueueWorker {
    fn serve(&mut self, entry: &mut Entry) -> End {
        let mut affinity = Affinity::to(self.queue);
        let mut reply = Reply::default();
        let mut touched = false;
        loop {
            match entry.next(touched.then_some(IDLE)) {
                Ok(true) => {}
                Ok(false) => {
                    entry.discard();
                    touched = false;
                    continue;
                }
                Err(error) => return end(error),
            }
            self.began_early = !self.queues.complete.load(Ordering::Acquire);
            let size = message::payload(entry.memory());
            let body = message::answer(entry.memory(), &mut reply, self);
            let large = size.max(body as usize) >= LARGE;
            touched |= large;
            affinity.settle(large);
            if let Err(error) = entry.commit(body) {
                return end(error);
            }
        }
    }
}

/// Why a thread ends whose ring says this.
fn end(error: io::Error) -> End {
    let over = [libc::ENOTCONN, libc::ECONNABORTED, libc::ENODEV, libc::ECANCELED];
    if error.raw_os_error().is_some_and(|code| over.contains(&code)) {
        End::Disconnected
    } else {
        End::Failed(error)
    }
}

impl Handler for QueueWorker {
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<i32> {
        handle(&self.shared, self, request, reply)
    }

    fn take_back(&self, reply: &mut Reply<'_>) {
        ops::take_back(&*self.shared.fs, &self.shared.writers, reply);
    }
}

impl Server for QueueWorker {
    fn invalidate(&self, nodeid: u64, offset: i64) {
        self.shared.invalidate(nodeid, offset);
    }

    fn drop_caches(&self, inodes: Vec<u32>) {
        let mut thread = self.shared.drop_caches(inodes).ok();
        // (Where this thread may not wait, the other one ends a moment later.)
        self.wait_for_others(&mut || {
            let _ = thread.take().map(std::thread::JoinHandle::join);
        });
    }

    fn wait_for_others(&self, wait: &mut dyn FnMut()) -> bool {
        let queue = &self.queues.queues[self.queue];
        if self.began_early || !queue.may_wait() {
            return false;
        }
        wait();
        queue.waited();
        true
    }
}
