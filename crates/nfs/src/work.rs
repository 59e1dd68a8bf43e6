//! Requests that wait for a thread, and what they take of the memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use extol_sync::Condvar;
use parking_lot::Mutex;

use crate::connection::Peer;
use crate::repeats::{Key, Repeats};
use crate::rpc::{self, accept};

/// A request that is to be worked on.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) record: Vec<u8>,
    pub(crate) answer: Answer,
}

/// Requests, first come, first served. A peer has a few of them at most, so none waits for long
/// because of another.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Request>,
    stopped: bool,
}

impl Queue {
    pub(crate) fn put(&self, request: Request) {
        self.state.lock().requests.push_back(request);
        self.changed.notify_one();
    }

    /// The next request. `None`: there will be none.
    pub(crate) fn take(&self) -> Option<Request> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.requests.is_empty() && !state.stopped);
        state.requests.pop_front()
    }

    /// What is queued is still taken.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Memory for requests and replies.
#[derive(Debug)]
pub(crate) struct Memory {
    free: Mutex<i64>,
    changed: Condvar,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        let free = i64::try_from(bytes).unwrap_or(i64::MAX);
        Self { free: Mutex::new(free), changed: Condvar::new() }
    }

    /// Takes memory for a request of a peer. A peer that has no other may always have it, so that
    /// none can keep all others from being served.
    fn take(&self, bytes: i64, peer: &Peer) {
        /// A peer becomes idle without a word to this lock.
        const LOOK: Duration = Duration::from_millis(20);
        let mut free = self.free.lock();
        while *free < bytes && !peer.is_idle() {
            self.changed.wait_for(&mut free, LOOK);
        }
        *free -= bytes;
    }

    fn give_back(&self, bytes: i64) {
        *self.free.lock() += bytes;
        self.changed.notify_all();
    }
}

/// What the answers of all peers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) memory: Memory,
    pub(crate) repeats: Repeats<Arc<Peer>>,
}

/// The answer that a request is to get. Dropped without one, it says that the server has failed.
#[derive(Debug)]
pub(crate) struct Answer {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    xid: u32,
    key: Option<Key>,
    bytes: i64,
    sent: bool,
}

impl Answer {
    /// For a request that takes so many bytes of memory, with its reply; waits for them.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        peer: &Arc<Peer>,
        (xid, key): (u32, Option<Key>),
        bytes: usize,
    ) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        shared.memory.take(bytes, peer);
        peer.begin_request();
        let (shared, peer) = (Arc::clone(shared), Arc::clone(peer));
        Self { shared, peer, xid, key, bytes, sent: false }
    }

    pub(crate) fn send(mut self, reply: Vec<u8>) {
        self.deliver(reply);
    }

    fn deliver(&mut self, reply: Vec<u8>) {
        self.sent = true;
        // The connection that asked last, if the request was repeated.
        let to = self.key.and_then(|key| self.shared.repeats.end(key, &reply));
        to.as_ref().unwrap_or(&self.peer).send(reply);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.sent {
            self.deliver(rpc::state(self.xid, accept::SYSTEM_ERROR));
        }
        self.shared.memory.give_back(self.bytes);
        self.peer.end_request();
    }
}
