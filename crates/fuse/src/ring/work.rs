//! The work of a thread of a queue: takes requests from its ring, answers them or leaves them to
//! others, hands replies over.
//!
//! ```text
//!    ring ── request ──► answer here ─────────────────────────────► commit ──► ring
//!               │           │ an fsync: to be told later ──► held ──► letter ─┤
//!               ╰─ waits ──► lent to another thread ───────► held ──► letter ─┘
//! ```
//!
//! A thread begins with one entry, and then a request that waits may be done here: the kernel hands
//! no other one to this thread meanwhile, but to others of the queue. An fsync that somebody else
//! will make durable *holds* its entry without keeping the thread, and if no entry of the thread is
//! with the kernel then, it registers another. From then on there is *company*: requests may come
//! while it is busy, and replies wait for it, so it never waits again while there is company
//! ([`Aside`](super::aside::Aside)).
//!
//! - W1: while a thread counts as idle one of its entries is with the kernel: it registers another
//!   ([`Clerk::stay_open`]), or, where it has [`MOST`], does not count until a letter lets it
//!   commit one ([`Clerk::rest`]).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use extol_fuse_uring::{Event, MOST, Ring};

use super::aside;
use super::desk::{Desk, Letter};
use super::exchange::{self, Answered, Scratch, Sizes, answer};
use super::processor::Seat;
use super::queue::Queue;
use super::{hire, stir};
use crate::abi::{ROOT_NODE, op};
use crate::session::Shared;
use crate::slot::Slot;
use crate::worker::{self, LARGE, Worker};

/// Large requests alone do not make a queue have more workers than this: each keeps memory for one.
const MOST_LARGE: usize = 4;
/// Entries that are idle for so long give the memory of large requests back.
const IDLE: Duration = Duration::from_secs(1);
/// How long those that do not come back when the mount has ended are waited for.
const END: Duration = Duration::from_secs(1);

/// A thread at work.
pub(super) struct Clerk<'a> {
    /// Borrowed: its count of references is written by threads on other processors, and would be
    /// with every request.
    pub(super) shared: &'a Arc<Shared>,
    worker: Worker,
    desk: Arc<Desk>,
    pub(super) ring: &'a mut Ring,
    number: usize,
    pub(super) seat: Seat,
    scratch: Scratch,
    letters: Vec<Letter>,
    /// Entries whose requests were left to others.
    held: usize,
    /// It counts as idle.
    idle: bool,
    /// There has been a large request since memory was given back.
    touched: bool,
}

