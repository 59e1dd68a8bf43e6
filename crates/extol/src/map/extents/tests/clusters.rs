//! Clusters of several blocks: which are taken, shared and freed, against a model.

use std::collections::BTreeMap;

use super::*;
use crate::map::clusters;

/// Blocks of a cluster.
const RATIO: u32 = 8;
/// Blocks of the file that are changed.
const SPACE: u32 = 3000;

/// A tree, and what it must be.
struct Lab {
    io: Fake,
    root: Root,
    rng: SmallRng,
    /// Mapped blocks.
    blocks: BTreeMap<u32, u64>,
    /// First blocks of the file's clusters, by cluster of the file.
    clusters: BTreeMap<u32, u64>,
    next: u64,
}

impl Lab {
    fn new(seed: u64) -> Self {
        let mut bytes = [0; 60];
        init(&mut bytes);
        Self {
            io: Fake::new(1024, 1 << 40).with_clusters(RATIO),
            root: Root { ino: 12, bytes, blocks: 0 },
            rng: SmallRng::seed_from_u64(seed),
            blocks: BTreeMap::new(),
            clusters: BTreeMap::new(),
            next: 1 << 33,
        }
    }

    fn range(&mut self) -> (u32, u32) {
        let from = self.rng.random_range(0..SPACE);
        (from, from + self.rng.random_range(1..40))
    }

    /// Fills the holes of a range.
    fn fill(&mut self) {
        let (from, to) = self.range();
        let mut at = from;
        while at < to {
            if self.blocks.contains_key(&at) {
                at += 1;
                continue;
            }
            let end = (at..to).find(|lblk| self.blocks.contains_key(lblk)).unwrap_or(to);
            let shared = clusters::shared(&self.io, &self.root, at).unwrap();
            let own = self.clusters.get(&(at / RATIO)).copied();
            let place = own.map(|start| BlockNr(start + u64::from(at % RATIO)));
            assert_eq!(shared, place, "block {at}");
            let (start, len) = match shared {
                Some(start) => (start, (end - at).min(RATIO - at % RATIO)),
                None => {
                    let len = clusters::fresh(&self.io, &self.root, at, end - at).unwrap();
                    let (first, last) = (at / RATIO, (at + len - 1) / RATIO);
                    for cluster in first..=last {
                        let start = self.next + u64::from((cluster - first) * RATIO);
                        let old = self.clusters.insert(cluster, start);
                        assert_eq!(old, None, "cluster {cluster} is taken twice");
                    }
                    let count = u64::from((last - first + 1) * RATIO);
                    self.io.used.add(self.next, count);
                    let start = self.next + u64::from(at % RATIO);
                    // A gap, so that extents do not join by chance.
                    self.next += count + u64::from(RATIO) * self.rng.random_range(0..2);
                    (BlockNr(start), len)
                }
            };
            let run = MappedRun { lblk: at, pblk: start, len, unwritten: false };
            insert(&mut self.io, &mut self.root, run).unwrap();
            for i in 0..len {
                self.blocks.insert(at + i, start.0 + u64::from(i));
            }
            at += len;
        }
    }

    /// Unmaps a range, with few credits at a time.
    fn unmap(&mut self, from: u32, to: u32, data: Discard) {
        let mut end = to;
        loop {
            self.io.begin(60, 0);
            match remove(&mut self.io, &mut self.root, from, end, data).unwrap() {
                Progress::Done => break,
                Progress::Restart { at } => end = at,
            }
        }
        self.io.begin(u32::MAX / 2, 0);
        self.blocks.retain(|lblk, _| !(from..to).contains(lblk));
        let blocks = &self.blocks;
        self.clusters.retain(|cluster, _| {
            let first = cluster * RATIO;
            blocks.range(first..first + RATIO).next().is_some()
        });
    }

    fn check(&self) {
        for lblk in 0..SPACE + 40 {
            let found = match lookup(&self.io, &self.root, lblk).unwrap() {
                Mapping::Mapped { pblk, .. } => Some(pblk.0),
                Mapping::Hole { .. } => None,
            };
            assert_eq!(found, self.blocks.get(&lblk).copied(), "block {lblk}");
        }
        let count = self.clusters.len() as u64 + self.io.tree_blocks().len() as u64;
        assert_eq!(self.io.used.total(), count * u64::from(RATIO), "clusters in use");
        assert_eq!(self.root.blocks, count * u64::from(RATIO) * 2, "sectors");
    }
}

#[test]
fn each_cluster_is_taken_once_and_freed_with_its_last_block() {
    for seed in 0..6 {
        let mut lab = Lab::new(seed);
        lab.io.begin(u32::MAX / 2, 0);
        for step in 0..1500 {
            if lab.rng.random_bool(0.6) {
                lab.fill();
            } else {
                let (from, to) = lab.range();
                let to = if lab.rng.random_bool(0.02) { to.max(from + 800) } else { to };
                let data = [Discard::Free, Discard::FreeJournalled][lab.rng.random_range(0..2)];
                lab.unmap(from, to, data);
            }
            if step % 10 == 0 {
                lab.check();
            }
        }
        lab.check();
        lab.unmap(0, END, Discard::Free);
        lab.check();
        assert_eq!((lab.root.blocks, lab.io.used.total()), (0, 0));
    }
}

#[test]
fn blocks_out_of_place_are_refused() {
    let mut lab = Lab::new(1);
    lab.io.begin(1000, 0);
    let run = |lblk, pblk, len| MappedRun { lblk, pblk: BlockNr(pblk), len, unwritten: false };
    let mut put = |run| insert(&mut lab.io, &mut lab.root, run);
    put(run(3, 8003, 2)).unwrap();
    for wrong in [run(20, 8101, 1), run(5, 8013, 2), run(0, 8008, 3), run(6, 16006, 6)] {
        assert!(matches!(put(wrong), Err(FsError::Corrupt { .. })), "{wrong:?}");
    }
    put(run(5, 8005, 6)).unwrap();
    assert_eq!(lab.root.blocks, 2 * 8 * 2);
}
