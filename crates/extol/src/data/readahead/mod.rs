//! Readahead: a sequential reader of an open file finds the next part in memory.
//!
//! ```text
//!   File, FileSystem::reader ── inode's lock, shared ──► Window: sequential? ──► pieces
//!        │                                            (blocks looked up now)         │
//!        │                                                  threads read, no lock ◄──┘
//!        └──► data::read: dirty page, else piece, else data cache, else the device
//! ```
//!
//! A mount does without it: there the kernel reads ahead, and its requests come through
//! [`FileSystem::read`](extol_vfs::FileSystem), which knows no open files.
//!
//! # Never older than the last write
//!
//! A thread reads the blocks that the file had when the piece was requested. Before the piece is
//! used they may have been written, unmapped, or given to another file. All of that needs the
//! inode's write lock, which counts ([`Cell::version`]).
//!
//! Invariants
//! - RA-1: a piece is used only under the inode's lock, with the version and the cell unchanged
//!   since it was requested ([`FileReadahead::begin`]). Then no other thread held the write lock in
//!   between, and the bytes read at any time since are those of the file.
//! - RA-2: data newer than the device's blocks, in dirty pages or in the log, is not read from
//!   pieces: pages come first (`read::read`), and files with journalled data have no pieces
//!   ([`FileReadahead::begin`]).
//! - RA-3: a readahead thread takes no lock of the file system, so a reader may wait for one with
//!   the inode's lock held.
//! - RA-4: once the [`FileReadahead`] of an open file is dropped, no thread reads for it or holds
//!   the device ([`FileReadahead::drop`]).
//!
//! A piece that could not be read reports nothing: its reader reads the device and gets the error.

#[cfg(test)]
mod tests;
pub(crate) mod threads;
mod window;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use extol_sync::plain::Mutex;

pub use threads::ReadaheadStats;
pub(crate) use threads::ReadaheadThreads;
use threads::{PIECE, Piece};
use window::{Plan, Window};

use crate::inodes::{Cell, InodeState};
use crate::map::{self, Mapping};
use crate::mounted::MountedFs;

/// Readahead of one open file.
#[derive(Debug, Default)]
pub(crate) struct FileReadahead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    window: Window,
    /// Requested pieces, in file order.
    pieces: VecDeque<Arc<Piece>>,
    /// Dropped pieces that a thread may still be reading.
    dropped: Vec<Weak<Piece>>,
    /// Cell and version under which the pieces were requested (RA-1).
    cell: Weak<Cell>,
    version: u64,
}

/// Where the next bytes of a read come from.
pub(super) enum Next {
    /// So many were copied from a piece.
    Copied(usize),
    /// So many are to be read by the caller.
    Read(usize),
}

impl FileReadahead {
    /// Begins a read, under the inode's lock: drops pieces that may be stale, and requests the next
    /// part of the file.
    pub(crate) fn begin(
        &self,
        fs: &MountedFs,
        cell: &Arc<Cell>,
        st: &InodeState,
        offset: u64,
        len: usize,
    ) {
        let threads = &fs.readahead;
        if !threads.available() {
            return;
        }
        let most = if fs.journals_data(st) { 0 } else { fs.runtime.readahead.load() as u64 };
        let mut state = self.state.lock();
        let same =
            state.version == cell.version() && std::ptr::eq(state.cell.as_ptr(), Arc::as_ptr(cell));
        if !same {
            if state.drop_pieces() {
                threads.note_dropped();
            }
            state.window.pieces_dropped();
            state.cell = Arc::downgrade(cell);
            state.version = cell.version();
        }
        match state.window.read(offset, len as u64, st.node.raw.size, most) {
            Plan::Nothing => {}
            Plan::Drop => {
                state.drop_pieces();
            }
            Plan::Request(range) => state.request(fs, st, range),
        }
    }

    /// Fills the front of `to`, which is at `at` in the file, from pieces. Called between
    /// [`begin`](Self::begin) and the release of the inode's lock.
    pub(super) fn next(&self, at: u64, to: &mut [u8]) -> Next {
        let mut state = self.state.lock();
        while state.pieces.front().is_some_and(|piece| piece.range.end <= at) {
            state.pieces.pop_front();
        }
        let Some(piece) = state.pieces.front().map(Arc::clone) else { return Next::Read(to.len()) };
        let until = |place: u64| usize::try_from(place - at).unwrap_or(usize::MAX).min(to.len());
        if piece.range.start > at {
            return Next::Read(until(piece.range.start));
        }
        let rest = until(piece.range.end);
        drop(state);
        match piece.copy(at, to) {
            0 => Next::Read(rest),
            n => Next::Copied(n),
        }
    }
}

impl State {
    /// True if there were any.
    fn drop_pieces(&mut self) -> bool {
        let some = !self.pieces.is_empty();
        self.dropped.retain(|piece| piece.strong_count() > 0);
        for piece in self.pieces.drain(..) {
            piece.cancel();
            self.dropped.push(Arc::downgrade(&piece));
        }
        some
    }

    fn request(&mut self, fs: &MountedFs, st: &InodeState, range: Range<u64>) {
        let vol = &fs.vol;
        let bits = vol.geo.block_size.bits();
        let most = (PIECE as u64 >> bits).max(1);
        let end = range.end.div_ceil(1 << bits);
        let mut at = range.start >> bits;
        while at < end {
            let Ok(lblk) = u32::try_from(at) else { return };
            // (A damaged map is an error of the read that gets there.)
            let Ok(mapping) = map::lookup(vol, &st.node, lblk) else { return };
            at = match mapping {
                Mapping::Mapped { pblk, len, unwritten: false } => {
                    let to = at + u64::from(len).min(most).min(end - at);
                    let place = pblk.offset(vol.geo.block_size);
                    let len = ((to - at) << bits) as usize;
                    if fs.data_cache.as_ref().is_some_and(|cache| cache.holds(place, len)) {
                        at = to;
                        continue;
                    }
                    let Some(piece) = fs.readahead.request(&vol.dev, at << bits..to << bits, place)
                    else {
                        return;
                    };
                    self.pieces.push_back(piece);
                    to
                }
                Mapping::Mapped { len, .. } => at + u64::from(len),
                Mapping::Hole { len } => at.saturating_add(len.max(1)),
            };
        }
    }
}

impl Drop for FileReadahead {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.drop_pieces();
        state.dropped.iter().filter_map(Weak::upgrade).for_each(|piece| piece.wait());
    }
}
