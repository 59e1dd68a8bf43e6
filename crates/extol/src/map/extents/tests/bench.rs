//! A tree, its model, and the validator.

use super::*;

pub(super) const END: u32 = u32::MAX;

pub(super) struct Bench {
    pub(super) io: Fake,
    pub(super) root: Root,
    pub(super) model: Model,
    pub(super) rng: SmallRng,
    pub(super) deepest: u16,
}

pub(super) fn le16(b: &[u8], at: usize) -> u64 {
    u64::from(b[at]) | u64::from(b[at + 1]) << 8
}

pub(super) fn le32(b: &[u8], at: usize) -> u64 {
    le16(b, at) | le16(b, at + 2) << 16
}

/// What e2fsck checks in a tree.
pub(super) struct Validator<'a> {
    io: &'a Fake,
    runs: Vec<(u32, u64, u64, bool)>,
    used: Ranges,
    tree: u64,
    data: u64,
    from: u64,
}

impl Validator<'_> {
    pub(super) fn node(&mut self, bytes: &[u8], depth: u64, nr: Option<u64>) {
        let max = (bytes.len() as u64 - 12) / 12;
        assert_eq!(
            (le16(bytes, 0), le16(bytes, 4), le16(bytes, 6)),
            (0xF30A, max, depth),
            "header of {nr:?}"
        );
        let count = le16(bytes, 2);
        assert!(
            count <= max && (count > 0 || (nr.is_none() && depth == 0)),
            "{count} entries in {nr:?}"
        );
        if let Some(nr) = nr {
            let end = 12 + 12 * max as usize;
            let sum = crc32c(self.io.shape().seed.unwrap().0, &bytes[..end]);
            assert_eq!(u64::from(sum), le32(bytes, end), "checksum of {nr}");
            self.used.add(nr, 1);
            self.tree += 1;
        }
        for i in 0..count as usize {
            let e = &bytes[12 + 12 * i..24 + 12 * i];
            let key = le32(e, 0);
            assert!(key >= self.from, "entry {i} of {nr:?} begins at {key}, before {}", self.from);
            if depth > 0 {
                let child = le32(e, 4) | le16(e, 8) << 32;
                let block = self.io.read(BlockNr(child)).unwrap();
                let below = crate::map::store::Cached::bytes(&*block);
                assert_eq!(le32(&below, 12), key, "first key of {child} and of its parent");
                self.node(&below, depth - 1, Some(child));
            } else {
                let raw = le16(e, 4);
                let (len, unwritten) = if raw > 32768 { (raw - 32768, true) } else { (raw, false) };
                let start = le32(e, 8) | le16(e, 6) << 32;
                assert!(len > 0);
                self.used.add(start, len);
                self.data += len;
                push_joined(&mut self.runs, (key as u32, start, len, unwritten));
                self.from = key + len;
            }
        }
    }
}

impl Bench {
    pub(super) fn new(block_size: u32, seed: u64) -> Self {
        let mut bytes = [0; 60];
        init(&mut bytes);
        Self {
            io: Fake::new(block_size, 1 << 34),
            root: Root { ino: 12, bytes, blocks: 0 },
            model: Model::default(),
            rng: SmallRng::seed_from_u64(seed),
            deepest: 0,
        }
    }

    pub(super) fn check(&mut self) {
        let depth = le16(&self.root.bytes, 6);
        self.deepest = self.deepest.max(depth as u16);
        let used = Ranges::default();
        let mut v = Validator { io: &self.io, runs: Vec::new(), used, tree: 0, data: 0, from: 0 };
        v.node(&self.root.bytes, depth, None);
        assert_eq!(v.runs, self.model.runs());
        assert_eq!(v.used, self.io.used, "blocks in use are those of the tree");
        assert_eq!(self.root.blocks, (v.tree + v.data) * self.io.shape().sectors());
        assert_eq!(v.tree, self.io.tree_blocks().len() as u64);
    }

    pub(super) fn begin(&mut self, credits: u32) {
        let more = if self.rng.random_bool(0.5) { self.rng.random_range(0..60) } else { 0 };
        self.io.begin(credits, more);
    }

    pub(super) fn splice_credits(&self) -> u32 {
        credits::splice(depth(&self.root.bytes))
    }

