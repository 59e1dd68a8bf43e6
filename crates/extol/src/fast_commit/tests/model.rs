//! Random operations on a small tree of names, told to the tracker and to a model. After each
//! collection the records are replayed onto the model's recorded state, as strictly as the
//! strictest reader does, and the result is compared: what was asked for is there as it is now,
//! each inode has as many names as it counts, and nothing changed that the asks do not need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use extol_jbd2::Tid;
use extol_ondisk::fast_commit::FcRecord;
use extol_task::{SystemClock, TestClock};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::fast_commit::Tracker;
use extol_jbd2::fast::FastSource as _;

use crate::fast_commit::{Collected, Delta, Reason, SyncTarget};

const TID: Tid = Tid(5);
type Place = (u32, String);

/// A file: what its image says, and its map.
#[derive(Clone, PartialEq, Eq, Debug)]
struct File {
    links: u16,
    version: u32,
    map: BTreeMap<u32, (u64, bool)>,
}

impl File {
    fn image(&self) -> Arc<[u8]> {
        let mut bytes = self.links.to_le_bytes().to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.into()
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct World {
    files: BTreeMap<u32, File>,
    names: BTreeMap<Place, u32>,
}

impl World {
    fn links(&self, ino: u32) -> usize {
        self.names.values().filter(|n| **n == ino).count()
    }

    /// What a replay does, and what none of them may meet.
    fn replay(&mut self, records: &[FcRecord]) {
        let mut new = BTreeSet::new();
        for record in records {
            match record {
                FcRecord::Inode { ino, image } => {
                    let links = u16::from_le_bytes([image[0], image[1]]);
                    assert!(links > 0, "an image without links");
                    let version = u32::from_le_bytes(image[2..6].try_into().unwrap());
                    let file = self.files.entry(*ino).or_insert_with(|| {
                        new.insert(*ino);
                        File { links, version, map: BTreeMap::new() }
                    });
                    (file.links, file.version) = (links, version);
                }
                FcRecord::AddRange { ino, block, len, start, unwritten } => {
                    let map =
                        &mut self.files.get_mut(ino).expect("a range of an unknown inode").map;
                    map.extend((0..*len).map(|i| (block + i, (start + u64::from(i), *unwritten))));
                }
                FcRecord::DelRange { ino, block, len } => {
                    let map =
                        &mut self.files.get_mut(ino).expect("a range of an unknown inode").map;
                    map.retain(|b, _| !(*block..block + len).contains(b));
                }
                FcRecord::Creat(e) | FcRecord::Link(e) => {
                    let is_creat = matches!(record, FcRecord::Creat(_));
                    assert!(self.files.contains_key(&e.ino), "a name before its inode");
                    assert_eq!(
                        is_creat,
                        new.remove(&e.ino),
                        "CREAT is for the first name of a new inode"
                    );
                    let place = (e.parent, String::from_utf8(e.name.to_vec()).unwrap());
                    assert!(self.names.insert(place, e.ino).is_none(), "a name given twice");
                }
                FcRecord::Unlink(e) => {
                    let place = (e.parent, String::from_utf8(e.name.to_vec()).unwrap());
                    assert_eq!(self.names.remove(&place), Some(e.ino), "no such name");
                    assert!(self.links(e.ino) > 0, "the last link is gone");
                }
            }
        }
        assert!(new.is_empty(), "a new inode without a name");
        for (ino, file) in &self.files {
            assert_eq!(usize::from(file.links), self.links(*ino), "links of {ino}");
        }
    }

    /// What differs between two worlds.
    fn difference(&self, other: &Self) -> (BTreeSet<u32>, BTreeSet<Place>) {
        let files = self.files.keys().chain(other.files.keys());
        let files =
            files.filter(|ino| self.files.get(ino) != other.files.get(ino)).copied().collect();
        let names = self.names.keys().chain(other.names.keys());
        let names = names
            .filter(|place| self.names.get(*place) != other.names.get(*place))
            .cloned()
            .collect();
        (files, names)
    }

    /// What an fsync of `ask` has to bring from `other`, found in the plainest way.
    fn needs(&self, other: &Self, ask: u32) -> (BTreeSet<u32>, BTreeSet<Place>) {
        let (_, changed) = self.difference(other);
        let mut inodes = BTreeSet::from([ask]);
        let mut names: BTreeSet<Place> =
            changed.iter().filter(|(dir, _)| *dir == ask).cloned().collect();
        loop {
            let before = (inodes.len(), names.len());
            for place in &changed {
                let ends = [self.names.get(place), other.names.get(place)].into_iter().flatten();
                if ends.clone().any(|ino| inodes.contains(ino)) {
                    names.insert(place.clone());
                }
                if names.contains(place) {
                    inodes.extend(ends);
                }
            }
            if before == (inodes.len(), names.len()) {
                return (inodes, names);
            }
        }
    }
}

struct Lab {
    rng: SmallRng,
    tracker: Tracker,
    now: World,
    recorded: World,
    next: u32,
    next_block: u64,
    deltas: Vec<Delta>,
}

impl Lab {
    fn new(seed: u64) -> Self {
        let mut lab = Self {
            rng: SmallRng::seed_from_u64(seed),
            tracker: Tracker::new(Arc::new(SystemClock::new())),
            now: World::default(),
            recorded: World::default(),
            next: 20,
            next_block: 1000,
            deltas: Vec::new(),
        };
        for _ in 0..4 {
            lab.create();
        }
        lab.deltas.clear();
        lab.recorded = lab.now.clone();
        lab
    }

    fn place(&mut self) -> Place {
        (self.rng.random_range(2..4), ["a", "b", "c", "d"][self.rng.random_range(0..4)].to_owned())
    }

    fn file(&mut self) -> Option<u32> {
        let files: Vec<u32> = self.now.files.keys().copied().collect();
        (!files.is_empty()).then(|| files[self.rng.random_range(0..files.len())])
    }

    fn store(&mut self, ino: u32, data: bool) {
        let file = self.now.files.get_mut(&ino).unwrap();
        file.version += 1;
        file.links = self.now.names.values().filter(|n| **n == ino).count() as u16;
        let born = !self.recorded.files.contains_key(&ino);
        self.deltas.push(Delta::Inode { ino, image: file.image(), born, data, links: file.links });
        if file.links == 0 {
            self.deltas.push(Delta::Ineligible { ino, reason: Reason::Deleted });
            self.now.files.remove(&ino);
        }
    }

    fn point(&mut self, (dir, name): Place, is: Option<u32>) -> Option<u32> {
        let place = (dir, name.clone());
        let was = match is {
            Some(ino) => self.now.names.insert(place, ino),
            None => self.now.names.remove(&place),
        };
        self.deltas.push(Delta::Name { dir, name: name.as_bytes().into(), was, is });
        was
    }

    fn create(&mut self) {
        let place = self.place();
        if self.now.names.contains_key(&place) {
            return;
        }
        let ino = self.next;
        self.next += 1;
        self.now.files.insert(ino, File { links: 1, version: 0, map: BTreeMap::new() });
        self.point(place, Some(ino));
        self.store(ino, true);
    }

    fn rename(&mut self) {
        let (from, to) = (self.place(), self.place());
        let Some(ino) = self.now.names.get(&from).copied() else { return };
        if self.now.names.get(&to) == Some(&ino) {
            return;
        }
        let gone = self.point(to, Some(ino));
        self.point(from, None);
        self.store(ino, true);
        if let Some(gone) = gone {
            self.store(gone, true);
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..9) {
            0 | 1 => self.create(),
            2 => {
                let place = self.place();
                if let Some(ino) = self.file()
                    && !self.now.names.contains_key(&place)
                {
                    self.point(place, Some(ino));
                    self.store(ino, true);
                }
            }
            3 => {
                let place = self.place();
                if self.now.names.contains_key(&place) {
                    let was = self.point(place, None).unwrap();
                    self.store(was, true);
                }
            }
            4 => self.rename(),
            5 => {
                let (a, b) = (self.place(), self.place());
                if let (Some(x), Some(y)) =
                    (self.now.names.get(&a).copied(), self.now.names.get(&b).copied())
                    && x != y
                {
                    self.point(b, Some(x));
                    self.point(a, Some(y));
                    self.store(x, true);
                    self.store(y, true);
                }
            }
            6 | 7 => {
                let Some(ino) = self.file() else { return };
                let (lblk, len) = (self.rng.random_range(0..20), self.rng.random_range(1..6));
                let (start, unwritten) = (self.next_block, self.rng.random());
                self.next_block += 10;
                let map = &mut self.now.files.get_mut(&ino).unwrap().map;
                if self.rng.random_range(0..3) == 0 {
                    map.retain(|b, _| !(lblk..lblk + len).contains(b));
                    self.deltas.push(Delta::Unmapped { ino, lblk, len });
                } else {
                    map.extend((0..len).map(|i| (lblk + i, (start + u64::from(i), unwritten))));
                    self.deltas.push(Delta::Mapped { ino, lblk, len, start, unwritten });
                }
                self.store(ino, true);
            }
            _ => {
                let Some(ino) = self.file() else { return };
                let data = self.rng.random();
                self.store(ino, data);
            }
        }
        let deltas = std::mem::take(&mut self.deltas);
        if !deltas.is_empty() {
            self.tracker.apply(TID, deltas, true);
        }
    }

    /// Asks for one inode or directory; true if it was told in records.
    fn ask(&mut self) -> bool {
        let ino = if self.rng.random_range(0..4) == 0 {
            Some(self.rng.random_range(2..4))
        } else {
            self.file()
        };
        let Some(ino) = ino else { return false };
        let collected = self.tracker.collect(TID, &[SyncTarget { ino, data_only: false }]);
        let before = self.recorded.clone();
        let (inodes, names) = before.needs(&self.now, ino);
        let records = match collected {
            Collected::Nothing => Vec::new(),
            Collected::Records(records) => records,
            Collected::Full(_) => return false,
        };
        self.recorded.replay(&records);
        for ino in &inodes {
            assert_eq!(
                self.recorded.files.get(ino),
                self.now.files.get(ino),
                "inode {ino} after an fsync"
            );
        }
        for place in &names {
            assert_eq!(
                self.recorded.names.get(place),
                self.now.names.get(place),
                "{place:?} after an fsync"
            );
        }
        let (touched, touched_names) = before.difference(&self.recorded);
        assert!(touched.is_subset(&inodes), "{touched:?} but {inodes:?}");
        assert!(touched_names.is_subset(&names));
        !records.is_empty()
    }
}

#[test]
fn replayed_closures_are_exact() {
    let mut told = 0;
    for seed in 0..400 {
        let mut lab = Lab::new(seed);
        for _ in 0..30 {
            lab.step();
            if lab.rng.random_range(0..3) == 0 {
                told += u32::from(lab.ask());
            }
        }
    }
    assert!(told > 500, "{told}");
}

#[test]
fn what_fdatasync_does_not_need_is_not_written() {
    let tracker = Tracker::new(Arc::new(SystemClock::new()));
    let inode = |data| Delta::Inode { ino: 12, image: [1].into(), born: false, data, links: 1 };
    let ask = |data_only| tracker.collect(TID, &[SyncTarget { ino: 12, data_only }]);
    tracker.apply(TID, vec![inode(false)], true);
    assert_eq!(ask(true), Collected::Nothing);
    assert!(matches!(ask(false), Collected::Records(_)));
    assert_eq!(ask(false), Collected::Nothing);
    tracker.apply(TID, vec![inode(true), inode(false)], true);
    assert!(matches!(ask(true), Collected::Records(_)));
    // Another transaction knows nothing of it.
    assert_eq!(
        tracker.collect(Tid(6), &[SyncTarget { ino: 12, data_only: false }]),
        Collected::Nothing
    );
}

#[test]
fn an_operation_that_did_not_end_spoils_its_transaction_only() {
    let tracker = Tracker::new(Arc::new(SystemClock::new()));
    let inode = || Delta::Inode { ino: 12, image: [1].into(), born: false, data: true, links: 1 };
    tracker.apply(TID, vec![inode()], false);
    let ask = [SyncTarget { ino: 13, data_only: false }];
    assert_eq!(tracker.collect(TID, &ask), Collected::Full(Reason::Failed));
    tracker.apply(TID, vec![inode()], true);
    assert_eq!(tracker.collect(TID, &ask), Collected::Full(Reason::Failed));
    drop(tracker.closed(TID));
    tracker.apply(Tid(6), vec![inode()], true);
    assert_eq!(tracker.collect(Tid(6), &ask), Collected::Nothing);
}

/// So many inodes change.
fn many(tracker: &Tracker, tid: Tid, count: u32) {
    for ino in 100..100 + count {
        let image = [1].into();
        tracker.apply(
            tid,
            vec![Delta::Inode { ino, image, born: false, data: true, links: 1 }],
            true,
        );
    }
}

const ONE: [SyncTarget; 1] = [SyncTarget { ino: 100, data_only: true }];

#[test]
fn memory_is_bounded() {
    let tracker = Tracker::new(Arc::new(TestClock::default()));
    assert_eq!(tracker.collect(TID, &ONE), Collected::Nothing);
    many(&tracker, TID, (1 << 16) + 2);
    assert_eq!(tracker.collect(TID, &ONE), Collected::Full(Reason::Memory));
}

/// Little is remembered without fsyncs; after one, all is.
#[test]
fn less_is_remembered_without_fsyncs() {
    let clock = Arc::new(TestClock::default());
    let tracker = Tracker::new(clock.clone());
    many(&tracker, TID, 1 << 13);
    assert!(matches!(tracker.collect(TID, &ONE), Collected::Records(_)));
    let next = |tid, wait| {
        clock.advance(Duration::from_secs(wait));
        many(&tracker, Tid(tid), (1 << 13) + 1);
        tracker.collect(Tid(tid), &ONE)
    };
    assert!(matches!(next(6, 29), Collected::Records(_)));
    assert_eq!(next(7, 31), Collected::Full(Reason::Quiet));
    assert!(matches!(next(8, 29), Collected::Records(_)));

    // From the mount on.
    let tracker = Tracker::new(clock);
    many(&tracker, TID, (1 << 13) + 1);
    assert_eq!(tracker.collect(TID, &ONE), Collected::Full(Reason::Quiet));
    drop(tracker.closed(TID));
    many(&tracker, Tid(6), (1 << 13) + 1);
    assert!(matches!(tracker.collect(Tid(6), &ONE), Collected::Records(_)));
}
