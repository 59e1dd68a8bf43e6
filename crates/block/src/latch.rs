//! After an uncertain write, stop.
//!
//! Once a write, zeroing or flush has failed, nobody knows what is on the medium: the kernel may
//! have dropped the dirty data and report the next flush as successful. So the first failure
//! latches. Every later change or flush fails with the same error and does not reach the device;
//! reads go on. Only a new open gets rid of it.
//!
//! One kind of write gets through: the mark that tells the next mount that something failed
//! ([`BlockDevice::write_mark`]). It promises nothing about other writes.
//!
//! A failed discard does not latch: what it was to throw away had no value.
//!
//! Flushes are merged here, so that none begins between the failure of another and its latching: it
//! would report success for what the failed one has dropped. A durable write
//! ([`BlockDevice::write_fua`]) may take such an error as well: with the page cache between, the
//! kernel tells it to whoever asks first. So a flush is acknowledged only when the durable writes
//! that ran beside it have ended, and none of them has latched ([`Durable`]).

use crate::coalesce::FlushCoalescer;
use crate::{BlockDevice, DeviceError, Result, ScatteredWrite};
use extol_sync::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::OnceLock;

/// Decorator that refuses all changes after the first failed write or flush.
#[derive(Debug)]
pub struct FailLatch<D> {
    inner: D,
    failure: OnceLock<DeviceError>,
    flushes: FlushCoalescer,
    durable: Durable,
}

/// Durable writes that are under way, by the order in which they began.
#[derive(Debug, Default)]
struct Durable {
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    tickets: BTreeSet<u64>,
}

impl Durable {
    /// Counts one while `write` runs; its failure must be latched inside.
    fn run(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let ticket = {
            let mut running = self.running.lock();
            let ticket = running.next;
            running.next += 1;
            running.tickets.insert(ticket);
            ticket
        };
        let _end = EndOfWrite { durable: self, ticket };
        write()
    }

    /// Waits for all that have begun before this call, and for no later one.
    fn wait(&self) {
        let mut running = self.running.lock();
        let limit = running.next;
        while running.tickets.first().is_some_and(|ticket| *ticket < limit) {
            self.ended.wait(&mut running);
        }
    }
}

/// Takes a ticket back, also if the write panicked.
struct EndOfWrite<'a> {
    durable: &'a Durable,
    ticket: u64,
}

impl Drop for EndOfWrite<'_> {
    fn drop(&mut self) {
        self.durable.running.lock().tickets.remove(&self.ticket);
        self.durable.ended.notify_all();
    }
}

impl<D: BlockDevice> FailLatch<D> {
    /// Wraps `inner`.
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            failure: OnceLock::new(),
            flushes: FlushCoalescer::new(),
            durable: Durable::default(),
        }
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<&DeviceError> {
        self.failure.get()
    }

    /// The device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    fn guarded(&self, change: impl FnOnce(&D) -> Result<()>) -> Result<()> {
        self.check()?;
        let result = change(&self.inner);
        match &result {
            Err(error) => {
                // If two fail at once, the first stays.
                let _ = self.failure.set(error.clone());
                result
            }
            // Another thread's write may have failed meanwhile; success is not told to anyone after
            // that.
            Ok(()) => self.check(),
        }
    }
}

impl<D: BlockDevice> BlockDevice for FailLatch<D> {
    crate::pass_on!(shape, abilities, reads);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.guarded(|d| d.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.guarded(|d| d.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.guarded(|d| d.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.durable.run(|| self.guarded(|d| d.write_scattered_fua(writes)))
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.durable.run(|| self.guarded(|d| d.write_fua(buf, offset)))
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.durable.run(|| {
            let result = self.inner.write_mark(buf, offset);
            if let Err(error) = &result {
                let _ = self.failure.set(error.clone());
            }
            result
        })
    }

    fn flush(&self) -> Result<()> {
        self.flushes.run(|| {
            self.guarded(BlockDevice::flush)?;
            self.durable.wait();
            self.check()
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check()?;
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.guarded(|d| d.zero_range(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceOp;
    /// The kernel tells an error of the page cache once: here the durable write gets it, and a
    /// flush that ran beside it is told that all is well.
    #[test]
    fn a_flush_believes_no_success_beside_a_durable_write_that_fails() {
        use std::sync::mpsc;
        use std::time::Duration;

        #[derive(Debug)]
        struct OneTeller {
            writing: mpsc::Sender<()>,
            flushed: mpsc::Sender<()>,
            end: std::sync::Mutex<mpsc::Receiver<()>>,
        }
        impl BlockDevice for OneTeller {
            fn size(&self) -> u64 {
                1 << 20
            }
            fn is_read_only(&self) -> bool {
                false
            }
            fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
                Ok(())
            }
            fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
                Ok(())
            }
            fn write_fua(&self, _: &[u8], offset: u64) -> Result<()> {
                self.writing.send(()).expect("the test listens");
                self.end.lock().expect("one user").recv().expect("the test says when");
                Err(DeviceError::new(
                    DeviceOp::Write,
                    offset,
                    512,
                    std::io::Error::other("told here"),
                ))
            }
            fn flush(&self) -> Result<()> {
                self.flushed.send(()).expect("the test listens");
                Ok(())
            }
            fn discard(&self, _: u64, _: u64) -> Result<()> {
                Ok(())
            }
            fn zero_range(&self, _: u64, _: u64) -> Result<()> {
                Ok(())
            }
        }
        let (writing, is_writing) = mpsc::channel();
        let (flushed, is_flushed) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let device = FailLatch::new(OneTeller { writing, flushed, end: ends.into() });
        device.flush().expect("nothing has failed yet");
        is_flushed.recv().expect("it was asked");
        std::thread::scope(|s| {
            let write = s.spawn(|| device.write_fua(&[1; 512], 4096));
            is_writing.recv().expect("it began");
            let flush = s.spawn(|| device.flush());
            is_flushed.recv().expect("it was asked");
            // Time for a wrong success to come back.
            std::thread::sleep(Duration::from_millis(100));
            let early = flush.is_finished();
            end.send(()).expect("the write ends");
            assert!(write.join().expect("no panic").is_err());
            assert!(flush.join().expect("no panic").is_err(), "what was dropped was acknowledged");
            assert!(!early, "acknowledged beside a durable write");
        });
    }
}
