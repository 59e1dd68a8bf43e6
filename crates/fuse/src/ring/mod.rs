//! Requests over io_uring: how they come where the kernel offers it (Linux 6.14 and later, where
//! the administrator has switched it on).
//!
//! The kernel has a queue of requests for each processor, and puts a request into the queue of the
//! processor on which it was made. A queue is served by workers on that processor: handing a
//! request over wakes no other processor, and the reply and the wait for the next request are one
//! system call. That is where most of the time of a small request goes.
//!
//! ```text
//!   processor 0                     processor 1                    any
//!   ┌─────────────┐                 ┌─────────────┐                ┌──────────────┐
//!   │ queue 0     │                 │ queue 1     │                │ /dev/fuse    │  forget, interrupt
//!   └─┬────┬────┬─┘                 └─┬────┬──────┘                └─┬────┬───────┘  (notifications go in here)
//!     worker …  a ring each           worker …                       worker::Worker, as without rings
//! ```
//!
//! *Beginning.* The first workers are made, with their rings and memory, before INIT is answered
//! ([`prepare`]); only if that works is io_uring agreed upon. From then on the kernel holds all
//! requests back until each queue has an entry. If it refuses one of them, it sends the requests to
//! `/dev/fuse` after all. Where a queue lacks an entry of which the kernel has not heard (a
//! descriptor or memory is short), every request would wait for ever: there the start fails
//! ([`Prepared::start`]).
//!
//! *Work.* A worker waits in its ring ([`Ring`]), lets `worker::Worker` do the work, and hands the
//! reply over (`work.rs`, `exchange.rs`). It is bound to its processor while requests are small
//! (`processor.rs`). How many workers a queue has is the business of `queue.rs`. An fsync does not keep a worker
//! either: whoever makes it durable leaves a letter on the worker's desk (`desk.rs`), and what must
//! not wait at the desk is done by others (`aside.rs`).
//!
//! *Another worker.* The kernel gives requests that wait in a queue to entries that come back with
//! a reply, but not to one that is registered: they would wait until some other request of that
//! processor has been answered, and that may be what a frozen volume waits for. So where a request
//! may take for ever, whoever joins later *stirs* the queue: another process makes a request on
//! that processor (`stir.rs`), which the new entry gets, and whose reply sets the others going.
//!
//! *Memory.* Each entry has room for the largest request, whose pages exist once they are touched.
//! An entry that large requests have touched gives them back when it has been idle for a while
//! ([`IDLE`]).
//!
//! *End.* After an unmount every entry comes back with an error, and its worker ends. A worker
//! whose ring fails is the end of the mount's service: requests of its queue might wait for ever.
//!
//! A reply is always delivered, or the mount is over, so references are taken back only where the
//! reply is an error.

mod aside;
mod desk;
mod exchange;
mod processor;
mod queue;
mod stir;
mod work;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use extol_fuse_uring::Ring;
use rustix::thread::CpuSet;

use self::aside::Aside;
pub(crate) use self::aside::give;
pub(crate) use self::desk::{Desk, Letter};
use self::exchange::Work;
use self::processor::Seat;
use self::queue::{Hired, Queue};
use self::stir::Stirrer;
use self::work::Clerk;
use crate::config::MountConfig;
use crate::init;
use crate::ops;
use crate::session::Shared;
use crate::slot::Slot;
use crate::wire::{Reply, Request};
use crate::worker::{Worked, Worker};

/// Most queues: each takes two descriptors and two threads.
const MOST_QUEUES: usize = 256;
/// Workers of a queue at the start: one for the request at hand and one for the next. One alone
/// where there are many queues.
const FIRST: usize = 2;
const MANY_QUEUES: usize = 16;
/// Smallest room that the kernel accepts, whatever was agreed upon.
const SMALLEST_PAYLOAD: usize = 8192;

/// The queues of a mount; none without io_uring.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    queues: Vec<Queue>,
    /// Most workers of a queue.
    limit: usize,
    /// The processors that this process may use.
    all: CpuSet,
    aside: Aside,
    stirrer: Stirrer,
    /// The kernel uses them.
    active: AtomicBool,
}

