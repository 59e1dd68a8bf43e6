//! A bell: one ring wakes all waiting threads at the same time.
//!
//! A condition variable gives its mutex to one waiter after the other: each wakes when the one
//! before it unlocks, so the last of many waits for as many thread switches. A waiter that only
//! needs to know that an event has happened waits for a bell instead: all waiters wake at once, and
//! none needs the mutex under which the event happened.
//!
//! ```text
//!   seen = rings()        under the mutex that guards the event
//!   unlock, wait(seen)    returns once the bell has rung since
//! ```
//!
//! It is made of the standard library's types (or the model checker's of the same API), because
//! parking_lot moves waiters from a condition variable to its mutex.

#[cfg(debug_assertions)]
use std::panic::Location;
use std::sync::PoisonError;
#[cfg(not(feature = "model"))]
use std::sync::{Condvar, Mutex};

#[cfg(feature = "model")]
use shuttle::sync::{Condvar, Mutex};

#[cfg(debug_assertions)]
use crate::shake::{Moment, pause};

/// Counts its rings.
#[derive(Default)]
pub struct Bell {
    rings: Mutex<u32>,
    heard: Condvar,
}

impl std::fmt::Debug for Bell {
    /// Never locks: printing must not be a step of a schedule.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bell")
    }
}

impl Bell {
    /// How often the bell has rung.
    pub fn rings(&self) -> u32 {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn ring(&self) {
        #[cfg(debug_assertions)]
        pause(Location::caller(), Moment::Before);
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        *rings = rings.wrapping_add(1);
        drop(rings);
        self.heard.notify_all();
    }

    /// Waits until the bell has rung since [`rings`](Self::rings) returned `seen`.
    #[track_caller]
    pub fn wait(&self, seen: u32) {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        while *rings == seen {
            rings = self.heard.wait(rings).unwrap_or_else(PoisonError::into_inner);
        }
        drop(rings);
        #[cfg(debug_assertions)]
        pause(Location::caller(), Moment::Behind);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn all_waiters_wake() {
        let bell = Bell::default();
        let seen = bell.rings();
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| bell.wait(seen));
            }
            bell.ring();
        });
        bell.wait(seen);
        assert_eq!(bell.rings(), 1);
    }
}
