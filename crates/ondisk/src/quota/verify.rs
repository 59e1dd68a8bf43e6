//! Whether a quota file is whole: tree, data blocks and lists agree about every block.

use std::collections::BTreeMap;

use super::{Blocks, QuotaFile, data};
use crate::error::ensure;

/// What a block is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Table,
    /// With so many entries that the tree names.
    Data(usize),
    Free,
}

impl<B: Blocks> QuotaFile<B> {
    /// Checks the whole file.
    ///
    /// # Errors
    /// A block cannot be read, or the first thing that is wrong.
    pub fn verify(&mut self) -> Result<(), B::Error> {
        let mut uses = self.named_blocks()?;
        self.check_free_blocks(&mut uses)?;
        self.check_rooms(&uses)?;
        let all = uses.len() as u64 + u64::from(super::LEAST_BLOCKS);
        Ok(ensure(all == u64::from(self.info.blocks), "quota block is neither used nor free")?)
    }

    fn named_blocks(&mut self) -> Result<BTreeMap<u32, Use>, B::Error> {
        let mut tables = Vec::new();
        let mut uses = BTreeMap::new();
        self.walk_tables(&mut |nr| tables.push(nr), &mut |place, _| {
            if let Use::Data(count) = uses.entry(place.block).or_insert(Use::Data(0)) {
                *count += 1;
            }
        })?;
        for nr in tables {
            ensure(uses.insert(nr, Use::Table).is_none(), "quota block has two uses")?;
        }
        Ok(uses)
    }

    fn check_free_blocks(&mut self, uses: &mut BTreeMap<u32, Use>) -> Result<(), B::Error> {
        let mut nr = self.info.free_block;
        while nr != 0 {
            ensure(uses.insert(nr, Use::Free).is_none(), "free quota block is in use")?;
            nr = data::next(&self.read(nr)?);
        }
        Ok(())
    }

    /// Each data block says as many entries as it has and as the tree names; those with room, and
    /// only those, are in the list.
    fn check_rooms(&mut self, uses: &BTreeMap<u32, Use>) -> Result<(), B::Error> {
        let version = self.header.version;
        let mut rooms = 0;
        for (&nr, &used) in uses {
            let Use::Data(named) = used else { continue };
            let block = self.read(nr)?;
            let slots = 0..version.entries_per_block();
            let stored = slots.filter(|&slot| data::entry(&block, slot, version).is_some()).count();
            let agree = stored == named && data::used(&block) == named;
            ensure(agree, "quota block has other entries than it says")?;
            rooms += usize::from(named < version.entries_per_block());
        }
        let (mut prev, mut nr) = (0, self.info.free_entry);
        while nr != 0 {
            let block = self.read(nr)?;
            let has_room = matches!(uses.get(&nr), Some(Use::Data(used))
                if *used < version.entries_per_block());
            let linked = has_room && data::prev(&block) == prev && rooms > 0;
            ensure(linked, "list of quota blocks with room is broken")?;
            rooms -= 1;
            (prev, nr) = (nr, data::next(&block));
        }
        Ok(ensure(rooms == 0, "quota block with room is not in the list")?)
    }
}
