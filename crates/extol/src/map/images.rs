//! Maps on real volumes: images made by mke2fs, changed here, checked by e2fsck and read back by
//! debugfs.

use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use extol_block::MemDevice;
use extol_jbd2::{Journal, JournalConfig, LogConfig, LogMap, Services, Tid, recovery};
use extol_ondisk::{InodeNr, Superblock};
use extol_task::SystemClock;
use extol_testkit::{Scratch, run, run_ok, tool};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::fake::{Model, push_joined};
use super::*;
use crate::alloc::{AllocOptions, Allocator, SuperCell};
use crate::fast_commit::eligibility::Change;

type Runs = Vec<(u32, u64, u64, bool)>;

fn image_in(scratch: &Scratch) -> String {
    scratch.path().join("image").to_string_lossy().into_owned()
}

/// Files that mke2fs puts into the image.
fn source_in(scratch: &Scratch) -> PathBuf {
    let source = scratch.path().join("src");
    std::fs::create_dir_all(&source).unwrap();
    source
}

fn write_sparse(path: &str, bytes: &[u8]) {
    let mut f = std::fs::File::create(path).unwrap();
    f.set_len(bytes.len() as u64).unwrap();
    for (i, chunk) in bytes.chunks(4096).enumerate().filter(|(_, c)| c.iter().any(|&b| b != 0)) {
        f.seek(SeekFrom::Start(i as u64 * 4096)).unwrap();
        f.write_all(chunk).unwrap();
    }
}

/// What debugfs says an inode maps, holes left out, tree blocks apart.
fn debugfs_runs(image: &str, ino: InodeNr) -> Runs {
    let text = run_ok(tool("debugfs").args(["-R", &format!("stat <{ino}>"), image]));
    let mut out = Runs::new();
    let list =
        text.split("EXTENTS:\n").nth(1).or_else(|| text.split("BLOCKS:\n").nth(1)).unwrap_or("");
    for item in list.lines().next().unwrap_or("").split(", ").filter(|i| i.starts_with('(')) {
        let (lblks, pblks) = item[1..].split_once("):").unwrap();
        let unwritten = lblks.contains("[u]");
        let lblks = lblks.replace("[u]", "");
        let bounds = |s: &str| -> Option<(u64, u64)> {
            let (a, b) = s.split_once('-').unwrap_or((s, s));
            Some((a.parse().ok()?, b.parse().ok()?))
        };
        let Some((first, last)) = bounds(&lblks) else { continue };
        let (start, _) = bounds(pblks.trim_end_matches(',')).unwrap();
        push_joined(&mut out, (first as u32, start, last - first + 1, unwritten));
    }
    out
}

struct Mounted {
    vol: Volume,
    dev: Arc<MemDevice>,
    cell: SuperCell,
    _services: Option<Services>,
}

impl Mounted {
    fn open(bytes: &[u8]) -> Self {
        Self::open_with(bytes, false)
    }

    /// With `logged`, changes go through the image's journal.
    fn open_with(bytes: &[u8], logged: bool) -> Self {
        let dev = Arc::new(MemDevice::from_bytes(bytes));
        let sb = Superblock::decode(&bytes[1024..2048]).unwrap();
        let geo = Geometry::new(&sb, Some(bytes.len() as u64)).unwrap();
        let log = logged.then(|| {
            let plain = Self::open(bytes);
            let runs = plain.runs(&plain.node(InodeNr::JOURNAL.0));
            let runs = runs.iter().map(|r| (r.0, r.1, r.2 as u32)).collect();
            let map = LogMap::from_extents(geo.block_size, runs).unwrap();
            let superblock = recovery::read_superblock(&*dev, &map).unwrap();
            LogConfig { device: dev.clone(), external: false, map, superblock, next_tid: Tid(1) }
        });
        let journal = Journal::open(JournalConfig {
            device: dev.clone(),
            block_size: geo.block_size,
            blocks: geo.blocks(),
            log,
            barrier: true,
            commit_interval: Duration::from_secs(5),
            async_commit: false,
            cache_bytes: 4 << 20,
            clock: Arc::new(SystemClock::new()),
        })
        .unwrap();
        let alloc =
            Allocator::open(Arc::clone(&journal), &geo, &sb, AllocOptions::default()).unwrap();
        let cell = SuperCell::new(sb, &geo);
        let vol = Volume::new(dev.clone(), journal, geo, alloc);
        let services = logged.then(|| Services::start(&vol.journal).unwrap());
        Self { vol, dev, cell, _services: services }
    }

