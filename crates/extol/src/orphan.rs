//! Orphans: inodes that the next mount must delete or truncate after a crash.
//!
//! An inode is an orphan from the removal of its last name until its deletion, and while a truncate
//! that needs several transactions runs. The volume records orphans in one of two ways, which its
//! features choose:
//!
//! ```text
//!   list:  superblock.last_orphan ─► inode.dtime ─► inode.dtime ─► 0
//!          one chain through the inodes
//!   file:  orphan_file: blocks of inode numbers, 0 = free slot
//!          falls back to the list when full
//! ```
//!
//! Without a journal nothing is recorded in the file: Linux writes its blocks with their checksums
//! only where it has a journal, and refuses a volume on which it had to delete what the file names.
//!
//! Invariants
//! - OR-1: on the list, an orphan's `dtime` is the link, and a thread without the inode's lock may
//!   have to change it. So the chain in memory decides: a thread that writes an inode takes the
//!   link from it, under the orphan lock ([`LinkGuard::link`]).
//! - OR-2: the volume records an inode in the transaction that makes it an orphan, and removes the
//!   record in the one that finishes its deletion or truncation ([`Orphans::add`],
//!   [`Orphans::remove`]).
//!
//! Locking: the orphan lock is taken with a handle open, and before buffers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use extol_block::BlockNr;
use extol_jbd2::{Handle, Seal};
use extol_ondisk::{Inode, InodeNr, InodeSeed, orphan_file};
use extol_sync::rank::{Guard, Mutex, Rank};
use extol_vfs::{FsError, Result};
use foldhash::fast::RandomState;

use crate::alloc::SuperCell;
use crate::error;
use crate::fast_commit::eligibility;
use crate::fast_commit::reason::Reason;
use crate::node::Node;
use crate::volume::Volume;
use crate::xattr::OrphanCheck;

/// Where an orphan is recorded.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// On the list: the neighbour nearer to the superblock, and the one behind (0 = none).
    List { before: u32, after: u32 },
    /// Block and slot of the orphan file.
    Slot { block: u32, slot: u32 },
}

/// One block of the orphan file.
#[derive(Debug)]
struct FileBlock {
    nr: BlockNr,
    free: u32,
    /// No slot before this one is free.
    from: u32,
}

/// The orphan file.
#[derive(Debug)]
struct File {
    ino: InodeNr,
    generation: u32,
    blocks: Vec<FileBlock>,
    /// The block in which the search for a free slot begins.
    hint: usize,
}

#[derive(Debug, Default)]
struct State {
    places: HashMap<u32, Place, RandomState>,
    /// First of the list.
    head: u32,
    file: Option<File>,
    /// New orphans are recorded on the list, whether there is a file or not.
    list_only: bool,
}

/// All orphans of the volume.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    state: Mutex<State, { Rank::Orphans as u8 }>,
    /// The number of orphans; read without the lock, so that dropping a reference takes no lock.
    count: AtomicUsize,
    /// Inodes on the list; read without the lock by a thread that writes an inode (whose own
    /// membership cannot change then).
    listed: AtomicUsize,
}

/// Credits to add or remove an orphan: superblock or orphan-file block, and a neighbour's inode.
pub(crate) const CREDITS: u32 = 2;

/// The lock that excludes changes of list links while an inode is written.
pub(crate) struct LinkGuard<'a> {
    state: Guard<'a, State>,
}

impl LinkGuard<'_> {
    /// The link to store in the inode's `dtime`, if it is on the list.
    pub fn link(&self, ino: u32) -> Option<u32> {
        match self.state.places.get(&ino) {
            Some(Place::List { after, .. }) => Some(*after),
            _ => None,
        }
    }
}

impl Orphans {
    /// Loads the orphan file, if the volume has one. Returns the inodes that it names.
    pub fn open_file(&self, vol: &Volume, node: &Node) -> Result<Vec<u32>> {
        let per_block = orphan_file::slots(vol.geo.block_size);
        let blocks = u32::try_from(node.raw.size >> vol.geo.block_size.bits()).unwrap_or(u32::MAX);
        // Linux has the same bound.
        if blocks == 0 || blocks > 512 {
            return Err(
                FsError::corrupt("orphan file has an impossible size").in_inode(node.ino.0.into())
            );
        }
        let mut file =
            File { ino: node.ino, generation: node.raw.generation, blocks: Vec::new(), hint: 0 };
        let mut found = Vec::new();
        let mut places = Vec::new();
        for lblk in 0..blocks {
            let crate::map::Mapping::Mapped { pblk, unwritten: false, .. } =
                crate::map::lookup(vol, node, lblk)?
            else {
                return Err(FsError::corrupt("hole in the orphan file").in_inode(node.ino.0.into()));
            };
            let place = crate::alloc::Run { start: pblk, len: 1 };
            vol.alloc.check_not_system(place).map_err(|e| e.in_inode(node.ino.0.into()))?;
            let buf = vol.journal.read(pblk).map_err(error::journal)?;
            let data = buf.data();
            orphan_file::verify(&data, pblk, seed_of(vol, node.ino, node.raw.generation))
                .map_err(|e| error::ondisk(e).in_inode(node.ino.0.into()).at_block(pblk.0))?;
            buf.set_verified();
            let mut free = 0;
            for slot in 0..per_block {
                match orphan_file::get(&data, slot).0 {
                    0 => free += 1,
                    ino => {
                        found.push(ino);
                        places.push((ino, Place::Slot { block: lblk, slot }));
                    }
                }
            }
            file.blocks.push(FileBlock { nr: pblk, free, from: 0 });
        }
        // (Its blocks may share a cluster, so not before all of them were checked.)
        for block in &file.blocks {
            vol.alloc.protect(crate::alloc::Run { start: block.nr, len: 1 });
        }
        let mut state = self.state.lock();
        state.places.extend(places);
        self.update_count(&state);
        state.file = Some(file);
        Ok(found)
    }

