//! A volume in memory for tests: tree blocks in a map, free space as a set of ranges, and a count
//! of credits that panics when an operation dirties more blocks than its credits.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::{BlockNr, BlockSize};
use extol_ondisk::InodeSeed;
use extol_sync::plain::Mutex;
use extol_vfs::{FsError, Result};

use super::store::{Cached, Shape, Store, StoreMut};

/// A block of the fake volume.
#[derive(Debug)]
pub(super) struct FakeBlock {
    nr: u64,
    data: Mutex<Arc<Vec<u8>>>,
    /// The transaction in which it was verified.
    verified: AtomicU64,
    now: Arc<AtomicU64>,
}

impl Cached for FakeBlock {
    fn bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.data.lock())
    }

    fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed) == self.now.load(Ordering::Relaxed)
    }

    fn set_verified(&self) {
        self.verified.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Disjoint ranges of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range that is not there yet, joined with its neighbours.
    pub fn add(&mut self, mut start: u64, len: u64) {
        let mut end = start + len;
        if let Some((&s, &e)) = self.0.range(..end).next_back() {
            assert!(e <= start, "{start}..{end} overlaps {s}..{e}");
            if e == start {
                self.0.remove(&s);
                start = s;
            }
        }
        if let Some(e) = self.0.remove(&end) {
            end = e;
        }
        self.0.insert(start, end);
    }

    /// Takes a range out; false (and nothing done) if it is not wholly there.
    pub fn take(&mut self, start: u64, len: u64) -> bool {
        let end = start + len;
        let Some((&s, &e)) = self.0.range(..=start).next_back() else { return false };
        if e < end {
            return false;
        }
        self.0.remove(&s);
        if s < start {
            self.0.insert(s, start);
        }
        if end < e {
            self.0.insert(end, e);
        }
        true
    }

    /// How many numbers it has.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// True if no number of the range is in a range here.
    pub fn is_free(&self, start: u64, len: u64) -> bool {
        self.0.range(..start + len).next_back().is_none_or(|(_, &e)| e <= start)
    }
}

/// The fake volume with one transaction.
#[derive(Debug)]
pub(super) struct Fake {
    shape: Shape,
    /// Bytes of a tree block: less than a real block where a test wants deep trees.
    node_len: usize,
    blocks: RefCell<HashMap<u64, Arc<FakeBlock>>>,
    now: Arc<AtomicU64>,
    /// Blocks in use.
    pub used: Ranges,
    next: u64,
    /// Blocks that `alloc` still gives.
    pub space: u32,
    credits: u32,
    /// Credits that `reserve` may still add.
    pub more: u32,
    dirty: HashSet<(char, u64)>,
    /// Blocks revoked.
    pub revoked: HashSet<u64>,
}

impl Fake {
    /// An empty volume.
    pub fn new(block_size: u32, blocks: u64) -> Self {
        Self {
            node_len: block_size as usize,
            shape: Shape {
                block_size: BlockSize::new(block_size.max(1024)).unwrap(),
                first: u64::from(block_size == 1024),
                blocks,
                group: u64::from(block_size) * 8,
                ratio: 1,
                seed: Some(InodeSeed(0x1234_5678)),
            },
            blocks: RefCell::default(),
            now: Arc::new(AtomicU64::new(1)),
            used: Ranges::default(),
            next: 100,
            space: u32::MAX,
            credits: u32::MAX / 2,
            more: 0,
            dirty: HashSet::new(),
            revoked: HashSet::new(),
        }
    }

    /// The same with clusters of so many blocks.
    pub fn with_clusters(self, ratio: u32) -> Self {
        let next = self.next.next_multiple_of(u64::from(ratio));
        Self { next, shape: Shape { ratio, ..self.shape }, ..self }
    }

    /// Begins a transaction. Every block has to be checked again, as if the cache had been emptied.
    pub fn begin(&mut self, credits: u32, more: u32) {
        self.credits = credits;
        self.more = more;
        self.dirty.clear();
        self.revoked.clear();
        self.now.fetch_add(1, Ordering::Relaxed);
    }

    /// Overwrites a tree block behind the back of the map.
    pub fn damage(&self, nr: u64, f: impl FnOnce(&mut [u8])) {
        let blocks = self.blocks.borrow();
        let block = &blocks[&nr];
        let mut data = block.data.lock();
        f(Arc::<Vec<u8>>::make_mut(&mut data));
        block.verified.store(0, Ordering::Relaxed);
    }

    /// Numbers of all tree blocks.
    pub fn tree_blocks(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.blocks.borrow().keys().copied().collect();
        all.sort_unstable();
        all
    }

    fn charge(&mut self, kind: char, nr: u64) {
        if self.dirty.insert((kind, nr)) {
            assert!(self.credits > 0, "out of credits at {kind} {nr}");
            self.credits -= 1;
        }
    }

    fn charge_groups(&mut self, start: u64, len: u64) {
        for group in start / self.shape.group..=(start + len - 1) / self.shape.group {
            self.charge('b', group);
            self.charge('d', group);
        }
    }
}

impl Store for Fake {
    type Block = FakeBlock;

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn read(&self, nr: BlockNr) -> Result<Arc<FakeBlock>> {
        let found = self.blocks.borrow().get(&nr.0).cloned();
        found.ok_or_else(|| FsError::corrupt("no such tree block").at_block(nr.0))
    }
}

impl StoreMut for Fake {
    fn modify(&mut self, block: &Arc<FakeBlock>, f: impl FnOnce(&mut [u8])) -> Result<()> {
        assert!(self.blocks.borrow().contains_key(&block.nr), "change of a block that was freed");
        self.charge('t', block.nr);
        let mut data = block.data.lock();
        assert_eq!(Arc::strong_count(&data), 1, "a snapshot held over a change costs a copy");
        f(Arc::<Vec<u8>>::make_mut(&mut data));
        Ok(())
    }

