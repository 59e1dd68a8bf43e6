//! A miniature file system for the tests, and the oracle that knows what a crash may leave of it.
//!
//! A *group* is a root block that lists the blocks it owns, and two twins that must change together
//! with it. Owned blocks are metadata (journalled, revoked when freed) or data (written directly
//! before the handle that maps them). Freed blocks return to a small pool when their transaction is
//! durable, and are taken again at once, last in first out: a block has many lives, which is where
//! replay and late home writes do harm.
//!
//! ```text
//!   root v17: [(812, meta, 40), (815, data, 51)]   twin v17   twin v17
//!   812: bytes of 40    815: bytes of 51
//! ```
//!
//! Every operation gives its group a new version, written down with its transaction. After a
//! recovery, every root must be a version that was written, with its twins and owned blocks as that
//! version has them (atomicity), and there must be one transaction R, not older than any
//! acknowledged one, such that every group is what it was at the end of R (prefix).

use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr, SharedDevice};
use extol_jbd2::{Buf, Handle, Journal, Result, Tid};
use extol_sync::plain::Mutex;

use crate::lab::{Random, USABLE, Variant};

pub const GROUPS: usize = 250;
/// Most operations go to these few, so that blocks change again while their last version is being
/// committed.
const BUSY: u64 = 12;
/// The first root; the twins follow the roots.
const ROOTS: u64 = 10;
const TWINS: u64 = ROOTS + GROUPS as u64;
/// The pool. Small, so that blocks are reused at once.
const POOL: std::ops::Range<u64> = 800..860;
const MAX_ENTRIES: usize = 8;
/// Credits of one operation: root, twins, and up to four owned or revoked blocks.
pub const CREDITS: u32 = 8;
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Meta,
    Data,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub nr: u64,
    pub kind: Kind,
    /// What its bytes are made of.
    pub seed: u64,
    /// The transaction that mapped it.
    mapped: Tid,
}

/// A version of a group. Version `n` is at place `n - 1` of its history.
#[derive(Clone, Debug)]
struct Version {
    tid: Tid,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Group {
    entries: Vec<Entry>,
    history: Vec<Version>,
}

/// The miniature file system on a journal.
#[derive(Debug)]
pub struct World {
    pub journal: Arc<Journal>,
    device: SharedDevice,
    variant: Variant,
    groups: Vec<Mutex<Group>>,
    pool: Arc<Mutex<Vec<u64>>>,
    seeds: Mutex<u64>,
}

/// The bytes that a block with this number and seed has.
pub fn pattern(nr: u64, seed: u64, len: usize) -> Vec<u8> {
    let mut x = nr.wrapping_mul(0x9E37_79B9) ^ seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    // Some look like the journal's own blocks and must be escaped.
    if seed.is_multiple_of(3) {
        bytes[..4].copy_from_slice(&MAGIC);
    }
    bytes
}

fn root_bytes(group: usize, version: u64, entries: &[Entry], len: usize) -> Vec<u8> {
    let mut bytes = pattern(group as u64, version, len);
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(8, version);
    put(16, entries.len() as u64);
    for (i, e) in entries.iter().enumerate() {
        put(24 + 24 * i, e.nr);
        put(32 + 24 * i, e.kind as u64);
        put(40 + 24 * i, e.seed);
    }
    bytes
}

impl World {
    pub fn new(variant: Variant, journal: Arc<Journal>, device: SharedDevice) -> Arc<Self> {
        Arc::new(Self {
            journal,
            device,
            variant,
            groups: (0..GROUPS).map(|_| Mutex::default()).collect(),
            pool: Arc::new(Mutex::new(POOL.collect())),
            seeds: Mutex::new(0),
        })
    }

    fn len(&self) -> usize {
        self.variant.block_size as usize
    }

    fn seed(&self) -> u64 {
        let mut seeds = self.seeds.lock();
        *seeds += 1;
        *seeds
    }

    fn take(&self) -> Option<u64> {
        self.pool.lock().pop()
    }

    /// The block is free once this transaction is durable.
    fn give_back(&self, h: &mut Handle, nr: u64) {
        let pool = Arc::clone(&self.pool);
        h.on_commit(move |durable| {
            if durable {
                pool.lock().push(nr);
            }
        });
    }