    /// The orphan file's inode, if there is one.
    pub fn file_inode(&self) -> Option<InodeNr> {
        self.state.lock().file.as_ref().map(|file| file.ino)
    }

    /// From now on orphans are recorded on the list alone; the file stays what it is.
    pub fn use_list(&self) {
        self.state.lock().list_only = true;
    }

    /// The orphan file's blocks; none if there is no such file.
    pub fn file_blocks(&self) -> Vec<BlockNr> {
        let state = self.state.lock();
        state.file.iter().flat_map(|file| &file.blocks).map(|block| block.nr).collect()
    }

    /// From now on orphans are recorded on the list alone. False: there are orphans, and nothing
    /// has changed.
    pub fn leave_file(&self) -> bool {
        let mut state = self.state.lock();
        if state.places.is_empty() {
            state.file = None;
        }
        state.file.is_none()
    }

    /// Writes block `lblk` of the orphan file to another place, with the checksum that it has there
    /// (the number of the block is in it). While nothing changes the orphans. One credit.
    pub fn copy_block(&self, vol: &Volume, h: &mut Handle, lblk: u32, to: BlockNr) -> Result<()> {
        let state = self.state.lock();
        let file = state.file.as_ref().ok_or_else(|| FsError::corrupt("orphan file is gone"))?;
        let block = file
            .blocks
            .get(lblk as usize)
            .ok_or_else(|| FsError::corrupt("orphan file is too short"))?;
        let bytes = vol.journal.read(block.nr).map_err(error::journal)?.data();
        let copy = h.create(to).map_err(error::journal)?;
        let seed = seed_of(vol, file.ino, file.generation);
        h.modify(&copy, |block| {
            block.copy_from_slice(&bytes);
            if let Some(seed) = seed {
                orphan_file::set_csum(block, to, seed);
            }
        })
        .map_err(error::journal)
    }

    /// The orphan file's inode maps the copy of that block now.
    pub fn use_copy(&self, lblk: u32, to: BlockNr) {
        let mut state = self.state.lock();
        let block = state.file.as_mut().and_then(|file| file.blocks.get_mut(lblk as usize));
        if let Some(block) = block {
            block.nr = to;
        }
    }

    /// Follows the list on disk. Returns its inodes, the first one first; stops at anything
    /// implausible.
    pub fn read_list(&self, vol: &Volume, head: u32) -> Result<Vec<u32>> {
        let mut found: Vec<u32> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut at = head;
        while at != 0 {
            if at < vol.geo.first_ino.0 || at > vol.geo.inodes() || !seen.insert(at) {
                return Err(FsError::corrupt("the orphan list is broken").in_inode(at.into()));
            }
            found.push(at);
            at = vol.read_inode(InodeNr(at))?.dtime;
        }
        let mut state = self.state.lock();
        state.head = head;
        self.listed.fetch_add(found.len(), Ordering::AcqRel);
        for (i, ino) in found.iter().enumerate() {
            let before = i.checked_sub(1).and_then(|i| found.get(i)).copied().unwrap_or(0);
            let after = found.get(i + 1).copied().unwrap_or(0);
            state.places.insert(*ino, Place::List { before, after });
        }
        self.update_count(&state);
        Ok(found)
    }

    fn update_count(&self, state: &State) {
        self.count.store(state.places.len(), Ordering::Release);
    }

