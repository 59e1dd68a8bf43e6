//! A worker: reads a request, guards the work on it, sends the reply.
//!
//! ```text
//!   read ──► guard { dispatch } ──► write reply ──► read … or sleep
//!                 │ panic: EIO         │ undeliverable: give the references back
//! ```
//!
//! Whether it reads again is decided by [`crew`](crate::crew). Requests that wait by nature (reads
//! of file data …) say so when they are taken ([`waits`]). An fsync says so if it waits after
//! all ([`answer`](crate::answer)). Any other should be over at once, but may wait all the same:
//! for a block of a directory, for room in the journal, for a lock that somebody holds who waits.
//! The *tender* is a thread for that: while nobody reads, it looks every [`PATIENCE`] whether a
//! worker is still busy with what it was busy with the last time, and lets another take its place.
//! It sleeps while somebody reads, so an idle mount wakes nobody.
//!
//! A worker that is not needed sleeps; of those the last one is called first, because its memory is
//! warm. One whose buffers grew with large requests ends instead if enough others are idle, which
//! gives the memory back; others cost next to nothing and stay.
//!
//! A frozen volume lets no change through, and that may last. A worker whose request has to wait
//! for the thaw does not count against `max_threads` meanwhile, and makes sure that somebody else
//! reads: the request that thaws must find a worker, however many wait. If none can be had, the
//! request is answered EAGAIN instead of waiting.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use extol_vfs::Job;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;

use crate::abi::{IN_HEADER, MAX_FIXED, NOTIFY_INVAL_INODE, WRITE_HEADER, op};
use crate::answer::Answer;
use crate::buffer::Buffer;
use crate::crew::Verdict;
use crate::errno::Errno;
use crate::init;
use crate::ops::{self, Context, Kernel, Outcome};
use crate::ring::{self, Desk};
use crate::session::Shared;
use crate::slot::Slot;
use crate::wire::{Reply, Request};

/// A worker that has handled a request of this size has memory worth giving back.
pub(crate) const LARGE: usize = 128 << 10;
/// Workers that may keep large buffers while they wait to read, and while they sleep.
const LARGE_IDLE: usize = 4;
/// What a change gets while the volume is frozen ([`FsError::Frozen`](extol_vfs::FsError)).
const FROZEN: Errno = Errno(libc::EAGAIN);
/// What a request gets that needs more room than there is.
const FULL: Errno = Errno(libc::ENOSPC);
/// How often, and how soon one after the other, a worker looks whether all that the kernel forgets
/// has been heard.
const LOOKS: u32 = 100;
const LOOK: Duration = Duration::from_micros(50);
/// How long a request that should be over at once may keep others from being read.
const PATIENCE: Duration = Duration::from_millis(2);

/// True for requests that may be answered later, by another worker.
pub(crate) fn may_be_later(opcode: u32) -> bool {
    matches!(opcode, op::FSYNC | op::FSYNCDIR)
}

/// True for requests that wait for a device or for other requests more often than not.
pub(crate) fn waits(opcode: u32, direct_io: bool) -> bool {
    match opcode {
        op::READ
        | op::FSYNC
        | op::FSYNCDIR
        | op::SYNCFS
        | op::IOCTL
        | op::FALLOCATE
        | op::LSEEK => true,
        // Where files are devices; else they go to memory.
        op::WRITE => direct_io,
        _ => false,
    }
}

/// Starts a worker that counts as reading already. False if there are enough, or the mount has
/// ended.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<bool> {
    let slot = Arc::<Slot>::default();
    let number = {
        let mut pool = shared.pool.lock();
        if pool.ended || pool.threads >= shared.max_threads + pool.waiting {
            return Ok(false);
        }
        pool.threads += 1;
        pool.slots.push(Arc::clone(&slot));
        pool.threads
    };
    let worker =
        Worker { shared: Arc::clone(shared), slot: Arc::clone(&slot), queue: None, desk: None };
    let started = thread::Builder::new().name(format!("fuse-{number}")).spawn(move || worker.run());
    if started.is_err() {
        shared.ended(&slot, None);
    }
    started.map(|_| true)
}

/// Does what the crew wants.
fn obey(shared: &Arc<Shared>, verdict: Verdict) {
    match verdict {
        Verdict::Fine | Verdict::Sleep => {}
        Verdict::Unread => wake_tender(shared),
        Verdict::Call => {
            if call_sleeper(shared, false) || start(shared).unwrap_or(false) {
                return;
            }
            // Between these looks somebody may have gone to sleep who does not know that he is
            // wanted. If not, whoever is done next reads.
            call_sleeper(shared, true);
        }
    }
}

/// Makes sure that somebody looks before long.
pub(crate) fn wake_tender(shared: &Shared) {
    let sleeps = &shared.tender_sleeps;
    if sleeps.load(Ordering::SeqCst)
        && sleeps.swap(false, Ordering::SeqCst)
        && let Some(tender) = shared.tender.get()
    {
        tender.unpark();
    }
}