impl<'a> Clerk<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        slot: &Arc<Slot>,
        number: usize,
        ring: &'a mut Ring,
        seat: Seat,
    ) -> Self {
        let desk = Arc::new(Desk::new(ring.waker()));
        let worker = Worker {
            shared: Arc::clone(shared),
            slot: Arc::clone(slot),
            queue: Some(number),
            desk: Some(Arc::clone(&desk)),
        };
        let (scratch, letters) = Default::default();
        Self {
            shared,
            worker,
            desk,
            ring,
            number,
            seat,
            scratch,
            letters,
            held: 0,
            idle: true,
            touched: false,
        }
    }

    /// Works until the mount ends. Gives the error if it was something else that ended it.
    pub(super) fn work(mut self) -> Option<io::Error> {
        let Err(error) = self.serve();
        if !self.idle {
            self.queue().done();
        }
        let over = [libc::ENOTCONN, libc::ECONNABORTED, libc::ENODEV, libc::ECANCELED];
        if !error.raw_os_error().is_some_and(|code| over.contains(&code)) {
            return Some(error);
        }
        // Each entry that is with the kernel comes back with such an error.
        while self.ring.open() + self.ring.reading() > 0
            && !matches!(self.ring.next(Some(END)), Ok(Event::Nothing))
        {}
        None
    }

    fn serve(&mut self) -> io::Result<std::convert::Infallible> {
        loop {
            self.read_letters()?;
            self.rest();
            let awaits = self.held > 0;
            if awaits && !self.desk.sleeps() {
                continue;
            }
            let event = self.ring.next(self.touched.then_some(IDLE));
            if awaits {
                self.desk.wakes();
            }
            match event? {
                Event::Request(entry) => self.request(entry)?,
                Event::Read { .. } => {}
                Event::Woken => {}
                Event::Nothing => {
                    self.ring.discard();
                    self.touched = false;
                }
            }
        }
    }

    /// Hands over what others have answered.
    fn read_letters(&mut self) -> io::Result<()> {
        if self.held == 0 {
            return Ok(());
        }
        let mut letters = std::mem::take(&mut self.letters);
        self.desk.take(&mut letters);
        for letter in letters.drain(..) {
            self.held -= 1;
            let (entry, body) = match letter {
                Letter::Told { entry, unique, code } => {
                    exchange::put_header(self.ring.memory(entry), unique, code, 0);
                    (entry, 0)
                }
                Letter::Done { memory, body } => {
                    let entry = self
                        .ring
                        .give_back(memory)
                        .map_err(|_| io::Error::other("an entry of another ring"))?;
                    (entry, body)
                }
            };
            self.touched |= body as usize >= LARGE;
            self.ring.commit(entry, body)?;
        }
        self.letters = letters;
        Ok(())
    }

    fn queue(&self) -> &Queue {
        &self.shared.rings.queues[self.number]
    }

    /// It is done with what was at hand. It counts as idle if requests come to it; else another of
    /// the queue must get them.
    fn rest(&mut self) {
        if self.idle {
            return;
        }
        if self.ring.open() > 0 {
            self.idle = true;
            self.queue().done();
        } else if !self.queue().attended() {
            hire(self.shared, self.number, true);
        }
    }

    /// It has a request. True if nobody is idle now.
    fn begin(&mut self) -> bool {
        if std::mem::take(&mut self.idle) { self.queue().take() } else { !self.queue().attended() }
    }

    /// Sees to it that requests come to this thread, if there may be another entry.
    pub(super) fn stay_open(&mut self) {
        if self.ring.open() == 0 && self.ring.add().is_ok() {
            // Others may have come since the last one was taken, and what they ask for may be what
            // this one waits for.
            stir(self.shared, self.number);
        }
    }

    fn request(&mut self, entry: usize) -> io::Result<()> {
        let shared = self.shared;
        let nobody_else = self.begin();
        let sizes = Sizes::of(self.ring.memory(entry));
        let is = |what: fn(&Sizes) -> bool| sizes.as_ref().is_some_and(what);
        let syncs = is(|sizes| worker::may_be_later(sizes.opcode))
            && !is(|sizes| sizes.opcode == op::FSYNCDIR && sizes.nodeid == ROOT_NODE);
        let waits = !syncs
            && sizes.is_some_and(|sizes| worker::waits(sizes.opcode, shared.agreed.direct_io));
        let large = is(|sizes| sizes.payload >= LARGE);
        self.touched |= large;
        let company = self.ring.open() > 0 || self.held > 0 || self.ring.reading() > 0;
        if company && (waits || large || is(|sizes| sizes.opcode == op::STATFS)) {
            self.leave(entry);
            return Ok(());
        }
        if waits || large {
            self.ring.send()?;
        }
        self.worker.slot.begin(waits);
        if nobody_else {
            if waits {
                hire(shared, self.number, false);
            } else if large && !self.queue().has(MOST_LARGE) {
                hire(shared, self.number, false);
            } else {
                worker::wake_tender(shared);
            }
        }
        self.desk.begin(entry, self.ring.open() > 0 || self.ring.len() < MOST, !company);
        let answered = answer(self.ring.memory(entry), sizes, &mut self.scratch, &self.worker);
        let outcome = match answered {
            Answered::Reply(body) => {
                let large = large || body as usize >= LARGE;
                self.touched |= large;
                self.seat.settle(large);
                self.ring.commit(entry, body)
            }
            Answered::Later => self.hold(),
            Answered::Elsewhere => {
                self.leave(entry);
                Ok(())
            }
        };
        self.worker.slot.end();
        outcome
    }

    /// The entry at hand is held; another goes to the kernel, if none is there.
    fn hold(&mut self) -> io::Result<()> {
        self.held += 1;
        // It may have been answered already.
        self.read_letters()?;
        self.stay_open();
        Ok(())
    }

    /// Lets another thread do the request of an entry.
    pub(super) fn leave(&mut self, entry: usize) {
        let Some(mut memory) = self.ring.lend(entry) else { return };
        self.held += 1;
        let desk = Arc::clone(&self.desk);
        let worker = Worker {
            shared: Arc::clone(self.shared),
            slot: Arc::default(),
            queue: Some(self.number),
            desk: None,
        };
        let job = move || {
            let sizes = Sizes::of(memory.bytes());
            let answered = catch_unwind(AssertUnwindSafe(|| {
                answer(memory.bytes(), sizes, &mut Scratch::default(), &worker)
            }));
            let body = match answered {
                Ok(Answered::Reply(body)) => body,
                // (Nobody else is to answer what comes from here.)
                Ok(Answered::Later | Answered::Elsewhere) | Err(_) => {
                    exchange::refuse(memory.bytes())
                }
            };
            desk.post(Letter::Done { memory, body });
        };
        aside::give(self.shared, Box::new(job));
        self.stay_open();
    }
}
