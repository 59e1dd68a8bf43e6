//! The volume: device, journal, geometry and allocator, and the access to inodes on disk.
//!
//! It knows nothing of mount state or of inodes in memory: those are in `mounted`, one layer above.

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use extol_block::{BlockNr, SharedDevice};
use extol_jbd2::{Buf, Handle, Journal};
use extol_ondisk::{Geometry, Inode, InodeNr, OnDiskError};
use extol_vfs::{FsError, Result};
use smallvec::SmallVec;

use crate::alloc::Allocator;
use crate::dir::dentry_cache::DentryCache;
use crate::dir::looked_through::LookedThrough;
use crate::error;
use crate::fast_commit::eligibility::{self, Change};
use crate::keys::KeyRing;
use crate::name_keys::NameKeys;
use crate::node::Node;
use crate::quota::usage::{Ids, Room, Usage};
use crate::xattr::sharing::Sharing;

/// What keeps the usage of owners. The records of inodes say all of it, so it hears of each change.
pub(crate) trait Accounts: std::fmt::Debug + Send + Sync {
    /// True if an inode belongs to owners.
    fn counts(&self, vol: &Volume, ino: InodeNr) -> bool;

    /// The record of an inode has changed: so does the usage of its owners.
    ///
    /// # Errors
    /// A block cannot be read, or usage cannot be stored.
    fn post(&self, vol: &Volume, h: &mut Handle, ino: InodeNr, change: &Posting<'_>) -> Result<()>;

    /// Promises an inode more space or, to a new one, itself. What is posted for it uses that up.
    /// Called with its lock held.
    ///
    /// # Errors
    /// `QuotaExceeded`: a limit of one of its owners is in the way.
    fn promise(&self, vol: &Volume, ino: InodeNr, ids: Ids, more: Room) -> Result<()>;

    /// Bytes that limits leave to an inode's owners.
    ///
    /// # Errors
    /// A block cannot be read.
    fn space_left(&self, vol: &Volume, ids: Ids) -> Result<u64>;

    /// From now on an inode has a promise of these bytes, and no other.
    fn settle(&self, ino: InodeNr, ids: Ids, space: u64);
}

/// What changed in a record, for [`Accounts`]. `None` is an inode that is not in use, or that no
/// owner pays for.
#[derive(Debug)]
pub(crate) struct Posting<'a> {
    pub before: Option<Usage>,
    pub after: Option<Usage>,
    /// As it is now; as it was, if the slot is cleared.
    pub raw: &'a Inode,
    /// How many more attribute values in inodes of their own it pays for.
    pub values: i64,
}

/// The parts of an open volume that do not depend on inodes.
#[derive(Debug)]
pub(crate) struct Volume {
    /// The device of file data, and of metadata through the journal's cache.
    pub dev: SharedDevice,
    /// Block cache and transactions.
    pub journal: Arc<Journal>,
    /// Sizes and places that never change.
    pub geo: Geometry,
    /// Free space.
    pub alloc: Arc<Allocator>,
    /// Attribute blocks that inodes share.
    pub sharing: Sharing,
    /// Keys of encrypted files.
    pub keys: KeyRing,
    /// Keys that were derived of them.
    pub name_keys: NameKeys,
    /// Casefolded directories that were looked through.
    pub misplaced: LookedThrough,
    /// The dentry cache.
    pub dentries: DentryCache,
    /// What keeps the usage of owners, once it does.
    pub accounts: OnceLock<Arc<dyn Accounts>>,
    /// A directory listing found damage (RD-1 in `dir/readdir.rs`).
    pub dirs_damaged: AtomicBool,
}

impl Volume {
    /// A volume of these parts, with empty caches.
    pub fn new(
        dev: SharedDevice,
        journal: Arc<Journal>,
        geo: Geometry,
        alloc: Arc<Allocator>,
    ) -> Self {
        Self {
            dev,
            journal,
            geo,
            alloc,
            sharing: Sharing::default(),
            keys: KeyRing::default(),
            name_keys: NameKeys::default(),
            misplaced: LookedThrough::default(),
            dentries: DentryCache::default(),
            accounts: OnceLock::new(),
            dirs_damaged: AtomicBool::new(false),
        }
    }

