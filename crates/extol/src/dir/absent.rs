//! What a look-up in vain leaves to whoever makes the name.
//!
//! A kernel that is about to make a name asks for it first, and then asks for it to be made: two
//! searches for one name, with nothing between them. So a look-up that finds nothing remembers in
//! the directory where it would have room, and who makes that very name begins there.
//!
//! ```text
//!   LOOKUP n   (read lock, version 7)    searched: not there; room at byte 480 of block 9120   ──► Absent { 7, n, … }
//!   CREATE n   (write lock: version 8)   the first to have it since ──► put there, no search
//! ```
//!
//! A directory counts how often its lock was taken for a change ([`Cell::version`]). What was
//! remembered holds for the first who takes it then, and for nobody behind him, whatever he did.
//!
//! Odd cases
//! - One name is remembered for each directory; another look-up in vain replaces it.
//! - The block is looked up anew by its number. If it left memory meanwhile it is read, and not
//!   taken unless somebody has checked it since; then the search is done as if nothing were
//!   remembered.
//! - On a damaged volume two directories may share a block, and what was remembered is wrong: as
//!   with a search of the one before a change of the other, nobody leaves the block, and an entry
//!   without room is refused.
//!
//! Locking: a small lock over nothing else.
//!
//! [`Cell::version`]: crate::inodes::Cell::version

use extol_block::BlockNr;
use parking_lot::Mutex;

use super::{Place, Spot, Vacant};
use crate::error;
use crate::volume::Volume;
use extol_vfs::Result;

/// A name that was looked for in vain. The box and its name are used again for the next.
#[derive(Debug, Default)]
struct Note {
    version: u64,
    name: Vec<u8>,
    room: Option<Room>,
}

/// Where there is room for a name that was looked for in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    block: BlockNr,
    /// The entry that has room.
    at: usize,
}

impl Room {
    /// What a search would find out, or nothing.
    pub fn spot(self, vol: &Volume) -> Result<Option<Spot>> {
        let buf = vol.journal.read(self.block).map_err(error::journal)?;
        if !buf.is_verified() {
            return Ok(None);
        }
        let vacant = Vacant { buf, room: self.at };
        Ok(Some(Spot { entry: None, place: Place::Vacant(Some(vacant)) }))
    }
}

/// The last name that was looked for in vain in a directory.
#[derive(Debug, Default)]
pub(crate) struct Absent(Mutex<Option<Box<Note>>>);

impl Absent {
    /// A search found that there is no such name, when the directory had this version.
    pub fn remember(&self, version: u64, name: &[u8], spot: &Spot) {
        let Place::Vacant(Some(vacant)) = &spot.place else { return };
        let room = Room { block: vacant.buf.nr(), at: vacant.room };
        let mut last = self.0.lock();
        let note = last.get_or_insert_default();
        note.version = version;
        note.name.clear();
        note.name.extend_from_slice(name);
        note.room = Some(room);
    }

    /// Room for a name that was looked for in vain, if the lock has been taken for a change only
    /// once since: by the caller, so that the directory has this version now.
    pub fn recall(&self, version: u64, name: &[u8]) -> Option<Room> {
        let last = self.0.lock();
        let note = last.as_ref().filter(|note| note.version.checked_add(1) == Some(version))?;
        note.room.filter(|_| note.name == name)
    }
}

#[cfg(test)]
mod tests;
