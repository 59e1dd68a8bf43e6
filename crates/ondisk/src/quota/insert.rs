//! Inserting the entry of an id that has none.

use super::change::Change;
use super::file::Place;
use super::{Blocks, Entry, ROOT, data, tree};
use crate::error::{OnDiskError, ensure};

impl<B: Blocks> Change<'_, B> {
    /// Inserts the entry; its tables are made where they are missing.
    pub(super) fn insert(&mut self, entry: &Entry) -> Result<Place, B::Error> {
        let mut path = vec![ROOT];
        let mut nr = ROOT;
        for level in 0..tree::LEVELS - 1 {
            let mut table = self.read(nr)?;
            let slot = tree::slot(entry.id, level);
            let mut below = tree::get(&table, slot);
            if below == 0 {
                below = self.take_block()?;
                tree::set(&mut table, slot, below);
                self.put(nr, table);
            }
            ensure(!path.contains(&below), "quota block has two uses")?;
            path.push(below);
            nr = below;
        }
        let mut table = self.read(nr)?;
        let slot = tree::slot(entry.id, tree::LEVELS - 1);
        ensure(tree::get(&table, slot) == 0, "id has a quota entry already")?;
        let place = self.add_to_data(entry)?;
        ensure(!path.contains(&place.block), "quota block has two uses")?;
        tree::set(&mut table, slot, place.block);
        self.put(nr, table);
        Ok(place)
    }

    fn add_to_data(&mut self, entry: &Entry) -> Result<Place, B::Error> {
        let version = self.header.version;
        let (nr, mut block) = self.room()?;
        let slot = data::find_unused(&block, version)
            .ok_or(OnDiskError::bad("quota block with room has none"))?;
        let used = data::used(&block) + 1;
        data::set_entry(&mut block, slot, entry, version);
        data::set_used(&mut block, used);
        self.put(nr, block);
        if used == version.entries_per_block() {
            self.unlink_room(nr, &mut block)?;
        }
        Ok(Place { block: nr, slot })
    }
}
