//! Which directories were looked through for names that are not where their hash says
//! (`misplaced.rs`), by number and generation: numbers change when a volume becomes smaller.
//!
//! Locking: a leaf. Directories are looked through without it.

use std::collections::HashMap;

use extol_sync::plain::Mutex;

/// Most directories of which it is known.
const MAX: usize = 4096;

/// Whether they have such names.
#[derive(Debug, Default)]
pub(crate) struct LookedThrough {
    known: Mutex<HashMap<(u32, u32), bool>>,
}

impl LookedThrough {
    /// `None`: it was not looked through.
    pub fn get(&self, dir: (u32, u32)) -> Option<bool> {
        self.known.lock().get(&dir).copied()
    }

    /// It was.
    pub fn insert(&self, dir: (u32, u32), has_any: bool) {
        let mut known = self.known.lock();
        if known.len() >= MAX {
            known.clear();
        }
        known.insert(dir, has_any);
    }
}
