//! Where the log is: log block numbers to device blocks.
//!
//! An internal journal is the file of an inode, so its blocks may lie in several extents; the
//! blocks of a journal device are the log blocks. A map is made once, checked when it is made, and
//! never changes; a log that is moved gets another one.

use extol_block::{BlockDevice, BlockNr, BlockSize};

use crate::types::{JournalError, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    log_start: u32,
    device_start: u64,
    len: u32,
}

/// Places of all blocks of a journal, superblock and fast-commit area included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogMap {
    block_size: BlockSize,
    /// By log block, without holes, from 0.
    extents: Vec<Extent>,
    /// (first, end) on the device, ascending.
    on_device: Vec<(u64, u64)>,
    len: u32,
    superblock: u32,
}

impl LogMap {
    /// The map of a journal device of `len` blocks. Its journal superblock is in the block behind
    /// the one that holds the ext2 superblock.
    #[must_use]
    pub fn identity(block_size: BlockSize, len: u32) -> Self {
        Self {
            block_size,
            extents: vec![Extent { log_start: 0, device_start: 0, len }],
            on_device: vec![(0, u64::from(len))],
            len,
            superblock: if block_size.bytes() == 1024 { 2 } else { 1 },
        }
    }

    /// The map of a journal device of so many bytes.
    #[must_use]
    pub fn of_device(block_size: BlockSize, bytes: u64) -> Self {
        Self::identity(block_size, u32::try_from(bytes >> block_size.bits()).unwrap_or(u32::MAX))
    }

    /// The map of a journal inode: `(first log block, first device block, blocks)`, in log order
    /// without holes.
    pub fn from_extents(block_size: BlockSize, extents: Vec<(u32, u64, u32)>) -> Result<Self> {
        let corrupt = |what: String, block: u32| JournalError::corrupt(what, block);
        let mut merged: Vec<Extent> = Vec::new();
        let mut len = 0u32;
        for (log_start, device_start, count) in extents {
            if log_start != len {
                return Err(corrupt("the journal inode has a hole or an overlap".to_owned(), len));
            }
            len = len
                .checked_add(count)
                .filter(|_| device_start.checked_add(u64::from(count)).is_some())
                .ok_or_else(|| corrupt("the journal inode is too long".to_owned(), log_start))?;
            if device_start == 0 {
                return Err(corrupt("the journal inode contains block 0".to_owned(), log_start));
            }
            match merged.last_mut() {
                Some(last) if last.device_start + u64::from(last.len) == device_start => {
                    last.len += count
                }
                _ if count == 0 => {}
                _ => merged.push(Extent { log_start, device_start, len: count }),
            }
        }
        let mut on_device: Vec<(u64, u64)> =
            merged.iter().map(|e| (e.device_start, e.device_start + u64::from(e.len))).collect();
        on_device.sort_unstable();
        let ends = on_device.iter().map(|(_, end)| *end);
        if let Some((_, (first, _))) =
            ends.zip(on_device.iter().skip(1)).find(|(end, (next, _))| end > next)
        {
            return Err(corrupt(
                format!("the journal inode uses a block twice (extent at {first})"),
                0,
            ));
        }
        Ok(Self { block_size, extents: merged, on_device, len, superblock: 0 })
    }

