//! Recent attribute blocks by the hash of their contents, and values in inodes by their checksum.

use std::collections::{HashMap, VecDeque};

use extol_block::BlockNr;
use extol_ondisk::InodeNr;
use extol_sync::plain::Mutex;
use extol_sync::rank::{self, Rank};

/// How many are noted of each kind.
const MAX_NOTED: usize = 512;

/// Things by a hash, the newest of a few hundred hashes.
#[derive(Debug)]
pub(super) struct Noted<T> {
    pub by_hash: HashMap<u32, T>,
    order: VecDeque<u32>,
}

impl<T> Default for Noted<T> {
    fn default() -> Self {
        Self { by_hash: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T: Copy + PartialEq> Noted<T> {
    pub fn insert(&mut self, hash: u32, what: T) {
        if self.by_hash.insert(hash, what).is_none() {
            self.order.push_back(hash);
        }
        while self.order.len() > MAX_NOTED {
            if let Some(oldest) = self.order.pop_front() {
                self.by_hash.remove(&oldest);
            }
        }
    }

    pub fn remove(&mut self, hash: u32, what: T) {
        if self.by_hash.get(&hash) == Some(&what) {
            self.by_hash.remove(&hash);
            self.order.retain(|h| *h != hash);
        }
    }
}

/// Recent blocks that inodes share, or could share, and recent values in inodes. `shared.rs` and
/// `value` use them.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Blocks with a hash.
    pub(super) noted: Mutex<Noted<BlockNr>>,
    /// Held while a number of users changes.
    pub(super) values: rank::Mutex<Noted<InodeNr>, { Rank::Values as u8 }>,
}
