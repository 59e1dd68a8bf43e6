//! The two lists of a quota file: free blocks, and data blocks with room for another entry.

use super::change::Change;
use super::{BLOCK_LEN, Block, Blocks, data};
use crate::error::{OnDiskError, ensure};

impl<B: Blocks> Change<'_, B> {
    /// Takes a block for use: the first free one, or a new one behind the end. It is all zeros.
    pub(super) fn take_block(&mut self) -> Result<u32, B::Error> {
        let nr = self.info.free_block;
        if nr == 0 {
            return self.lengthen();
        }
        let block = self.read(nr)?;
        let next = data::next(&block);
        ensure(self.info.holds_or_none(next) && next != nr, "list of free quota blocks is broken")?;
        // A block in use is not free; its content would be lost.
        ensure(data::used(&block) == 0, "free quota block has entries")?;
        self.info.free_block = next;
        self.put(nr, [0; BLOCK_LEN]);
        Ok(nr)
    }

    /// Gives a block back to the free ones.
    pub(super) fn free_block(&mut self, nr: u32) {
        let mut block = [0; BLOCK_LEN];
        data::set_next(&mut block, self.info.free_block);
        self.info.free_block = nr;
        self.put(nr, block);
    }

    /// Puts a data block at the start of the list of those with room.
    pub(super) fn link_room(&mut self, nr: u32, block: &mut Block) -> Result<(), B::Error> {
        let first = self.info.free_entry;
        if first != 0 {
            let mut other = self.read(first)?;
            ensure(data::prev(&other) == 0 && first != nr, BROKEN)?;
            data::set_prev(&mut other, nr);
            self.put(first, other);
        }
        data::set_next(block, first);
        data::set_prev(block, 0);
        self.info.free_entry = nr;
        self.put(nr, *block);
        Ok(())
    }

    /// Takes a data block out of the list of those with room.
    pub(super) fn unlink_room(&mut self, nr: u32, block: &mut Block) -> Result<(), B::Error> {
        let (prev, next) = (data::prev(block), data::next(block));
        let apart = next == 0 || (next != nr && next != prev);
        let inside = self.info.holds_or_none(next) && self.info.holds_or_none(prev);
        ensure(prev != nr && apart && inside, BROKEN)?;
        if next != 0 {
            let mut other = self.read(next)?;
            ensure(data::prev(&other) == nr, BROKEN)?;
            data::set_prev(&mut other, prev);
            self.put(next, other);
        }
        if prev == 0 {
            ensure(self.info.free_entry == nr, BROKEN)?;
            self.info.free_entry = next;
        } else {
            let mut other = self.read(prev)?;
            ensure(data::next(&other) == nr, BROKEN)?;
            data::set_next(&mut other, next);
            self.put(prev, other);
        }
        data::set_next(block, 0);
        data::set_prev(block, 0);
        self.put(nr, *block);
        Ok(())
    }

    /// A data block with an unused slot.
    pub(super) fn room(&mut self) -> Result<(u32, Block), B::Error> {
        let nr = self.info.free_entry;
        if nr == 0 {
            let nr = self.take_block()?;
            let mut block = self.read(nr)?;
            self.link_room(nr, &mut block)?;
            return Ok((nr, block));
        }
        let block = self.read(nr)?;
        data::ensure_used(&block, self.header.version)?;
        let full = data::used(&block) >= self.header.version.entries_per_block();
        if full { Err(OnDiskError::bad(BROKEN).into()) } else { Ok((nr, block)) }
    }
}

const BROKEN: &str = "list of quota blocks with room is broken";