    fn node(&self, ino: u32) -> Node {
        let ino = InodeNr(ino);
        Node { ino, raw: self.vol.read_inode(ino).unwrap() }
    }

    fn write(&self, h: &mut Handle, node: &Node) {
        self.vol.write_inode(h, node.ino, &node.raw, Change::default()).unwrap();
    }

    fn save(&self, path: &str) {
        let mut h = self.vol.journal.start(1).unwrap();
        self.vol.alloc.flush_super(&mut h, &self.cell).unwrap();
        h.stop().unwrap();
        self.vol.journal.commit_all().unwrap();
        assert_eq!(self.vol.journal.stats().overdrafts, 0, "a budget was too small");
        write_sparse(path, &self.dev.to_bytes());
    }

    fn runs(&self, node: &Node) -> Runs {
        let mut out = Runs::new();
        iterate(&self.vol, node, 0, u32::MAX, &mut |r| {
            push_joined(&mut out, (r.lblk, r.pblk.0, u64::from(r.len), r.unwritten));
            true
        })
        .unwrap();
        out
    }
}

/// One file being changed at random, with its model.
struct Worker<'a> {
    m: &'a Mounted,
    node: Node,
    model: Model,
    rng: SmallRng,
    restarts: u32,
    /// Called after the first restarts.
    crash: Option<fn(&Mounted, &Node)>,
}

impl<'a> Worker<'a> {
    fn new(m: &'a Mounted, ino: u32, seed: u64) -> Self {
        let (node, rng) = (m.node(ino), SmallRng::seed_from_u64(seed));
        Self { m, node, model: Model::default(), rng, restarts: 0, crash: None }
    }

    fn bs(&self) -> u32 {
        self.m.vol.geo.block_size.bytes()
    }

    fn insert(&mut self, lblk: u32, want: u32, unwritten: bool) {
        let vol = &self.m.vol;
        let room = match lookup(vol, &self.node, lblk).unwrap() {
            Mapping::Hole { len } => len.min(u64::from(want)) as u32,
            Mapping::Mapped { .. } => return,
        };
        let goal = goal(vol, &self.node, lblk).unwrap();
        let run = match vol.alloc.take(goal, room, 1) {
            Ok(run) => run,
            Err(FsError::NoSpace) => return vol.journal.commit_all().unwrap(),
            Err(e) => panic!("{e}"),
        };
        let credits = credits_for_insert(&self.node, run.len, self.bs()) + 3;
        let mut h = vol.journal.start(credits).unwrap();
        vol.alloc.commit_take(&mut h, run).unwrap();
        match insert(vol, &mut h, &mut self.node, lblk, run, unwritten) {
            Ok(()) => self.model.insert(lblk, run.start.0, run.len, unwritten),
            Err(FsError::NoSpace) => vol.alloc.free(&mut h, run).unwrap(),
            Err(e) => panic!("{e}"),
        }
        self.m.write(&mut h, &self.node);
        h.stop().unwrap();
    }

