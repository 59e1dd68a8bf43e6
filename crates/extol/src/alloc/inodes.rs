//! Allocates and frees inodes.
//!
//! An inode is allocated in the handle that writes it: there is no "taken" state. A freed inode
//! stays busy in memory until the freeing transaction is durable, so that an inode that recovery
//! brings back keeps its number. If no other inode is left it is handed out all the same: both
//! changes then commit in order; only old file handles may name the new file. A held number is
//! never handed out (`held.rs`).
//!
//! A group whose inode table is being zeroed is skipped; a creation that finds no inode elsewhere
//! waits for its end.
//!
//! The bitmap may be wrong (a volume without checksums, or damage under a valid checksum). So the
//! slot in the table must not be in use either. Its block is needed anyway, to write the new inode.
//!
//! Invariants
//! - AL-1: a sound inode with links on disk is never handed out. A group whose bitmap says
//!   otherwise is skipped from then on, and the creation fails with nothing changed
//!   (`Allocator::refuse_used`). Slots never written may hold any bytes and are not checked
//!   ([`Claim::known_slot`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::fast_commit::delta::{self, Delta};
use crate::fast_commit::reason::Reason;
use extol_jbd2::{Handle, Tid};
use extol_ondisk::{GroupDesc, GroupFlags, GroupNr, Inode, InodeNr, bitmap};
use extol_vfs::{FsError, Result};

use super::Allocator;
use super::bits::Span;
use super::group::{Group, InodeMap, State};
use super::orlov::{self, Summary, Units, View};
use crate::error;

/// Where the slot of an inode has the count of its links.
const LINKS: std::ops::Range<usize> = 0x1A..0x1C;

/// An allocated inode.
#[derive(Clone, Copy, Debug)]
struct Claim {
    ino: InodeNr,
    /// Its slot was written before: with an inode, or with zeros.
    known_slot: bool,
}

impl View for Allocator {
    fn summary(&self, group: u32) -> Summary {
        self.group(GroupNr(group)).map_or_else(
            |_| Summary::default(),
            |g| Summary {
                free_blocks: u64::from(g.free()),
                free_inodes: u64::from(g.free_inodes.load(Ordering::Relaxed)),
                dirs: u64::from(g.dirs.load(Ordering::Relaxed)),
            },
        )
    }

    fn with_inodes(&self, from: u32, to: u32) -> Option<u32> {
        let per = self.geo.descs_per_block();
        let mut at = from;
        while at < to {
            let (index, first) = (at / per, at - at % per);
            let end = first.saturating_add(per).min(to);
            // Groups that cannot be read are skipped.
            if let Ok(chunk) = self.table.chunk(&self.journal, index)
                && chunk.row().inodes.get() > 0
            {
                let has_one =
                    |nr: &u32| chunk.group(nr - first).is_some_and(|g| g.free_inodes() > 0);
                if let Some(found) = (at..end).find(has_one) {
                    return Some(found);
                }
                let most = || chunk.groups().map(Group::free_inodes).max().unwrap_or(0);
                chunk.row().inodes.lower(most);
            }
            at = end;
        }
        None
    }
}

impl Allocator {
    fn units(&self) -> Units {
        let geo = &self.geo;
        let (groups, flex) = (geo.groups(), geo.groups_per_flex());
        Units::new(groups, flex, geo.inodes_per_group, geo.clusters_per_group)
    }

    /// A free inode for a new file in directory `parent`, marked as used. `top_level`: `parent` is
    /// the root or has the TOPDIR flag. Costs [`ALLOC_INODE_CREDITS`](Self::ALLOC_INODE_CREDITS).
    /// Its slot in the inode table may hold any bytes: all of it is to be written.
    pub fn alloc_inode(
        self: &Arc<Self>,
        h: &mut Handle,
        parent: InodeNr,
        is_dir: bool,
        top_level: bool,
    ) -> Result<InodeNr> {
        self.alloc_found(h, is_dir, |h| self.try_alloc_inode(h, parent, is_dir, top_level))
    }

    /// The free inode with the lowest number, of the first `groups` groups, marked as used. Costs
    /// what [`alloc_inode`](Self::alloc_inode) does.
    pub fn alloc_lowest_inode(
        self: &Arc<Self>,
        h: &mut Handle,
        groups: u32,
        is_dir: bool,
    ) -> Result<InodeNr> {
        self.alloc_found(h, is_dir, |h| {
            self.claim_first(h, 0..groups, is_dir, false)?.ok_or(FsError::NoSpace)
        })
    }

