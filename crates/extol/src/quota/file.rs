//! One quota file: its entries are found in memory and changed in their blocks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use extol_jbd2::{Buf, Handle};
use extol_ondisk::quota::{self, BLOCK_LEN, Block, Entry, Info, Kind, Place, Version};
use extol_ondisk::{InodeFlags, InodeNr};
use extol_sync::plain::{RwLock, RwLockReadGuard};
use extol_sync::rank::{self, Mutex, Rank};
use extol_vfs::{FsError, Result};

use super::blocks::{Failed, Layout, ToChange, ToRead};
use super::limits::{self, Begun, Grace};
use super::promises::Promises;
use super::usage::Amount;
use crate::error;
use crate::fast_commit::eligibility::Change;
use crate::map;
use crate::node::Node;
use crate::volume::Volume;

/// Blocks of the file that an insertion changes: three tables under the root and it, a data block
/// and two neighbours in its list, and block 0.
const INSERT_BLOCKS: u32 = 8;
/// Of these, blocks that may be new.
const NEW_BLOCKS: u32 = 4;
/// Blocks of the volume that an insertion needs at most: those, and for each one the map may need
/// one more.
const RESERVED: u64 = 2 * NEW_BLOCKS as u64;

/// A quota file.
#[derive(Debug)]
pub(super) struct QuotaFile {
    kind: Kind,
    ino: InodeNr,
    pub(super) state: RwLock<State>,
    /// Limits are enforced.
    pub(super) enforced: AtomicBool,
    /// They are, or were, so that there may be promises.
    pub(super) promising: AtomicBool,
    pub(super) promises: Mutex<Promises, { Rank::Promises as u8 }>,
}

#[derive(Debug)]
pub(super) struct State {
    pub layout: Layout,
    version: Version,
    /// Where the entries are.
    places: HashMap<u32, Place>,
    pub grace: Grace,
}

impl State {
    /// The entry of an id that has one, from its block.
    pub fn entry(&self, vol: &Volume, id: u32) -> Result<Option<Entry>> {
        let Some(place) = self.places.get(&id).copied() else { return Ok(None) };
        let (nr, at) = self.layout.find(vol, place.block)?;
        let data = vol.journal.read(nr).map_err(error::journal)?.data();
        let block = data.get(at..).and_then(|bytes| bytes.first_chunk());
        let block = block.ok_or_else(|| FsError::corrupt("quota block is cut short"))?;
        place.entry(block, self.version, id).map(Some).map_err(error::ondisk)
    }
}

impl QuotaFile {
    /// Reads where all entries are.
    pub fn open(vol: &Volume, kind: Kind, ino: InodeNr) -> Result<Self> {
        let bad = |e: FsError| e.in_inode(ino.0.into());
        if !vol.geo.is_valid_inode(ino) {
            return Err(bad(FsError::corrupt("quota inode does not exist")));
        }
        let raw = vol.read_inode(ino)?;
        let maps = raw.is_regular() && raw.maps_blocks() && raw.links > 0;
        if !maps || raw.flags.contains(InodeFlags::ENCRYPT) {
            return Err(bad(FsError::corrupt("quota inode is no ordinary file")));
        }
        let layout = Layout::read(vol, &Node { ino, raw })?;
        let (version, places, grace) = read_places(vol, kind, &layout).map_err(|e| bad(e.0))?;
        Ok(Self {
            kind,
            ino,
            state: RwLock::new(State { layout, version, places, grace }),
            enforced: AtomicBool::new(false),
            promising: AtomicBool::new(false),
            promises: Mutex::default(),
        })
    }

    /// Reads where its blocks are.
    pub fn find_blocks(&self, vol: &Volume) -> Result<()> {
        let raw = vol.read_inode(self.ino)?;
        let layout = Layout::read(vol, &Node { ino: self.ino, raw })?;
        let _held = rank::enter(Rank::Quota, 0);
        self.state.write().layout = layout;
        Ok(())
    }