    fn create(&mut self, nr: BlockNr) -> Result<Arc<FakeBlock>> {
        self.charge('t', nr.0);
        let data = Mutex::new(Arc::new(vec![0; self.node_len]));
        let now = Arc::clone(&self.now);
        let verified = AtomicU64::new(now.load(Ordering::Relaxed));
        let block = Arc::new(FakeBlock { nr: nr.0, data, verified, now });
        self.blocks.borrow_mut().insert(nr.0, Arc::clone(&block));
        Ok(block)
    }

    fn forget(&mut self, nr: BlockNr, revoke: bool) -> Result<()> {
        self.blocks.borrow_mut().remove(&nr.0);
        if revoke && self.revoked.insert(nr.0) && self.revoked.len() % 125 == 1 {
            self.charge('r', self.revoked.len() as u64);
        }
        Ok(())
    }

    fn alloc(&mut self, _goal: BlockNr) -> Result<BlockNr> {
        if self.space == 0 {
            return Err(FsError::NoSpace);
        }
        self.space -= 1;
        // Every tree block in another group, so that each costs what it can cost at most.
        let ratio = u64::from(self.shape.ratio);
        while !self.used.is_free(self.next, ratio) {
            self.next += self.shape.group;
            if self.next >= self.shape.blocks.min(1 << 31) {
                self.next = 2 + self.next % self.shape.group;
            }
        }
        self.used.add(self.next, ratio);
        self.charge_groups(self.next, 1);
        Ok(BlockNr(self.next))
    }

    fn free(&mut self, start: u64, len: u32) -> Result<()> {
        let ratio = u64::from(self.shape.ratio);
        let first = start / ratio * ratio;
        let end = (start + u64::from(len)).next_multiple_of(ratio);
        if !self.used.take(first, end - first) {
            return Err(FsError::corrupt("freeing free blocks").at_block(start));
        }
        self.charge_groups(start, u64::from(len));
        Ok(())
    }

    fn inode_goal(&self) -> BlockNr {
        BlockNr(100)
    }

    fn reserve(&mut self, credits: u32) -> Result<bool> {
        let missing = credits.saturating_sub(self.credits);
        if missing > self.more {
            return Ok(false);
        }
        self.more -= missing;
        self.credits += missing;
        Ok(true)
    }
}

/// The expected map: runs by their first block, cut as they were added.
#[derive(Clone, Debug, Default)]
pub(super) struct Model(BTreeMap<u32, (u64, u32, bool)>);

impl Model {
    fn cut(&mut self, at: u32) {
        if let Some((&l, &(p, len, unw))) = self.0.range(..at).next_back()
            && u64::from(l) + u64::from(len) > u64::from(at)
        {
            let head = at - l;
            self.0.insert(l, (p, head, unw));
            self.0.insert(at, (p + u64::from(head), len - head, unw));
        }
    }

    /// Maps a hole.
    pub fn insert(&mut self, lblk: u32, pblk: u64, len: u32, unwritten: bool) {
        assert!(self.is_hole(lblk, lblk + len));
        self.0.insert(lblk, (pblk, len, unwritten));
    }

    /// True if nothing of the range is mapped.
    pub fn is_hole(&self, from: u32, to: u32) -> bool {
        let before = self.0.range(..to).next_back();
        before.is_none_or(|(&l, &(_, len, _))| u64::from(l) + u64::from(len) <= u64::from(from))
    }

    /// Unmaps.
    pub fn remove(&mut self, from: u32, to: u32) -> Vec<(u64, u32)> {
        self.cut(from);
        self.cut(to);
        let keys: Vec<u32> = self.0.range(from..to).map(|(&l, _)| l).collect();
        keys.iter().filter_map(|l| self.0.remove(l)).map(|(p, len, _)| (p, len)).collect()
    }

    /// Changes the state.
    pub fn convert(&mut self, from: u32, to: u32, unwritten: bool) {
        self.cut(from);
        self.cut(to);
        self.0.range_mut(from..to).for_each(|(_, run)| run.2 = unwritten);
    }

    /// Moves everything from `from` on.
    pub fn shift(&mut self, from: u32, delta: i64) {
        self.cut(from);
        for (l, run) in self.0.split_off(&from) {
            self.0.insert(u32::try_from(i64::from(l) + delta).unwrap(), run);
        }
    }

    /// One past the last mapped block.
    pub fn end(&self) -> u32 {
        self.0.last_key_value().map_or(0, |(&l, &(_, len, _))| l + len)
    }

    /// All runs, joined as far as they go.
    pub fn runs(&self) -> Vec<(u32, u64, u64, bool)> {
        let mut out = Vec::new();
        self.0
            .iter()
            .for_each(|(&l, &(p, len, unw))| push_joined(&mut out, (l, p, u64::from(len), unw)));
        out
    }

    /// What one block is.
    pub fn get(&self, lblk: u32) -> Option<(u64, bool)> {
        let (&l, &(p, len, unw)) = self.0.range(..=lblk).next_back()?;
        (lblk - l < len).then(|| (p + u64::from(lblk - l), unw))
    }
}

/// Adds a run to a list, joined with the last one if it continues it.
pub(super) fn push_joined(out: &mut Vec<(u32, u64, u64, bool)>, run: (u32, u64, u64, bool)) {
    if let Some(last) = out.last_mut()
        && u64::from(last.0) + last.2 == u64::from(run.0)
        && last.1 + last.2 == run.1
        && last.3 == run.3
    {
        last.2 += run.2;
    } else {
        out.push(run);
    }
}