    /// Runs an operation as often as it asks to be restarted; `go` gets the point where to go on.
    fn drive(
        &mut self,
        credits: u32,
        mut go: impl FnMut(&Volume, &mut Handle, &mut Node, Option<u32>) -> Result<Progress>,
    ) -> Result<()> {
        let vol = &self.m.vol;
        let mut h = vol.journal.start(credits + 1).unwrap();
        let mut at = None;
        loop {
            let outcome = go(vol, &mut h, &mut self.node, at);
            self.m.write(&mut h, &self.node);
            match outcome? {
                Progress::Done => break,
                Progress::Restart { at: next } => at = Some(next),
            }
            h.stop().unwrap();
            vol.journal.commit_all().unwrap();
            self.restarts += 1;
            if let Some(crash) = self.crash
                && self.restarts <= 3
            {
                crash(self.m, &self.node);
            }
            h = vol.journal.start(credits + 1).unwrap();
        }
        h.stop().unwrap();
        Ok(())
    }

    fn remove(&mut self, from: u32, to: u32) {
        let credits = credits_for_remove_step(&self.node);
        let outcome = self.drive(credits, |vol, h, node, at| {
            remove(vol, h, node, from, at.unwrap_or(to), Discard::Free)
        });
        match outcome {
            Ok(()) => drop(self.model.remove(from, to)),
            // A hole inside an extent of a full leaf on a full volume.
            Err(FsError::NoSpace) => self.relearn(),
            Err(e) => panic!("{e}"),
        }
    }

    fn relearn(&mut self) {
        self.model = Model::default();
        for (l, p, len, unwritten) in self.m.runs(&self.node) {
            self.model.insert(l, p, len as u32, unwritten);
        }
    }

    fn step(&mut self, space: u32, longest: u32) {
        let extents = has_extents(&self.node);
        let from = self.rng.random_range(0..space);
        let len = self.rng.random_range(1..=longest).min(space - from);
        match self.rng.random_range(0..100) {
            0..60 => {
                let unwritten = extents && self.rng.random_bool(0.3);
                self.insert(from, len, unwritten);
            }
            60..75 if extents => {
                let to_written = self.rng.random_bool(0.5);
                let credits = credits_for_convert(&self.node);
                let outcome = self.drive(credits, |vol, h, node, at| {
                    let at = at.unwrap_or(from);
                    convert(vol, h, node, at, from + len - at, to_written)
                });
                match outcome {
                    Ok(()) => self.model.convert(from, from + len, !to_written),
                    Err(FsError::NoSpace) => self.relearn(),
                    Err(e) => panic!("{e}"),
                }
            }
            75..80 if extents => {
                self.remove(from, from + len);
                if !self.model.is_hole(from, from + len) {
                    return;
                }
                let credits = credits_for_shift_step(&self.node);
                self.drive(credits, |vol, h, node, at| {
                    shift(vol, h, node, at.unwrap_or(from + len), u32::MAX, -i64::from(len))
                })
                .unwrap();
                self.model.shift(from + len, -i64::from(len));
            }
            80..84 if extents => {
                let credits = credits_for_shift_step(&self.node);
                let outcome = self.drive(credits, |vol, h, node, at| {
                    shift(vol, h, node, from, at.unwrap_or(u32::MAX), i64::from(len))
                });
                match outcome {
                    Ok(()) => self.model.shift(from, i64::from(len)),
                    Err(FsError::NoSpace) => self.relearn(),
                    Err(e) => panic!("{e}"),
                }
            }
            _ => self.remove(from, from + len),
        }
        if self.rng.random_bool(0.1) {
            self.m.vol.journal.commit_all().unwrap();
        }
    }

    fn finish(&mut self) {
        let bs = u64::from(self.bs());
        self.node.raw.size = u64::from(self.model.end()) * bs;
        let mut h = self.m.vol.journal.start(1).unwrap();
        self.m.write(&mut h, &self.node);
        h.stop().unwrap();
        assert_eq!(self.m.runs(&self.node), self.model.runs(), "{:?}", self.node.ino);
    }
}

/// (kind, mke2fs options, block size)
const KINDS: [(&str, &str, &str); 7] = [
    ("ext4", "", "1024"),
    ("ext4", "", "2048"),
    ("ext4", "", "4096"),
    ("ext4", "^metadata_csum,^64bit", "1024"),
    ("ext2", "", "1024"),
    ("ext3", "", "2048"),
    ("ext2", "", "4096"),
];

