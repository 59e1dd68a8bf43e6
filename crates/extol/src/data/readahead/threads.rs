//! Readahead threads and their memory, both bounded for the whole volume.
//!
//! ```text
//!   queued ──a thread takes it──► reading ──► done ──► copied, memory kept for the next
//!     │ its reader comes first        └──► over: its reader reads the device
//!     └──► over: its reader reads the device
//! ```
//!
//! Threads start when there is work and end when there is none for [`IDLE`]. If none can be
//! started, pieces stay queued until their readers read the device. A thread takes no lock of the
//! file system (RA-3).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use extol_block::{AlignedBuf, BlockDevice, SharedDevice};
use extol_sync::Condvar;
use extol_sync::plain::Mutex;
use serde::{Deserialize, Serialize};

/// Largest piece: enough for one request of any device.
pub(super) const PIECE: usize = 1 << 20;
/// Pieces up to this size get the small kind of buffer.
const SMALL: usize = 128 << 10;
/// Memory in pieces, for all open files.
const BUDGET: usize = 32 << 20;
/// Buffers of each kind that are kept.
const KEEP: usize = 4;
const THREADS: usize = 16;
const IDLE: Duration = Duration::from_secs(2);
/// Alignment of memory for direct I/O.
const PAGE: usize = 4096;
/// The name of the threads.
pub(super) const NAME: &str = "extol-ahead";

/// Figures of readahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReadaheadStats {
    /// Requests made ahead of a reader.
    pub pieces: u64,
    /// Bytes read ahead.
    pub read_bytes: u64,
    /// Bytes that a reader then took.
    pub used_bytes: u64,
    /// Readers that waited for a piece that was being read.
    pub waits: u64,
    /// Readers that came before a thread had begun with their piece.
    pub late: u64,
    /// Times that pieces were dropped because the file may have changed.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counters {
    pieces: AtomicU64,
    read_bytes: AtomicU64,
    used_bytes: AtomicU64,
    waits: AtomicU64,
    late: AtomicU64,
    dropped: AtomicU64,
}

/// The threads and the memory of one volume. Dropping it ends the threads.
#[derive(Debug)]
pub(crate) struct ReadaheadThreads {
    shared: Arc<Shared>,
    /// False: nothing is read ahead.
    enabled: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    bytes: AtomicUsize,
    small: Mutex<Vec<AlignedBuf>>,
    large: Mutex<Vec<AlignedBuf>>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

#[derive(Debug)]
struct Job {
    /// Weak: a dropped piece does not keep the device open (RA-4).
    device: Weak<dyn BlockDevice>,
    at: u64,
    piece: Arc<Piece>,
}

/// A part of a file that is read ahead.
#[derive(Debug)]
pub(super) struct Piece {
    /// Bytes of the file.
    pub(super) range: Range<u64>,
    shared: Arc<Shared>,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug)]
enum State {
    Queued,
    Reading,
    Done(AlignedBuf),
    /// Failed, or cancelled before it began.
    Over,
}

impl Drop for ReadaheadThreads {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.shared.queue.lock();
            queue.ended = true;
            std::mem::take(&mut queue.jobs)
        };
        self.shared.work.notify_all();
        drop(left);
    }
}

