//! One pass over the data of all files: read by several threads, placed in order, written by the
//! same threads.
//!
//! ```text
//!  feed ──► segment 7 ─► thread A: read, find zeros, checksum ─► its turn: place ─► write
//!   (in     segment 8 ─► thread B: read …                        waits for 7
//!  order)   segment 9 ─► …
//! ```
//!
//! A segment is as many pieces of files, in the order of the tree, as fit into the buffer of a
//! thread. Small files lie in it side by side, each padded with zeros to whole blocks, and so they
//! are written in large requests. Large files are cut at multiples of the buffer's length, wherever
//! they lie in a segment.
//!
//! Blocks of zeros are holes, whatever the source says of holes: that only saves reading them.
//!
//! - PL-1: what is placed, and the order of it, depends on sizes and contents alone: not on the
//!   number of threads, nor on holes of the source.
//! - PL-2: a thread that ends early, by an error or a panic, makes all others end: no turn is
//!   waited for in vain. Of several errors the first in order is reported.
//! - PL-3: memory is one buffer a thread, and the pieces of one segment.

use super::BuildProgress;
use crate::error::{BuildError, Result};
use crate::source::{FileData, Source};
use crate::tree::{DataRef, Kind, NodeId, Tree};
use extol_block::{AlignedBuf, BlockDevice, ScatteredWrite};
use extol_ondisk::checksum::crc32c;
use parking_lot::{Condvar, Mutex};
use std::io::IoSlice;
use std::ops::{ControlFlow, Range};
use std::time::Duration;

/// Bytes of a segment, and of the pieces of large files.
const SEGMENT: usize = 4 << 20;
/// Pieces of a segment.
const MOST_PIECES: usize = 2048;
/// Buffers are aligned for any device.
const ALIGN: usize = 4096;
/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);

/// Blocks of a piece that are not zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DataRun {
    /// First block in the file.
    pub(super) block: u32,
    pub(super) len: u32,
    /// Checksum of their bytes.
    pub(super) crc: u32,
}

/// Told of the data of all files, in the order of the tree.
pub(super) trait Sink: Send {
    /// A file begins.
    fn begin(&mut self, id: NodeId, size: u64) -> Result<()>;
    /// Blocks of it. `put` is to be told where on the volume they go, run by run.
    fn data(&mut self, id: NodeId, run: DataRun, put: &mut dyn FnMut(Range<u64>)) -> Result<()>;
    /// It ends.
    fn end(&mut self, id: NodeId) -> Result<()>;
}

/// A part of a file in a segment.
#[derive(Debug)]
struct Piece {
    id: NodeId,
    data: DataRef,
    size: u64,
    /// Where it begins in the file.
    at: u64,
    len: usize,
    /// The first of the file.
    first: bool,
    /// The last one.
    last: bool,
    /// Where it begins in the buffer.
    place: usize,
}

/// Divides all files into segments.
struct Feed<'a> {
    tree: &'a Tree,
    source: &'a dyn Source,
    block_len: usize,
    next: u32,
    open: Option<Open<'a>>,
    /// Number of the next segment.
    segment: u64,
}

/// The file that is being divided.
struct Open<'a> {
    id: NodeId,
    data: DataRef,
    size: u64,
    at: u64,
    first: bool,
    /// For what is larger than a segment: tells where there is data.
    reader: Option<Box<dyn FileData + 'a>>,
}

impl<'a> Feed<'a> {
    fn segment(&mut self) -> Result<Option<(u64, Vec<Piece>)>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut used = 0;
        while pieces.len() < MOST_PIECES {
            let Some(mut file) = self.open.take().or_else(|| self.next_file()) else { break };
            self.skip_hole(&mut file)?;
            let len = usize::try_from(file.size - file.at).unwrap_or(SEGMENT).min(SEGMENT);
            let padded = len.next_multiple_of(self.block_len);
            if used + padded > SEGMENT {
                self.open = Some(file);
                break;
            }
            let end = file.at + len as u64;
            pieces.push(Piece {
                id: file.id,
                data: file.data,
                size: file.size,
                at: file.at,
                len,
                first: file.first,
                last: end == file.size,
                place: used,
            });
            used += padded;
            if end < file.size {
                (file.at, file.first) = (end, false);
                self.open = Some(file);
            }
        }
        let number = self.segment;
        self.segment += 1;
        Ok((!pieces.is_empty()).then_some((number, pieces)))
    }

    fn next_file(&mut self) -> Option<Open<'a>> {
        while (self.next as usize) < self.tree.len() {
            let id = NodeId(self.next);
            self.next += 1;
            if let Kind::File { size, data } = self.tree.node(id).kind
                && size > 0
            {
                return Some(Open { id, data, size, at: 0, first: true, reader: None });
            }
        }
        None
    }

    /// Goes on to the next piece of a large file that has data; to its end if there is none.
    fn skip_hole(&self, file: &mut Open<'a>) -> Result<()> {
        if file.size <= SEGMENT as u64 {
            return Ok(());
        }
        if file.reader.is_none() {
            file.reader = Some(self.source.reader(file.data)?);
        }
        let Some(reader) = &mut file.reader else { return Ok(()) };
        let found = reader
            .data_from(file.at)
            .map_err(|e| BuildError::entry(&self.tree.path(file.id), e))?;
        let start = found.map_or(file.size, |range| range.start.min(file.size));
        if start == file.size {
            file.at = file.size;
        } else {
            file.at = file.at.max(start / SEGMENT as u64 * SEGMENT as u64);
        }
        Ok(())
    }
}