    /// Writes the group's next version: root and twins. Fails only if the journal was aborted.
    fn new_version(
        &self,
        h: &mut Handle,
        nr: usize,
        group: &mut Group,
        bufs: &[Arc<Buf>; 3],
    ) -> Result<()> {
        let version = group.history.len() as u64 + 1;
        group.history.push(Version { tid: h.tid(), entries: group.entries.clone() });
        let [root, twins @ ..] = bufs;
        h.modify(root, |b| b.copy_from_slice(&root_bytes(nr, version, &group.entries, b.len())))?;
        for twin in twins {
            h.modify(twin, |b| b.copy_from_slice(&pattern(twin.nr().0, version, b.len())))?;
        }
        Ok(())
    }

    fn fill(&self, h: &mut Handle, nr: u64, seed: u64) -> Result<()> {
        let buf = h.create(BlockNr(nr))?;
        h.modify(&buf, |b| b.copy_from_slice(&pattern(nr, seed, b.len())))
    }

    /// A random operation on a random group. Gives the transaction that it ended in.
    pub fn operate(&self, random: &mut Random) -> Result<Tid> {
        let among = if random.chance(60) { BUSY } else { GROUPS as u64 };
        let nr = random.below(among) as usize;
        let mut group = self.groups[nr].lock();
        // Data first, with no handle open.
        let data =
            if group.entries.len() < MAX_ENTRIES && random.chance(35) { self.take() } else { None };
        let data = match data {
            None => None,
            Some(block) => {
                let seed = self.seed();
                let at = BlockNr(block).offset(self.variant.size());
                if let Err(e) = self.device.write_at(&pattern(block, seed, self.len()), at) {
                    return Err(self.journal.abort(&format!("data: {e}")));
                }
                self.journal.note_data_write();
                Some((block, seed))
            }
        };
        let mut h = self.journal.start(CREDITS)?;
        let result = self.change(&mut h, nr, &mut group, data, random);
        let tid = h.tid();
        drop(group);
        h.stop()?;
        result.map(|()| tid)
    }

    fn change(
        &self,
        h: &mut Handle,
        nr: usize,
        group: &mut Group,
        data: Option<(u64, u64)>,
        random: &mut Random,
    ) -> Result<()> {
        // Everything that has to be read is read before the first change, and held.
        let at = [ROOTS + nr as u64, TWINS + 2 * nr as u64, TWINS + 2 * nr as u64 + 1];
        let [a, b, c] = at.map(|block| self.journal.read(BlockNr(block)));
        let bufs = [a?, b?, c?];
        if let Some((block, seed)) = data {
            group.entries.push(Entry { nr: block, kind: Kind::Data, seed, mapped: h.tid() });
        }
        if random.chance(8) {
            // What was done so far may become durable alone.
            self.new_version(h, nr, group, &bufs)?;
            h.restart(CREDITS)?;
        }
        if random.chance(20) {
            h.ensure(h.credits() + 2)?;
        }
        let which = random.below(group.entries.len().max(1) as u64) as usize;
        match random.below(6) {
            0 | 1 if group.entries.len() < MAX_ENTRIES => {
                if let Some(block) = self.take() {
                    let seed = self.seed();
                    self.fill(h, block, seed)?;
                    group.entries.push(Entry {
                        nr: block,
                        kind: Kind::Meta,
                        seed,
                        mapped: h.tid(),
                    });
                }
            }
            2 | 3 if !group.entries.is_empty() => {
                let gone = group.entries.swap_remove(which);
                match gone.kind {
                    Kind::Meta => h.forget(BlockNr(gone.nr), true)?,
                    Kind::Data => {}
                }
                self.give_back(h, gone.nr);
            }
            4 if group.entries.get(which).is_some_and(|e| e.kind == Kind::Meta) => {
                let e = &mut group.entries[which];
                e.seed = self.seed();
                if random.chance(50) {
                    // Freed and taken again in one transaction: the revoke must be cancelled.
                    h.forget(BlockNr(e.nr), true)?;
                }
                self.fill(h, e.nr, e.seed)?;
            }
            5 => {
                // Journalled and freed in one transaction: never to be replayed.
                if let Some(block) = self.take() {
                    self.fill(h, block, self.seed())?;
                    h.forget(BlockNr(block), true)?;
                    self.give_back(h, block);
                }
            }
            _ => {}
        }
        self.new_version(h, nr, group, &bufs)
    }

