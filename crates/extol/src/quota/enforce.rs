//! Limits of one quota file: what an operation asks before it takes space.

use std::sync::atomic::Ordering;

use extol_ondisk::InodeNr;
use extol_ondisk::quota::Entry;
use extol_sync::rank::{self, Guard, Rank};
use extol_vfs::Result;

use super::file::QuotaFile;
use super::limits::{self, Begun, Grace};
use super::promises::Promises;
use super::usage::{Amount, Room};
use crate::volume::Volume;

impl QuotaFile {
    /// True if limits are enforced.
    pub fn is_enforced(&self) -> bool {
        self.enforced.load(Ordering::Acquire)
    }

    /// From now on limits are enforced, or are not.
    pub fn enforce(&self, on: bool) {
        if on {
            self.promising.store(true, Ordering::Release);
        }
        self.enforced.store(on, Ordering::Release);
    }

    /// The promises, unless there never were some.
    pub(super) fn promises_if_any(&self) -> Option<Guard<'_, Promises>> {
        self.promising.load(Ordering::Acquire).then(|| self.promises.lock())
    }

    /// Promises an inode more of an id, if limits allow it.
    pub fn promise(
        &self,
        vol: &Volume,
        (ino, id): (InodeNr, u32),
        more: Room,
        now: u64,
    ) -> Result<()> {
        self.look(vol, id, |mut entry, promises, grace| {
            limits::check(&entry, promises.total(id), more, now)?;
            promises.add(ino, id, more);
            let (amount, total) = (Amount::of_room(more), promises.total(id));
            limits::note_times(&mut entry, amount, total, Some((now, grace)));
            promises.set_begun(id, Begun::of(&entry));
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// What an id has, with what is promised to it, and its limits; `None` if these are not
    /// enforced.
    pub fn seen(&self, vol: &Volume, id: u32) -> Result<Option<Entry>> {
        let with_promises = |mut entry: Entry, promises: &mut Promises, _| {
            let all = Room { space: entry.space, inodes: entry.inodes }.plus(promises.total(id));
            (entry.space, entry.inodes) = (all.space, all.inodes);
            Ok(entry)
        };
        self.look(vol, id, with_promises).transpose()
    }

    /// Bytes that an id may still have.
    pub fn space_left(&self, vol: &Volume, id: u32, now: u64) -> Result<u64> {
        let left = |entry, promises: &mut Promises, _| {
            Ok(limits::space_left(&entry, promises.total(id), now))
        };
        self.look(vol, id, left).unwrap_or(Ok(u64::MAX))
    }

    /// Looks at usage and promises at one moment, with times that began with promises. `None`:
    /// limits are not enforced, or the id has none.
    fn look<T>(
        &self,
        vol: &Volume,
        id: u32,
        decide: impl FnOnce(Entry, &mut Promises, Grace) -> Result<T>,
    ) -> Option<Result<T>> {
        if !self.is_enforced() {
            return None;
        }
        let _held = rank::enter(Rank::Quota, 0);
        let state = self.state.read();
        let mut promises = self.promises.lock();
        match state.entry(vol, id) {
            Ok(entry) => {
                let entry = promises.begun(id).seen_in(entry?, promises.total(id));
                Some(decide(entry, &mut promises, state.grace))
            }
            Err(e) => Some(Err(e.in_inode(self.ino().0.into()))),
        }
    }

    /// Takes back a promise.
    pub fn take_back(&self, ino: InodeNr, id: u32, room: Room) {
        if let Some(mut promises) = self.promises_if_any() {
            promises.take_back(ino, id, room);
        }
    }

    /// From now on an inode has this promise and no other.
    pub fn settle(&self, ino: InodeNr, id: u32, room: Room) {
        if let Some(mut promises) = self.promises_if_any() {
            promises.set(ino, id, room);
        }
    }
}
