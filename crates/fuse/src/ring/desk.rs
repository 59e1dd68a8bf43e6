//! The desk of a thread that serves a queue: what it lets others see and do while it works.
//!
//! Replies go out through the ring of the thread that has the entry, and by nobody else. So whoever
//! finishes a request of another thread (an fsync that is durable, a read done elsewhere) leaves a
//! [`Letter`] on its desk. Letters are few and the thread mostly looks by itself, so it is woken
//! only if it sleeps.
//!
//! 1. A letter is read: who leaves one looks afterwards whether the thread sleeps, and the thread
//!    looks for letters after it has said that it does ([`Desk::post`], [`Desk::sleeps`]).
//! 2. Each entry that is *held* gets one letter. It is held from when its request is left to others
//!    until the letter is read; no other request comes to it meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use extol_fuse_uring::{Lent, Waker};
use parking_lot::Mutex;

/// What comes of a request that was left to others.
#[derive(Debug)]
pub(crate) enum Letter {
    /// It has this answer, and no more than that.
    Told { entry: usize, unique: u64, code: i32 },
    /// The reply, with so many bytes of body, is in the memory of an entry, which comes back.
    Done { memory: Lent, body: u32 },
}

/// The desk.
#[derive(Debug)]
pub(crate) struct Desk {
    letters: Mutex<Vec<Letter>>,
    /// The thread is about to sleep, or does.
    asleep: AtomicBool,
    waker: Waker,
    /// The entry of the request at hand. (These three are the thread's own; it sees itself through
    /// shared references.)
    entry: AtomicUsize,
    /// The request may be answered later.
    may_hold: AtomicBool,
    /// The thread may wait itself: nobody else's request comes to it, and no reply waits for it.
    alone: AtomicBool,
}

impl Desk {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            letters: Mutex::default(),
            asleep: AtomicBool::new(false),
            waker,
            entry: AtomicUsize::new(0),
            may_hold: AtomicBool::new(false),
            alone: AtomicBool::new(true),
        }
    }

    /// A request is at hand.
    pub(super) fn begin(&self, entry: usize, may_hold: bool, alone: bool) {
        self.entry.store(entry, Ordering::Relaxed);
        self.may_hold.store(may_hold, Ordering::Relaxed);
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// The entry of the request at hand, if that may be answered later.
    pub(crate) fn may_hold(&self) -> Option<usize> {
        self.may_hold.load(Ordering::Relaxed).then(|| self.entry.load(Ordering::Relaxed))
    }

    /// True if the thread may wait itself.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Leaves a letter.
    pub(crate) fn post(&self, letter: Letter) {
        self.letters.lock().push(letter);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Takes the letters.
    pub(super) fn take(&self, into: &mut Vec<Letter>) {
        std::mem::swap(&mut *self.letters.lock(), into);
    }

    /// The thread wants to sleep. False if there are letters.
    pub(super) fn sleeps(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let may = self.letters.lock().is_empty();
        if !may {
            self.wakes();
        }
        may
    }

    /// It sleeps no longer.
    pub(super) fn wakes(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_fuse_uring::{Event, Ring};
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    /// Letters that come at any moment: all are read, and nobody sleeps over one.
    #[test]
    fn every_letter_is_read() {
        const LETTERS: u64 = 20_000;
        let Ok(mut ring) = Ring::new(8192) else {
            println!("SKIP: no io_uring here");
            return;
        };
        ring.serve(File::open("/dev/null").unwrap().as_fd(), 0).unwrap();
        let desk = Arc::new(Desk::new(ring.waker()));
        std::thread::scope(|scope| {
            for t in 0..2 {
                let desk = &desk;
                scope.spawn(move || {
                    for n in 0..LETTERS {
                        desk.post(Letter::Told { entry: t, unique: n, code: 0 });
                        if n % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let (mut letters, mut next) = (Vec::new(), [0; 2]);
            while next != [LETTERS; 2] {
                desk.take(&mut letters);
                for letter in letters.drain(..) {
                    let Letter::Told { entry, unique, code: 0 } = letter else {
                        panic!("{letter:?}")
                    };
                    assert_eq!(unique, next[entry]);
                    next[entry] += 1;
                }
                if next != [LETTERS; 2] && desk.sleeps() {
                    assert_eq!(ring.next(None).unwrap(), Event::Woken);
                    desk.wakes();
                }
            }
        });
    }
}
