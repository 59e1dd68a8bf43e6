//! Recent attribute blocks, by the hash of their contents.

use std::collections::{HashMap, VecDeque};

use extol_block::BlockNr;
use parking_lot::Mutex;

/// Blocks that are noted.
const MAX_NOTED: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Noted {
    pub by_hash: HashMap<u32, BlockNr>,
    order: VecDeque<u32>,
}

impl Noted {
    pub fn insert(&mut self, hash: u32, nr: BlockNr) {
        if hash == 0 {
            return;
        }
        if self.by_hash.insert(hash, nr).is_none() {
            self.order.push_back(hash);
        }
        while self.order.len() > MAX_NOTED {
            if let Some(oldest) = self.order.pop_front() {
                self.by_hash.remove(&oldest);
            }
        }
    }

    pub fn remove(&mut self, hash: u32, nr: BlockNr) {
        if self.by_hash.get(&hash) == Some(&nr) {
            self.by_hash.remove(&hash);
            self.order.retain(|h| *h != hash);
        }
    }
}

/// Recent blocks that inodes share, or could share. `shared.rs` uses it.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    pub(super) noted: Mutex<Noted>,
}
