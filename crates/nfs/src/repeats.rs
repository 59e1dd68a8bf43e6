//! Calls that a client sends again, and the replies that are kept for them.
//!
//! A client that lost its connection sends what was not answered once more. A REMOVE would fail the
//! second time, and a WRITE would run a second time, perhaps over a later one. So a call that
//! cannot be done twice is told by its bytes:
//!
//! ```text
//!            begin                      end
//!   new ───────────► running (asker) ──────► answered (reply) ──► forgotten
//!                      │        ▲     abandon: the asker has gone ──► forgotten
//!                      ╰─ begin ╯ again: the asker is the younger connection
//! ```
//!
//! - A *running* call is the same call from any port of its address: its reply goes to the younger
//!   connection. The client has given up the older one, which therefore ends.
//! - A reply that was *answered* is given again to the same port, as Linux's nfsd does it. Linux's
//!   client connects again from its port. Another port may be another program of the host, whose
//!   numbers begin anew, and which asks for the same thing for a reason of its own.
//! - It is given to another port if the connection is older than the reply. Such a call is a copy
//!   that was on its way for long, as over a connection that the client has given up and the server
//!   has not seen end. It must not run behind what the client has done since.
//!
//! The checksum covers the whole call. Another call under the same number is another call.
//!
//! *Budgets.* Replies are kept for two minutes. Each client has a budget of its own, so that no
//! other can push its replies out; if there are many clients, each has its share of the whole.
//!
//! - RQ-1: a call in progress is not begun a second time ([`Repeats::begin`]).
//! - RQ-2: the replies of a client are forgotten for its own ones, or if it has more than its share
//!   ([`State::keep`]).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extol_sync::plain::Mutex;

use crate::client::Client;
use crate::limits;

/// The head of a call that is hashed; all of it goes into a checksum.
const HEAD: usize = 512;

/// A call, from whatever port of its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    address: IpAddr,
    xid: u32,
    len: usize,
    digest: u64,
}

/// The connection that a call comes over, beside its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(crate) port: u16,
    /// The time at which the connection was accepted.
    pub(crate) opened: Instant,
}

/// The calls that were seen of late. `P`: where replies go.
#[derive(Debug)]
pub(crate) struct Repeats<P> {
    state: Mutex<State<P>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct State<P> {
    running: HashMap<Key, (Origin, P)>,
    answered: HashMap<Client, Answered>,
    /// Replies of all clients.
    replies: usize,
    /// Most of them.
    most: usize,
    /// When the old ones of all clients were last looked for.
    swept: Instant,
}

/// The replies to a client, and their order, the oldest first.
#[derive(Debug, Default)]
struct Answered {
    replies: HashMap<Key, Reply>,
    order: VecDeque<(Key, Instant)>,
}

#[derive(Debug)]
struct Reply {
    /// The port that asked for it.
    port: u16,
    answered: Instant,
    bytes: Arc<[u8]>,
}

impl Reply {
    fn is_for(&self, origin: Origin) -> bool {
        self.port == origin.port || origin.opened < self.answered
    }
}

/// The way to go on with a call.
#[derive(Debug)]
pub(crate) enum Begun<P> {
    /// A new one: work on it.
    New,
    /// In progress; the connection that its client has given up for the other one.
    Running { given_up: Option<P> },
    /// Done; its reply.
    Answered(Arc<[u8]>),
}

impl<P> Repeats<P> {
    /// No calls yet. The replies that are kept may take so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let state = State {
            running: HashMap::new(),
            answered: HashMap::new(),
            replies: 0,
            most: (bytes / limits::REPEAT).max(1),
            swept: Instant::now(),
        };
        Self { state: Mutex::new(state), hasher: RandomState::new() }
    }

    /// The key of a call.
    pub(crate) fn key(&self, peer: SocketAddr, xid: u32, record: &[u8]) -> Key {
        let head = &record[..record.len().min(HEAD)];
        let digest = self.hasher.hash_one((head, crc32c::crc32c(record)));
        Key { address: peer.ip().to_canonical(), xid, len: record.len(), digest }
    }

    /// A call has come, over the connection `asker` (RQ-1).
    pub(crate) fn begin(&self, key: Key, origin: Origin, asker: P) -> Begun<P> {
        let mut state = self.state.lock();
        if let Some((before, its_asker)) = state.running.get_mut(&key) {
            if *before == origin {
                return Begun::Running { given_up: None };
            }
            if origin.opened < before.opened {
                return Begun::Running { given_up: Some(asker) };
            }
            *before = origin;
            return Begun::Running { given_up: Some(std::mem::replace(its_asker, asker)) };
        }
        if let Some(reply) = state.reply(key, origin) {
            return Begun::Answered(reply);
        }
        state.running.insert(key, (origin, asker));
        Begun::New
    }

    /// A call has this reply. Gives where it goes.
    pub(crate) fn end(&self, key: Key, reply: &[u8]) -> Option<P> {
        let mut state = self.state.lock();
        let (origin, asker) = state.running.remove(&key)?;
        let reply = Reply { port: origin.port, answered: Instant::now(), bytes: reply.into() };
        state.keep(key, reply);
        Some(asker)
    }

    /// Forgets a call that has not begun, if the connection that waits for it has gone.
    pub(crate) fn abandon(&self, key: Key, has_gone: impl FnOnce(&P) -> bool) -> bool {
        let mut state = self.state.lock();
        let is_wanted = state.running.get(&key).is_some_and(|(_, asker)| !has_gone(asker));
        if !is_wanted {
            state.running.remove(&key);
        }
        !is_wanted
    }
}

