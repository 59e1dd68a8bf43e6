//! Answers to requests that no worker waits for.
//!
//! ```text
//!   worker A   read FSYNC ─ file system: to be told later ─ read the next …
//!   worker B   … leads: write, flush ─ told: reply to A's, reply to its own …
//! ```
//!
//! A thread that sleeps until its fsync is durable costs two thread switches and a worker. So the
//! file system is asked to say when it is durable
//! ([`fsync_then`](extol_vfs::FileSystem::fsync_then)), and the thread that hears of it writes the
//! reply: a worker that waits for all who asked at the same time. That one has stepped aside
//! before, like any that waits.
//!
//! 1. Each request has one reply: an [`Answer`] is sent when it is told, or says EIO when it is
//!    dropped untold.
//! 2. No mount ends before: who waits has a file open, which keeps the connection; and when it is
//!    cut by force, those that tell are workers of the mount, which go when they have told all (P2
//!    of the journal's pledges), and its end waits for them (`Mount::run`).
//!
//! Over io_uring a reply goes through the ring of the thread that got the request: there the answer
//! is a letter for that thread ([`Desk`]).

use std::sync::Arc;

use extol_vfs::FsError;

use crate::errno::{self, Errno};
use crate::ring::{Desk, Letter};
use crate::session::Shared;
use crate::wire::{self, Request};

/// The answer to one request that carries nothing but its success.
pub(crate) struct Answer {
    unique: u64,
    way: Way,
    sent: bool,
}

/// How it gets to the kernel.
enum Way {
    Device(Arc<Shared>),
    Ring { desk: Arc<Desk>, entry: usize },
}

impl Answer {
    /// To a request from the device.
    pub(crate) fn new(shared: &Arc<Shared>, request: &Request<'_>) -> Self {
        let way = Way::Device(Arc::clone(shared));
        Self { unique: request.unique, way, sent: false }
    }

    /// To a request that came over io_uring, in this entry of a thread.
    pub(crate) fn over_ring(desk: &Arc<Desk>, entry: usize, request: &Request<'_>) -> Self {
        Self {
            unique: request.unique,
            way: Way::Ring { desk: Arc::clone(desk), entry },
            sent: false,
        }
    }

    pub(crate) fn tell(mut self, result: Result<(), FsError>) {
        self.send(result.err().map_or(0, |error| -errno::Errno::from(error).0));
    }

    fn send(&mut self, code: i32) {
        self.sent = true;
        let unique = self.unique;
        match &self.way {
            // It fails if the connection is gone: nobody waits any more.
            Way::Device(shared) => {
                let _ = rustix::io::write(&shared.device, &wire::header(0, unique, code));
            }
            Way::Ring { desk, entry } => desk.post(Letter::Told { entry: *entry, unique, code }),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.sent {
            self.send(-Errno(libc::EIO).0);
        }
    }
}