/// Whose turn it is, and how far the work is.
#[derive(Debug)]
struct Turn {
    next: u64,
    /// Set: all threads end.
    ended: bool,
    /// The first error in order.
    error: Option<(u64, BuildError)>,
    working: usize,
    /// Bytes of files that were read.
    read: u64,
    /// Bytes that were written, or would be.
    written: u64,
}

/// Everything that the threads share.
struct Shared<'a, S> {
    feed: Mutex<Feed<'a>>,
    turn: Mutex<Turn>,
    changed: Condvar,
    sink: Mutex<&'a mut S>,
    device: Option<&'a dyn BlockDevice>,
    block_len: usize,
    tree: &'a Tree,
    source: &'a dyn Source,
}

/// Reads the data of all files, tells the sink of it, and writes it to where the sink says. Gives
/// the number of bytes written.
pub(super) fn run<S: Sink>(
    tree: &Tree,
    source: &dyn Source,
    block_len: usize,
    threads: usize,
    sink: &mut S,
    device: Option<&dyn BlockDevice>,
    progress: &mut dyn FnMut(BuildProgress) -> ControlFlow<()>,
) -> Result<u64> {
    let total = tree.nodes().map(|(_, node)| match node.kind {
        Kind::File { size, .. } => size,
        _ => 0,
    });
    let total: u64 = total.fold(0, u64::saturating_add);
    let feed = Feed { tree, source, block_len, next: 0, open: None, segment: 0 };
    let threads = threads.max(1);
    let shared = Shared {
        feed: Mutex::new(feed),
        turn: Mutex::new(Turn {
            next: 0,
            ended: false,
            error: None,
            working: threads,
            read: 0,
            written: 0,
        }),
        changed: Condvar::new(),
        sink: Mutex::new(sink),
        device,
        block_len,
        tree,
        source,
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _leaving = Leaving { shared: &shared };
                shared.work();
            });
        }
        let mut turn = shared.turn.lock();
        while turn.working > 0 {
            shared.changed.wait_for(&mut turn, TICK);
            let done = turn.read;
            let told = BuildProgress { stage: super::BuildStage::of_data(device), done, total };
            let go_on = parking_lot::MutexGuard::unlocked(&mut turn, || progress(told));
            if go_on.is_break() && !turn.ended {
                turn.ended = true;
                turn.error = Some((0, BuildError::Stopped));
                shared.changed.notify_all();
            }
        }
    });
    let turn = shared.turn.into_inner();
    match turn.error {
        Some((_, error)) => Err(error),
        None => Ok(turn.written),
    }
}

/// A thread that ends.
struct Leaving<'a, 's, S: Sink> {
    shared: &'a Shared<'s, S>,
}

impl<S: Sink> Drop for Leaving<'_, '_, S> {
    fn drop(&mut self) {
        let mut turn = self.shared.turn.lock();
        turn.working -= 1;
        turn.ended |= std::thread::panicking();
        self.shared.changed.notify_all();
    }
}