    /// Block and byte offset of an inode's slot in the inode table.
    fn inode_slot(&self, ino: InodeNr) -> Result<(BlockNr, usize)> {
        if ino.0 == 0 || ino.0 > self.geo.inodes() {
            return Err(FsError::corrupt("inode number out of range").in_inode(u64::from(ino.0)));
        }
        let (group, index) = self.geo.group_of_inode(ino);
        let table = self.alloc.inode_table(group)?;
        let byte = u64::from(index) * u64::from(self.geo.inode_size);
        let bs = u64::from(self.geo.block_size.bytes());
        Ok((table.plus(byte / bs), (byte % bs) as usize))
    }

    /// The block of the inode table with an inode's slot, and where in it the slot is.
    pub fn inode_buf(&self, ino: InodeNr) -> Result<(Arc<Buf>, usize)> {
        let (block, at) = self.inode_slot(ino)?;
        let buf = self.journal.read(block).map_err(error::journal)?;
        Ok((buf, at))
    }

    /// Reads and checks an inode.
    pub fn read_inode(&self, ino: InodeNr) -> Result<Inode> {
        let (buf, at) = self.inode_buf(ino)?;
        let data = buf.data();
        let bytes = data
            .get(at..at + usize::from(self.geo.inode_size))
            .ok_or_else(|| FsError::corrupt("inode slot outside its block"))?;
        Inode::decode(bytes, ino, &self.geo)
            .map_err(|e| error::ondisk(e).in_inode(u64::from(ino.0)).at_block(buf.nr().0))
    }

    /// True if the slot with this number holds an inode that has a name. (What cannot be read is in
    /// use: nothing may take it.)
    pub fn is_in_use(&self, ino: InodeNr) -> bool {
        self.read_inode(ino).map_or(true, |inode| inode.links > 0)
    }

    /// Writes an inode into its slot (one credit).
    pub fn write_inode(
        &self,
        h: &mut Handle,
        ino: InodeNr,
        inode: &Inode,
        how: Change,
    ) -> Result<()> {
        self.change_slot(h, ino, how, |_| Ok(Cow::Borrowed(inode)))
    }

    /// Changes an inode in its slot without its lock (one credit). Only for fields that the holder
    /// of the lock does not write.
    pub fn modify_inode(
        &self,
        h: &mut Handle,
        ino: InodeNr,
        f: impl FnOnce(&mut Inode),
    ) -> Result<()> {
        self.change_slot(h, ino, Change::default(), |slot| {
            let mut inode = Inode::decode(slot, ino, &self.geo)?;
            f(&mut inode);
            Ok(Cow::Owned(inode))
        })
    }

    /// Fills the slot of an inode that is not in use any more with zeros (one credit).
    pub fn clear_inode(&self, h: &mut Handle, ino: InodeNr) -> Result<()> {
        let (buf, at) = self.inode_buf(ino)?;
        if let Some(accounts) = self.accounts_of(ino) {
            let raw = self.read_inode(ino)?;
            let before = Usage::of(&raw);
            let change = Posting { before, after: None, raw: &raw, values: 0 };
            accounts.post(self, h, ino, &change)?;
        }
        let size = usize::from(self.geo.inode_size);
        let clear = |bytes: &mut [u8]| {
            if let Some(slot) = bytes.get_mut(at..at + size) {
                slot.fill(0);
            }
        };
        h.modify(&buf, clear).map_err(error::journal)
    }

    /// Bytes of so many clusters.
    pub fn bytes_of(&self, clusters: u64) -> u64 {
        let block = u64::from(self.geo.block_size.bytes());
        self.geo.cluster_blocks(clusters).saturating_mul(block)
    }

    /// Err if a limit of its owners does not let an inode have so many more clusters. Called before
    /// they are taken.
    pub fn promise(&self, node: &Node, clusters: u64) -> Result<()> {
        self.promise_room(node, Room { space: self.bytes_of(clusters), inodes: 0 })
    }

    /// Err if a limit of its owners does not let a new inode come.
    pub fn promise_inode(&self, ino: InodeNr, ids: Ids) -> Result<()> {
        let room = Room { space: 0, inodes: 1 };
        self.accounts_of(ino).map_or(Ok(()), |accounts| accounts.promise(self, ino, ids, room))
    }

