//! Threads that read ahead, and the memory they read into. Both are bounded for the whole volume.
//!
//! ```text
//!   queued ──a thread takes it──► reading ──► done ──► copied, memory kept for the next
//!     │ the reader comes first        └──► failed: whoever wants it reads it himself, and hears why
//!     └──► given up
//! ```
//!
//! Threads start when there is work and end when there is none for [`IDLE`]. If none can be
//! started, pieces stay queued and their readers read them themselves. A thread takes no lock of
//! the file system.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use extol_block::{AlignedBuf, BlockDevice, SharedDevice};
use extol_sync::Condvar;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Largest piece: enough for one request of any device.
pub(super) const PIECE: usize = 1 << 20;
/// Pieces up to this size share a kind of buffer.
const SMALL: usize = 128 << 10;
/// Memory in pieces, for all open files.
const BUDGET: usize = 32 << 20;
/// Buffers of each kind that are kept.
const KEEP: usize = 4;
const THREADS: usize = 4;
const IDLE: Duration = Duration::from_secs(2);
/// Direct I/O wants memory aligned so.
const PAGE: usize = 4096;
/// What the threads are called.
pub(super) const NAME: &str = "extol-ahead";

/// What reading ahead has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AheadStats {
    /// Requests made ahead of a reader.
    pub pieces: u64,
    /// Bytes read ahead.
    pub read_bytes: u64,
    /// Bytes that a reader then took.
    pub used_bytes: u64,
    /// Readers that came while their piece was being read, and waited.
    pub waits: u64,
    /// Readers that came before anybody had begun with their piece, and read it themselves.
    pub late: u64,
    /// Times that pieces were thrown away because the file was locked for a change.
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
pub(crate) struct Readers {
    shared: Arc<Shared>,
    /// Without threads nothing is read ahead.
    threads: bool,
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
    /// Not kept open for a piece that nobody wants any more.
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
    /// Failed, or given up before it began.
    Over,
}

impl Drop for Readers {
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

impl Readers {
    pub(crate) fn new(threads: bool) -> Self {
        Self { shared: Arc::default(), threads }
    }

    pub(super) fn available(&self) -> bool {
        self.threads
    }

    /// Counters.
    pub(crate) fn stats(&self) -> AheadStats {
        let c = &self.shared.counters;
        AheadStats {
            pieces: c.pieces.load(Relaxed),
            read_bytes: c.read_bytes.load(Relaxed),
            used_bytes: c.used_bytes.load(Relaxed),
            waits: c.waits.load(Relaxed),
            late: c.late.load(Relaxed),
            dropped: c.dropped.load(Relaxed),
        }
    }

    /// A file's pieces were thrown away for a change.
    pub(super) fn note_dropped(&self) {
        self.shared.counters.dropped.fetch_add(1, Relaxed);
    }

    /// Has bytes `range` of a file read, which lie at `at` on the device; at most [`PIECE`] of
    /// them. `None`: all memory is in use.
    pub(super) fn ask(
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
            let mine = Arc::clone(shared);
            let thread = std::thread::Builder::new().name(NAME.into());
            if thread.spawn(move || mine.work()).is_err() {
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
        // Over, also by a panic of the device.
        let mut reading = Reading { piece, result: State::Over };
        // Let go of before that: whoever waits may want nobody to have the device open any more.
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

    /// Copies what the piece has from byte `at` of the file on, which must be inside. 0: the caller
    /// has to read that part himself.
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

    /// Nobody wants it any more.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Queued) {
            *state = State::Over;
        }
    }

    /// Waits until no thread is busy with it.
    pub(super) fn settle(&self) {
        self.give_up();
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
