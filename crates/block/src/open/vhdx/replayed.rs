//! The file of a VHDX image as it is when its log is replayed. Nothing is written: the sectors that
//! the log changes are kept in memory, which are no more than it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Vhdx;
use super::log::{Change, Log, SECTOR};
use crate::open::numbers::Numbers;
use crate::open::read_only::ReadOnly;
use crate::{BlockDevice as _, Result, SharedDevice};

/// The log and its place in the file are multiples of it.
const UNIT: u64 = 1 << 20;
/// Most bytes of a log.
const MOST_LOG: u64 = 64 << 20;
const DAMAGED: &str = "its log is damaged";

/// A file with what its log changes.
#[derive(Debug)]
pub(super) struct Replayed {
    inner: SharedDevice,
    /// It may be longer than the file. What is behind the end of the file is zeros.
    size: u64,
    sectors: BTreeMap<u64, Vec<u8>>,
    /// Ranges of zeros by their starts, which do not overlap. A sector comes before them.
    zeros: BTreeMap<u64, u64>,
}

/// The file as it is when the log is replayed that its header names.
///
/// # Errors
/// What is wrong with the log.
pub(super) fn replayed(
    inner: SharedDevice,
    header: &[u8],
) -> std::result::Result<SharedDevice, String> {
    let id = header.get(48..64).unwrap_or_default();
    if id.iter().all(|byte| *byte == 0) {
        return Ok(inner);
    }
    let number = Numbers(header);
    let (len, at) = (u64::from(number.le32(68)), number.le64(72));
    if number.le16(64) != 0 {
        return Err("it was not closed, and the version of its log is not known".to_owned());
    }
    if len == 0 || at == 0 || !len.is_multiple_of(UNIT) || !at.is_multiple_of(UNIT) {
        return Err(DAMAGED.to_owned());
    }
    if len > MOST_LOG {
        return Err("it was not closed, and its log is too large".to_owned());
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| DAMAGED)?];
    inner.read_at(&mut bytes, at).map_err(|_| "it is cut short")?;
    let log = Log { bytes: &bytes, id };
    let active = log.active().unwrap_or_default();
    let Some(head) = active.last() else {
        let why = "it was not closed, and no entry of its log is sound";
        return Err(format!("{why} (qemu-img convert reads it as it is without them)"));
    };
    if inner.size() < head.flushed_end {
        return Err("it is cut short".to_owned());
    }
    let size = inner.size().max(head.last_end);
    let mut file = Replayed { inner, size, sectors: BTreeMap::new(), zeros: BTreeMap::new() };
    active.iter().flat_map(|entry| log.changes(entry)).for_each(|change| file.apply(change));
    Ok(Arc::new(file))
}

impl Replayed {
    fn apply(&mut self, change: Change<'_>) {
        match change {
            Change::Sector { at, parts } => {
                self.sectors.insert(at, parts.concat());
                self.size = self.size.max(at + SECTOR as u64);
            }
            Change::Zeros { at, end } if at < end => {
                self.zero(at, end);
                self.size = self.size.max(end);
            }
            Change::Zeros { .. } => {}
        }
    }

    /// Makes a range zeros, and one with those that it meets.
    fn zero(&mut self, mut at: u64, mut end: u64) {
        while let Some((sector, _)) = self.sectors.range(at..end).next() {
            let sector = *sector;
            self.sectors.remove(&sector);
        }
        while let Some((start, until)) = self.zeros.range(..=end).next_back() {
            let (start, until) = (*start, *until);
            if until < at {
                break;
            }
            self.zeros.remove(&start);
            (at, end) = (at.min(start), end.max(until));
        }
        self.zeros.insert(at, end);
    }

    /// Fills `buf` with what is in the file, and with zeros behind its end.
    fn read_file(&self, buf: &mut [u8], at: u64) -> Result<()> {
        let inside = self.inner.size().saturating_sub(at).min(buf.len() as u64) as usize;
        let (inside, behind) = buf.split_at_mut(inside);
        behind.fill(0);
        if inside.is_empty() {
            return Ok(());
        }
        self.inner.read_at(inside, at)
    }
}

impl ReadOnly for Replayed {
    const REFUSAL: &'static str = Vhdx::REFUSAL;

    fn inner(&self) -> &SharedDevice {
        &self.inner
    }

    fn disk_size(&self) -> u64 {
        self.size
    }

    fn read_some(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let inside = at % SECTOR as u64;
        if let Some(bytes) = self.sectors.get(&(at - inside)) {
            let len = (SECTOR - inside as usize).min(buf.len());
            let (to, from) = (buf.get_mut(..len), bytes.get(inside as usize..));
            if let (Some(to), Some(from)) = (to, from.and_then(|from| from.get(..len))) {
                to.copy_from_slice(from);
            }
            return Ok(len);
        }
        // Up to the next sector that the log has.
        let mut until = self.sectors.range(at..).next().map_or(u64::MAX, |(next, _)| *next);
        let zeros = self.zeros.range(..=at).next_back().filter(|(_, end)| **end > at);
        until = match zeros {
            Some((_, end)) => until.min(*end),
            None => self.zeros.range(at..).next().map_or(until, |(next, _)| until.min(*next)),
        };
        let len = (until - at).min(buf.len() as u64) as usize;
        let part = buf.get_mut(..len).unwrap_or_default();
        match zeros {
            Some(_) => part.fill(0),
            None => self.read_file(part, at)?,
        }
        Ok(len)
    }
}