/// Wakes the worker that went to sleep last. If there is none and it was the `last` try, the crew
/// hears of it, before anybody else can go to sleep.
fn call_sleeper(shared: &Shared, last: bool) -> bool {
    let mut pool = shared.pool.lock();
    match pool.asleep.pop() {
        Some(sleeper) => {
            drop(pool);
            sleeper.call();
            true
        }
        None => {
            if last {
                shared.crew.call_failed();
            }
            false
        }
    }
}

/// Starts the tender.
pub(crate) fn start_tender(shared: &Arc<Shared>) -> io::Result<()> {
    let mine = Arc::clone(shared);
    let tender = thread::Builder::new().name("fuse-tender".into()).spawn(move || tend(&mine))?;
    let _ = shared.tender.set(tender.thread().clone());
    Ok(())
}

fn tend(shared: &Arc<Shared>) {
    loop {
        shared.tender_sleeps.store(true, Ordering::SeqCst);
        while shared.crew.readers() > 0
            && shared.rings.attended()
            && shared.tender_sleeps.load(Ordering::SeqCst)
        {
            if shared.pool.lock().ended {
                return;
            }
            thread::park();
        }
        shared.tender_sleeps.store(false, Ordering::SeqCst);
        thread::sleep(PATIENCE);
        let verdicts: Vec<Verdict> = {
            let pool = shared.pool.lock();
            if pool.ended {
                return;
            }
            let long =
                pool.slots.iter().filter(|slot| shared.crew.readers() == 0 && slot.takes_long());
            long.map(|_| shared.crew.leave()).collect()
        };
        for verdict in verdicts {
            obey(shared, verdict);
        }
        ring::tend(shared);
    }
}

pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slot: Arc<Slot>,
    /// The queue whose requests it serves; `None`: the device.
    pub(crate) queue: Option<usize>,
    /// The desk of a thread that has entries of that queue.
    pub(crate) desk: Option<Arc<Desk>>,
}

/// What has become of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Worked {
    /// The reply is to be sent, with this code.
    Reply(i32),
    /// There is to be none.
    Silent,
    /// Somebody else sends it.
    Later,
    /// Nothing is done: it must wait, which this thread must not.
    Elsewhere,
}

impl Worker {
    fn run(&self) {
        let shared = &*self.shared;
        let size = IN_HEADER + MAX_FIXED + init::max_data() as usize;
        let mut buffer = Buffer::new(size, IN_HEADER + WRITE_HEADER);
        let mut reply = Reply::default();
        let mut large = false;
        let why = loop {
            let size = match rustix::io::read(&shared.device, &mut *buffer) {
                Ok(size) => size,
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => continue,
                // The second where the end came between the choice of a request and its delivery.
                Err(Os::NODEV | Os::CONNABORTED) => break Some(None),
                Err(error) => break Some(Some(io::Error::from(error))),
            };
            let request = buffer.get(..size).and_then(Request::parse);
            let away = request.as_ref().is_some_and(|r| {
                waits(r.opcode, shared.agreed.direct_io) && !may_be_later(r.opcode)
            });
            self.slot.begin(away);
            obey(&self.shared, shared.crew.take(away));
            if let Some(request) = request {
                self.answer(&request, &mut reply);
            }
            large |= size > LARGE || reply.body_len() > LARGE;
            match self.slot.end() {
                true if large && shared.crew.readers() > LARGE_IDLE => {
                    obey(&self.shared, shared.crew.leave());
                    break None;
                }
                true => shared.crew.done(),
                false if self.come_back(large) => {}
                false => break None,
            }
        };
        drop((buffer, reply));
        shared.ended(&self.slot, why);
    }

    /// Reads again, if need be after a sleep. False if the worker is to end.
    fn come_back(&self, large: bool) -> bool {
        let shared = &*self.shared;
        {
            let mut pool = shared.pool.lock();
            if pool.ended {
                return false;
            }
            // Under the lock: who wants to call somebody looks for sleepers there.
            if shared.crew.back() != Verdict::Sleep {
                return true;
            }
            let surplus = pool.threads > shared.max_threads + pool.waiting;
            if surplus || (large && pool.asleep.len() >= LARGE_IDLE) {
                return false;
            }
            pool.asleep.push(Arc::clone(&self.slot));
        }
        self.slot.sleep();
        !shared.pool.lock().ended
    }