impl<S: Sink> Shared<'_, S> {
    /// A thread: one segment after the other.
    fn work(&self) {
        let mut buffer = None;
        loop {
            let (number, next) = {
                let mut feed = self.feed.lock();
                if self.turn.lock().ended {
                    return;
                }
                (feed.segment, feed.segment())
            };
            let done = match next {
                Ok(None) => return,
                Ok(Some((number, pieces))) => {
                    let buffer = buffer.get_or_insert_with(|| AlignedBuf::new(SEGMENT, ALIGN));
                    self.segment(number, &pieces, buffer)
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(error) => return self.fail(number, error),
            }
        }
    }

    fn fail(&self, number: u64, error: BuildError) {
        let mut turn = self.turn.lock();
        turn.ended = true;
        if turn.error.as_ref().is_none_or(|(first, _)| number < *first) {
            turn.error = Some((number, error));
        }
        self.changed.notify_all();
    }

    /// Reads a segment, places it in its turn, and writes it.
    fn segment(
        &self,
        number: u64,
        pieces: &[Piece],
        buffer: &mut AlignedBuf,
    ) -> Result<ControlFlow<()>> {
        let mut found = Vec::with_capacity(pieces.len());
        let mut ends = Vec::new();
        let mut bytes = 0;
        for piece in pieces {
            let padded = piece.len.next_multiple_of(self.block_len);
            let part = &mut buffer[piece.place..piece.place + padded];
            ends.extend(self.read(piece, part)?);
            found.push(self.runs(piece, part));
            bytes += piece.len as u64;
        }
        let mut turn = self.turn.lock();
        while turn.next != number && !turn.ended {
            self.changed.wait(&mut turn);
        }
        if turn.ended {
            return Ok(ControlFlow::Break(()));
        }
        drop(turn);
        // Everything before was read: the end of a file of several pieces can be looked at.
        ends.iter_mut().try_for_each(|reader| reader.end())?;
        let writes = self.place(pieces, &found)?;
        let mut turn = self.turn.lock();
        turn.next += 1;
        turn.read += bytes;
        self.changed.notify_all();
        drop(turn);
        let written = self.write(buffer, &writes)?;
        self.turn.lock().written += written;
        Ok(ControlFlow::Continue(()))
    }

    /// Fills the part of a buffer with a piece. Gives the reader if the end of the file can only be
    /// looked at when the pieces before were read.
    fn read<'r>(
        &'r self,
        piece: &Piece,
        part: &mut [u8],
    ) -> Result<Option<Box<dyn FileData + 'r>>> {
        let mut reader = self.source.reader(piece.data)?;
        let mut done = 0;
        while done < piece.len {
            let at = piece.at + done as u64;
            let got = reader
                .read_at(at, &mut part[done..piece.len])
                .map_err(|e| BuildError::entry(&self.tree.path(piece.id), e))?;
            if got == 0 {
                let entry = crate::error::shown(&self.tree.path(piece.id));
                return Err(BuildError::Changed { entry });
            }
            done += got;
        }
        part[done..].fill(0);
        match (piece.last, piece.first) {
            (true, true) => reader.end().map(|()| None),
            (true, false) => Ok(Some(reader)),
            _ => Ok(None),
        }
    }

    /// The runs of blocks that are not zeros.
    fn runs(&self, piece: &Piece, part: &[u8]) -> Vec<DataRun> {
        // The tree holds no file of more blocks than 32 bits count.
        let first = (piece.at / self.block_len as u64) as u32;
        let mut runs: Vec<DataRun> = Vec::new();
        let mut start = None;
        let blocks = part.len() / self.block_len;
        for nr in 0..=blocks {
            let block = part.get(nr * self.block_len..(nr + 1) * self.block_len);
            match (start, block.is_some_and(|block| !is_zero(block))) {
                (None, true) => start = Some(nr),
                (Some(from), false) => {
                    let bytes = &part[from * self.block_len..nr * self.block_len];
                    runs.push(DataRun {
                        block: first + from as u32,
                        len: (nr - from) as u32,
                        crc: crc32c(!0, bytes),
                    });
                    start = None;
                }
                _ => {}
            }
        }
        runs
    }

    /// Gives each run of a segment its place: ranges of the buffer, and where they go.
    fn place(&self, pieces: &[Piece], found: &[Vec<DataRun>]) -> Result<Vec<(Range<usize>, u64)>> {
        let block_len = self.block_len;
        let mut writes: Vec<(Range<usize>, u64)> = Vec::new();
        let mut sink = self.sink.lock();
        for (piece, runs) in pieces.iter().zip(found) {
            if piece.first {
                sink.begin(piece.id, piece.size)?;
            }
            let first = piece.at / block_len as u64;
            for run in runs {
                let offset = (u64::from(run.block) - first) as usize * block_len;
                let mut from = piece.place + offset;
                sink.data(piece.id, *run, &mut |range: Range<u64>| {
                    let len = (range.end - range.start) as usize * block_len;
                    let at = range.start * block_len as u64;
                    match writes.last_mut() {
                        Some((last, to))
                            if last.end == from && *to + (last.end - last.start) as u64 == at =>
                        {
                            last.end += len;
                        }
                        _ => writes.push((from..from + len, at)),
                    }
                    from += len;
                })?;
            }
            if piece.last {
                sink.end(piece.id)?;
            }
        }
        Ok(writes)
    }

    /// Writes ranges of a buffer. What lies side by side on the volume goes in one request.
    fn write(&self, buffer: &[u8], writes: &[(Range<usize>, u64)]) -> Result<u64> {
        let len = |(range, _): &(Range<usize>, u64)| (range.end - range.start) as u64;
        let bytes = writes.iter().map(len).sum();
        let Some(device) = self.device else { return Ok(bytes) };
        let groups: Vec<(u64, Vec<IoSlice<'_>>)> = writes
            .chunk_by(|a, b| a.1 + len(a) == b.1)
            .map(|group| {
                let bufs = group.iter().map(|(range, _)| IoSlice::new(&buffer[range.clone()]));
                (group[0].1, bufs.collect())
            })
            .collect();
        let requests: Vec<ScatteredWrite<'_>> =
            groups.iter().map(|(offset, bufs)| ScatteredWrite { bufs, offset: *offset }).collect();
        device.write_scattered(&requests)?;
        Ok(bytes)
    }
}

/// True if all bytes are zeros.
fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<64>();
    rest.iter().all(|byte| *byte == 0)
        && words.iter().all(|word| {
            let parts = word.as_chunks::<8>().0;
            parts.iter().fold(0, |all, part| all | u64::from_ne_bytes(*part)) == 0
        })
}
