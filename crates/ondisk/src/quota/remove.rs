//! Removing the entry of an id, and the blocks that held nothing else.

use super::change::Change;
use super::{Blocks, ROOT, data, tree};
use crate::error::{OnDiskError, ensure};

impl<B: Blocks> Change<'_, B> {
    /// Removes the entry of an id that has one.
    pub(super) fn remove(&mut self, id: u32) -> Result<(), B::Error> {
        let mut path = [ROOT; tree::LEVELS];
        let mut nr = ROOT;
        for level in 0..tree::LEVELS {
            path[level] = nr;
            nr = tree::get(&self.read(nr)?, tree::slot(id, level));
            ensure(self.info.holds(nr), "number of a quota block is outside the file")?;
            ensure(!path[..=level].contains(&nr), "quota block has two uses")?;
        }
        self.remove_from_data(nr, id)?;
        // A table that names nothing any more is given back, and then no longer named.
        for level in (0..tree::LEVELS).rev() {
            let nr = path[level];
            let mut table = self.read(nr)?;
            tree::set(&mut table, tree::slot(id, level), 0);
            if nr != ROOT && tree::is_empty(&table) {
                self.free_block(nr);
            } else {
                self.put(nr, table);
                break;
            }
        }
        Ok(())
    }

    fn remove_from_data(&mut self, nr: u32, id: u32) -> Result<(), B::Error> {
        let version = self.header.version;
        let mut block = self.read(nr)?;
        data::ensure_used(&block, version)?;
        let slot = data::find(&block, id, version)
            .ok_or(OnDiskError::bad("quota entry is named and missing"))?;
        let before = data::used(&block);
        ensure(before > 0, "quota block has more entries than it says")?;
        data::clear_entry(&mut block, slot, version);
        data::set_used(&mut block, before - 1);
        self.put(nr, block);
        let was_full = before == version.entries_per_block();
        if before == 1 {
            if !was_full {
                self.unlink_room(nr, &mut block)?;
            }
            self.free_block(nr);
        } else if was_full {
            self.link_room(nr, &mut block)?;
        }
        Ok(())
    }
}
