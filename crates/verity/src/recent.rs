//! Blocks of a tree that are checked, as many as there is room for.

use std::cell::RefCell;
use std::sync::Arc;

/// Keeps blocks of one tree that are checked (VT-1). It may lose any of them at any time.
pub trait Known {
    /// A block that is kept.
    fn get(&self, block: u64) -> Option<Arc<[u8]>>;

    /// Keeps a block that is checked.
    fn keep(&self, block: u64, bytes: Arc<[u8]>);
}

/// The blocks that were used last, of one tree, or of many: then the key says of which.
#[derive(Debug)]
pub struct Recent<K = u64> {
    room: usize,
    now: u64,
    kept: Vec<Kept<K>>,
}

#[derive(Debug)]
struct Kept<K> {
    block: K,
    used: u64,
    bytes: Arc<[u8]>,
}

impl<K: PartialEq> Recent<K> {
    /// Room for so many blocks, at least one. (A search looks at all of them.)
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { room: room.max(1), now: 0, kept: Vec::new() }
    }

    /// A block that is kept.
    pub fn get(&mut self, block: &K) -> Option<Arc<[u8]>> {
        self.now += 1;
        let kept = self.kept.iter_mut().find(|kept| kept.block == *block)?;
        kept.used = self.now;
        Some(Arc::clone(&kept.bytes))
    }

    /// Keeps a block, instead of the one that was not used for the longest time.
    pub fn keep(&mut self, block: K, bytes: Arc<[u8]>) {
        self.now += 1;
        let new = Kept { block, used: self.now, bytes };
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.block == new.block) {
            *kept = new;
        } else if self.kept.len() < self.room {
            self.kept.push(new);
        } else if let Some(oldest) = self.kept.iter_mut().min_by_key(|kept| kept.used) {
            *oldest = new;
        }
    }
}

impl Known for RefCell<Recent> {
    fn get(&self, block: u64) -> Option<Arc<[u8]>> {
        self.borrow_mut().get(&block)
    }

    fn keep(&self, block: u64, bytes: Arc<[u8]>) {
        self.borrow_mut().keep(block, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_that_was_not_used_goes_first() {
        let mut recent = Recent::new(2);
        recent.keep(1, Arc::from([1]));
        recent.keep(2, Arc::from([2]));
        assert_eq!(recent.get(&1).as_deref(), Some(&[1][..]));
        recent.keep(3, Arc::from([3]));
        assert_eq!(recent.get(&2), None);
        assert_eq!(recent.get(&1).as_deref(), Some(&[1][..]));
        recent.keep(1, Arc::from([9]));
        assert_eq!(recent.get(&1).as_deref(), Some(&[9][..]));
        assert_eq!(recent.get(&3).as_deref(), Some(&[3][..]));
    }
}