impl<P> State<P> {
    fn reply(&mut self, key: Key, origin: Origin) -> Option<Arc<[u8]>> {
        let client = self.answered.get_mut(&Client::of(key.address))?;
        self.replies -= client.forget(usize::MAX, limits::REPEATS_TIME);
        let reply = client.replies.get(&key).filter(|reply| reply.is_for(origin))?;
        Some(Arc::clone(&reply.bytes))
    }

    /// Keeps a reply, within the share of its client (RQ-2).
    fn keep(&mut self, key: Key, reply: Reply) {
        if self.swept.elapsed() >= limits::REPEATS_TIME {
            self.forget_old();
        }
        let owner = Client::of(key.address);
        let client = self.answered.entry(owner).or_default();
        client.order.push_back((key, reply.answered));
        client.replies.insert(key, reply);
        self.replies += 1;
        let share = (self.most / self.answered.len()).clamp(1, limits::REPEATS);
        let client = self.answered.entry(owner).or_default();
        self.replies -= client.forget(share, limits::REPEATS_TIME);
        // Others have more than their share, which was larger before.
        while self.replies > self.most {
            let Some(largest) = self.answered.values_mut().max_by_key(|client| client.order.len())
            else {
                return;
            };
            self.replies -= largest.forget(share.min(largest.order.len() - 1), Duration::MAX);
            self.answered.retain(|_, client| !client.order.is_empty());
        }
    }

    fn forget_old(&mut self) {
        self.swept = Instant::now();
        let all = self.answered.values_mut();
        self.replies -=
            all.map(|client| client.forget(usize::MAX, limits::REPEATS_TIME)).sum::<usize>();
        self.answered.retain(|_, client| !client.order.is_empty());
    }
}

impl Answered {
    /// Forgets the oldest replies beyond so many, and those that are older than `time`. Gives how
    /// many.
    fn forget(&mut self, most: usize, time: Duration) -> usize {
        let before = self.order.len();
        while let Some((key, answered)) = self.order.front().copied() {
            if self.order.len() <= most && answered.elapsed() < time {
                break;
            }
            self.order.pop_front();
            // The same call may have run again since, for another port.
            if self.replies.get(&key).is_some_and(|reply| reply.answered == answered) {
                self.replies.remove(&key);
            }
        }
        before - self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().expect(text)
    }

    fn from(port: u16) -> Origin {
        Origin { port, opened: Instant::now() }
    }

    /// Does a call that has its own number, if it is new.
    fn done(repeats: &Repeats<()>, peer: SocketAddr, xid: u32) -> bool {
        let key = repeats.key(peer, xid, b"create");
        let is_new = matches!(repeats.begin(key, from(peer.port()), ()), Begun::New);
        if is_new {
            repeats.end(key, b"done");
        }
        is_new
    }

    #[test]
    fn a_repeated_call_gets_the_same_reply() {
        let repeats = Repeats::new(1 << 20);
        let key = repeats.key(peer("10.0.0.1:700"), 1, b"remove a");
        let [oldest, first, second] = [699, 700, 701].map(from);
        assert!(matches!(repeats.begin(key, first, "first"), Begun::New));
        // Other ports of the client while it is in progress: the youngest connection gets it.
        for (origin, name, given_up) in [
            (second, "second", Some("first")),
            (second, "second", None),
            (oldest, "oldest", Some("oldest")),
        ] {
            let Begun::Running { given_up: found } = repeats.begin(key, origin, name) else {
                panic!("not running for {name}")
            };
            assert_eq!(found, given_up, "{name}");
        }
        assert_eq!(repeats.end(key, b"done"), Some("second"));
        let Begun::Answered(reply) = repeats.begin(key, from(701), "third") else {
            panic!("not answered")
        };
        assert_eq!(*reply, *b"done");
        // Behind its reply, the same bytes from another port are another call.
        assert!(matches!(repeats.begin(key, from(702), "other"), Begun::New));
    }

