//! A bell: many sleep, one ring wakes them all at the same time.
//!
//! A condition variable hands its lock from one sleeper to the next: each is woken when the one
//! before it lets go, so the last of many waits for as many thread switches. A thread that needs
//! nothing but the news that something has happened hears a bell instead: all are woken at once,
//! and none needs the lock under which it happened.
//!
//! ```text
//!   seen = rings()        under the lock that guards what is waited for
//!   unlock, wait(seen)    returns once it has rung since
//! ```
//!
//! These are the standard library's types (or the model checker's with the same face), because
//! parking_lot moves sleepers to the mutex.

#[cfg(debug_assertions)]
use std::panic::Location;
use std::sync::PoisonError;
#[cfg(not(feature = "model"))]
use std::sync::{Condvar, Mutex};

#[cfg(feature = "model")]
use shuttle::sync::{Condvar, Mutex};

#[cfg(debug_assertions)]
use crate::shake::{Moment, pause};

/// See the module's story.
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
    /// How often it has rung.
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

    /// Sleeps until it has rung more often than `seen`.
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
