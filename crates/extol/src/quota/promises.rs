//! What limits have promised: space and inodes that an operation was allowed to take and that are
//! not posted yet.
//!
//! A promise belongs to an inode, and only the holder of that inode's lock makes it. What is
//! posted for the inode uses it up; what is left is taken back when the operation ends, but for
//! the clusters that its dirty pages will take ([`Promises::set`]).

use std::collections::HashMap;

use extol_ondisk::InodeNr;
use foldhash::fast::RandomState;
use smallvec::{SmallVec, smallvec};

use super::limits::Begun;
use super::usage::{Amount, Room};

/// All that is promised to one id.
#[derive(Debug, Default)]
struct Total {
    room: Room,
    begun: Begun,
}

/// The promises of one quota file.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Of all inodes together, for each id.
    totals: HashMap<u32, Total, RandomState>,
    /// A change of owners has promises of two ids.
    of_inodes: HashMap<InodeNr, SmallVec<[(u32, Room); 1]>, RandomState>,
}

impl Promises {
    /// All that is promised to an id.
    pub fn total(&self, id: u32) -> Room {
        self.totals.get(&id).map(|total| total.room).unwrap_or_default()
    }

    /// When soft limits of an id become hard that are exceeded with its promises.
    pub fn begun(&self, id: u32) -> Begun {
        self.totals.get(&id).map(|total| total.begun).unwrap_or_default()
    }

    /// Notes that, for as long as something is promised to the id.
    pub fn set_begun(&mut self, id: u32, begun: Begun) {
        if let Some(total) = self.totals.get_mut(&id) {
            total.begun = begun;
        }
    }

    /// Promises more.
    pub fn add(&mut self, ino: InodeNr, id: u32, room: Room) {
        if room == Room::default() {
            return;
        }
        let total = self.totals.entry(id).or_default();
        total.room = total.room.plus(room);
        let own = self.of_inodes.entry(ino).or_default();
        match own.iter_mut().find(|(of, _)| *of == id) {
            Some((_, promised)) => *promised = promised.plus(room),
            None => own.push((id, room)),
        }
    }

    /// Takes back a promise, or as much of it as there is.
    pub fn take_back(&mut self, ino: InodeNr, id: u32, room: Room) {
        let Some(own) = self.of_inodes.get_mut(&ino) else { return };
        let Some((_, promised)) = own.iter_mut().find(|(of, _)| *of == id) else { return };
        let gone = promised.at_most(room);
        *promised = promised.minus(gone);
        own.retain(|(_, promised)| *promised != Room::default());
        if own.is_empty() {
            self.of_inodes.remove(&ino);
        }
        self.lower(id, gone);
    }

    /// An amount is posted for an inode: its promise is kept.
    pub fn use_up(&mut self, ino: InodeNr, id: u32, amount: Amount) {
        let positive = |n: i128| u64::try_from(n.max(0)).unwrap_or(u64::MAX);
        let posted = Room { space: positive(amount.space), inodes: positive(amount.inodes.into()) };
        self.take_back(ino, id, posted);
    }

    /// From now on this, and nothing else, is promised to an inode.
    pub fn set(&mut self, ino: InodeNr, id: u32, room: Room) {
        let before = match room == Room::default() {
            true => self.of_inodes.remove(&ino),
            false => self.of_inodes.insert(ino, smallvec![(id, room)]),
        };
        // (First the new one: what has begun for the id goes on.)
        if room != Room::default() {
            let total = self.totals.entry(id).or_default();
            total.room = total.room.plus(room);
        }
        for (id, promised) in before.into_iter().flatten() {
            self.lower(id, promised);
        }
    }

    fn lower(&mut self, id: u32, room: Room) {
        let Some(total) = self.totals.get_mut(&id) else { return };
        total.room = total.room.minus(room);
        if total.room == Room::default() {
            self.totals.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(space: u64, inodes: u64) -> Room {
        Room { space, inodes }
    }

    #[test]
    fn promises_are_used_up_and_taken_back_by_inode() {
        let mut promises = Promises::default();
        let (one, two) = (InodeNr(20), InodeNr(21));
        promises.add(one, 7, room(4096, 1));
        promises.add(one, 7, room(1024, 0));
        promises.add(two, 7, room(1000, 0));
        assert_eq!(promises.total(7), room(6120, 1));
        // More than was promised to it, and what was freed.
        promises.use_up(one, 7, Amount { space: 9000, inodes: 1 });
        promises.use_up(two, 7, Amount { space: -500, inodes: -1 });
        assert_eq!(promises.total(7), room(1000, 0));
        promises.add(two, 8, room(50, 1));
        promises.set(two, 8, room(30, 0));
        assert_eq!((promises.total(7), promises.total(8)), (room(0, 0), room(30, 0)));
        let begun = Begun { space: 5, inodes: 6 };
        promises.set_begun(8, begun);
        promises.set_begun(9, begun);
        assert_eq!((promises.begun(8), promises.begun(9)), (begun, Begun::default()));
        promises.set(two, 8, room(0, 0));
        assert!(promises.totals.is_empty() && promises.of_inodes.is_empty());
    }
}