/// What a worker is told when the mount is there, and where it says whether the kernel has taken
/// its entry.
type Go = (Arc<Shared>, Sender<(usize, Result<(), Lack>)>);

/// Why a queue has no entry of a worker.
#[derive(Debug)]
pub(crate) enum Lack {
    /// The kernel has refused it, and does without io_uring from then on.
    Refused(io::Error),
    /// The kernel has not heard of it.
    Missing(io::Error),
}

/// Workers that wait for the mount, with their queues.
#[derive(Debug)]
pub(crate) struct Prepared {
    queues: usize,
    workers: Vec<(usize, Sender<Go>)>,
}

/// Reads what [`prepare`] has to know of the machine, while files may be opened.
pub(crate) fn look() {
    let _ = processor::possible();
}

/// Makes the first workers.
pub(crate) fn prepare() -> io::Result<Prepared> {
    let queues = processor::possible()?;
    if queues > MOST_QUEUES {
        return Err(io::Error::other("too many processors"));
    }
    let each = if queues > MANY_QUEUES { 1 } else { FIRST };
    let (tell, told) = channel();
    let mut workers = Vec::with_capacity(queues * each);
    for number in (0..queues).flat_map(|number| std::iter::repeat_n(number, each)) {
        let (sender, receiver) = channel();
        let tell = tell.clone();
        name(number).spawn(move || first(number, &tell, &receiver))?;
        workers.push((number, sender));
    }
    for _ in &workers {
        told.recv().map_err(io::Error::other)??;
    }
    Ok(Prepared { queues, workers })
}

fn name(number: usize) -> thread::Builder {
    thread::Builder::new().name(format!("fuse-q{number}"))
}

fn ring() -> io::Result<Ring> {
    Ring::new((init::max_data() as usize).max(SMALLEST_PAYLOAD))
}

/// A first worker.
fn first(number: usize, tell: &Sender<io::Result<()>>, go: &Receiver<Go>) {
    let ring = match ring() {
        Ok(ring) => ring,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(()));
    if let Ok((shared, registered)) = go.recv() {
        let slot = shared.rings.queues[number].join();
        serve(&shared, number, &slot, Ok(ring), |outcome| {
            let _ = registered.send((number, outcome));
            drop(registered);
        });
    }
}

impl Prepared {
    /// The queues of the mount that these workers are to serve.
    pub(crate) fn rings(&self, config: &MountConfig) -> Rings {
        let queues: Vec<_> = (0..self.queues).map(|_| Queue::default()).collect();
        let (limit, all) = (config.max_threads.max(FIRST), processor::allowed());
        let stirrer = Stirrer::start(config.confinement.as_ref());
        Rings { queues, limit, all, stirrer, ..Rings::default() }
    }

    /// Lets the workers begin, and waits until their entries are with the kernel.
    ///
    /// # Errors
    /// If there is a queue without an entry: [`Lack::Refused`] if the kernel has refused one, and
    /// so uses none of them. Else it goes on waiting for that queue, and answers no request: the
    /// mount is of no use.
    pub(crate) fn start(self, shared: &Arc<Shared>) -> Result<(), Lack> {
        let (registered, outcomes) = channel();
        for (_, go) in self.workers {
            shared.pool.lock().ring_threads += 1;
            let _ = go.send((Arc::clone(shared), registered.clone()));
        }
        drop(registered);
        let mut served = vec![false; self.queues];
        let (mut refused, mut missing) = (None, None);
        for (number, outcome) in outcomes {
            match outcome {
                Ok(()) => served[number] = true,
                Err(Lack::Refused(error)) => refused = Some(error),
                Err(Lack::Missing(error)) => missing = Some(error),
            }
        }
        if served.contains(&false) {
            let missing = || missing.unwrap_or_else(|| io::Error::other("a thread has ended"));
            return Err(refused.map_or_else(|| Lack::Missing(missing()), Lack::Refused));
        }
        shared.rings.active.store(true, Ordering::Release);
        Ok(())
    }
}

