//! Walking through the log: one transaction after the other from the tail, wrapping at the end of
//! the log, and never more than once around it.

use extol_block::BlockDevice;

use crate::format::{BlockKind, Format, Header, JournalSuperblock};
use crate::log_map::LogMap;
use crate::types::{JournalError, Result, Tid};

/// Bytes of the largest read-ahead.
const MAX_AHEAD: usize = 256 * 1024;
/// Blocks that are read at once at a place where nothing was read before.
const FIRST_AHEAD: u32 = 2;

/// The log as recovery reads it: with read-ahead that grows while reading goes straight on.
#[derive(Debug)]
pub(crate) struct LogReader<'a> {
    device: &'a dyn BlockDevice,
    map: &'a LogMap,
    chunk: Vec<u8>,
    at: u32,
    count: u32,
    ahead: u32,
}

impl<'a> LogReader<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, map: &'a LogMap) -> Self {
        Self { device, map, chunk: Vec::new(), at: 0, count: 0, ahead: FIRST_AHEAD }
    }

    /// The bytes of log block `n`.
    pub(crate) fn block(&mut self, n: u32) -> Result<&[u8]> {
        let size = self.map.block_size().len();
        if n < self.at || n - self.at >= self.count {
            self.load(n, size)?;
        }
        let from = (n - self.at) as usize * size;
        let outside = || JournalError::corrupt("read outside of the log", n);
        self.chunk.get(from..from + size).ok_or_else(outside)
    }

    fn load(&mut self, n: u32, size: usize) -> Result<()> {
        let straight_on = self.count > 0 && self.at.checked_add(self.count) == Some(n);
        self.ahead = match straight_on {
            true => (self.ahead * 2).min((MAX_AHEAD / size) as u32),
            false => FIRST_AHEAD,
        };
        let want = self.ahead.min(self.map.contiguous(n)).max(1);
        self.count = 0;
        self.chunk.resize(want as usize * size, 0);
        let mut got = want;
        if let Err(error) = self.map.read(self.device, n, &mut self.chunk) {
            // One bad block must not hide its neighbours.
            if want == 1 {
                return Err(error);
            }
            self.chunk.truncate(size);
            self.map.read(self.device, n, &mut self.chunk)?;
            got = 1;
        }
        self.at = n;
        self.count = got;
        Ok(())
    }
}

/// A position in the log and the transaction expected there.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    log: LogReader<'a>,
    pub(crate) format: Format,
    first: u32,
    end: u32,
    at: u32,
    /// Blocks that may still be passed before the walk would be around the log.
    left: u32,
    /// The transaction whose blocks come next.
    pub(crate) tid: Tid,
}

impl<'a> Walk<'a> {
    /// Starts at the tail that `sb` names. `sb` has been validated and its log is not empty.
    pub(crate) fn new(
        device: &'a dyn BlockDevice,
        map: &'a LogMap,
        sb: &JournalSuperblock,
    ) -> Result<Self> {
        let (first, end) = (sb.first, sb.log_end());
        let format = sb.format()?;
        if !(first..end).contains(&sb.start)
            || map.len() < end
            || format.block_size != map.block_size()
        {
            let what = format!("log from {first} to {end} with its tail at {}", sb.start);
            return Err(JournalError::corrupt(what, 0u32));
        }
        let log = LogReader::new(device, map);
        Ok(Self { log, format, first, end, at: sb.start, left: end - first, tid: sb.sequence })
    }

    /// The log block that comes next.
    pub(crate) fn position(&self) -> u32 {
        self.at
    }

    /// Passes one block and gives its number; `None` once around the log.
    pub(crate) fn pass(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = if at + 1 >= self.end { self.first } else { at + 1 };
        Some(at)
    }

    /// The next control block of the expected transaction, copied to `block`. `None`: here is
    /// something else, the log ends.
    pub(crate) fn control(&mut self, block: &mut Vec<u8>) -> Result<Option<(u32, BlockKind)>> {
        if self.left == 0 {
            return Ok(None);
        }
        let bytes = self.log.block(self.at)?;
        let kind = match Header::decode(bytes) {
            Some(header) if header.tid == self.tid => header.kind,
            _ => return Ok(None),
        };
        if !matches!(kind, BlockKind::Descriptor | BlockKind::Revoke | BlockKind::Commit) {
            return Ok(None);
        }
        block.clear();
        block.extend_from_slice(bytes);
        Ok(self.pass().map(|at| (at, kind)))
    }

    /// The bytes of a log block, without moving.
    pub(crate) fn read(&mut self, n: u32) -> Result<&[u8]> {
        self.log.block(n)
    }
}