    /// Err if a limit of its owners does not let an inode have one more block for its map.
    pub fn promise_block(&self, ino: InodeNr, ids: Ids) -> Result<()> {
        let room = Room { space: self.bytes_of(1), inodes: 0 };
        self.accounts_of(ino).map_or(Ok(()), |accounts| accounts.promise(self, ino, ids, room))
    }

    /// Err if a limit does not let an inode have one more value of this length in an inode of its
    /// own.
    pub fn promise_value(&self, node: &Node, len: usize) -> Result<()> {
        let space = (len as u64).next_multiple_of(self.bytes_of(1));
        self.promise_room(node, Room { space, inodes: 1 })
    }

    fn promise_room(&self, node: &Node, room: Room) -> Result<()> {
        let Some(accounts) = self.accounts_of(node.ino) else { return Ok(()) };
        accounts.promise(self, node.ino, Ids::of_inode(&node.raw), room)
    }

    /// As [`promise`](Self::promise), for as many clusters as limits leave; returns how many.
    pub fn promise_some(&self, node: &Node, clusters: u64) -> Result<u64> {
        match self.promise(node, clusters) {
            Err(FsError::QuotaExceeded) => {}
            promised => return promised.map(|()| clusters),
        }
        let Some(accounts) = self.accounts_of(node.ino) else { return Ok(clusters) };
        let left = accounts.space_left(self, Ids::of_inode(&node.raw))? / self.bytes_of(1);
        match left.min(clusters) {
            0 => Err(FsError::QuotaExceeded),
            some => self.promise(node, some).map(|()| some),
        }
    }

    /// The inode needs promises for so many clusters from now on, and for nothing else.
    pub fn settle(&self, node: &Node, clusters: u64) {
        if let Some(accounts) = self.accounts_of(node.ino) {
            accounts.settle(node.ino, Ids::of_inode(&node.raw), self.bytes_of(clusters));
        }
    }

    /// What keeps the usage of an inode's owners, if it has some.
    fn accounts_of(&self, ino: InodeNr) -> Option<&dyn Accounts> {
        self.accounts.get().filter(|accounts| accounts.counts(self, ino)).map(Arc::as_ref)
    }

    /// Puts the inode that `new` makes of a slot into it.
    fn change_slot<'a>(
        &self,
        h: &mut Handle,
        ino: InodeNr,
        how: Change,
        new: impl FnOnce(&[u8]) -> std::result::Result<Cow<'a, Inode>, OnDiskError>,
    ) -> Result<()> {
        let (buf, at) = self.inode_buf(ino)?;
        let size = usize::from(self.geo.inode_size);
        let watched = eligibility::is_watched(h, ino, &self.geo);
        let accounts = self.accounts_of(ino);
        let (written, posted) = h
            .modify(&buf, |bytes| {
                let Some(slot) = bytes.get_mut(at..at + size) else { return Ok((None, None)) };
                // (Inodes of the usual sizes need no allocation.)
                let before = watched.then(|| SmallVec::<[u8; 256]>::from_slice(slot));
                let old = match accounts.is_some() && !how.born {
                    true => Usage::of(&Inode::decode(slot, ino, &self.geo)?),
                    false => None,
                };
                let inode = new(slot)?;
                inode.encode_into(slot, ino, &self.geo);
                let assess =
                    |before: SmallVec<[u8; 256]>| eligibility::assess(&before, &inode, slot, how);
                Ok((before.map(assess), Some((old, inode))))
            })
            .map_err(error::journal)?
            .map_err(|e: OnDiskError| error::ondisk(e).in_inode(u64::from(ino.0)))?;
        if let Some(written) = written {
            eligibility::note_inode(h, ino, written, &self.geo, &self.alloc);
        }
        let (Some(accounts), Some((before, raw))) = (accounts, posted) else { return Ok(()) };
        let after = if how.gone { None } else { Usage::of(&raw) };
        let change = Posting { before, after, raw: &raw, values: how.values };
        accounts.post(self, h, ino, &change)
    }
}