    /// The inode that `find` claims, if it is free in its table as well.
    fn alloc_found(
        self: &Arc<Self>,
        h: &mut Handle,
        is_dir: bool,
        mut find: impl FnMut(&mut Handle) -> Result<Claim>,
    ) -> Result<InodeNr> {
        loop {
            let passed = self.zeroing.passed();
            match find(h) {
                // The only inodes left may be in a group that is skipped while its table is being
                // zeroed.
                Err(FsError::NoSpace) if self.zeroing.wait(passed) => {}
                Err(e) => return Err(e),
                Ok(claim) => {
                    if claim.known_slot && self.is_in_use(claim.ino)? {
                        return Err(self.refuse_used(h, claim.ino, is_dir)?);
                    }
                    return Ok(claim.ino);
                }
            }
        }
    }

    /// True if the inode's slot holds a sound inode with links.
    fn is_in_use(&self, ino: InodeNr) -> Result<bool> {
        let (nr, index) = self.geo.group_of_inode(ino);
        let (per_block, size) = (self.geo.inodes_per_block(), usize::from(self.geo.inode_size));
        let group = self.group(nr)?;
        let Some(table) = group.inode_table() else { return Ok(false) };
        let block = table.plus(u64::from(index / per_block));
        let data = self.journal.read(block).map_err(error::journal)?.data();
        let at = (index % per_block) as usize * size;
        let Some(slot) = data.get(at..at + size) else { return Ok(false) };
        if slot.get(LINKS).is_none_or(|links| links.iter().all(|byte| *byte == 0)) {
            return Ok(false);
        }
        // Behind the inodes ever used, a block that was not zeroed may hold any bytes.
        let inode = Inode::decode(slot, ino, &self.geo);
        Ok(inode.is_ok_and(|inode| inode.dtime == 0 && inode.kind().is_some()))
    }

    /// Undoes [`alloc_inode`](Self::alloc_inode) in the same handle: the inode is in use. Its group
    /// is skipped from now on. Returns the error.
    pub fn refuse_used(
        self: &Arc<Self>,
        h: &mut Handle,
        ino: InodeNr,
        is_dir: bool,
    ) -> Result<FsError> {
        self.free_inode(h, ino, is_dir)?;
        let group = self.group(self.geo.group_of_inode(ino).0)?;
        let why = FsError::corrupt("an inode that is in use is free in the bitmap")
            .in_inode(ino.0.into());
        Ok(self.spoil_inodes(group, &mut group.lock(), why))
    }

    fn try_alloc_inode(
        &self,
        h: &mut Handle,
        parent: InodeNr,
        is_dir: bool,
        top_level: bool,
    ) -> Result<Claim> {
        let units = self.units();
        let parent_group = self.geo.group_of_inode(parent).0.0.min(self.geo.groups() - 1);
        for reuse in [false, true] {
            if reuse && self.space.pending_inodes() == 0 {
                break;
            }
            let found = if reuse {
                let all = (parent_group..units.groups).chain(0..parent_group);
                self.claim_first(h, all, is_dir, reuse)?
            } else if is_dir {
                let unit = self.dir_unit(units, parent_group, top_level);
                self.claim_first(h, orlov::dir_groups(self, units, unit), is_dir, reuse)?
            } else {
                let groups = orlov::file_groups(self, units, parent_group, parent.0);
                self.claim_first(h, groups, is_dir, reuse)?
            };
            if let Some(claim) = found {
                return Ok(claim);
            }
        }
        Err(FsError::NoSpace)
    }

    fn dir_unit(&self, units: Units, parent_group: u32, top_level: bool) -> u32 {
        let count = u64::from(units.count().max(1));
        let now = self.space.counters();
        let average = Summary {
            free_blocks: now.free / count,
            free_inodes: now.free_inodes / count,
            dirs: self.table.average_dirs(units.size),
        };
        let spread = if top_level {
            orlov::top_level(self, units, average, spread_start(now.free_inodes, units))
        } else {
            None
        };
        spread
            .or_else(|| orlov::near_parent(self, units, average, parent_group))
            .unwrap_or_else(|| units.of(parent_group))
    }

    fn claim_first(
        &self,
        h: &mut Handle,
        mut groups: impl Iterator<Item = u32>,
        is_dir: bool,
        reuse: bool,
    ) -> Result<Option<Claim>> {
        groups
            .find_map(|nr| self.claim_inode(h, GroupNr(nr), is_dir, reuse).transpose())
            .transpose()
    }

