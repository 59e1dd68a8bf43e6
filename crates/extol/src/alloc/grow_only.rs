//! Lists that grow while others read them, without a lock: what is in them never moves.
//!
//! The first part has as many slots as the list had at the beginning, each later one as many as all
//! before it together. A part is made when a slot of it is first used. How long the list is at
//! present is said by something else (the geometry).

use std::sync::OnceLock;

/// A list of slots, each set once. It may become `2^PARTS` times as long as at the beginning: with
/// 32 that is enough for all indexes.
#[derive(Debug)]
pub(super) struct GrowOnly<T, const PARTS: usize = 32> {
    first: Box<[OnceLock<T>]>,
    later: [OnceLock<Box<[OnceLock<T>]>>; PARTS],
}

fn slots<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

impl<T, const PARTS: usize> GrowOnly<T, PARTS> {
    /// With `len` slots for now (at least one).
    pub fn new(len: u32) -> Self {
        Self { first: slots(len.max(1) as usize), later: [const { OnceLock::new() }; PARTS] }
    }

    /// Part and place of an index behind the first part.
    fn place(&self, index: u32) -> (usize, usize) {
        let part = (index as usize / self.first.len()).max(1).ilog2() as usize;
        (part, index as usize - (self.first.len() << part))
    }

    /// What is in the slot.
    pub fn get(&self, index: u32) -> Option<&T> {
        if let Some(slot) = self.first.get(index as usize) {
            return slot.get();
        }
        let (part, at) = self.place(index);
        self.later.get(part)?.get()?.get(at)?.get()
    }

    /// The slot. The caller has made sure that the list is that long by now, since this takes
    /// memory for it.
    pub fn slot(&self, index: u32) -> Option<&OnceLock<T>> {
        if let Some(slot) = self.first.get(index as usize) {
            return Some(slot);
        }
        let (part, at) = self.place(index);
        let len = self.first.len() << part;
        self.later.get(part)?.get_or_init(|| slots(len)).get(at)
    }

    /// All that is in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let later = self.later.iter().filter_map(OnceLock::get).flat_map(|part| part.iter());
        self.first.iter().chain(later).filter_map(OnceLock::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_it_stays_where_it_is() {
        for first in [0, 1, 3, 64] {
            let list = GrowOnly::<u32>::new(first);
            assert_eq!(list.get(first), None);
            list.slot(0).expect("a slot").set(0).expect("empty");
            let before: *const u32 = list.get(0).expect("set");
            for at in 1..500 {
                assert_eq!(list.get(at), None, "{first} {at}");
                list.slot(at).expect("a slot").set(at).expect("its own slot");
                assert_eq!(list.get(at), Some(&at));
            }
            assert!(std::ptr::eq(before, list.get(0).expect("set")));
            assert!(list.iter().copied().eq(0..500), "{first}");
            assert_eq!(list.get(u32::MAX), None);
        }
    }

    #[test]
    fn a_short_list_ends() {
        let list = GrowOnly::<u32, 2>::new(3);
        assert!(list.slot(11).is_some());
        assert!(list.slot(12).is_none() && list.slot(u32::MAX).is_none());
    }
}
