//! Many small files in one write to the device.
//!
//! Blocks of a new file are taken when it is written back, so files that were made one after the
//! other come to lie side by side. A write of its own for each of them costs more than its bytes: a
//! system call, a request to the device, a thread that sleeps and is woken. So whoever writes back
//! many files ([`flush_all`]) puts the small new ones among them in rows:
//!
//! ```text
//!   file 12 ─ lock, take blocks ─┐                       ┌─ map ─ unlock
//!   file 13 ─ lock, take blocks ─┼─ one write, scattered ┼─ map ─ unlock
//!   file 17 ─ lock, take blocks ─┘  where gaps are       └─ map ─ unlock
//! ```
//!
//! Only what has no blocks at all and lies in one piece goes into a row ([`whole`]). Everything
//! else goes alone: what was written before, what is large, what somebody is at, what finds no free
//! blocks in one piece.
//!
//! Each file is mapped by a handle of its own, after its data was written; a crash in between
//! leaves those that are mapped, whole. If the write fails none is mapped, and the journal is
//! aborted, as for any data (D4).
//!
//! A row holds the locks of its files for one write of at most [`MOST`]. It waits for none of them
//! ([`Cell::try_write`]): in which order it gets them does not matter.
//!
//! [`flush_all`]: super::writeback::flush_all

#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::ScatteredWrite;
use extol_ondisk::InodeFlags;
use extol_vfs::Result;

use super::order::{self, Order};
use super::place;
use super::writeback::{flush, put_back};
use crate::alloc::Run;
use crate::fs::Fs;
use crate::inodes::{Cell, InodeState, WriteGuard};
use crate::map::{self, Mapping};

/// Most bytes of a row. More makes hardly fewer writes, and keeps locks longer.
const MOST: u64 = 1 << 20;
/// Most files of a row.
pub(super) const FILES: usize = 64;
/// Larger files gain little.
const SMALL: u64 = 64 << 10;

/// Writes back all dirty pages of these files, and their time stamps. Tells the result of each.
pub(super) fn flush_cells(fs: &Fs, cells: &[Arc<Cell>], tell: &mut dyn FnMut(Result<()>)) {
    for cells in cells.chunks(FILES) {
        let mut alone = Vec::new();
        let mut row = Row::new(fs);
        for cell in cells {
            if !row.take(cell) {
                alone.push(cell);
            }
            if row.is_full() {
                row.write(tell);
            }
        }
        row.write(tell);
        for cell in alone {
            // A cell without state was deleted meanwhile.
            let Ok(mut st) = cell.write() else {
                fs.dirty.remove_dead(cell);
                continue;
            };
            let flushed = flush(fs, &mut st);
            drop(st);
            tell(flushed);
        }
    }
}

/// The dirty blocks of a small file that has nothing else: the first, and how many.
fn whole(fs: &Fs, st: &InodeState) -> Option<(u32, u32)> {
    let len = u32::try_from(st.pages.len()).ok()?;
    let small = u64::from(len) * fs.vol.geo.block_len() as u64 <= SMALL;
    let is_inline = st.node.raw.flags.contains(InodeFlags::INLINE_DATA);
    if !small || !st.is_regular() || is_inline || fs.journals_data(st) {
        return None;
    }
    let lblk = st.pages.next(0)?;
    let in_holes = st.pages.reserved() == u64::from(len) && st.pages.run(lblk, len) == len;
    let hole = matches!(map::lookup(&fs.vol, &st.node, lblk), Ok(Mapping::Hole { len: free }) if free >= u64::from(len));
    (in_holes && hole).then_some((lblk, len))
}

/// A file whose blocks are taken.
struct Part<'a> {
    st: WriteGuard<'a>,
    lblk: u32,
    run: Run,
}

struct Row<'a> {
    fs: &'a Fs,
    parts: Vec<Part<'a>>,
    bytes: u64,
}

impl<'a> Row<'a> {
    fn new(fs: &'a Fs) -> Self {
        Self { fs, parts: Vec::new(), bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.bytes >= MOST
    }

    /// Adds a file, if it can go together with others.
    fn take(&mut self, cell: &'a Cell) -> bool {
        let vol = &self.fs.vol;
        let Some(st) = cell.try_write() else { return false };
        let Some((lblk, len)) = whole(self.fs, &st) else { return false };
        let Ok(goal) = map::goal(vol, &st.node, lblk) else { return false };
        // Nothing is taken ahead: files of a row lie close, and most of them will never grow.
        let Ok(run) = vol.alloc.take(goal, len, len) else { return false };
        self.bytes += u64::from(len) * vol.geo.block_len() as u64;
        self.parts.push(Part { st, lblk, run });
        true
    }

    /// Writes and maps what is in it.
    fn write(&mut self, tell: &mut dyn FnMut(Result<()>)) {
        let mut parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
        if parts.is_empty() {
            return;
        }
        let written = put(self.fs, &mut parts);
        for part in parts {
            tell(match &written {
                Ok(()) => part.map(self.fs),
                Err(error) => {
                    self.fs.vol.alloc.give_back(part.run);
                    Err(error.clone())
                }
            });
        }
    }
}

/// Writes the data of all parts.
fn put(fs: &Fs, parts: &mut [Part<'_>]) -> Result<()> {
    let vol = &fs.vol;
    for part in &*parts {
        if let Some(cache) = &fs.data_cache {
            cache.want(part.run.start, part.run.len);
        }
    }
    let mut places: Vec<&Part<'_>> = parts.iter().collect();
    places.sort_unstable_by_key(|part| part.run.start);
    let mut pieces: Vec<(Run, Vec<IoSlice<'_>>)> = Vec::new();
    for part in places {
        let pages = part.st.pages.range(part.lblk).map(|(_, page)| IoSlice::new(&page.data));
        match pieces.last_mut() {
            Some((run, bufs)) if run.end() == part.run.start => {
                run.len += part.run.len;
                bufs.extend(pages);
            }
            _ => pieces.push((part.run, pages.collect())),
        }
    }
    let writes: Vec<ScatteredWrite<'_>> = pieces
        .iter()
        .map(|(run, bufs)| ScatteredWrite { offset: run.start.offset(vol.geo.block_size), bufs })
        .collect();
    let result = vol.dev.write_scattered(&writes);
    order::note(vol, Order::Loose, &[]);
    result.map_err(|error| fs.data_write_failed(error))
}

impl Part<'_> {
    /// Maps what was written.
    fn map(self, fs: &Fs) -> Result<()> {
        let Part { mut st, lblk, run } = self;
        let (pages, promised) = st.pages.take_range(lblk, lblk.saturating_add(run.len));
        let (result, used) = place::map_written(fs, &mut st, lblk, run, promised);
        if result.is_ok() {
            fs.vol.alloc.unreserve(promised.saturating_sub(used));
            fs.dirty.shrink(pages.len() * fs.vol.geo.block_len());
        } else {
            put_back(&mut st, lblk, pages.into_iter().map(|(_, page)| page), used);
        }
        // The rest: promises for its map, its size, and all of it again if it could not be mapped.
        flush(fs, &mut st)
    }
}