    /// An inode of this group. `None`: it has none, or cannot be used.
    fn claim_inode(
        &self,
        h: &mut Handle,
        nr: GroupNr,
        is_dir: bool,
        reuse: bool,
    ) -> Result<Option<Claim>> {
        // A group that cannot be read is skipped; a request for this very group gets the error.
        let Ok(group) = self.group(nr) else { return Ok(None) };
        if self.table.usable(nr) == 0 {
            return Ok(None);
        }
        let hint = if reuse { &group.pending_inodes } else { &group.free_inodes };
        if hint.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut state = group.lock();
        if state.zeroing || self.load_inodes(group, &mut state).is_err() {
            return Ok(None);
        }
        let mut desc = *state.desc()?;
        // A group gets both bitmaps at once, as Linux does it.
        if self.is_uninit(&desc, GroupFlags::BLOCK_UNINIT) {
            if self.load_blocks(group, &mut state).is_err() {
                return Ok(None);
            }
            // Loading may have corrected the count.
            desc = *state.desc()?;
        }
        let State { blocks, inodes: Some(map), .. } = &mut *state else { return Ok(None) };
        let first_free = map.busy.next_zero(map.first_free);
        let Some(bit) = self.unheld(nr, map, reuse) else { return Ok(None) };
        if let Some((first, count)) = self.unread(&desc, map, bit) {
            self.journal.read_ahead(first, count);
        }
        let known_slot = self.is_known_slot(&desc, bit);
        if let (true, Some(blocks)) = (self.is_uninit(&desc, GroupFlags::BLOCK_UNINIT), blocks) {
            self.open_block_bitmap(h, group, &mut desc, &blocks.zones, &mut blocks.home)?;
        }
        let buf = self.open_inode_bitmap(h, &mut desc, &mut map.home)?;
        let sum = h
            .modify(buf, |bytes| {
                bitmap::set(bytes, bit).then(|| bitmap::inode_bitmap_csum(&self.geo, bytes))
            })
            .map_err(error::journal)?;
        let Some(sum) = sum else {
            let why = FsError::corrupt("a free inode is in use on disk")
                .in_inode(self.geo.inode_at(nr, bit).0.into());
            self.spoil_inodes(group, &mut state, why);
            return Ok(None);
        };
        self.put_inode_csum(&mut desc, sum);
        desc.free_inodes = desc.free_inodes.saturating_sub(1);
        if self.geo.has_gdt_csum() {
            let behind = self.geo.inodes_per_group.saturating_sub(bit.saturating_add(1));
            desc.itable_unused = desc.itable_unused.min(behind);
        }
        if is_dir {
            desc.used_dirs = desc.used_dirs.saturating_add(1);
        }
        if let Err(e) = self.write_desc(h, group, &desc) {
            let _ = h.modify(buf, |bytes| bitmap::clear(bytes, bit));
            return Err(e);
        }
        map.busy.set(Span { start: bit, len: 1 });
        if reuse {
            // After a crash the number may be its old owner's: no record says that it changed
            // hands.
            delta::note(h, Delta::AllIneligible { reason: Reason::UsedSlot });
            map.pending.remove(&bit);
            group.pending_inodes.store(map.pending.len() as u32, Ordering::Relaxed);
        } else {
            if first_free == Some(bit) {
                map.first_free = bit.saturating_add(1);
            }
            let left = group.free_inodes.load(Ordering::Relaxed).saturating_sub(1);
            group.free_inodes.store(left, Ordering::Relaxed);
        }
        state.set_desc(desc);
        if is_dir {
            group.dirs.store(desc.used_dirs, Ordering::Relaxed);
            self.table.count_dir(true);
        }
        drop(state);
        self.space.inode_taken(reuse);
        Ok(Some(Claim { ino: self.geo.inode_at(nr, bit), known_slot }))
    }

    /// True if the slot holds what its last owner left, or zeros. Where the table was never zeroed,
    /// slots behind the part in use hold anything.
    fn is_known_slot(&self, desc: &GroupDesc, bit: u32) -> bool {
        let used = match self.is_uninit(desc, GroupFlags::INODE_UNINIT) {
            true => 0,
            false => self.geo.inodes_per_group.saturating_sub(desc.itable_unused),
        };
        !self.geo.has_gdt_csum() || bit < used || desc.flags.contains(GroupFlags::INODE_ZEROED)
    }

