//! Replies that a peer may ask for again.
//!
//! A client that lost its connection sends what was not answered once more. A request that has
//! removed a name would fail the second time. So replies to requests that cannot be done twice are
//! kept for a while, and a repeated request gets the same one; if the first is still worked on, its
//! reply goes to the connection that asked last.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits;

/// What tells requests apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    peer: IpAddr,
    xid: u32,
    digest: u64,
}

/// A request that was seen.
#[derive(Debug)]
enum Seen<P> {
    /// Its reply goes here.
    Running(P),
    /// This is it.
    Answered(Arc<[u8]>),
}

/// The requests that were seen of late. `P`: where replies go.
#[derive(Debug)]
pub(crate) struct Repeats<P> {
    state: Mutex<State<P>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct State<P> {
    seen: HashMap<Key, Seen<P>>,
    /// The answered ones, oldest first.
    order: VecDeque<(Key, Instant)>,
}

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is new: work on it.
    New,
    /// It is worked on already.
    Running,
    /// This was its reply.
    Answered(Arc<[u8]>),
}

impl<P> Default for Repeats<P> {
    fn default() -> Self {
        let state = State { seen: HashMap::new(), order: VecDeque::new() };
        Self { state: Mutex::new(state), hasher: RandomState::new() }
    }
}

impl<P> Repeats<P> {
    /// The key of a request.
    pub(crate) fn key(&self, peer: IpAddr, xid: u32, record: &[u8]) -> Key {
        Key { peer, xid, digest: self.hasher.hash_one(record) }
    }

    /// A request has come from `from`.
    pub(crate) fn begin(&self, key: Key, from: P) -> Begun {
        let mut state = self.state.lock();
        state.forget_old(limits::REPEATS, limits::REPEATS_TIME);
        match state.seen.get_mut(&key) {
            None => {
                state.seen.insert(key, Seen::Running(from));
                Begun::New
            }
            Some(Seen::Running(to)) => {
                *to = from;
                Begun::Running
            }
            Some(Seen::Answered(reply)) => Begun::Answered(Arc::clone(reply)),
        }
    }

    /// A request has this reply. Gives where it goes.
    pub(crate) fn end(&self, key: Key, reply: &[u8]) -> Option<P> {
        let mut state = self.state.lock();
        state.order.push_back((key, Instant::now()));
        match state.seen.insert(key, Seen::Answered(reply.into())) {
            Some(Seen::Running(to)) => Some(to),
            _ => None,
        }
    }
}

impl<P> State<P> {
    fn forget_old(&mut self, most: usize, time: Duration) {
        while let Some((key, answered)) = self.order.front().copied() {
            if self.order.len() <= most && answered.elapsed() < time {
                return;
            }
            self.order.pop_front();
            self.seen.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_repeated_request_gets_the_same_reply() {
        let repeats = Repeats::default();
        let key = repeats.key(PEER, 1, b"remove a");
        assert!(matches!(repeats.begin(key, "first"), Begun::New));
        assert!(matches!(repeats.begin(key, "second"), Begun::Running));
        assert_eq!(repeats.end(key, b"done"), Some("second"));
        let Begun::Answered(reply) = repeats.begin(key, "third") else { panic!("not answered") };
        assert_eq!(*reply, *b"done");
        for other in [repeats.key(PEER, 2, b"remove a"), repeats.key(PEER, 1, b"remove b")] {
            assert!(matches!(repeats.begin(other, "other"), Begun::New));
        }
    }

    #[test]
    fn old_replies_are_forgotten() {
        let repeats = Repeats::default();
        let keys: Vec<_> = (0..10).map(|xid| repeats.key(PEER, xid, b"x")).collect();
        for key in &keys {
            assert!(matches!(repeats.begin(*key, ()), Begun::New));
            repeats.end(*key, b"done");
        }
        let mut state = repeats.state.lock();
        state.forget_old(4, Duration::from_secs(1000));
        assert_eq!((state.order.len(), state.seen.len()), (4, 4));
        assert!(state.seen.contains_key(&keys[9]) && !state.seen.contains_key(&keys[0]));
        state.forget_old(4, Duration::ZERO);
        assert!(state.seen.is_empty());
    }
}
