//! Stops all changes of a device after the first failed write.
//!
//! After a failed write, zeroing or flush the contents of the medium are unknown: the kernel may
//! have dropped dirty pages and report the next flush as successful. So the first failure latches:
//! every later change or flush fails with the same error and does not reach the device. Reads go
//! on. Only a new open clears it.
//!
//! One kind of write gets through: the error mark for the next mount ([`BlockDevice::write_mark`]).
//! A failed discard does not latch: the discarded bytes had no value. Nor does a refused change of
//! the size, but for the flush in it.
//!
//! Invariants
//! - BD-3: no flush begins between the failure of another and its latching, or it would report
//!   success for dropped data. Flushes are merged here (`FailLatch::flush`).
//! - BD-4: a flush succeeds only after the durable writes beside it have ended without latching
//!   ([`Durable`]). With the page cache in between, the kernel reports a failure once, so a durable
//!   write ([`BlockDevice::write_fua`]) may get the error that the flush should have.

use crate::coalesce::FlushCoalescer;
use crate::{BlockDevice, DeviceError, DeviceOp, Result, ScatteredWrite};
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

/// Durable writes under way, in the order in which they began (BD-4).
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
    /// Counts `write` while it runs; it must latch its own failure.
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

    /// Waits for all that began before this call.
    fn wait(&self) {
        let mut running = self.running.lock();
        let limit = running.next;
        while running.tickets.first().is_some_and(|ticket| *ticket < limit) {
            self.ended.wait(&mut running);
        }
    }
}

/// Removes a ticket, also if the write panicked.
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
                // Of two concurrent failures the first stays.
                let _ = self.failure.set(error.clone());
                result
            }
            // Another thread's write may have failed meanwhile.
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

    fn set_size(&self, bytes: u64) -> Result<()> {
        self.durable.run(|| {
            self.check()?;
            let result = self.inner.set_size(bytes);
            if let Err(error @ DeviceError { op: DeviceOp::Flush, .. }) = &result {
                let _ = self.failure.set(error.clone());
            }
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BD-4: the kernel reports an error of the page cache once. Here the durable write gets it,
    /// and the flush beside it succeeds in the kernel.
    #[test]
    fn a_flush_beside_a_failed_durable_write_fails() {
        use std::sync::mpsc;
        use std::time::Duration;

        #[derive(Debug)]
        struct ReportsOnce {
            writing: mpsc::Sender<()>,
            flushed: mpsc::Sender<()>,
            end: std::sync::Mutex<mpsc::Receiver<()>>,
        }
        impl BlockDevice for ReportsOnce {
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
                    std::io::Error::other("reported here"),
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
        let device = FailLatch::new(ReportsOnce { writing, flushed, end: ends.into() });
        device.flush().expect("nothing has failed yet");
        is_flushed.recv().expect("it was asked");
        std::thread::scope(|s| {
            let write = s.spawn(|| device.write_fua(&[1; 512], 4096));
            is_writing.recv().expect("it began");
            let flush = s.spawn(|| device.flush());
            is_flushed.recv().expect("it was asked");
            // Time for a wrong success to return.
            std::thread::sleep(Duration::from_millis(100));
            let early = flush.is_finished();
            end.send(()).expect("the write ends");
            assert!(write.join().expect("no panic").is_err());
            assert!(flush.join().expect("no panic").is_err(), "dropped data was acknowledged");
            assert!(!early, "acknowledged beside a durable write");
        });
    }
}