    /// Works on a request.
    pub(crate) fn work(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Worked {
        let shared = &*self.shared;
        let context = Context {
            fs: &*shared.fs,
            root: shared.root,
            agreed: shared.agreed,
            kernel: self,
            counts: &shared.counts,
            transport: shared.transport(),
            owner: &shared.owner,
        };
        if request.opcode == op::STATFS {
            self.hear_forgets();
        }
        let mut again = self.queue.is_some();
        let outcome = loop {
            reply.clear();
            let work = AssertUnwindSafe(|| ops::dispatch(&context, request, reply));
            let outcome = std::panic::catch_unwind(work).unwrap_or(Err(Errno(libc::EIO)));
            if outcome == Err(FULL) && std::mem::take(&mut again) {
                self.hear_forgets();
            } else if outcome != Err(FROZEN) || (self.is_alone() && !self.wait_thawed()) {
                break outcome;
            }
            for &ino in &reply.references {
                shared.fs.forget(ino, 1);
            }
            if outcome == Err(FROZEN) && !self.is_alone() {
                return Worked::Elsewhere;
            }
        };
        match outcome {
            Ok(Outcome::Later) => Worked::Later,
            Ok(Outcome::Silent) => Worked::Silent,
            Err(_) if matches!(request.opcode, op::FORGET | op::BATCH_FORGET) => Worked::Silent,
            Ok(Outcome::Reply) => Worked::Reply(0),
            Err(Errno(number)) => {
                reply.clear_body();
                Worked::Reply(-number)
            }
        }
    }

    /// True if this thread may wait for as long as it takes: no request comes to it meanwhile.
    fn is_alone(&self) -> bool {
        self.desk.as_ref().is_none_or(|desk| desk.is_alone())
    }

    /// Works on a request and sends the reply, if there is to be one now.
    fn answer(&self, request: &Request<'_>, reply: &mut Reply<'_>) {
        let shared = &*self.shared;
        let Worked::Reply(code) = self.work(request, reply) else { return };
        let sent = rustix::io::write(&shared.device, reply.finish(request.unique, code));
        if code != 0 || sent.is_err() {
            ops::take_back(&*shared.fs, request, &reply.references, code == 0);
        }
    }

    /// Makes sure that somebody takes requests while this worker waits. False if nobody can be had.
    fn step_aside(&self) -> bool {
        if let Some(queue) = self.queue {
            return ring::attend(&self.shared, queue);
        }
        let crew = &self.shared.crew;
        obey(&self.shared, if self.slot.leaves() { crew.leave() } else { crew.wait() });
        let pool = self.shared.pool.lock();
        // Whom another worker is just calling counts as a reader before it is a thread of the pool.
        // Should that call fail, the caller comes here after it, finds no reader left, and does not
        // wait: it is the one who reads.
        pool.threads > pool.waiting || crew.readers() > 0
    }

    /// Waits until the device's other workers have heard what the kernel has said so far. RELEASE
    /// and FORGET come through the device, and other requests overtake them; but a program that has
    /// deleted something counts on the room. Best effort: it is over after a while, and what is
    /// heard may be forgotten a moment later.
    fn hear_forgets(&self) {
        let shared = &*self.shared;
        let mut quiet = 0;
        for _ in 0..LOOKS {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut device = [PollFd::new(&shared.device, PollFlags::IN)];
            let unread = poll(&mut device, Some(&now)).is_ok_and(|ready| ready > 0);
            let works = |slot: &Arc<Slot>| !Arc::ptr_eq(slot, &self.slot) && slot.works();
            if unread || shared.pool.lock().slots.iter().any(works) {
                quiet = 0;
            } else if quiet == 1 {
                return;
            } else {
                // Who has just read does not say so at once.
                quiet = 1;
            }
            thread::sleep(LOOK);
        }
    }

    /// Counts the worker as one that waits for others, or no longer.
    fn set_waiting(&self, change: isize) {
        match self.queue {
            Some(queue) => self.shared.rings.waits(queue, change),
            None => {
                let mut pool = self.shared.pool.lock();
                pool.waiting = pool.waiting.saturating_add_signed(change);
            }
        }
    }

    /// Waits until the volume is thawed, if others can go on meanwhile.
    fn wait_thawed(&self) -> bool {
        let shared = &*self.shared;
        self.set_waiting(1);
        let others = self.step_aside();
        if others {
            shared.fs.wait_thawed();
        }
        self.set_waiting(-1);
        others
    }

    fn notify_inval(&self, nodeid: u64, offset: i64) {
        let mut message = Reply::default();
        message.clear();
        message.u64(nodeid).u64(offset as u64).u64(0);
        // The kernel may know nothing of the node any more: just as well.
        let _ = rustix::io::write(&self.shared.device, message.finish(0, NOTIFY_INVAL_INODE));
    }
}

impl Kernel for Worker {
    fn later(&self, request: &Request<'_>) -> Option<Answer> {
        match (self.queue, &self.desk) {
            (None, _) => Some(Answer::new(&self.shared, request)),
            (_, Some(desk)) => desk.may_hold().map(|entry| Answer::over_ring(desk, entry, request)),
            (Some(_), None) => None,
        }
    }

    fn stays(&self) {
        match self.queue {
            None => drop(self.step_aside()),
            Some(queue) if self.slot.leaves() => ring::leave(&self.shared, queue),
            Some(_) => {}
        }
    }

    fn aside(&self, job: Job) {
        if self.is_alone() {
            self.stays();
            job();
        } else {
            ring::give(&self.shared, job);
        }
    }

    fn invalidate_attributes(&self, nodeid: u64) {
        self.notify_inval(nodeid, -1);
    }

    fn write_back(&self, nodeid: u64) {
        self.set_waiting(1);
        self.step_aside();
        self.notify_inval(nodeid, 0);
        self.set_waiting(-1);
    }
}

#[cfg(test)]
mod tests;
