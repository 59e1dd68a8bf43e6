//! The connections of a device, which are replaced together when one breaks.
//!
//! A call *enters* a generation of connections and *leaves* it when it has noted what the server
//! acknowledged. A generation that broke is replaced once all calls have left it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use extol_sync::{Condvar, Mutex};

use crate::connection::Connection;
use crate::{Error, Result};

/// Between two tries to connect: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Most new connections one behind the other that answer nothing: a server that ends with each
/// request is not asked for ever.
const MOST_FRUITLESS: u32 = 4;

/// Connections that are used together.
#[derive(Debug)]
pub(crate) struct Generation {
    pub number: u64,
    pub connections: Vec<Connection>,
}

/// What makes the connections.
pub(crate) trait Renew {
    /// New ones, on which everything is again that was acknowledged.
    fn make(&self, number: u64) -> Result<Generation>;

    /// True if the server may still carry out what it has acknowledged: it has a cache that it need
    /// not share among its connections.
    fn may_come_late(&self) -> bool;
}

/// How a generation broke.
#[derive(Clone, Debug)]
struct Break {
    at: Instant,
    cause: Error,
    /// A change has no reply.
    is_unanswered: bool,
}

#[derive(Debug)]
struct State {
    current: Arc<Generation>,
    /// Calls that have entered the current generation and not left it.
    inside: usize,
    broken: Option<Break>,
    /// New connections one behind the other on which no request was answered.
    fruitless: u32,
    /// A thread makes new connections.
    is_renewed: bool,
    /// Why there will be none.
    gone: Option<Error>,
}

/// What a device may do when its connections break.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// How long new connections are tried to be made.
    pub reconnect: Duration,
    /// After which time a server has done with a broken connection.
    pub settle: Option<Duration>,
}

/// See the module's story.
#[derive(Debug)]
pub(crate) struct Generations {
    policy: Policy,
    state: Mutex<State>,
    changed: Condvar,
}

impl Generations {
    pub fn new(connections: Vec<Connection>, policy: Policy) -> Self {
        let state = State {
            current: Arc::new(Generation { number: 0, connections }),
            inside: 0,
            broken: None,
            fruitless: 0,
            is_renewed: false,
            gone: None,
        };
        Self { policy, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The current connections, which the caller enters.
    ///
    /// # Errors
    /// The device is gone.
    pub fn enter(&self, renew: &dyn Renew) -> Result<Arc<Generation>> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = &state.gone {
                return Err(error.clone());
            }
            let Some(broken) = state.broken.clone() else {
                state.inside += 1;
                return Ok(state.current.clone());
            };
            if state.inside > 0 || state.is_renewed {
                self.changed.wait(&mut state);
                continue;
            }
            state.is_renewed = true;
            let (number, fruitless) = (state.current.number + 1, state.fruitless);
            drop(state);
            let renewed = if fruitless > MOST_FRUITLESS {
                Err(broken.cause)
            } else {
                self.renew(&broken, renew, number)
            };
            state = self.state.lock();
            state.is_renewed = false;
            match renewed {
                Ok(generation) => {
                    state.current = Arc::new(generation);
                    state.fruitless += 1;
                    state.broken = None;
                }
                Err(error) => state.gone = Some(error),
            }
            self.changed.notify_all();
        }
    }

    /// A call leaves a generation; with the failure of its connection, if it failed by that.
    /// `is_change`: the failed request may have changed something, or may do so later.
    pub fn leave(&self, generation: &Generation, failure: Option<&Error>, is_change: bool) {
        let mut state = self.state.lock();
        state.inside -= 1;
        match failure {
            None => state.fruitless = 0,
            Some(error) => {
                let at = Instant::now();
                let new = || Break { at, cause: error.clone(), is_unanswered: false };
                state.broken.get_or_insert_with(new).is_unanswered |= is_change;
                for connection in &generation.connections {
                    connection.fail(error);
                }
            }
        }
        if state.inside == 0 {
            self.changed.notify_all();
        }
    }

    /// The connections, if the device is not gone.
    pub fn current(&self) -> Option<Arc<Generation>> {
        let state = self.state.lock();
        state.gone.is_none().then(|| state.current.clone())
    }

    /// New connections for those that broke.
    fn renew(&self, broken: &Break, renew: &dyn Renew, number: u64) -> Result<Generation> {
        let Break { at, cause, is_unanswered } = broken;
        // (What breaks the protocol is no server to go on with. Nor is one that is there and does
        // not answer: it would not answer the next time.)
        if !matches!(cause, Error::Broken { .. }) || self.policy.reconnect.is_zero() {
            return Err(cause.clone());
        }
        let settle = if *is_unanswered || renew.may_come_late() {
            self.policy.settle.ok_or_else(|| {
                let what = "the server may still write what was under way or in its cache";
                cause.with_text(format!("{cause}; {what} (settle= in the address)"))
            })?
        } else {
            Duration::ZERO
        };
        std::thread::sleep(settle.saturating_sub(at.elapsed()));
        let until = *at + settle + self.policy.reconnect;
        let mut pause = PAUSES.0;
        loop {
            match renew.make(number) {
                Ok(generation) => return Ok(generation),
                Err(error) if error.is_of_network() && Instant::now() + pause < until => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
