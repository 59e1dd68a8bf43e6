//! One cache flush serves many callers.
//!
//! A flush makes writes durable that ended *before it began*. A caller that arrives while one is
//! running cannot rely on it, but all callers that arrive meanwhile share the next one:
//!
//! ```text
//!  A ──flush 1──────────┐
//!      B arrives ..wait..│──flush 2 (leader B)──────┐
//!          C arrives ....│..waits for flush 2.......│ both return its result
//! ```
//!
//! State: the next batch, which every arriving caller joins, and whether a flush is running. The
//! first member of the batch that sees no flush running becomes its leader: it closes the batch
//! (puts a new one in place for later callers), flushes with no lock held, and stores the result
//! for all members.
//!
//! Invariants
//! - BD-1: a caller returns the result of a flush that began after its call
//!   ([`FlushCoalescer::run`]).
//! - BD-2: an error reaches every member of its batch, even if a later flush succeeds before some
//!   of them wake up (`EndOfFlush`).

use crate::{DeviceError, DeviceOp, Result};
use extol_sync::{Condvar, Mutex};
use std::io;
use std::sync::Arc;

/// Merges concurrent flushes of one device.
#[derive(Debug, Default)]
pub struct FlushCoalescer {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    next: Arc<Batch>,
}

/// The callers served by one flush. `result` is written once, by the leader, under the state lock.
#[derive(Debug, Default)]
struct Batch {
    result: Mutex<Option<Result<()>>>,
}

impl FlushCoalescer {
    /// A coalescer with no flush running.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the result of a flush that begins after this call: the caller's own `flush`, or the
    /// one of another caller that waited at the same time.
    pub fn run(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let batch = Arc::clone(&state.next);
        loop {
            if let Some(result) = &*batch.result.lock() {
                return result.clone();
            }
            if !state.running {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.running = true;
        state.next = Arc::default();
        drop(state);
        let mut end = EndOfFlush { coalescer: self, batch: &batch, result: None };
        let result = flush();
        end.result = Some(result.clone());
        result
    }
}

/// Publishes the result when dropped. After a panic of the flush the waiters get an error.
struct EndOfFlush<'a> {
    coalescer: &'a FlushCoalescer,
    batch: &'a Batch,
    result: Option<Result<()>>,
}

impl Drop for EndOfFlush<'_> {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| {
            Err(DeviceError::new(
                DeviceOp::Flush,
                0,
                0,
                io::Error::other("the flushing thread panicked"),
            ))
        });
        let mut state = self.coalescer.state.lock();
        *self.batch.result.lock() = Some(result);
        state.running = false;
        self.coalescer.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(20), "timeout: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Members that hold the batch that has not begun (the state itself holds one reference).
    fn waiting(c: &FlushCoalescer) -> usize {
        Arc::strong_count(&c.state.lock().next) - 1
    }

    #[test]
    fn alone_every_call_flushes() {
        let c = FlushCoalescer::new();
        let count = AtomicU32::new(0);
        for _ in 0..5 {
            c.run(|| {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .expect("flush");
        }
        assert_eq!(count.into_inner(), 5);
    }

    #[test]
    fn waiting_callers_share_the_next_flush() {
        let c = FlushCoalescer::new();
        let count = AtomicU32::new(0);
        let gate = Barrier::new(2);
        thread::scope(|s| {
            let first = s.spawn(|| {
                c.run(|| {
                    count.fetch_add(1, Ordering::SeqCst);
                    gate.wait();
                    Ok(())
                })
            });
            wait_until("first flush runs", || count.load(Ordering::SeqCst) == 1);
            let others: Vec<_> = (0..16)
                .map(|_| {
                    s.spawn(|| {
                        c.run(|| {
                            count.fetch_add(1, Ordering::SeqCst);
                            Ok(())
                        })
                    })
                })
                .collect();
            wait_until("all wait", || waiting(&c) == 16);
            assert_eq!(
                count.load(Ordering::SeqCst),
                1,
                "no caller relies on the running flush or starts beside it"
            );
            gate.wait();
            first.join().expect("join").expect("flush");
            for other in others {
                other.join().expect("join").expect("flush");
            }
        });
        assert_eq!(count.into_inner(), 2);
    }

    #[test]
    fn an_error_reaches_all_of_its_batch_and_only_them() {
        let c = FlushCoalescer::new();
        let count = AtomicU32::new(0);
        let gate = Barrier::new(2);
        let eio = || {
            Err(DeviceError::new(DeviceOp::Flush, 0, 0, io::Error::from_raw_os_error(libc::EIO)))
        };
        thread::scope(|s| {
            let first = s.spawn(|| {
                c.run(|| {
                    count.fetch_add(1, Ordering::SeqCst);
                    gate.wait();
                    Ok(())
                })
            });
            wait_until("first flush runs", || count.load(Ordering::SeqCst) == 1);
            let others: Vec<_> = (0..8).map(|_| s.spawn(|| c.run(eio))).collect();
            wait_until("all wait", || waiting(&c) == 8);
            gate.wait();
            assert!(first.join().expect("join").is_ok());
            for other in others {
                let error = other.join().expect("join").expect_err("must fail");
                assert_eq!(error.source.raw_os_error(), Some(libc::EIO));
            }
        });
        c.run(|| Ok(())).expect("a later flush is on its own");
    }

    #[test]
    fn a_flush_covers_every_write_before_the_call() {
        // `written` stands for the device's cache, `durable` for its medium.
        let (c, written, durable) = (FlushCoalescer::new(), AtomicU64::new(0), AtomicU64::new(0));
        let flushes = AtomicU32::new(0);
        thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..300 {
                        let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                        c.run(|| {
                            flushes.fetch_add(1, Ordering::SeqCst);
                            let seen = written.load(Ordering::SeqCst);
                            thread::yield_now();
                            durable.fetch_max(seen, Ordering::SeqCst);
                            Ok(())
                        })
                        .expect("flush");
                        assert!(durable.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(flushes.into_inner() <= 2400);
    }

    #[test]
    fn a_panicking_leader_does_not_hang_the_others() {
        let c = FlushCoalescer::new();
        let panicked = thread::scope(|s| s.spawn(|| c.run(|| panic!("boom"))).join());
        assert!(panicked.is_err());
        c.run(|| Ok(())).expect("usable afterwards");
    }
}
