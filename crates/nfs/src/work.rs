//! Requests that wait for a thread, and the answers that they get.
//!
//! A request whose connection has ended is not worked on any more: its client asks again over
//! another one, and may have gone on to something else by the time that this one would run.
//!
//! - WK-1: a request that has not begun is dropped if no connection waits for its reply
//!   ([`Answer::is_given_up`]).

use std::collections::VecDeque;
use std::sync::Arc;

use extol_sync::Condvar;
use extol_sync::plain::Mutex;

use crate::connection::Peer;
use crate::memory::{Hold, Memory};
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

/// The state that the answers of all peers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) memory: Arc<Memory>,
    pub(crate) repeats: Repeats<Arc<Peer>>,
}

impl Shared {
    /// True if no connection waits for the reply of a request any more. It is forgotten then, and
    /// must not begin.
    pub(crate) fn is_given_up(&self, peer: &Peer, key: Option<Key>) -> bool {
        match key {
            Some(key) => self.repeats.abandon(key, |asker| asker.has_ended()),
            None => peer.has_ended(),
        }
    }
}

/// The answer that a request is to get. Dropped without one, it says that the server has failed.
#[derive(Debug)]
pub(crate) struct Answer {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    xid: u32,
    key: Option<Key>,
    /// The memory of the request and its reply; `None` once that is answered.
    hold: Option<Hold>,
}

impl Answer {
    /// The answer to a request for which this memory is held.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        peer: &Arc<Peer>,
        (xid, key): (u32, Option<Key>),
        hold: Hold,
    ) -> Self {
        peer.begin_request();
        let (shared, peer) = (Arc::clone(shared), Arc::clone(peer));
        Self { shared, peer, xid, key, hold: Some(hold) }
    }

    /// True if no connection waits for it (WK-1). It may then be dropped without a reply.
    pub(crate) fn is_given_up(&mut self) -> bool {
        let is_given_up = self.shared.is_given_up(&self.peer, self.key);
        if is_given_up {
            self.hold = None;
        }
        is_given_up
    }

    pub(crate) fn send(mut self, reply: Vec<u8>) {
        self.deliver(reply);
    }

    fn deliver(&mut self, reply: Vec<u8>) {
        let Some(hold) = self.hold.take() else { return };
        // The connection that asked last, if the request was repeated.
        let to = self.key.and_then(|key| self.shared.repeats.end(key, &reply));
        to.as_ref().unwrap_or(&self.peer).send(reply, hold);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.hold.is_some() {
            self.deliver(rpc::state(self.xid, accept::SYSTEM_ERROR));
        }
        self.peer.end_request();
    }
}