    /// A copy over a connection that the client has given up comes when all is over.
    #[test]
    fn a_late_copy_does_not_run_again() {
        let repeats = Repeats::new(1 << 20);
        let key = repeats.key(peer("10.0.0.1:700"), 1, b"write old");
        let old = from(700);
        assert!(matches!(repeats.begin(key, from(701), ()), Begun::New));
        repeats.end(key, b"done");
        assert!(matches!(repeats.begin(key, old, ()), Begun::Answered(_)));
    }

    #[test]
    fn another_call_under_the_same_number_is_new() {
        let repeats = Repeats::new(1 << 20);
        let peer = peer("10.0.0.1:700");
        let mut long = vec![7; 1 << 20];
        for (xid, record) in [(1, &b"remove a"[..]), (2, b"remove a"), (1, b"remove b"), (1, &long)]
        {
            let key = repeats.key(peer, xid, record);
            assert!(matches!(repeats.begin(key, from(700), ()), Begun::New));
            repeats.end(key, b"done");
        }
        // The last byte of much data.
        *long.last_mut().expect("data") ^= 1;
        let key = repeats.key(peer, 1, &long);
        assert!(matches!(repeats.begin(key, from(700), ()), Begun::New));
        let elsewhere = repeats.key(SocketAddr::from(([10, 0, 0, 2], 700)), 1, b"remove a");
        assert!(matches!(repeats.begin(elsewhere, from(700), ()), Begun::New));
    }

    #[test]
    fn a_call_is_abandoned_with_the_connection_that_waits_for_it() {
        let repeats = Repeats::new(1 << 20);
        let key = repeats.key(peer("10.0.0.1:700"), 1, b"write");
        assert!(matches!(repeats.begin(key, from(700), "first"), Begun::New));
        let begun = repeats.begin(key, from(701), "second");
        assert!(matches!(begun, Begun::Running { given_up: Some("first") }));
        assert!(!repeats.abandon(key, |asker| *asker == "first"));
        assert!(repeats.abandon(key, |asker| *asker == "second"));
        assert!(matches!(repeats.begin(key, from(702), "third"), Begun::New));
    }

    #[test]
    fn a_client_has_a_budget_of_its_own() {
        let repeats = Repeats::new(16 << 20);
        let (quiet, busy) = (peer("10.0.0.1:700"), peer("10.0.0.2:700"));
        assert!(done(&repeats, quiet, 1));
        for xid in 0..3 * u32::try_from(limits::REPEATS).expect("few") {
            assert!(done(&repeats, busy, xid));
        }
        assert!(!done(&repeats, quiet, 1), "the reply was pushed out by another client");
        assert_eq!(repeats.state.lock().replies, limits::REPEATS + 1);
        assert!(done(&repeats, busy, 0), "more than the budget is kept");
    }

    #[test]
    fn many_clients_share_the_whole() {
        let repeats = Repeats::new(100 * limits::REPEAT);
        let client = |nr: u8| SocketAddr::from(([10, 0, 0, nr], 700));
        for xid in 0..200 {
            done(&repeats, client(0), xid);
        }
        assert_eq!(repeats.state.lock().replies, 100);
        for nr in 1..10 {
            for xid in 0..50 {
                done(&repeats, client(nr), xid);
            }
        }
        let state = repeats.state.lock();
        let kept = state.answered.values().map(|client| client.order.len());
        assert!(state.replies <= 100 && kept.clone().sum::<usize>() == state.replies);
        assert!(kept.min() >= Some(10), "{:?}", state.answered);
    }

    #[test]
    fn old_replies_are_forgotten() {
        let repeats = Repeats::new(1 << 20);
        for xid in 0..10 {
            done(&repeats, peer("10.0.0.1:700"), xid);
        }
        let mut state = repeats.state.lock();
        let client = state.answered.values_mut().next().expect("a client");
        assert_eq!(client.forget(4, Duration::MAX), 6);
        assert_eq!((client.order.len(), client.replies.len()), (4, 4));
        assert_eq!(client.forget(usize::MAX, Duration::ZERO), 4);
        assert!(client.replies.is_empty());
    }
}