    /// The first free inode of a group whose number is not held; of those that may be
    /// reused if need be, or of the others.
    fn unheld(&self, nr: GroupNr, map: &InodeMap, reuse: bool) -> Option<u32> {
        let free = |bit: &u32| !self.held.holds(self.geo.inode_at(nr, *bit));
        if reuse {
            return map.pending.keys().copied().find(free);
        }
        let next = |bit: &u32| map.busy.next_zero(bit.saturating_add(1));
        std::iter::successors(map.busy.next_zero(map.first_free), next).find(free)
    }

    /// Frees an inode. Costs [`FREE_INODE_CREDITS`](Self::FREE_INODE_CREDITS).
    pub fn free_inode(self: &Arc<Self>, h: &mut Handle, ino: InodeNr, was_dir: bool) -> Result<()> {
        let bad = |what: &str| FsError::corrupt(what).in_inode(u64::from(ino.0));
        if !self.geo.is_valid_inode(ino) || ino < self.geo.first_ino {
            return Err(bad("freeing an inode that is reserved or does not exist"));
        }
        let (nr, bit) = self.geo.group_of_inode(ino);
        let group = self.group(nr)?;
        let mut state = group.lock();
        self.load_inodes(group, &mut state)?;
        let mut desc = *state.desc()?;
        let Some(map) = state.inodes.as_mut() else { return Err(bad("inode bitmap is gone")) };
        if self.is_uninit(&desc, GroupFlags::INODE_UNINIT) || !map.busy.test(bit) {
            return Err(bad("freeing an inode that is free"));
        }
        let buf = self.open_inode_bitmap(h, &mut desc, &mut map.home)?;
        let sum = h
            .modify(buf, |bytes| {
                bitmap::clear(bytes, bit).then(|| bitmap::inode_bitmap_csum(&self.geo, bytes))
            })
            .map_err(error::journal)?;
        let Some(sum) = sum else { return Err(bad("freeing an inode that is free")) };
        self.put_inode_csum(&mut desc, sum);
        desc.free_inodes = desc.free_inodes.saturating_add(1).min(self.geo.inodes_per_group);
        if was_dir {
            desc.used_dirs = desc.used_dirs.saturating_sub(1);
        }
        if let Err(e) = self.write_desc(h, group, &desc) {
            let _ = h.modify(buf, |bytes| bitmap::set(bytes, bit));
            return Err(e);
        }
        map.pending.insert(bit, h.tid());
        group.pending_inodes.store(map.pending.len() as u32, Ordering::Relaxed);
        state.set_desc(desc);
        if was_dir {
            group.dirs.store(desc.used_dirs, Ordering::Relaxed);
            self.table.count_dir(false);
        }
        self.space.inode_freed();
        if self.pending.add_inode(h.tid(), nr) {
            self.settle_on_commit(h);
        }
        Ok(())
    }

    /// Inodes freed by a transaction that is durable now may be handed out again, unless they
    /// already were.
    pub(super) fn settle_inodes(&self, tid: Tid, mut groups: Vec<GroupNr>) {
        groups.sort_unstable();
        groups.dedup();
        let mut total = 0;
        for nr in groups {
            let Ok(group) = self.group(nr) else { continue };
            let mut state = group.lock();
            let is_bad = state.bad_inodes.is_some();
            let Some(map) = &mut state.inodes else { continue };
            // One pass for all of the transaction's inodes: there may be thousands.
            let InodeMap { busy, pending, first_free, .. } = &mut **map;
            let before = pending.len();
            pending.retain(|&bit, freed_by| {
                let settled = *freed_by == tid;
                if settled && !is_bad {
                    busy.clear(Span { start: bit, len: 1 });
                    *first_free = bit.min(*first_free);
                }
                !settled
            });
            let settled = (before - pending.len()) as u32;
            total += u64::from(settled);
            if !is_bad {
                group.pending_inodes.store(pending.len() as u32, Ordering::Relaxed);
                group.free_inodes.fetch_add(settled, Ordering::Relaxed);
                group.row.inodes.raise(settled);
            }
        }
        self.space.inodes_settled(total);
    }
}

/// The unit from which one for a directory at top level is looked for. It follows from what is in
/// use, so that the same changes of the same volume give the same one; and it differs from one
/// directory to the next.
fn spread_start(free_inodes: u64, units: Units) -> u32 {
    let mixed = free_inodes.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    // Less than the count of units.
    (mixed % u64::from(units.count().max(1))) as u32
}
