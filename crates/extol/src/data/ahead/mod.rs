//! Reading ahead: whoever reads an open file from one end to the other finds the next part in
//! memory already.
//!
//! ```text
//!   File, FileSystem::reader ── inode's lock, shared ──► Window: reads on? ──► pieces: their blocks looked up now
//!        │                                                                        └──► threads read, without a lock
//!        └──► data::read: dirty page, else piece, else the clean data in memory (`data::cache`), else the device
//! ```
//!
//! A mount needs none of this: there the kernel reads ahead, and its requests come through
//! [`FileSystem::read`](extol_vfs::FileSystem), which knows no open files.
//!
//! # Never older than the last write
//!
//! A thread reads the blocks that the file had when they were asked for. By the time somebody wants
//! the piece they may have been written, unmapped, or given to another file. All of that needs the
//! inode's lock for writing, which counts ([`Cell::version`]). So:
//!
//! - R1: a piece is used only under the inode's lock, by somebody who finds the version, and the
//!   cell itself, that it was asked under ([`Ahead::begin`]). Then nobody had the lock for writing
//!   in between, and what the thread has read, whenever it did, is what the file has.
//! - R2: what is newer than the device's blocks, in dirty pages or in the log, is not read from
//!   pieces: pages come first (`read::read`), and files whose data is journalled have none
//!   ([`Ahead::begin`]).
//! - R3: no thread needs a lock of the file system, so a reader may wait for one with the inode's
//!   lock held.
//! - R4: when the [`Ahead`] of an open file is gone, no thread reads for it, or holds the device
//!   ([`Ahead::drop`]).
//!
//! Failures are not reported from here: whoever wants a piece that could not be read reads it
//! again, and hears it.

mod readers;
#[cfg(test)]
mod tests;
mod window;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub use readers::AheadStats;
pub(crate) use readers::Readers;
use readers::{PIECE, Piece};
use window::{Plan, Window};

use crate::fs::Fs;
use crate::inodes::{Cell, InodeState};
use crate::map::{self, Mapping};

/// What is read ahead for one open file.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    window: Window,
    /// What was asked for, in the order of the file.
    pieces: VecDeque<Arc<Piece>>,
    /// Forgotten, but a thread may be busy with them.
    left: Vec<Weak<Piece>>,
    /// Under which the pieces were asked for.
    cell: Weak<Cell>,
    version: u64,
}

/// What becomes of the next bytes that somebody wants.
pub(super) enum Next {
    /// So many are copied.
    Copied(usize),
    /// So many have to be read.
    Read(usize),
}

impl Ahead {
    /// A read begins, under the inode's lock: forgets what may be old, and asks for what will be
    /// wanted next.
    pub(crate) fn begin(
        &self,
        fs: &Fs,
        cell: &Arc<Cell>,
        st: &InodeState,
        offset: u64,
        len: usize,
    ) {
        let readers = &fs.readers;
        if !readers.available() {
            return;
        }
        let most = if fs.journals_data(st) { 0 } else { fs.live.readahead() as u64 };
        let mut state = self.state.lock();
        let same =
            state.version == cell.version() && std::ptr::eq(state.cell.as_ptr(), Arc::as_ptr(cell));
        if !same {
            if state.forget() {
                readers.note_dropped();
            }
            state.window.lost();
            state.cell = Arc::downgrade(cell);
            state.version = cell.version();
        }
        match state.window.read(offset, len as u64, st.node.raw.size, most) {
            Plan::Enough => {}
            Plan::Forget => {
                state.forget();
            }
            Plan::Ask(range) => state.ask(fs, st, range),
        }
    }

    /// Fills the front of `to`, which is at `at` in the file, with what was read ahead. For the
    /// reader who has begun, with the inode's lock still held.
    pub(super) fn next(&self, at: u64, to: &mut [u8]) -> Next {
        let mut state = self.state.lock();
        // What lies behind the reader is not wanted any more.
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
    /// True if there was something to forget.
    fn forget(&mut self) -> bool {
        let some = !self.pieces.is_empty();
        self.left.retain(|piece| piece.strong_count() > 0);
        for piece in self.pieces.drain(..) {
            piece.give_up();
            self.left.push(Arc::downgrade(&piece));
        }
        some
    }

    fn ask(&mut self, fs: &Fs, st: &InodeState, range: Range<u64>) {
        let vol = &fs.vol;
        let bits = vol.geo.block_size.bits();
        let most = (PIECE as u64 >> bits).max(1);
        let end = range.end.div_ceil(1 << bits);
        let mut at = range.start >> bits;
        while at < end {
            let Ok(lblk) = u32::try_from(at) else { return };
            // (If the map is damaged, whoever gets there hears it.)
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
                    let Some(piece) = fs.readers.ask(&vol.dev, at << bits..to << bits, place)
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

impl Drop for Ahead {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.forget();
        state.left.iter().filter_map(Weak::upgrade).for_each(|piece| piece.settle());
    }
}
