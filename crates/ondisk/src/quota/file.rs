//! A quota file over its blocks.

use super::change::Change;
use super::header::{Header, Kind, Version};
use super::{BLOCK_LEN, Block, Blocks, Entry, Info, ROOT, data, tree};
use crate::error::{OnDiskError, ensure};

/// Where an entry is. It stays there until it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Block of the file.
    pub block: u32,
    /// Entry in the block.
    pub slot: usize,
}

impl Place {
    /// The entry of an id here, in the bytes of the block.
    ///
    /// # Errors
    /// The entry is not here.
    pub fn entry(self, block: &Block, version: Version, id: u32) -> Result<Entry, OnDiskError> {
        let found = data::entry(block, self.slot, version).filter(|entry| entry.id == id);
        found.ok_or(OnDiskError::bad(MISSING))
    }

    /// Changes the entry of an id here, in the bytes of the block.
    ///
    /// # Errors
    /// The entry is not here, or its numbers are then too large for the format; nothing has
    /// changed.
    pub fn change(
        self,
        block: &mut Block,
        version: Version,
        id: u32,
        change: impl FnOnce(&mut Entry),
    ) -> Result<(), OnDiskError> {
        let mut entry = self.entry(block, version, id)?;
        change(&mut entry);
        ensure(entry.id == id && entry.fits(version), TOO_LARGE)?;
        data::set_entry(block, self.slot, &entry, version);
        Ok(())
    }
}

const MISSING: &str = "quota entry is named and missing";
const TOO_LARGE: &str = "numbers are too large for the format of the quota file";

/// A quota file.
#[derive(Debug)]
pub struct QuotaFile<B> {
    pub(super) blocks: B,
    pub(super) header: Header,
    pub(super) info: Info,
}

impl<B: Blocks> QuotaFile<B> {
    /// Opens a file, which must be of this kind.
    ///
    /// # Errors
    /// A file of another kind, or none at all.
    pub fn open(mut blocks: B, kind: Kind) -> Result<Self, B::Error> {
        let count = blocks.count()?;
        ensure(count >= super::LEAST_BLOCKS, "quota file is cut short")?;
        let first = blocks.read(0)?;
        let header = Header::decode(&first)?;
        ensure(header.kind == kind, "quota file is of another kind")?;
        let info = Info::decode(&first, count)?;
        Ok(Self { blocks, header, info })
    }

    /// Makes a file with no entry.
    ///
    /// # Errors
    /// A block cannot be written.
    pub fn create(mut blocks: B, kind: Kind, version: Version) -> Result<Self, B::Error> {
        let header = Header { kind, version };
        let info = Info::empty();
        let mut first = [0; BLOCK_LEN];
        header.encode_into(&mut first);
        info.encode_into(&mut first);
        blocks.write(0, &first)?;
        blocks.write(ROOT, &[0; BLOCK_LEN])?;
        Ok(Self { blocks, header, info })
    }

    /// Kind and format.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// What the file says about itself.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The blocks.
    #[must_use]
    pub fn into_blocks(self) -> B {
        self.blocks
    }

    /// Sets the grace times.
    ///
    /// # Errors
    /// Block 0 cannot be read or written.
    pub fn set_grace(&mut self, space: u32, inodes: u32) -> Result<(), B::Error> {
        let mut change = self.change();
        change.info.space_grace = space;
        change.info.inode_grace = inodes;
        self.info = change.finish()?;
        Ok(())
    }

    /// The entry of an id.
    ///
    /// # Errors
    /// A block cannot be read, or the file is damaged.
    pub fn get(&mut self, id: u32) -> Result<Option<Entry>, B::Error> {
        match self.find(id)? {
            Some(place) => self.get_at(place, id).map(Some),
            None => Ok(None),
        }
    }

    /// Where the entry of an id is.
    ///
    /// # Errors
    /// A block cannot be read, or the file is damaged.
    pub fn find(&mut self, id: u32) -> Result<Option<Place>, B::Error> {
        let mut nr = ROOT;
        for level in 0..tree::LEVELS {
            nr = tree::get(&self.read(nr)?, tree::slot(id, level));
            if nr == 0 {
                return Ok(None);
            }
        }
        let slot = data::find(&self.read(nr)?, id, self.header.version)
            .ok_or(OnDiskError::bad(MISSING))?;
        Ok(Some(Place { block: nr, slot }))
    }

    /// The entry of an id at a place that was found before.
    ///
    /// # Errors
    /// The block cannot be read, or it has no entry of the id there.
    pub fn get_at(&mut self, place: Place, id: u32) -> Result<Entry, B::Error> {
        let block = self.read(place.block)?;
        Ok(place.entry(&block, self.header.version, id)?)
    }

    /// Stores an entry at a place that was found before.
    ///
    /// # Errors
    /// As [`QuotaFile::get_at`]; the block cannot be written, or the numbers are too large for the
    /// format.
    pub fn set_at(&mut self, place: Place, entry: &Entry) -> Result<(), B::Error> {
        self.ensure_fits(entry)?;
        let mut block = self.read(place.block)?;
        place.change(&mut block, self.header.version, entry.id, |stored| *stored = *entry)?;
        self.blocks.write(place.block, &block)
    }

    /// Stores an entry, which is inserted if the id has none.
    ///
    /// # Errors
    /// A block cannot be read or written, the numbers are too large for the format, or the file is
    /// damaged; nothing has changed then, unless a write failed.
    pub fn set(&mut self, entry: &Entry) -> Result<Place, B::Error> {
        if let Some(place) = self.find(entry.id)? {
            self.set_at(place, entry)?;
            return Ok(place);
        }
        self.ensure_fits(entry)?;
        let mut change = self.change();
        let place = change.insert(entry)?;
        self.info = change.finish()?;
        Ok(place)
    }

    /// Removes the entry of an id; false if it has none.
    ///
    /// # Errors
    /// As [`QuotaFile::set`].
    pub fn remove(&mut self, id: u32) -> Result<bool, B::Error> {
        if self.find(id)?.is_none() {
            return Ok(false);
        }
        let mut change = self.change();
        change.remove(id)?;
        self.info = change.finish()?;
        Ok(true)
    }

    /// A block of the tree or with data.
    pub(super) fn read(&mut self, nr: u32) -> Result<Block, B::Error> {
        ensure(nr == ROOT || self.info.holds(nr), "number of a quota block is outside the file")?;
        self.blocks.read(nr)
    }

    fn ensure_fits(&self, entry: &Entry) -> Result<(), B::Error> {
        let fits = entry.fits(self.header.version);
        Ok(ensure(fits, TOO_LARGE)?)
    }

    fn change(&mut self) -> Change<'_, B> {
        Change::new(&mut self.blocks, self.header, self.info)
    }
}
