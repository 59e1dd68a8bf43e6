//! Writeback batch: data of many small new files in one write to the device.
//!
//! Delayed allocation takes the blocks of a new file when it is written back, so files made one
//! after the other come to lie side by side. A write for each of them costs more than its bytes: a
//! system call, a request, a thread that sleeps and wakes. Writeback of many files
//! ([`flush_files`]) puts the small new ones among them into batches:
//!
//! ```text
//!   file 12 ─ lock, take blocks ─┐                       ┌─ map ─ unlock
//!   file 13 ─ lock, take blocks ─┼─ one write, scattered ┼─ map ─ unlock
//!   file 17 ─ lock, take blocks ─┘  where gaps are       └─ map ─ unlock
//! ```
//!
//! A file joins a batch if it has no blocks on disk and its dirty pages form one run for which one
//! run of free blocks is found ([`new_run`], [`Batch::add`]). Every other file is flushed alone.
//!
//! Locking: a batch holds the locks of its files during one write of about [`MAX_BYTES`]. It waits
//! for none of them ([`Cell::try_write`]), so the order in which it takes them does not matter.
//!
//! Invariants
//! - WB-1: each file is mapped by a handle of its own, after its data was written
//!   (`BatchFile::map`): a crash leaves every file of a batch empty or complete.
//! - WB-2: if the write fails, no file of the batch is mapped and the journal aborts, as for any
//!   data (DA-4; `Batch::write`).

#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::{AlignedBuf, ScatteredWrite};
use extol_ondisk::InodeFlags;
use extol_vfs::Result;

use super::clusters;
use super::encryption;
use super::flush::flush;
use super::order::{self, Order};
use super::writepages;
use crate::alloc::Run;
use crate::inodes::{Cell, InodeState, WriteGuard};
use crate::map::{self, Mapping, NewBlocks};
use crate::mounted::MountedFs;

/// A batch is written once it has so many bytes. More saves hardly any writes and keeps locks
/// longer.
const MAX_BYTES: u64 = 1 << 20;
/// Most files of a batch.
pub(super) const MAX_FILES: usize = 64;
/// Larger files gain little.
const SMALL: u64 = 64 << 10;

/// Writes back all dirty pages and time stamps of these files. Passes the result of each to
/// `report`.
pub(super) fn flush_files(fs: &MountedFs, cells: &[Arc<Cell>], report: &mut dyn FnMut(Result<()>)) {
    for cells in cells.chunks(MAX_FILES) {
        let mut alone = Vec::new();
        let mut batch = Batch::new(fs);
        for cell in cells {
            if !batch.add(cell) {
                alone.push(cell);
            }
            if batch.bytes >= MAX_BYTES {
                batch.write(report);
            }
        }
        batch.write(report);
        for cell in alone {
            // A cell without state belongs to a deleted file.
            let Ok(mut st) = cell.write_for_flush() else {
                fs.dirty.remove_dead(cell);
                continue;
            };
            let flushed = flush(fs, &mut st);
            drop(st);
            report(flushed);
        }
    }
}

/// The only run of blocks of a small file that is all new: first block and length.
fn new_run(fs: &MountedFs, st: &InodeState) -> Option<(u32, u32)> {
    let len = u32::try_from(st.pages.len()).ok()?;
    let is_small = u64::from(len) * fs.vol.geo.block_len() as u64 <= SMALL;
    let is_inline = st.node.raw.flags.contains(InodeFlags::INLINE_DATA);
    if !is_small || !st.is_regular() || is_inline || fs.journals_data(st) {
        return None;
    }
    let lblk = st.pages.next(0)?;
    let in_holes = st.pages.holes() == u64::from(len) && st.pages.run(lblk, len) == len;
    let hole = match map::lookup(&fs.vol, &st.node, lblk) {
        Ok(Mapping::Hole { len }) => len,
        _ => 0,
    };
    if !in_holes || hole < u64::from(len) {
        return None;
    }
    let blocks = map::new_blocks(&fs.vol, &st.node, lblk, len);
    (blocks.ok()? == NewBlocks::Fresh(len)).then_some((lblk, len))
}

/// A file whose blocks are taken.
struct BatchFile<'a> {
    st: WriteGuard<'a>,
    lblk: u32,
    run: Run,
    /// What goes to the device in place of the pages.
    encrypted: Option<AlignedBuf>,
}