    pub fn ino(&self) -> InodeNr {
        self.ino
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How long soft limits may be exceeded.
    pub fn grace(&self) -> Grace {
        self.read_state(|state| state.grace)
    }

    /// Grace times, and at most so many entries, in the order of the ids from `from` on.
    pub fn entries(&self, vol: &Volume, from: u32, most: usize) -> Result<(Grace, Vec<Entry>)> {
        self.read_state(|state| {
            let mut ids: Vec<u32> = state.places.keys().copied().filter(|id| *id >= from).collect();
            ids.sort_unstable();
            let entries = ids.into_iter().take(most).map(|id| state.entry(vol, id));
            let entries = entries.filter_map(Result::transpose).collect::<Result<_>>()?;
            Ok((state.grace, entries))
        })
        .map_err(|e: FsError| e.in_inode(self.ino.0.into()))
    }

    /// Makes sure that an id has an entry.
    pub fn prepare(&self, vol: &Volume, id: u32) -> Result<()> {
        if self.place(id).is_some() {
            return Ok(());
        }
        vol.alloc.reserve(RESERVED, true)?;
        let inserted = (|| {
            let credits = self.insert_credits(vol)?.min(vol.journal.max_credits());
            let mut h = vol.journal.start(credits).map_err(error::journal)?;
            self.insert(vol, &mut h, id)?;
            h.stop().map_err(error::journal)
        })();
        vol.alloc.unreserve(RESERVED);
        inserted
    }

    /// Adds to the usage of an id, what is posted for an inode.
    pub fn add(
        &self,
        vol: &Volume,
        h: &mut Handle,
        (ino, id): (InodeNr, u32),
        amount: Amount,
        now: u64,
    ) -> Result<()> {
        if self.place(id).is_none() {
            let wanted = self.insert_credits(vol)?;
            if let Some(missing) = wanted.checked_sub(h.credits()).filter(|n| *n > 0) {
                // (Without room the log's slack has it.)
                let _ = h.extend(missing).map_err(error::journal)?;
            }
            self.insert(vol, h, id)?;
        }
        let _held = rank::enter(Rank::Quota, 0);
        let state = self.state.read();
        let enforced = self.is_enforced().then_some((now, state.grace));
        // (A check looks at usage and promises under the same lock.)
        let mut promises = self.promises_if_any();
        let (promised, mut begun) = promises.as_mut().map_or_else(Default::default, |promises| {
            let begun = promises.begun(id);
            promises.use_up(ino, id, amount);
            (promises.total(id), begun)
        });
        self.change(vol, &state, id, |buf, change| {
            h.modify_aside(buf, |bytes| {
                change(bytes, &mut |entry| {
                    amount.add_to(entry);
                    *entry = begun.seen_in(*entry, promised);
                    limits::note_times(entry, amount, promised, enforced);
                    begun = Begun::of(entry);
                })
            })
        })?;
        if let Some(promises) = &mut promises {
            promises.set_begun(id, begun);
        }
        Ok(())
    }

    /// Changes an entry that there is, by other things than a posting. One credit.
    pub fn set(
        &self,
        vol: &Volume,
        h: &mut Handle,
        id: u32,
        set: &mut dyn FnMut(&mut Entry),
    ) -> Result<()> {
        let _held = rank::enter(Rank::Quota, 0);
        let state = self.state.read();
        let _promises = self.promises_if_any();
        self.change(vol, &state, id, |buf, change| h.modify(buf, |bytes| change(bytes, set)))
    }

    /// Changes an entry by `modify`, which is given the block and what to do with its bytes.
    fn change(
        &self,
        vol: &Volume,
        state: &State,
        id: u32,
        modify: impl FnOnce(
            &Arc<Buf>,
            &mut dyn FnMut(&mut [u8], &mut dyn FnMut(&mut Entry)) -> Result<()>,
        ) -> extol_jbd2::Result<Result<()>>,
    ) -> Result<()> {
        let bad = |e: FsError| e.in_inode(self.ino.0.into());
        let place = state.places.get(&id).copied();
        let place = place.ok_or_else(|| bad(FsError::corrupt("quota entry is missing")))?;
        let (nr, at) = state.layout.find(vol, place.block).map_err(bad)?;
        let buf = vol.journal.read(nr).map_err(error::journal)?;
        modify(&buf, &mut |bytes, change| {
            let block: Option<&mut Block> =
                bytes.get_mut(at..at + BLOCK_LEN).and_then(|bytes| bytes.try_into().ok());
            let block = block.ok_or_else(|| FsError::corrupt("quota block is cut short"))?;
            place.change(block, state.version, id, change).map_err(error::ondisk)
        })
        .map_err(error::journal)?
        .map_err(|e| bad(e).at_block(nr.0))
    }

    /// Sets how long soft limits may be exceeded. One credit.
    pub fn set_grace(&self, vol: &Volume, h: &mut Handle, grace: Grace) -> Result<()> {
        let _held = rank::enter(Rank::Quota, 0);
        let mut state = self.state.write();
        let mut node = Node { ino: self.ino, raw: vol.read_inode(self.ino)? };
        let blocks = ToChange { vol, h, layout: &mut state.layout, node: &mut node };
        quota::QuotaFile::open(blocks, self.kind)
            .and_then(|mut file| file.set_grace(grace.space, grace.inodes))
            .map_err(|e| e.0.in_inode(self.ino.0.into()))?;
        state.grace = grace;
        Ok(())
    }

    fn place(&self, id: u32) -> Option<Place> {
        self.read_state(|state| state.places.get(&id).copied())
    }

    fn read_state<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        let _held = rank::enter(Rank::Quota, 0);
        let state: RwLockReadGuard<'_, State> = self.state.read();
        f(&state)
    }

