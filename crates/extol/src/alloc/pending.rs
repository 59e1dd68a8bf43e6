//! Blocks and inodes freed by transactions that are not durable yet.
//!
//! A crash before the commit brings the old file back, so the blocks must not be written earlier.
//! One callback per transaction, registered at its first free, gives them back. After an abort
//! nothing is given back, since nothing will be written.

use std::collections::HashMap;

use extol_jbd2::Tid;
use extol_ondisk::GroupNr;
use extol_sync::plain::Mutex;

use super::bits::Span;

/// What one transaction freed.
#[derive(Debug, Default)]
pub(super) struct Freed {
    pub blocks: Vec<(GroupNr, Span)>,
    /// Groups in which it freed inodes; one may be here twice.
    pub inodes: Vec<GroupNr>,
}

/// Freed blocks and inodes by transaction.
#[derive(Debug, Default)]
pub(super) struct Pending {
    by_tid: Mutex<HashMap<u32, Freed>>,
}

impl Pending {
    /// Adds blocks; true if this is the first entry of the transaction: register the callback.
    #[must_use]
    pub fn add_blocks(&self, tid: Tid, group: GroupNr, span: Span) -> bool {
        self.add(tid, |freed| {
            if let Some((last_group, last)) = freed.blocks.last_mut()
                && *last_group == group
            {
                if last.end() == span.start {
                    last.len += span.len;
                    return;
                }
                if span.end() == last.start {
                    *last = Span { start: span.start, len: span.len + last.len };
                    return;
                }
            }
            freed.blocks.push((group, span));
        })
    }

    /// Adds a group with a freed inode; true as above.
    #[must_use]
    pub fn add_inode(&self, tid: Tid, group: GroupNr) -> bool {
        self.add(tid, |freed| {
            if freed.inodes.last() != Some(&group) {
                freed.inodes.push(group);
            }
        })
    }

    fn add(&self, tid: Tid, f: impl FnOnce(&mut Freed)) -> bool {
        let mut by_tid = self.by_tid.lock();
        let mut first = false;
        f(by_tid.entry(tid.0).or_insert_with(|| {
            first = true;
            Freed::default()
        }));
        first
    }

    /// Takes out what a transaction freed.
    pub fn remove(&self, tid: Tid) -> Freed {
        self.by_tid.lock().remove(&tid.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge() {
        let pending = Pending::default();
        let s = |start, len| Span { start, len };
        assert!(pending.add_blocks(Tid(7), GroupNr(1), s(10, 5)));
        assert!(!pending.add_blocks(Tid(7), GroupNr(1), s(15, 5)));
        assert!(!pending.add_blocks(Tid(7), GroupNr(1), s(8, 2)));
        assert!(!pending.add_blocks(Tid(7), GroupNr(2), s(20, 2)));
        assert!(pending.add_inode(Tid(8), GroupNr(2)));
        assert!(!pending.add_inode(Tid(8), GroupNr(2)));
        assert_eq!(pending.remove(Tid(7)).blocks, [(GroupNr(1), s(8, 12)), (GroupNr(2), s(20, 2))]);
        assert!(pending.remove(Tid(7)).blocks.is_empty());
        assert_eq!(pending.remove(Tid(8)).inodes, [GroupNr(2)]);
    }
}
