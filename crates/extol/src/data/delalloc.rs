//! Delayed allocation: the dirty pages of one inode, written to the file and not to the device.
//!
//! A page is one whole file-system block. If the block is a hole, the page holds one reserved
//! cluster, and the inode holds a few for mapping blocks, so writeback cannot run out of space
//! (DA-1). A page over an unwritten block needs only the latter, and so does a page in a hole whose
//! cluster the file has, or which another page has reserved.

use std::collections::BTreeMap;
use std::collections::btree_map;

/// One block of file data.
#[derive(Debug)]
pub(crate) struct Page {
    /// Exactly one block.
    pub data: Vec<u8>,
    /// It fills a hole.
    pub hole: bool,
    /// It holds the reserved cluster for that.
    pub reserved: bool,
    /// It covers an unwritten block, whose extent may have to be split.
    pub unwritten: bool,
}

/// The dirty pages of an inode, by logical block.
#[derive(Debug, Default)]
pub(crate) struct DirtyPages {
    pages: BTreeMap<u32, Page>,
    /// Reserved for extent-tree or indirect blocks.
    pub meta_reserved: u64,
    /// Pages in holes.
    holes: u64,
    /// Pages with a reserved cluster.
    reserved: u64,
    /// Pages over unwritten blocks.
    unwritten: u64,
}

impl DirtyPages {
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Clusters reserved for pages in holes.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Pages in holes.
    pub fn holes(&self) -> u64 {
        self.holes
    }

    /// Pages that will change the map when they are written back.
    pub fn map_changes(&self) -> u64 {
        self.holes + self.unwritten
    }

    pub fn get(&self, lblk: u32) -> Option<&Page> {
        self.pages.get(&lblk)
    }

    pub fn get_mut(&mut self, lblk: u32) -> Option<&mut Page> {
        self.pages.get_mut(&lblk)
    }

    pub fn insert(&mut self, lblk: u32, page: Page) {
        self.holes += u64::from(page.hole);
        self.reserved += u64::from(page.reserved);
        self.unwritten += u64::from(page.unwritten);
        if let Some(old) = self.pages.insert(lblk, page) {
            self.uncount(&old);
        }
    }

    pub fn remove(&mut self, lblk: u32) -> Option<Page> {
        let page = self.pages.remove(&lblk)?;
        self.uncount(&page);
        Some(page)
    }

    fn uncount(&mut self, page: &Page) {
        self.holes -= u64::from(page.hole);
        self.reserved -= u64::from(page.reserved);
        self.unwritten -= u64::from(page.unwritten);
    }

    /// First dirty block at or after `lblk`.
    pub fn next(&self, lblk: u32) -> Option<u32> {
        self.pages.range(lblk..).next().map(|(l, _)| *l)
    }

    /// Pages from `lblk` on.
    pub fn range(&self, lblk: u32) -> btree_map::Range<'_, u32, Page> {
        self.pages.range(lblk..)
    }

    /// Length of the run of consecutive dirty blocks at `lblk`, at most `most`.
    pub fn run(&self, lblk: u32, most: u32) -> u32 {
        let mut n = 0;
        for (l, _) in self.pages.range(lblk..) {
            if n == most || *l != lblk.saturating_add(n) {
                break;
            }
            n += 1;
        }
        n
    }

    /// True if a page of `from..to` holds a reserved cluster.
    pub fn holds_reserved(&self, from: u32, to: u32) -> bool {
        from < to && self.pages.range(from..to).any(|(_, page)| page.reserved)
    }

    /// Takes the reserved clusters over from the pages of `from..to`; returns how many.
    pub fn take_reserved(&mut self, from: u32, to: u32) -> u64 {
        if from >= to {
            return 0;
        }
        let before = self.reserved;
        for (_, page) in self.pages.range_mut(from..to) {
            self.reserved -= u64::from(std::mem::take(&mut page.reserved));
        }
        before - self.reserved
    }

    /// Gives a reserved cluster to a page of `from..to` in a hole; false if there is none.
    pub fn give_reserved(&mut self, from: u32, to: u32) -> bool {
        if from >= to {
            return false;
        }
        let heir = self.pages.range_mut(from..to).find(|(_, page)| page.hole && !page.reserved);
        let Some((_, page)) = heir else { return false };
        page.reserved = true;
        self.reserved += 1;
        true
    }

    /// Drops the pages of `from..to`. Returns how many there were, and how many held a reserved
    /// cluster.
    pub fn drop_range(&mut self, from: u32, to: u32) -> (usize, u64) {
        let dropped: Vec<u32> =
            if from < to { self.pages.range(from..to).map(|(l, _)| *l).collect() } else { vec![] };
        let before = self.reserved;
        for lblk in &dropped {
            self.remove(*lblk);
        }
        (dropped.len(), before - self.reserved)
    }

    /// Takes out the pages of `from..to`; with how many of them held a reserved cluster.
    pub fn take_range(&mut self, from: u32, to: u32) -> (Vec<(u32, Page)>, u64) {
        let mut taken = if from < to { self.pages.split_off(&from) } else { BTreeMap::new() };
        self.pages.append(&mut taken.split_off(&to));
        let before = self.reserved;
        taken.values().for_each(|page| self.uncount(page));
        (taken.into_iter().collect(), before - self.reserved)
    }
}