impl ReadaheadThreads {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { shared: Arc::default(), enabled }
    }

    pub(super) fn available(&self) -> bool {
        self.enabled
    }

    pub(crate) fn stats(&self) -> ReadaheadStats {
        let c = &self.shared.counters;
        ReadaheadStats {
            pieces: c.pieces.load(Relaxed),
            read_bytes: c.read_bytes.load(Relaxed),
            used_bytes: c.used_bytes.load(Relaxed),
            waits: c.waits.load(Relaxed),
            late: c.late.load(Relaxed),
            dropped: c.dropped.load(Relaxed),
        }
    }

    /// The pieces of a file were dropped because it may have changed.
    pub(super) fn note_dropped(&self) {
        self.shared.counters.dropped.fetch_add(1, Relaxed);
    }

    /// Requests bytes `range` of a file, at most [`PIECE`], from `at` of the device. `None`: all
    /// memory is in use.
    pub(super) fn request(
        &self,
        device: &SharedDevice,
        range: Range<u64>,
        at: u64,
    ) -> Option<Arc<Piece>> {
        let len = (range.end - range.start) as usize;
        let shared = &self.shared;
        if shared.bytes.fetch_add(len, Relaxed) + len > BUDGET {
            shared.bytes.fetch_sub(len, Relaxed);
            return None;
        }
        shared.counters.pieces.fetch_add(1, Relaxed);
        let piece = Arc::new(Piece {
            range,
            shared: Arc::clone(shared),
            state: Mutex::new(State::Queued),
            over: Condvar::new(),
        });
        let mut queue = shared.queue.lock();
        queue.jobs.push_back(Job { device: Arc::downgrade(device), at, piece: Arc::clone(&piece) });
        if queue.jobs.len() <= queue.idle {
            drop(queue);
            shared.work.notify_one();
        } else if queue.threads < THREADS {
            queue.threads += 1;
            let its = Arc::clone(shared);
            let thread = std::thread::Builder::new().name(NAME.into());
            if thread.spawn(move || its.work()).is_err() {
                queue.threads -= 1;
            }
        }
        Some(piece)
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.ended {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                self.read(job);
                queue = self.queue.lock();
                continue;
            }
            queue.idle += 1;
            let waited = self.work.wait_for(&mut queue, IDLE);
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    fn read(&self, job: Job) {
        let Job { device, at, piece } = job;
        let piece = &*piece;
        {
            let mut state = piece.state.lock();
            if !matches!(*state, State::Queued) {
                return;
            }
            *state = State::Reading;
        }
        // Sets the result when dropped, also if the device panics.
        let mut reading = Reading { piece, result: State::Over };
        // Dropped before `reading`: a waiter may depend on the device being closed (RA-4).
        let Some(device) = device.upgrade() else { return };
        let len = piece.len();
        let mut buf = self.buffer(len);
        if device.read_at(&mut buf[..len], at).is_ok() {
            self.counters.read_bytes.fetch_add(len as u64, Relaxed);
            reading.result = State::Done(buf);
        } else {
            self.keep(buf);
        }
    }

    fn buffer(&self, len: usize) -> AlignedBuf {
        let (kept, size) = if len <= SMALL { (&self.small, SMALL) } else { (&self.large, PIECE) };
        let kept = kept.lock().pop();
        kept.unwrap_or_else(|| AlignedBuf::new(size.max(len), PAGE))
    }

    fn keep(&self, buf: AlignedBuf) {
        let mut kept = if buf.len() == SMALL { self.small.lock() } else { self.large.lock() };
        if kept.len() < KEEP {
            kept.push(buf);
        }
    }
}

/// A piece that is being read.
struct Reading<'a> {
    piece: &'a Piece,
    result: State,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        *self.piece.state.lock() = std::mem::replace(&mut self.result, State::Over);
        self.piece.over.notify_all();
    }
}

impl Piece {
    fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Copies from byte `at` of the file on, which must be inside the piece. 0: the caller is to
    /// read that part from the device.
    pub(super) fn copy(&self, at: u64, to: &mut [u8]) -> usize {
        let counters = &self.shared.counters;
        let mut state = self.state.lock();
        if matches!(*state, State::Queued) {
            *state = State::Over;
            counters.late.fetch_add(1, Relaxed);
        }
        if matches!(*state, State::Reading) {
            counters.waits.fetch_add(1, Relaxed);
            self.over.wait_while(&mut state, |state| matches!(state, State::Reading));
        }
        let State::Done(buf) = &*state else { return 0 };
        let from = (at - self.range.start) as usize;
        let n = (self.len() - from).min(to.len());
        to[..n].copy_from_slice(&buf[from..from + n]);
        counters.used_bytes.fetch_add(n as u64, Relaxed);
        n
    }

    /// The piece is not needed.
    pub(super) fn cancel(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Queued) {
            *state = State::Over;
        }
    }

    /// Waits until no thread reads it.
    pub(super) fn wait(&self) {
        self.cancel();
        let mut state = self.state.lock();
        self.over.wait_while(&mut state, |state| matches!(state, State::Reading));
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.shared.bytes.fetch_sub(self.len(), Relaxed);
        if let State::Done(buf) = std::mem::replace(self.state.get_mut(), State::Over) {
            self.shared.keep(buf);
        }
    }
}