    /// Is `image` a state that a crash may leave if everything up to `acked` was acknowledged? If
    /// not, why not.
    pub fn check(
        &self,
        image: &dyn BlockDevice,
        acked: Option<Tid>,
    ) -> std::result::Result<(), String> {
        let order = |tid: Tid| i64::from(tid.0.wrapping_sub(self.variant.first_tid).cast_signed());
        let acked = acked.map_or(-1, order);
        // R is at least this and less than that; and the groups that say so.
        let (mut at_least, mut less) = ((-1, 0), (i64::MAX, 0));
        let mut bytes = vec![0; self.len()];
        for (nr, group) in self.groups.iter().enumerate() {
            let group = group.lock();
            self.read(image, ROOTS + nr as u64, &mut bytes);
            let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
            if version > 0 {
                let Some(seen) = group.history.get(version - 1) else {
                    return Err(format!("group {nr} has version {version} that was never written"));
                };
                if bytes != root_bytes(nr, version as u64, &seen.entries, self.len()) {
                    return Err(format!("the root of group {nr}, version {version}, is damaged"));
                }
                for twin in [0, 1].map(|i| TWINS + 2 * nr as u64 + i) {
                    self.read(image, twin, &mut bytes);
                    if bytes != pattern(twin, version as u64, self.len()) {
                        return Err(format!("group {nr}: twin {twin} is not of version {version}"));
                    }
                }
                for e in &seen.entries {
                    // With asynchronous commits the record may overtake the data until a request is
                    // told.
                    if self.variant.is_async && e.kind == Kind::Data && order(e.mapped) > acked {
                        continue;
                    }
                    self.read(image, e.nr, &mut bytes);
                    if bytes != pattern(e.nr, e.seed, self.len()) {
                        let tid = order(seen.tid);
                        return Err(format!(
                            "group {nr}, version {version} of transaction {tid}: {e:?} has other \
                             contents"
                        ));
                    }
                }
                at_least = at_least.max((order(seen.tid), nr));
            } else if bytes.iter().any(|b| *b != 0) {
                return Err(format!("group {nr} has a strange root"));
            }
            if let Some(next) = group.history.get(version) {
                less = less.min((order(next.tid), nr));
            }
        }
        let counted = "(transactions counted from the first)";
        if at_least.0 >= less.0 {
            let ((has, a), (lacks, b)) = (at_least, less);
            return Err(format!(
                "group {a} has transaction {has}, group {b} lacks {lacks} {counted}"
            ));
        }
        if acked >= less.0 {
            let (lacks, nr) = less;
            return Err(format!(
                "transaction {acked} was acknowledged, group {nr} lacks {lacks} {counted}"
            ));
        }
        Ok(())
    }

    fn read(&self, image: &dyn BlockDevice, nr: u64, bytes: &mut [u8]) {
        image.read_at(bytes, BlockNr(nr).offset(self.variant.size())).unwrap();
    }

    /// Fails unless `image` holds the newest version of everything.
    pub fn check_newest(&self, image: &dyn BlockDevice, when: &str) {
        let newest = self.groups.iter().filter_map(|g| g.lock().history.last().map(|v| v.tid));
        let newest = newest.reduce(|a, b| if b.after(a) { b } else { a });
        self.check(image, newest).unwrap_or_else(|why| panic!("{when}: {why}"));
    }

    /// Destroys the roots of all groups that were ever written.
    pub fn damage(&self, image: &dyn BlockDevice) {
        let junk = vec![0xEE; self.len()];
        for (nr, group) in self.groups.iter().enumerate() {
            if !group.lock().history.is_empty() {
                image
                    .write_at(&junk, BlockNr(ROOTS + nr as u64).offset(self.variant.size()))
                    .unwrap();
            }
        }
    }

    /// Operations so far.
    pub fn versions(&self) -> usize {
        self.groups.iter().map(|g| g.lock().history.len()).sum()
    }
}

const _: () = assert!(POOL.end < USABLE && TWINS + 2 * (GROUPS as u64) < POOL.start);