    /// Blocks of the whole journal.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The journal has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn find(&self, n: u32) -> Option<(Extent, u32)> {
        let at = self.extents.partition_point(|e| e.log_start <= n).checked_sub(1)?;
        let extent = *self.extents.get(at)?;
        let skip = n - extent.log_start;
        (skip < extent.len).then_some((extent, skip))
    }

    /// Device block of log block `n`.
    #[must_use]
    pub fn device_block(&self, n: u32) -> Option<BlockNr> {
        self.find(n).map(|(extent, skip)| BlockNr(extent.device_start + u64::from(skip)))
    }

    /// Byte offset of log block `n` on the device.
    #[must_use]
    pub fn device_offset(&self, n: u32) -> Option<u64> {
        self.device_block(n).map(|nr| nr.offset(self.block_size))
    }

    /// The same for a block that must be there.
    pub(crate) fn offset(&self, n: u32) -> Result<u64> {
        let outside = || JournalError::corrupt("log block outside of the journal", n);
        self.device_offset(n).ok_or_else(outside)
    }

    /// How many log blocks from `n` on (itself included) follow each other on the device; 0 outside
    /// of the log.
    #[must_use]
    pub fn contiguous(&self, n: u32) -> u32 {
        self.find(n).map_or(0, |(extent, skip)| extent.len - skip)
    }

    /// True if `nr` is a block of the log. Only meaningful for the device that holds the log.
    #[must_use]
    pub fn contains(&self, nr: BlockNr) -> bool {
        let at = self.on_device.partition_point(|(first, _)| *first <= nr.0);
        at.checked_sub(1).and_then(|at| self.on_device.get(at)).is_some_and(|(_, end)| nr.0 < *end)
    }

    /// The log is a file of the file system that it serves, on the same device.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.superblock == 0
    }

    /// Log block that holds the journal superblock.
    #[must_use]
    pub fn superblock_block(&self) -> u32 {
        self.superblock
    }

    /// Byte offset of the journal superblock on the device.
    #[must_use]
    pub fn superblock_offset(&self) -> Option<u64> {
        self.device_offset(self.superblock)
    }

    /// Fills `buf` (whole blocks) from log block `n` on. The blocks need not follow each other on
    /// the device.
    pub fn read(&self, device: &dyn BlockDevice, n: u32, buf: &mut [u8]) -> Result<()> {
        let size = self.block_size.len();
        debug_assert_eq!(buf.len() % size, 0, "not whole blocks");
        let mut n = n;
        let mut rest = buf;
        while !rest.is_empty() {
            let offset = self.offset(n)?;
            let run = self.contiguous(n).min(u32::try_from(rest.len() / size).unwrap_or(u32::MAX));
            if run == 0 {
                return Err(JournalError::corrupt("read of less than a log block", n));
            }
            let (now, later) = rest.split_at_mut(run as usize * size);
            device.read_at(now, offset)?;
            rest = later;
            n = n.saturating_add(run);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bs() -> BlockSize {
        BlockSize::new(1024).unwrap()
    }

    #[test]
    fn identity() {
        let map = LogMap::identity(bs(), 100);
        assert_eq!(map.device_offset(99), Some(99 * 1024));
        assert_eq!(map.device_offset(100), None);
        assert_eq!((map.contiguous(0), map.contiguous(99), map.contiguous(100)), (100, 1, 0));
        assert_eq!(map.superblock_block(), 2);
        assert_eq!(
            LogMap::identity(BlockSize::new(4096).unwrap(), 9).superblock_offset(),
            Some(4096)
        );
    }

    #[test]
    fn extents() {
        let map = LogMap::from_extents(bs(), vec![(0, 50, 10), (10, 60, 5), (15, 20, 4)]).unwrap();
        assert_eq!(map.len(), 19);
        assert_eq!((map.contiguous(0), map.contiguous(14), map.contiguous(15)), (15, 1, 4));
        assert_eq!(map.device_block(15), Some(BlockNr(20)));
        for (nr, inside) in
            [(19, false), (20, true), (23, true), (24, false), (49, false), (64, true), (65, false)]
        {
            assert_eq!(map.contains(BlockNr(nr)), inside, "{nr}");
        }
        assert!(LogMap::from_extents(bs(), vec![(0, 50, 10), (11, 70, 5)]).is_err());
        assert!(LogMap::from_extents(bs(), vec![(0, 50, 10), (10, 55, 5)]).is_err());
        assert!(
            LogMap::from_extents(bs(), vec![(0, 50, u32::MAX), (u32::MAX, 1 << 40, 1)]).is_err()
        );
        assert!(LogMap::from_extents(bs(), vec![(0, u64::MAX - 3, 10)]).is_err());
        assert!(LogMap::from_extents(bs(), vec![(0, 0, 10)]).is_err());
        assert!(LogMap::from_extents(bs(), vec![]).unwrap().is_empty());
    }
}