struct Batch<'a> {
    fs: &'a MountedFs,
    files: Vec<BatchFile<'a>>,
    bytes: u64,
}

impl<'a> Batch<'a> {
    fn new(fs: &'a MountedFs) -> Self {
        Self { fs, files: Vec::new(), bytes: 0 }
    }

    /// Adds a file. False: it is to be flushed alone.
    fn add(&mut self, cell: &'a Cell) -> bool {
        let vol = &self.fs.vol;
        let Some(st) = cell.try_write() else { return false };
        let Some((lblk, len)) = new_run(self.fs, &st) else { return false };
        let Ok(goal) = map::goal(vol, &st.node, lblk) else { return false };
        // No preallocation: most small files never grow, and files of a batch lie close.
        let Ok(run) = vol.alloc.take(goal, len, len) else { return false };
        let plain =
            |at| st.pages.get(lblk.saturating_add(at)).map_or(&[][..], |page| &page.data[..]);
        let Ok(encrypted) = encryption::encrypt(self.fs, &st, lblk, len, plain) else {
            vol.alloc.give_back(run);
            return false;
        };
        self.bytes += u64::from(len) * vol.geo.block_len() as u64;
        self.files.push(BatchFile { st, lblk, run, encrypted });
        true
    }

    /// Writes and maps its files; it is empty afterwards.
    fn write(&mut self, report: &mut dyn FnMut(Result<()>)) {
        let files = std::mem::take(&mut self.files);
        self.bytes = 0;
        if files.is_empty() {
            return;
        }
        let written = write_data(self.fs, &files);
        for file in files {
            report(match &written {
                Ok(()) => file.map(self.fs),
                Err(error) => {
                    self.fs.vol.alloc.give_back(file.run);
                    Err(error.clone())
                }
            });
        }
    }
}

/// Writes the data of all files, in the order of their blocks.
fn write_data(fs: &MountedFs, files: &[BatchFile<'_>]) -> Result<()> {
    let vol = &fs.vol;
    if let Some(cache) = &fs.data_cache {
        files.iter().for_each(|file| cache.prepare(file.run.start, file.run.len));
    }
    files.iter().for_each(|file| fs.note_data(file.run));
    let mut by_block: Vec<&BatchFile<'_>> = files.iter().collect();
    by_block.sort_unstable_by_key(|file| file.run.start);
    let mut pieces: Vec<(Run, Vec<IoSlice<'_>>)> = Vec::new();
    for file in by_block {
        let slices = file.slices();
        match pieces.last_mut() {
            Some((run, bufs)) if run.end() == file.run.start => {
                run.len += file.run.len;
                bufs.extend(slices);
            }
            _ => pieces.push((file.run, slices)),
        }
    }
    let writes: Vec<ScatteredWrite<'_>> = pieces
        .iter()
        .map(|(run, bufs)| ScatteredWrite { offset: run.start.offset(vol.geo.block_size), bufs })
        .collect();
    let result = vol.dev.write_scattered(&writes);
    order::note(vol, Order::Ordered, &[]);
    result.map_err(|error| fs.data_write_failed(error))
}

impl BatchFile<'_> {
    /// What goes to the device.
    fn slices(&self) -> Vec<IoSlice<'_>> {
        match &self.encrypted {
            Some(bytes) => vec![IoSlice::new(bytes)],
            None => {
                let pages = self.st.pages.range(self.lblk);
                pages.map(|(_, page)| IoSlice::new(&page.data)).collect()
            }
        }
    }

    /// Maps the written blocks.
    fn map(self, fs: &MountedFs) -> Result<()> {
        let Self { mut st, lblk, run, .. } = self;
        let range = (lblk, lblk.saturating_add(run.len));
        let (pages, reserved) = st.pages.take_range(range.0, range.1);
        let (result, used) = writepages::map_written(fs, &mut st, lblk, run, reserved);
        if result.is_ok() {
            fs.unreserve_data(&st, reserved.saturating_sub(used));
            fs.dirty.shrink(pages.len() * fs.vol.geo.block_len());
        } else {
            let left = reserved.saturating_sub(used);
            clusters::put_back(fs, &mut st, range, pages.into_iter(), left);
        }
        // What is left: reservations for mapping blocks, the size, and pages put back.
        flush(fs, &mut st)
    }
}
