//! Everything that one can do with a volume, bounded, on volumes that are damaged. Errors are fine;
//! what must hold is that there is no panic, no hang, no memory without end, and no file data over
//! metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use extol::options::DataMode;
use extol::vfs::{
    Attr, Creds, Fallocate, FileKind, FileSystem, FsError, NewNode, RenameFlags, Seek, SetAttr,
    SetTime, XattrSet,
};
use extol::vfs::{Mountable as _, VolumeControl as _};
use extol::{Ext4, MountOptions};
use extol_block::{MemDevice, SharedDevice};

use crate::base::KEY;
use crate::choices::Choices;
use crate::disk::{Disk, pattern};
use crate::layout::{self, Layout};

/// Largest number of inodes that a walk looks at.
const MAX_INODES: usize = 60;
/// Names that are looked up in one directory.
const MAX_LOOKUPS: usize = 12;
/// Entries that one listing may give.
const MAX_ENTRIES: usize = 5000;

/// Messages that are kept in full.
const MAX_MESSAGES: usize = 200;

/// What happened.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why it was not opened.
    pub refused: Option<String>,
    /// Errors that were given, and how often.
    pub errors: BTreeMap<String, usize>,
    /// Corruptions in full, with inode and block.
    pub corruptions: BTreeSet<String>,
    /// Operations.
    pub done: usize,
    /// What must not happen.
    pub wrong: Vec<String>,
}

/// How to mount and what to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How to mount.
    pub options: MountOptions,
    /// Inodes to look at in any case.
    pub focus: Vec<u32>,
    /// Changes to make.
    pub operations: usize,
    /// What chooses the changes; without it, what chooses everything. Changes end when it is spent.
    pub script: Option<Choices>,
    /// Threads that make changes.
    pub threads: usize,
    /// End without closing.
    pub crash: bool,
    /// It is sound when it is opened.
    pub sound: bool,
}

struct Run<'a> {
    fs: Arc<Ext4>,
    /// No other thread uses the volume.
    alone: bool,
    layout: &'a Layout,
    rng: &'a mut Choices,
    out: Outcome,
    /// Inodes found, and where.
    files: Vec<(u32, FileKind)>,
    names: Vec<(u32, Vec<u8>)>,
}

/// Opens, walks, changes, closes.
pub fn exercise(disk: &Arc<Disk>, layout: &Layout, plan: &Plan, rng: &mut Choices) -> Outcome {
    let before = disk.mem.snapshot();
    let mut options = plan.options.clone();
    if !options.access.read_only {
        let _ = options.keys.add(&KEY);
    }
    let fs = match Ext4::open(disk.clone(), &options) {
        Ok(fs) => fs,
        Err(e) => {
            let mut wrong = disk.found();
            wrong.extend(refused(disk, &before, &e.to_string()));
            return Outcome { refused: Some(e.to_string()), wrong, ..Outcome::default() };
        }
    };
    if let (false, Some((block, zones))) = (disk.read_only, layout::zones(&disk.mem)) {
        // With data=journal, and of files that ask for it, data belongs into the log.
        let in_log = plan.options.journal.data_mode == Some(DataMode::Journal)
            || layout::any_journalled_file(&disk.mem);
        disk.guard(block, zones.into_iter().filter(|z| !in_log || !z.log).collect());
    }
    let mut run = Run {
        fs,
        alone: true,
        layout,
        rng,
        out: Outcome::default(),
        files: Vec::new(),
        names: Vec::new(),
    };
    run.walk(&plan.focus);
    if !disk.read_only && plan.threads > 1 {
        run.change_together(plan.threads, plan.operations);
    } else if !disk.read_only {
        let walker = run.rng.clone();
        if let Some(script) = &plan.script {
            *run.rng = script.clone();
        }
        for _ in 0..plan.operations {
            if run.rng.are_spent() {
                break;
            }
            run.change();
        }
        if plan.script.is_some() {
            *run.rng = walker;
        }
    }
    if run.rng.one_in(4) {
        run.by_path(disk.read_only);
    }
    run.finish(plan.crash);
    disk.unguard();
    let mut out = run.out;
    out.wrong.extend(disk.found().into_iter().take(5));
    if plan.sound && !out.errors.keys().all(|e| !e.starts_with("corrupt") && !e.starts_with("I/O"))
    {
        out.wrong.push(format!("errors on a sound volume: {:?}", out.errors));
    }
    out
}