    /// Credits for an insertion, with the blocks that the file may need for it.
    fn insert_credits(&self, vol: &Volume) -> Result<u32> {
        let node = Node { ino: self.ino, raw: vol.read_inode(self.ino)? };
        let for_block = 2 + map::credits_for_insert(&node, 1, vol.geo.block_size.bytes());
        Ok(INSERT_BLOCKS + NEW_BLOCKS * for_block + 1)
    }

    /// Inserts an entry without usage, unless another thread has done so.
    fn insert(&self, vol: &Volume, h: &mut Handle, id: u32) -> Result<()> {
        let _held = rank::enter(Rank::Quota, 0);
        let mut state = self.state.write();
        if state.places.contains_key(&id) {
            return Ok(());
        }
        let mut node = Node { ino: self.ino, raw: vol.read_inode(self.ino)? };
        let before = node.raw.clone();
        let blocks = ToChange { vol, h, layout: &mut state.layout, node: &mut node };
        let place = quota::QuotaFile::open(blocks, self.kind)
            .and_then(|mut file| file.set(&Entry::new(id)));
        // Also after an error: blocks that the file got are its own.
        if node.raw != before {
            vol.write_inode(h, self.ino, &node.raw, Change::default())?;
        }
        let place = place.map_err(|e| e.0.in_inode(self.ino.0.into()))?;
        state.places.insert(id, place);
        Ok(())
    }
}

fn read_places(
    vol: &Volume,
    kind: Kind,
    layout: &Layout,
) -> std::result::Result<(Version, HashMap<u32, Place>, Grace), Failed> {
    let mut file = quota::QuotaFile::open(ToRead { vol, layout }, kind)?;
    let Info { space_grace, inode_grace, .. } = *file.info();
    let version = file.header().version;
    if version != Version::V1 {
        return Err(FsError::corrupt("quota inode has an old format").into());
    }
    let places = file.places()?.into_iter().map(|(place, entry)| (entry.id, place)).collect();
    Ok((version, places, Grace { space: space_grace, inodes: inode_grace }))
}