    pub(super) fn data(&mut self, lblk: u32, len: u32) -> u64 {
        let behind = lblk.checked_sub(1).and_then(|l| self.model.get(l)).map(|(p, _)| p + 1);
        if let Some(p) = behind.filter(|_| self.rng.random_bool(0.5))
            && self.io.used.is_free(p, u64::from(len))
        {
            return p;
        }
        loop {
            let p = self.rng.random_range(1 << 32..(1u64 << 34) - u64::from(len));
            if self.io.used.is_free(p, u64::from(len)) {
                return p;
            }
        }
    }

    pub(super) fn insert(&mut self, lblk: u32, len: u32, unwritten: bool) {
        let pblk = self.data(lblk, len);
        self.insert_at(lblk, pblk, len, unwritten);
    }

    pub(super) fn insert_at(&mut self, lblk: u32, pblk: u64, len: u32, unwritten: bool) {
        let credits = self.splice_credits();
        self.begin(credits);
        self.io.used.add(pblk, u64::from(len));
        let run = MappedRun { lblk, pblk: BlockNr(pblk), len, unwritten };
        insert(&mut self.io, &mut self.root, run).unwrap();
        self.model.insert(lblk, pblk, len, unwritten);
    }

    pub(super) fn convert(&mut self, mut from: u32, to: u32, unwritten: bool) {
        self.model.convert(from, to, unwritten);
        loop {
            let credits = self.splice_credits();
            self.begin(credits);
            match convert(&mut self.io, &mut self.root, from, to, unwritten).unwrap() {
                Progress::Done => break,
                Progress::Restart { at } => {
                    assert!(at > from && at < to);
                    from = at;
                }
            }
        }
    }

    pub(super) fn remove(&mut self, from: u32, mut to: u32, data: Discard) {
        let gone = self.model.remove(from, to);
        loop {
            let credits = self.splice_credits() + Discard::MOST_CREDITS;
            self.begin(if data == Discard::Keep { 100_000 } else { credits });
            let progress = remove(&mut self.io, &mut self.root, from, to, data).unwrap();
            match progress {
                Progress::Done => break,
                Progress::Restart { at } => {
                    assert!(at < to && at > from, "progress: {at} in {from}..{to}");
                    to = at;
                }
            }
        }
        if data == Discard::Keep {
            gone.iter().for_each(|&(p, len)| assert!(self.io.used.take(p, u64::from(len))));
        }
    }

    pub(super) fn shift(&mut self, mut from: u32, delta: i64) {
        self.model.shift(from, delta);
        let mut to = END;
        loop {
            let credits = self.splice_credits();
            self.begin(credits);
            match shift(&mut self.io, &mut self.root, from, to, delta).unwrap() {
                Progress::Done => break,
                Progress::Restart { at } if delta < 0 => {
                    assert!(at > from);
                    from = at;
                }
                Progress::Restart { at } => {
                    assert!(at <= to);
                    to = at;
                }
            }
        }
    }

    pub(super) fn check_lookups(&self, space: u32) {
        let mut at = 0;
        while at < space {
            match lookup(&self.io, &self.root, at).unwrap() {
                Mapping::Hole { len } => {
                    let end = (u64::from(at) + len).min(u64::from(END)) as u32;
                    assert!(len > 0 && self.model.is_hole(at, end));
                    at = end;
                }
                Mapping::Mapped { pblk, len, unwritten } => {
                    assert_eq!(self.model.get(at), Some((pblk.0, unwritten)));
                    let last = at + len - 1;
                    assert_eq!(
                        self.model.get(last),
                        Some((pblk.0 + u64::from(len) - 1, unwritten))
                    );
                    at += len;
                }
            }
        }
    }

    pub(super) fn step(&mut self, space: u32, longest: u32) {
        let from = self.rng.random_range(0..space);
        let len = self.rng.random_range(1..=longest).min(space - from);
        let unwritten = self.rng.random_bool(0.4);
        match self.rng.random_range(0..100) {
            0..55 => {
                let Mapping::Hole { len: room } = lookup(&self.io, &self.root, from).unwrap()
                else {
                    return;
                };
                self.insert(from, u64::from(len).min(room) as u32, unwritten);
            }
            55..80 => self.convert(from, from + len, unwritten),
            80..90 => self.remove(from, from + len, Discard::Free),
            90..93 => self.remove(from, from + len, Discard::FreeJournalled),
            93..95 => self.remove(from, from + len, Discard::Keep),
            95..98 => {
                self.remove(from, from + len, Discard::Free);
                self.shift(from + len, -i64::from(len));
            }
            _ => {
                if self.model.end() < END - 2 * space {
                    self.shift(from, i64::from(len));
                }
            }
        }
    }
}