/// A volume that is refused stays as it is, and `info` has said so.
fn refused(disk: &Arc<Disk>, before: &MemDevice, why: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if before.to_bytes() != disk.mem.to_bytes() {
        wrong.push(format!("a mount that is refused ({why}) has written"));
    }
    let device: SharedDevice = Disk::new(before.snapshot(), true);
    if let (false, Ok(info)) = (disk.read_only, extol::info(&device))
        && info.refused.is_none()
    {
        wrong.push(format!("info says that it can be mounted, but: {why}"));
    }
    wrong
}

impl Run<'_> {
    fn saw<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        self.out.done += 1;
        match result {
            Ok(value) => Some(value),
            Err(e) => {
                let text = match &e {
                    FsError::Corrupt { what, .. } => {
                        if self.out.corruptions.len() < MAX_MESSAGES {
                            self.out.corruptions.insert(e.to_string());
                        }
                        format!("corrupt: {what}")
                    }
                    FsError::Io(what) => format!("I/O: {what}"),
                    e => e.to_string(),
                };
                *self.out.errors.entry(text).or_default() += 1;
                None
            }
        }
    }

    fn walk(&mut self, focus: &[u32]) {
        let fs = Arc::clone(&self.fs);
        let mut queue = vec![fs.root()];
        if let Some(t) = self.saw(fs.lookup(fs.root(), b"t")) {
            queue.push(t.id.ino);
        }
        for ino in focus.iter().take(12) {
            let known = self.layout.names.get(ino).cloned();
            if let Some(name) = known
                && self.saw(fs.lookup(name.parent, &name.name)).is_some()
            {
                self.names.push((name.parent, name.name));
            }
            if let Some(attr) = self.saw(fs.open_by_number(*ino)) {
                queue.push(attr.id.ino);
            }
        }
        let mut seen = std::collections::HashSet::new();
        let mut at = 0;
        while at < queue.len() && seen.len() < MAX_INODES {
            let ino = queue[at];
            at += 1;
            if !seen.insert(ino) {
                continue;
            }
            let Some(attr) = self.saw(fs.getattr(ino)) else { continue };
            self.files.push((ino, attr.kind));
            self.attributes(ino);
            match attr.kind {
                FileKind::Directory => queue.extend(self.list(ino)),
                FileKind::Regular => self.contents(&attr),
                FileKind::Symlink => {
                    if let Some(target) = self.saw(fs.readlink(ino))
                        && target.len() > 65536
                    {
                        self.out.wrong.push(format!("a link of {} bytes", target.len()));
                    }
                }
                _ => {}
            }
        }
        self.saw(fs.statfs());
    }

    fn attributes(&mut self, ino: u32) {
        let fs = Arc::clone(&self.fs);
        for name in self.saw(fs.listxattr(ino)).unwrap_or_default().into_iter().take(20) {
            self.saw(fs.getxattr(ino, &name));
        }
    }

    fn list(&mut self, ino: u32) -> Vec<u32> {
        let fs = Arc::clone(&self.fs);
        let mut entries = Vec::new();
        // As front ends do it: so many at a time, and on from the last cookie.
        let (step, mut cookie) = (*self.rng.pick(&[7, 100, 1000]), 0);
        loop {
            let mut batch: Vec<(u64, Vec<u8>)> = Vec::new();
            let listed = fs.readdir(ino, cookie, &mut |e| {
                batch.push((e.cookie, e.name));
                batch.len() < step
            });
            let went_on = self.saw(listed).is_some();
            let cookies: Vec<u64> =
                std::iter::once(cookie).chain(batch.iter().map(|b| b.0)).collect();
            if cookies.windows(2).any(|w| w[0] >= w[1]) {
                self.out.wrong.push(format!("cookies of directory {ino} do not ascend"));
                break;
            }
            cookie = cookies[cookies.len() - 1];
            let full = batch.len() == step;
            entries.extend(batch.into_iter().map(|b| b.1));
            if entries.len() >= MAX_ENTRIES {
                self.out.wrong.push(format!("directory {ino} lists without end"));
            }
            if went_on && !full {
                self.whole(ino);
            }
            if !full || !went_on || entries.len() >= MAX_ENTRIES {
                break;
            }
        }
        if entries.iter().any(|n| n.is_empty() || n.contains(&b'/') || n.contains(&0)) {
            self.out.wrong.push(format!("directory {ino} lists a name that is none"));
        }
        let mut left = 1;
        let again = fs.readdir(ino, self.rng.any() >> self.rng.below(64), &mut |_| {
            left += 1;
            left < 100
        });
        self.saw(again);
        self.saw(fs.lookup(ino, b".."));
        self.saw(fs.lookup(ino, b"no such name"));
        let mut found = Vec::new();
        for _ in 0..MAX_LOOKUPS.min(entries.len()) {
            let name = self.rng.pick(&entries).clone();
            if let Some(attr) = self.saw(fs.lookup(ino, &name)) {
                if attr.id.ino != ino {
                    found.push(attr.id.ino);
                }
                self.names.push((ino, name));
            }
        }
        found
    }

    /// What ended well in steps ends well in one go (RD-1 of `dir/readdir.rs`).
    fn whole(&mut self, ino: u32) {
        let fs = Arc::clone(&self.fs);
        let mut count = 0;
        let listed = fs.readdir(ino, 0, &mut |_| {
            count += 1;
            count < MAX_ENTRIES
        });
        if let Err(error) = listed {
            self.out
                .wrong
                .push(format!("directory {ino} lists well in steps, and not in one go: {error}"));
        }
    }

    fn contents(&mut self, attr: &Attr) {
        let fs = Arc::clone(&self.fs);
        let ino = attr.id.ino;
        let mut buf = vec![0; 20_000];
        let some = self.rng.any() % attr.size.max(1);
        for at in [0, attr.size.saturating_sub(9000), some] {
            self.saw(fs.read(ino, at, &mut buf));
        }
        self.saw(fs.seek(ino, some, Seek::Data));
        self.saw(fs.measure_verity(ino));
        self.saw(fs.seek(ino, 0, Seek::Hole));
        if let Some(extents) = self.saw(fs.fiemap(ino, 0, u64::MAX))
            && extents.len() > 100_000
        {
            self.out.wrong.push(format!("file {ino} has {} extents", extents.len()));
        }
    }

    fn some(&mut self, kind: FileKind) -> u32 {
        let of: Vec<u32> = self.files.iter().filter(|f| f.1 == kind).map(|f| f.0).collect();
        if of.is_empty() { self.fs.root() } else { *self.rng.pick(&of) }
    }

    fn name(&mut self) -> (u32, Vec<u8>) {
        if self.names.is_empty() { (2, b"t".to_vec()) } else { self.rng.pick(&self.names).clone() }
    }

    fn offset(&mut self, ino: u32) -> u64 {
        let size = self.fs.getattr(ino).map_or(0, |a| a.size);
        match self.rng.below(5) {
            0 => 0,
            1 => size,
            2 => size.saturating_sub(self.rng.any() % 5000),
            3 => self.rng.any() % size.max(1),
            _ => self.rng.any() % 300_000,
        }
    }

    fn change(&mut self) {
        let fs = Arc::clone(&self.fs);
        let file = self.some(FileKind::Regular);
        let dir = self.some(FileKind::Directory);
        let n = self.rng.below(10_000);
        let at = self.offset(file);
        match self.rng.below(26) {
            0..5 => {
                let len = *self.rng.pick(&[10, 1000, 1024, 5000, 20_000, 300_000]);
                let at = if self.rng.one_in(2) { at / 4096 * 4096 } else { at };
                self.saw(fs.write(file, at, &pattern(len)));
            }
            5 | 6 => {
                let size = match self.rng.below(4) {
                    0 => 0,
                    1 => at / 1024 * 1024 + 100,
                    2 => at,
                    _ => self.rng.any() % 3_000_000,
                };
                self.saw(fs.setattr(file, &SetAttr { size: Some(size), ..SetAttr::default() }));
            }
            7 => {
                let perm = Some((n & 0o777) as u16);
                self.saw(fs.setattr(
                    file,
                    &SetAttr { perm, mtime: Some(SetTime::Now), ..SetAttr::default() },
                ));
            }
            8 | 9 => {
                let made = fs.create(
                    dir,
                    format!("made{n}").as_bytes(),
                    NewNode::Regular,
                    0o644,
                    0,
                    Creds::default(),
                );
                if let Some(attr) = self.saw(made) {
                    self.files.push((attr.id.ino, FileKind::Regular));
                    self.names.push((dir, format!("made{n}").into_bytes()));
                    self.saw(fs.write(attr.id.ino, 0, &pattern(n)));
                }
            }
            10 => {
                let made = fs.create(
                    dir,
                    format!("dir{n}").as_bytes(),
                    NewNode::Directory,
                    0o755,
                    0,
                    Creds::default(),
                );
                if let Some(attr) = self.saw(made) {
                    self.files.push((attr.id.ino, FileKind::Directory));
                    self.names.push((dir, format!("dir{n}").into_bytes()));
                }
            }
            11 => {
                let target = vec![b'z'; 1 + n % 900];
                self.saw(fs.create(
                    dir,
                    format!("sym{n}").as_bytes(),
                    NewNode::Symlink(target),
                    0o777,
                    0,
                    Creds::default(),
                ));
            }
            12 | 13 => {
                let (dir, name) = self.name();
                self.saw(fs.unlink(dir, &name));
            }
            14 => {
                let (dir, name) = self.name();
                self.saw(fs.rmdir(dir, &name));
            }
            15 => {
                self.saw(fs.link(file, dir, format!("{n:04}{}", "l".repeat(n % 250)).as_bytes()));
            }
            16..19 => {
                let (from, name) = self.name();
                let (mut to, mut new) = (dir, format!("moved{n}").into_bytes());
                if self.rng.one_in(2) {
                    (to, new) = self.name();
                }
                let flags = *self.rng.pick(&[
                    RenameFlags::empty(),
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                    RenameFlags::WHITEOUT,
                ]);
                if self.saw(fs.rename(from, &name, to, &new, flags)).is_some() {
                    self.names.push((to, new));
                }
            }
            19 | 20 => {
                let ino = if self.rng.one_in(3) { dir } else { file };
                let name = *self.rng.pick(&[
                    &b"user.short"[..],
                    b"user.long",
                    b"user.new",
                    b"security.x",
                    b"trusted.large1",
                ]);
                let len = *self.rng.pick(&[0, 20, 100, 500, 900, 6000]);
                if self.rng.one_in(3) {
                    self.saw(fs.removexattr(ino, name));
                } else {
                    self.saw(fs.setxattr(ino, name, &vec![n as u8; len], XattrSet::Any));
                }
            }
            21 | 22 => {
                let mode = *self.rng.pick(&[
                    Fallocate::Allocate { keep_size: true },
                    Fallocate::Allocate { keep_size: false },
                    Fallocate::PunchHole,
                    Fallocate::PunchHole,
                    Fallocate::ZeroRange { keep_size: true },
                    Fallocate::CollapseRange,
                    Fallocate::InsertRange,
                ]);
                let unit = u64::from(self.layout.geo.block_size.bytes());
                let (at, len) = match mode {
                    Fallocate::CollapseRange | Fallocate::InsertRange => {
                        (at / unit * unit, unit * (1 + self.rng.any() % 5))
                    }
                    _ => (at, 1 + self.rng.any() % 50_000),
                };
                self.saw(fs.fallocate(file, mode, at, len));
            }
            23 => {
                let data_only = self.rng.one_in(2);
                self.saw(fs.fsync(file, data_only));
            }
            24 => {
                let attr = fs.create_unnamed(dir, 0o600, 0, Creds::default());
                if let Some(attr) = self.saw(attr) {
                    self.saw(fs.write(attr.id.ino, 0, &pattern(n)));
                    fs.forget(attr.id.ino, 1);
                }
            }
            _ => {
                let (ino, _) = if self.files.is_empty() {
                    (2, FileKind::Directory)
                } else {
                    *self.rng.pick(&self.files)
                };
                // References that another thread relies on are not given back: the kernel never
                // does that.
                if self.alone {
                    fs.forget(ino, 3);
                }
                self.saw(fs.kill_privileges(file, true));
                self.saw(fs.trim(0, u64::MAX, 4096));
            }
        }
    }

    /// Several threads, each with changes of its own: on a damaged volume locks could come round in
    /// a circle.
    fn change_together(&mut self, threads: usize, operations: usize) {
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..threads)
                .map(|_| {
                    let mut rng = Choices::new(self.rng.any());
                    let (fs, layout) = (Arc::clone(&self.fs), self.layout);
                    let (files, names) = (self.files.clone(), self.names.clone());
                    let work = move || {
                        let mut run = Run {
                            fs,
                            alone: false,
                            layout,
                            rng: &mut rng,
                            out: Outcome::default(),
                            files,
                            names,
                        };
                        for _ in 0..operations / threads + 1 {
                            run.change();
                        }
                        run.out
                    };
                    std::thread::Builder::new()
                        .name("case".into())
                        .spawn_scoped(scope, work)
                        .expect("a thread")
                })
                .collect();
            spawned.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        for out in outcomes {
            self.out.done += out.done;
            self.out.wrong.extend(out.wrong);
            self.out.corruptions.extend(out.corruptions);
            for (e, n) in out.errors {
                *self.out.errors.entry(e).or_default() += n;
            }
        }
    }

    /// The interface of paths: walks and removals of whole trees must end.
    fn by_path(&mut self, read_only: bool) {
        let fs = Arc::clone(&self.fs);
        if let Some(walk) = self.saw(fs.walk("/")) {
            let n = walk.take(20_000).count();
            if n >= 20_000 {
                self.out.wrong.push("a walk without end".into());
            }
        }
        self.saw(fs.read_file("/t/slow-link"));
        self.saw(fs.read_file("/t/whole/../small1"));
        if read_only {
            return;
        }
        self.saw(fs.create_dir_all("/t/nest/a/b/new/newer"));
        for dir in ["/t/big", "/t/nest", "/t/tall", "/t"] {
            if self.rng.one_in(2) {
                self.saw(fs.remove_dir_all(dir));
            }
        }
    }

    fn finish(&mut self, crash: bool) {
        let fs = Arc::clone(&self.fs);
        self.saw(fs.sync());
        self.saw(fs.statfs());
        let stats = fs.stats();
        if stats.journal.overdrafts > 0 {
            self.out.wrong.push(format!("{} overdrafts", stats.journal.overdrafts));
        }
        if crash {
            fs.crash();
        } else {
            self.saw(fs.unmount());
        }
    }
}