fn make(scratch: &Scratch, kind: (&str, &str, &str)) -> Vec<u8> {
    make_with(scratch, kind, 48, &[])
}

fn make_with(scratch: &Scratch, kind: (&str, &str, &str), mib: u64, more: &[&str]) -> Vec<u8> {
    let image = image_in(scratch);
    std::fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
    let src = source_in(scratch);
    let (kind, features, bs) = kind;
    let mut args = vec!["-q", "-F", "-t", kind, "-b", bs, "-d", src.to_str().unwrap()];
    if !features.is_empty() {
        args.extend(["-O", features]);
    }
    args.extend(more);
    args.push(&image);
    run_ok(tool("mke2fs").args(&args));
    std::fs::read(&image).unwrap()
}

fn assert_clean(image: &str, what: &str) {
    let done = run(tool("e2fsck").args(["-fn", image]), Duration::from_secs(120));
    assert!(done.success(), "{what}: {}", done.output);
}

#[test]
fn e2fsck_and_debugfs_agree_with_what_was_mapped() {
    for (i, kind) in KINDS.into_iter().enumerate() {
        let scratch = Scratch::new();
        for name in ["a", "b", "c"] {
            std::fs::write(source_in(&scratch).join(name), b"").unwrap();
        }
        let image = image_in(&scratch);
        let m = Mounted::open(&make(&scratch, kind));
        // The three files, next to lost+found.
        let mut workers: Vec<Worker<'_>> =
            (0..3).map(|n| Worker::new(&m, 12 + n, u64::from(n) + 100 * i as u64)).collect();
        for round in 0..3 {
            for step in 0..900 {
                let (space, longest) = [(4000, 3), (60_000, 40), (300, 8)][step % 3];
                workers[step % 3].step(space, longest);
            }
            workers.iter_mut().for_each(Worker::finish);
            m.save(&image);
            let what = format!("{kind:?} round {round}");
            assert_clean(&image, &what);
            for w in &workers {
                assert_eq!(debugfs_runs(&image, w.node.ino), w.model.runs(), "{what}");
            }
            let again = Mounted::open(&std::fs::read(&image).unwrap());
            for w in &workers {
                let node = again.node(w.node.ino.0);
                assert_eq!(node.raw, w.node.raw, "{what}");
                assert_eq!(again.runs(&node), w.model.runs(), "{what}");
            }
        }
        for w in &mut workers {
            w.remove(0, u32::MAX);
            w.finish();
            assert_eq!(w.node.raw.blocks, 0);
        }
        m.save(&image);
        assert_clean(&image, &format!("{kind:?} emptied"));
    }
}

#[test]
fn a_full_volume_loses_nothing() {
    for (i, kind) in [KINDS[0], KINDS[4]].into_iter().enumerate() {
        let scratch = Scratch::new();
        std::fs::write(source_in(&scratch).join("a"), b"").unwrap();
        let image = image_in(&scratch);
        let m = Mounted::open(&make(&scratch, kind));
        let mut w = Worker::new(&m, 12, i as u64);
        while m.vol.alloc.free_blocks() > 200 {
            let lblk = w.rng.random_range(0..3_000_000);
            w.insert(lblk, 300, false);
        }
        for _ in 0..600 {
            w.step(3_000_000, 4);
        }
        for lblk in (0..2_000_000).step_by(2) {
            if m.vol.alloc.free_blocks() == 0 {
                break;
            }
            w.insert(lblk, 1, false);
        }
        assert_eq!(m.vol.alloc.free_blocks(), 0);
        w.finish();
        m.save(&image);
        assert_clean(&image, "full");
        w.remove(1000, u32::MAX);
        w.finish();
        m.save(&image);
        assert_clean(&image, "truncated");
        assert_eq!(debugfs_runs(&image, w.node.ino), w.model.runs());
    }
}

