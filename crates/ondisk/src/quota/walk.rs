//! All entries of a quota file, in the order of their ids.

use std::collections::HashSet;

use super::{Blocks, Entry, Place, QuotaFile, ROOT, data, tree};
use crate::error::{OnDiskError, ensure};

impl<B: Blocks> QuotaFile<B> {
    /// Calls `each` with every entry.
    ///
    /// # Errors
    /// A block cannot be read, or the file is damaged: entries before the damage have been told.
    pub fn walk(&mut self, mut each: impl FnMut(Entry)) -> Result<(), B::Error> {
        self.walk_tables(&mut |_| {}, &mut |_, entry| each(entry))
    }

    /// All entries.
    ///
    /// # Errors
    /// As [`QuotaFile::walk`].
    pub fn entries(&mut self) -> Result<Vec<Entry>, B::Error> {
        let mut entries = Vec::new();
        self.walk(|entry| entries.push(entry))?;
        Ok(entries)
    }

    /// All entries with their places.
    ///
    /// # Errors
    /// As [`QuotaFile::walk`].
    pub fn places(&mut self) -> Result<Vec<(Place, Entry)>, B::Error> {
        let mut places = Vec::new();
        self.walk_tables(&mut |_| {}, &mut |place, entry| places.push((place, entry)))?;
        Ok(places)
    }

    /// Calls `table` with each block of the tree below the root, `each` with every entry and its
    /// place. A block that two tables name is damage: without that, a small file could have
    /// entries without end.
    pub(super) fn walk_tables(
        &mut self,
        table: &mut impl FnMut(u32),
        each: &mut impl FnMut(Place, Entry),
    ) -> Result<(), B::Error> {
        let mut seen = HashSet::from([ROOT]);
        // Tables still to read: block, level, the bits of the ids so far.
        let mut open = vec![(ROOT, 0, 0)];
        while let Some((nr, level, bits)) = open.pop() {
            let block = self.read(nr)?;
            let mut below = Vec::new();
            for slot in 0..tree::SLOTS {
                let next = tree::get(&block, slot);
                if next == 0 {
                    continue;
                }
                let bits = bits << 8 | slot as u32;
                if level + 1 == tree::LEVELS {
                    ensure(!seen.contains(&next), "quota block has two uses")?;
                    let (place, entry) = self.named(next, bits)?;
                    each(place, entry);
                } else {
                    ensure(seen.insert(next), "quota block has two uses")?;
                    table(next);
                    below.push((next, level + 1, bits));
                }
            }
            open.extend(below.into_iter().rev());
        }
        Ok(())
    }

    fn named(&mut self, nr: u32, id: u32) -> Result<(Place, Entry), B::Error> {
        let (block, version) = (self.read(nr)?, self.header.version);
        let found = data::find(&block, id, version).and_then(|slot| {
            let entry = data::entry(&block, slot, version)?;
            Some((Place { block: nr, slot }, entry))
        });
        Ok(found.ok_or(OnDiskError::bad("quota entry is named and missing"))?)
    }
}
