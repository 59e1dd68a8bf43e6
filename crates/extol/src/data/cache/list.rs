//! Queues of numbered slots, as doubly linked lists: a slot leaves from any place in constant time.

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A slot's neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    before: u32,
    after: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { before: NONE, after: NONE }
    }
}

/// A queue; the links lie in the slots.
#[derive(Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl List {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The oldest slot.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub fn push<T: AsMut<Link>>(&mut self, slots: &mut [T], slot: u32) {
        *slots[slot as usize].as_mut() = Link { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = slot,
            last => slots[last as usize].as_mut().after = slot,
        }
        self.last = slot;
        self.len += 1;
    }

    /// Removes a slot, which must be in this queue.
    pub fn take<T: AsMut<Link>>(&mut self, slots: &mut [T], slot: u32) {
        let Link { before, after } = std::mem::take(slots[slot as usize].as_mut());
        match before {
            NONE => self.first = after,
            before => slots[before as usize].as_mut().after = after,
        }
        match after {
            NONE => self.last = before,
            after => slots[after as usize].as_mut().before = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Slot(Link);

    impl AsMut<Link> for Slot {
        fn as_mut(&mut self) -> &mut Link {
            &mut self.0
        }
    }

    #[test]
    fn slots_leave_from_anywhere() {
        let mut slots: Vec<Slot> = (0..5).map(|_| Slot(Link::default())).collect();
        let mut list = List::default();
        (0..5).for_each(|slot| list.push(&mut slots, slot));
        for gone in [2, 0, 4] {
            list.take(&mut slots, gone);
        }
        list.push(&mut slots, 0);
        let mut left = Vec::new();
        while let Some(slot) = list.first() {
            list.take(&mut slots, slot);
            left.push(slot);
        }
        assert_eq!(left, [1, 3, 0]);
        assert_eq!((list.len(), list.last), (0, NONE));
    }
}