#[test]
fn maps_made_by_others_are_read() {
    for kind in KINDS {
        let scratch = Scratch::new();
        let bs: u64 = kind.2.parse().unwrap();
        let mut expected = Vec::new();
        for (name, step, blocks) in [("a", 3, 900), ("b", 1, 700), ("c", 37, 400)] {
            let mut f = std::fs::File::create(source_in(&scratch).join(name)).unwrap();
            for i in 0..blocks {
                f.seek(SeekFrom::Start(i * step * bs)).unwrap();
                f.write_all(&[7; 16]).unwrap();
            }
            expected.push(blocks);
        }
        let m = Mounted::open(&make(&scratch, kind));
        for (ino, blocks) in (12..).zip(expected) {
            let node = m.node(ino);
            let runs = m.runs(&node);
            assert_eq!(runs.iter().map(|r| r.2).sum::<u64>(), blocks, "{kind:?}");
            assert_eq!(runs, debugfs_runs(&image_in(&scratch), node.ino), "{kind:?}");
        }
    }
}

#[test]
fn largest_files() {
    for (kind, bytes) in [
        (KINDS[0], (u64::from(u32::MAX)) * 1024),
        (KINDS[2], (u64::from(u32::MAX)) * 4096),
        (KINDS[4], (12 + 256 + 256 * 256 + 256 * 256 * 256) * 1024),
    ] {
        let scratch = Scratch::new();
        std::fs::write(source_in(&scratch).join("a"), b"").unwrap();
        let m = Mounted::open(&make(&scratch, kind));
        let mut w = Worker::new(&m, 12, 0);
        let node = &w.node;
        assert_eq!(max_file_size(&m.vol.geo, node.raw.flags), bytes, "{kind:?}");
        let end = limits::max_blocks(&m.vol.geo, node.raw.flags);
        w.insert(end - 1, 1, false);
        w.finish();
        m.save(&image_in(&scratch));
        assert_clean(&image_in(&scratch), "largest");
    }
}

/// Cuts the power where a truncate restarts its handle: e2fsck replays the log and finds nothing
/// else to do.
fn cut_power(m: &Mounted, node: &Node) {
    m.vol.journal.commit_all().unwrap();
    let scratch = Scratch::new();
    write_sparse(&image_in(&scratch), &m.dev.to_bytes());
    let done = run(
        tool("e2fsck").args(["-y", "-E", "journal_only", &image_in(&scratch)]),
        Duration::from_secs(120),
    );
    let text = done.output;
    assert!(text.contains("recovering journal"), "{text}");
    let m = Mounted::open(&std::fs::read(image_in(&scratch)).unwrap());
    assert_eq!(m.runs(&m.node(node.ino.0)), debugfs_runs(&image_in(&scratch), node.ino));
    assert_eq!(m.node(node.ino.0).raw, node.raw);
    m.save(&image_in(&scratch));
    assert_clean(&image_in(&scratch), "after the cut");
}

#[test]
fn a_truncate_survives_power_cuts_between_its_steps() {
    for kind in [("ext4", "", "1024"), ("ext3", "", "1024")] {
        let scratch = Scratch::new();
        std::fs::write(source_in(&scratch).join("a"), b"").unwrap();
        // A small log and many small groups: all bitmaps do not fit into one transaction.
        let m = Mounted::open_with(
            &make_with(&scratch, kind, 96, &["-g", "256", "-J", "size=1"]),
            true,
        );
        let mut h = m.vol.journal.start(1).unwrap();
        m.cell.update(&mut h, |sb| sb.feature_incompat |= Incompat::NEEDS_RECOVERY).unwrap();
        h.stop().unwrap();
        let mut w = Worker::new(&m, 12, 1);
        while m.vol.alloc.free_blocks() > 4000 {
            let lblk = w.rng.random_range(0..200_000);
            w.insert(lblk, 2, false);
        }
        w.finish();
        w.crash = Some(cut_power);
        w.remove(10, u32::MAX);
        assert!(w.restarts > 0, "one transaction took it all");
        w.finish();
        assert_eq!(m.vol.journal.stats().overdrafts, 0);
        cut_power(&m, &w.node);
    }
}