    /// True if the inode is an orphan.
    pub fn contains(&self, ino: u32) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.state.lock().places.contains_key(&ino)
    }

    /// The number of orphans.
    pub fn len(&self) -> usize {
        self.state.lock().places.len()
    }

    /// Excludes changes of list links while an inode is written; `None` if no inode is on the list.
    pub fn guard(&self) -> Option<LinkGuard<'_>> {
        (self.listed.load(Ordering::Acquire) > 0).then(|| LinkGuard { state: self.state.lock() })
    }

    /// Makes an inode an orphan. The caller writes the inode afterwards (its `dtime` may have
    /// become a link). If the inode has names, the caller also notes that it is ineligible for fast
    /// commits, here and at [`remove`](Self::remove).
    pub fn add(&self, vol: &Volume, sb: &SuperCell, h: &mut Handle, ino: u32) -> Result<()> {
        let mut state = self.state.lock();
        if state.places.contains_key(&ino) {
            // Perhaps in the last full commit already: then its `dtime` is a link there.
            eligibility::note_ineligible(h, InodeNr(ino), Reason::Attributes);
            return Ok(());
        }
        if let Some(place) = add_to_file(&mut state, vol, h, ino)? {
            state.places.insert(ino, place);
            self.update_count(&state);
            return Ok(());
        }
        let after = state.head;
        set_head(sb, h, ino)?;
        if let Some(Place::List { before, .. }) = state.places.get_mut(&after) {
            *before = ino;
        }
        state.places.insert(ino, Place::List { before: 0, after });
        self.update_count(&state);
        self.listed.fetch_add(1, Ordering::AcqRel);
        state.head = ino;
        Ok(())
    }

    /// Removes an inode from the orphans. The caller writes the inode afterwards.
    pub fn remove(&self, vol: &Volume, sb: &SuperCell, h: &mut Handle, ino: u32) -> Result<()> {
        if !self.contains(ino) {
            return Ok(());
        }
        let mut state = self.state.lock();
        let Some(place) = state.places.get(&ino).copied() else { return Ok(()) };
        match place {
            Place::Slot { block, slot } => {
                let file =
                    state.file.as_mut().ok_or_else(|| FsError::corrupt("orphan file is gone"))?;
                write_slot(file, vol, h, block, slot, 0)?;
                if let Some(b) = file.blocks.get_mut(block as usize) {
                    b.free += 1;
                    b.from = b.from.min(slot);
                }
            }
            Place::List { before, after } => {
                if before == 0 {
                    set_head(sb, h, after)?;
                    state.head = after;
                } else {
                    set_link(vol, h, before, after)?;
                    if let Some(Place::List { after: a, .. }) = state.places.get_mut(&before) {
                        *a = after;
                    }
                }
                if let Some(Place::List { before: b, .. }) = state.places.get_mut(&after) {
                    *b = before;
                }
            }
        }
        state.places.remove(&ino);
        self.update_count(&state);
        if matches!(place, Place::List { .. }) {
            self.listed.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl OrphanCheck for Orphans {
    fn is_orphan(&self, ino: InodeNr) -> bool {
        self.contains(ino.0)
    }
}

fn add_to_file(state: &mut State, vol: &Volume, h: &mut Handle, ino: u32) -> Result<Option<Place>> {
    let Some(file) = state.file.as_mut().filter(|_| !state.list_only) else { return Ok(None) };
    let n = file.blocks.len();
    let Some(block) = (0..n).map(|i| (file.hint + i) % n).find(|i| file.blocks[*i].free > 0) else {
        return Ok(None);
    };
    file.hint = block;
    let slot = {
        // (A block that is still read is copied by its next change: so only for these lines.)
        let data = vol.journal.read(file.blocks[block].nr).map_err(error::journal)?.data();
        orphan_file::find_free(&data, file.blocks[block].from)
    };
    let Some(slot) = slot else {
        file.blocks[block].free = 0;
        return Ok(None);
    };
    write_slot(file, vol, h, block as u32, slot, ino)?;
    file.blocks[block].free -= 1;
    file.blocks[block].from = slot + 1;
    let block = block as u32;
    Ok(Some(Place::Slot { block, slot }))
}

fn write_slot(
    file: &File,
    vol: &Volume,
    h: &mut Handle,
    block: u32,
    slot: u32,
    ino: u32,
) -> Result<()> {
    let nr = file
        .blocks
        .get(block as usize)
        .ok_or_else(|| FsError::corrupt("orphan file is too short"))?
        .nr;
    let buf = vol.journal.read(nr).map_err(error::journal)?;
    let change = |bytes: &mut [u8]| orphan_file::set(bytes, slot, InodeNr(ino));
    match seed_of(vol, file.ino, file.generation) {
        Some(seed) => {
            let set =
                |bytes: &mut [u8], nr, seed| orphan_file::set_csum(bytes, nr, InodeSeed(seed));
            h.modify_sealed(&buf, Seal { set, seed: seed.0 }, change)
        }
        None => h.modify(&buf, change),
    }
    .map_err(error::journal)
}

fn set_head(sb: &SuperCell, h: &mut Handle, ino: u32) -> Result<()> {
    sb.update(h, |sb| sb.last_orphan = ino)
}

fn seed_of(vol: &Volume, ino: InodeNr, generation: u32) -> Option<InodeSeed> {
    vol.geo.has_metadata_csum().then(|| vol.geo.fs_seed.inode(ino, generation))
}

/// Changes the link in another orphan's inode, on its table block.
fn set_link(vol: &Volume, h: &mut Handle, ino: u32, link: u32) -> Result<()> {
    vol.modify_inode(h, InodeNr(ino), |raw: &mut Inode| raw.dtime = link)
}
