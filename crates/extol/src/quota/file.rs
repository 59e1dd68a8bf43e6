//! One quota file: its entries are found in memory and changed in their blocks.

use std::collections::HashMap;

use extol_jbd2::Handle;
use extol_ondisk::quota::{self, BLOCK_LEN, Block, Entry, Kind, Place, Version};
use extol_ondisk::{InodeFlags, InodeNr};
use extol_sync::rank::{self, Rank};
use extol_vfs::{FsError, Result};
use parking_lot::{RwLock, RwLockReadGuard};

use super::blocks::{Failed, Layout, ToChange, ToRead};
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
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    layout: Layout,
    version: Version,
    /// Where the entries are.
    places: HashMap<u32, Place>,
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
        let (version, places) = read_places(vol, kind, &layout).map_err(|e| bad(e.0))?;
        Ok(Self { kind, ino, state: RwLock::new(State { layout, version, places }) })
    }

    pub fn ino(&self) -> InodeNr {
        self.ino
    }

    pub fn kind(&self) -> Kind {
        self.kind
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

    /// Adds to the usage of an id.
    pub fn add(&self, vol: &Volume, h: &mut Handle, id: u32, amount: Amount) -> Result<()> {
        if self.place(id).is_none() {
            let wanted = self.insert_credits(vol)?;
            if let Some(missing) = wanted.checked_sub(h.credits()).filter(|n| *n > 0) {
                // (Without room the log's slack has it.)
                let _ = h.extend(missing).map_err(error::journal)?;
            }
            self.insert(vol, h, id)?;
        }
        let bad = |e: FsError| e.in_inode(self.ino.0.into());
        let _held = rank::enter(Rank::Quota, 0);
        let state = self.state.read();
        let place = state.places.get(&id).copied();
        let place = place.ok_or_else(|| bad(FsError::corrupt("quota entry is missing")))?;
        let (nr, at) = state.layout.find(vol, place.block).map_err(bad)?;
        let buf = vol.journal.read(nr).map_err(error::journal)?;
        let version = state.version;
        h.modify_aside(&buf, |bytes| {
            let block: Option<&mut Block> =
                bytes.get_mut(at..at + BLOCK_LEN).and_then(|bytes| bytes.try_into().ok());
            let block = block.ok_or_else(|| FsError::corrupt("quota block is cut short"))?;
            place.change(block, version, id, |entry| amount.add_to(entry)).map_err(error::ondisk)
        })
        .map_err(error::journal)?
        .map_err(|e| bad(e).at_block(nr.0))
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
) -> std::result::Result<(Version, HashMap<u32, Place>), Failed> {
    let mut file = quota::QuotaFile::open(ToRead { vol, layout }, kind)?;
    let version = file.header().version;
    if version != Version::V1 {
        return Err(FsError::corrupt("quota inode has an old format").into());
    }
    let places = file.places()?.into_iter().map(|(place, entry)| (entry.id, place)).collect();
    Ok((version, places))
}