impl Rings {
    /// True if the requests come here.
    pub(crate) fn active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// True if every queue has an idle worker.
    pub(crate) fn attended(&self) -> bool {
        self.queues.iter().all(Queue::attended)
    }

    /// The mount has ended.
    pub(crate) fn end(&self) {
        self.aside.end();
    }

    /// Counts a worker of a queue as one that waits for other requests, or (-1) no longer.
    pub(crate) fn waits(&self, number: usize, change: isize) {
        self.queues[number].waits(change);
    }
}

/// Hires workers where nobody has been idle for a while.
pub(crate) fn tend(shared: &Arc<Shared>) {
    for (number, queue) in shared.rings.queues.iter().enumerate() {
        if queue.neglected() {
            hire(shared, number, true);
        }
    }
}

/// Sees to it that a queue has an idle worker while one of its workers waits for other requests.
/// False if there can be none.
pub(crate) fn attend(shared: &Arc<Shared>, number: usize) -> bool {
    let attended = hire(shared, number, true);
    if shared.rings.queues[number].to_be_stirred() {
        stir(shared, number);
    }
    attended
}

/// A worker that is alone is going to wait, for nothing that another request of its queue would
/// bring.
pub(crate) fn leave(shared: &Arc<Shared>, number: usize) {
    if !shared.rings.queues[number].attended() {
        hire(shared, number, false);
    }
}

/// Takes another worker on if nobody is idle; it stirs the queue if it is `stuck`, or somebody
/// waits for other requests.
fn hire(shared: &Arc<Shared>, number: usize, stuck: bool) -> bool {
    let queue = &shared.rings.queues[number];
    let slot = match queue.hire(shared.rings.limit) {
        Hired::Nobody => return true,
        Hired::TooMany => return false,
        Hired::New(slot) => slot,
    };
    shared.pool.lock().ring_threads += 1;
    let (mine, its) = (Arc::clone(shared), Arc::clone(&slot));
    let started = name(number).spawn(move || {
        serve(&mine, number, &its, ring(), |outcome| {
            if outcome.is_ok() && mine.rings.queues[number].registered(stuck) {
                stir(&mine, number);
            }
        });
    });
    if started.is_err() {
        queue.leave(&slot);
        shared.ring_ended(None);
    }
    started.is_ok()
}

/// Makes a request on a processor, without waiting for the answer: see `stir.rs`.
fn stir(shared: &Shared, number: usize) {
    shared.rings.stirrer.stir(&shared.dir, number, &shared.rings.all);
}

/// Serves requests of a queue until the mount ends. `tell` hears whether the kernel has taken the
/// first entry.
fn serve(
    shared: &Arc<Shared>,
    number: usize,
    slot: &Arc<Slot>,
    ring: io::Result<Ring>,
    tell: impl FnOnce(Result<(), Lack>),
) {
    let seat = Seat::take(number, &shared.rings.all);
    let ring = ring.map_err(Lack::Missing).and_then(|mut ring| {
        match register(&mut ring, shared, number) {
            Ok(()) => Ok(ring),
            // An entry that has come back was with the kernel.
            Err(error) if !ring.memory(0).is_empty() => Err(Lack::Refused(error)),
            Err(error) => Err(Lack::Missing(error)),
        }
    });
    let failed = match ring {
        Ok(mut ring) => {
            tell(Ok(()));
            Clerk::new(shared, slot, number, &mut ring, seat).work()
        }
        Err(error) => {
            // The others of the queue go on; where there is none, the kernel does without.
            tell(Err(error));
            None
        }
    };
    shared.rings.queues[number].leave(slot);
    shared.ring_ended(failed);
}

fn register(ring: &mut Ring, shared: &Shared, number: usize) -> io::Result<()> {
    let queue = u16::try_from(number).map_err(io::Error::other)?;
    ring.serve(shared.device.as_fd(), queue)?;
    ring.add()
}

impl Work for Worker {
    fn work(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Worked {
        Worker::work(self, request, reply)
    }

    fn take_back(&self, request: &Request<'_>, references: &[u32], good: bool) {
        ops::take_back(&*self.shared.fs, request, references, good);
    }
}
