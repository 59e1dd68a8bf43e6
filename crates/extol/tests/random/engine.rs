//! Does operations on a volume and on the model, and compares at every step.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use extol::Ext4;
use extol::path::Inode;
use extol::vfs::Mountable as _;
use extol::vfs::{Fallocate, FileId, FileSystem, FsError, Result, SetAttr, SetTime, Timestamp};
use extol_testkit::fsync_told;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::content::{Content, pattern};
use super::past::{Past, Shift};
use super::tree::{Id, Node, Op, ROOT, Tree, What};

/// A change of contents.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Write { at: u64, len: usize, seed: u64 },
    Truncate { size: u64 },
    Allocate { mode: Fallocate, at: u64, len: u64 },
}

/// A directory of a volume, with everything in it, and its model.
pub struct Engine {
    pub label: String,
    pub rng: SmallRng,
    pub fs: Arc<Ext4>,
    /// The directory that everything is in.
    pub root: Inode,
    pub tree: Tree,
    pub contents: HashMap<Id, Content>,
    pub ids: HashMap<Id, FileId>,
    pub mtimes: HashMap<Id, Timestamp>,
    /// References that are kept.
    pub held: HashMap<Id, Inode>,
    pub past: Past,
    pub block_size: u64,
    /// Ranges are collapsed and inserted in multiples of it.
    pub cluster_size: u64,
    pub extents: bool,
    pub small_inodes: bool,
    /// `NoSpace` may come at any time.
    pub tight: bool,
    /// How often it came.
    pub full: usize,
}

/// A seed for the operations of a test.
fn stream(label: &str, seed: u64) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    label.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(PRIME))
}

/// Drops the texts of errors, which the model does not know.
pub fn plain<T>(result: Result<T>) -> Result<T> {
    result.map_err(|e| match e {
        FsError::Invalid(_) => FsError::Invalid(""),
        FsError::NotSupported(_) => FsError::NotSupported(""),
        e => e,
    })
}

impl Engine {
    /// Starts in an empty directory.
    pub fn new(label: String, seed: u64, root: Inode, block_size: u64, extents: bool) -> Self {
        let tree = Tree::new(root.attr().unwrap().perm);
        let past = Past {
            base: tree.clone(),
            ops: Vec::new(),
            before: 0,
            changed: HashMap::new(),
            versions: HashMap::new(),
            shifts: HashMap::new(),
            echoes: HashMap::new(),
        };
        Self {
            rng: SmallRng::seed_from_u64(stream(&label, seed)),
            label,
            fs: Arc::clone(root.fs()),
            ids: HashMap::from([(ROOT, root.id())]),
            root,
            tree,
            contents: HashMap::new(),
            mtimes: HashMap::new(),
            held: HashMap::new(),
            past,
            block_size,
            cluster_size: block_size,
            extents,
            small_inodes: false,
            tight: false,
            full: 0,
        }
    }

    /// A reference on a node, by one of its names.
    pub fn refer(&self, id: Id) -> Inode {
        if id == ROOT {
            return self.root.clone();
        }
        if let Some(node) = self.held.get(&id) {
            return node.clone();
        }
        let (dir, name) = self.tree.node(id).names.first().expect("a node without names is held");
        let found = self
            .refer(*dir)
            .lookup(name)
            .unwrap_or_else(|e| self.fail(&format!("lookup of {id}: {e}")));
        if found.id() != self.ids[&id] {
            self.fail(&format!("node {id} was {:?} and is {:?} now", self.ids[&id], found.id()));
        }
        found
    }

    pub fn fail(&self, what: &str) -> ! {
        panic!(
            "{}: after {} operations: {what}",
            self.label,
            self.past.before + self.past.ops.len()
        )
    }

    /// Shows what is done, with `EXTOL_TRACE=1`.
    fn trace(&self, what: &dyn std::fmt::Debug) {
        if std::env::var_os("EXTOL_TRACE").is_some() {
            eprintln!("{}: {} {what:?}", self.label, self.now());
        }
    }

    /// How many operations were done.
    pub fn now(&self) -> usize {
        self.past.before + self.past.ops.len()
    }

    /// Does it on the volume; a reference on a new node is returned.
    fn act(&self, op: &Op) -> Result<Option<Inode>> {
        let fs = &self.fs;
        match op {
            Op::Create { dir, name, new, perm, umask, owner } => {
                let dir = self.refer(*dir);
                let attr = fs.create(dir.ino(), name, new.clone(), *perm, *umask, *owner)?;
                return Ok(Some(Inode::from_attr(fs, &attr)));
            }
            Op::Unnamed { dir, perm, owner } => {
                let attr = fs.create_unnamed(self.refer(*dir).ino(), *perm, 0, *owner)?;
                return Ok(Some(Inode::from_attr(fs, &attr)));
            }
            Op::Link { node, dir, name } => {
                let (node, dir) = (self.refer(*node), self.refer(*dir));
                let attr = fs.link(node.ino(), dir.ino(), name)?;
                assert_eq!(attr.id, node.id());
                fs.forget(attr.id.ino, 1);
            }
            Op::Unlink { dir, name } => fs.unlink(self.refer(*dir).ino(), name)?,
            Op::Rmdir { dir, name } => fs.rmdir(self.refer(*dir).ino(), name)?,
            Op::Rename { dir, name, new_dir, new_name, flags } => {
                let (dir, new_dir) = (self.refer(*dir), self.refer(*new_dir));
                fs.rename(dir.ino(), name, new_dir.ino(), new_name, *flags)?;
            }
            Op::Chmod { node, perm } => {
                let set = SetAttr { perm: Some(*perm), ..SetAttr::default() };
                fs.setattr(self.refer(*node).ino(), &set)?;
            }
            Op::Chown { node, uid, gid } => {
                let set = SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() };
                fs.setattr(self.refer(*node).ino(), &set)?;
            }
            Op::KillPrivileges { node } => fs.kill_privileges(self.refer(*node).ino(), false)?,
            Op::SetXattr { node, name, value, how } => {
                fs.setxattr(self.refer(*node).ino(), name, value, *how)?;
            }
            Op::RemoveXattr { node, name } => fs.removexattr(self.refer(*node).ino(), name)?,
        }
        Ok(None)
    }

    /// Does an operation on names or attributes on both sides. True if it was done.
    pub fn op(&mut self, op: Op) -> bool {
        self.trace(&op);
        let was = self.tree.next();
        let done = plain(self.act(&op));
        if self.tight && matches!(done, Err(FsError::NoSpace)) {
            self.full += 1;
            return false;
        }
        let too_big = matches!(op, Op::SetXattr { .. }) && matches!(done, Err(FsError::NoSpace));
        if too_big && self.may_be_too_big(&op) {
            return false;
        }
        let before = self.concerned(&op);
        let expected = self.tree.apply(&op, self.block_size as usize);
        match (done, expected) {
            (Ok(new), Ok(())) => {
                if let Some(new) = new {
                    self.ids.insert(was, new.id());
                    if self.tree.node(was).what == What::File {
                        self.contents.insert(was, Content::default());
                        self.past.versions.insert(was, vec![Content::default()]);
                    }
                    if self.tree.is_gone(was) {
                        self.held.insert(was, new);
                    }
                }
                // What changes nothing need not be stored, so a later sync may have nothing to wait
                // for.
                let changed = before.is_none() || before != self.concerned(&op);
                self.touched(&op, was, changed);
                true
            }
            (Err(got), Err(wanted)) if got == wanted => false,
            (got, wanted) => {
                let got = got.map(drop);
                self.fail(&format!("{op:?} gave {got:?} instead of {wanted:?}"))
            }
        }
    }

    /// Attributes have only so much room: the model does not know how much, but knows what must
    /// always fit.
    fn may_be_too_big(&self, op: &Op) -> bool {
        let Op::SetXattr { node, name, value, .. } = op else { return false };
        let others = self.tree.node(*node).xattrs.iter().filter(|(n, _)| *n != name);
        let weight: usize = others.map(|(n, v)| n.len() + v.len() + 24).sum();
        weight + name.len() + value.len() + 24 > self.block_size as usize - 64
    }

    /// The node that an operation may leave as it is.
    fn concerned(&self, op: &Op) -> Option<Node> {
        match op {
            Op::Rename { dir, .. } => Some(self.tree.node(*dir).clone()),
            Op::KillPrivileges { node } | Op::SetXattr { node, .. } => {
                Some(self.tree.node(*node).clone())
            }
            _ => None,
        }
    }

    /// Remembers what the operation changed, for crashes.
    fn touched(&mut self, op: &Op, new: Id, changed: bool) {
        self.past.ops.push(op.clone());
        if !changed {
            return;
        }
        let now = self.now();
        let mut nodes = Vec::new();
        match op {
            Op::Create { dir, .. } => nodes.extend([*dir, new]),
            Op::Unnamed { .. } => nodes.push(new),
            Op::Link { node, dir, .. } => nodes.extend([*node, *dir]),
            Op::Unlink { dir, .. } | Op::Rmdir { dir, .. } => nodes.push(*dir),
            Op::Rename { dir, new_dir, new_name, .. } => {
                nodes.extend([*dir, *new_dir]);
                nodes.extend(self.tree.entries(*new_dir).get(new_name).copied());
            }
            Op::Chmod { node, .. }
            | Op::Chown { node, .. }
            | Op::KillPrivileges { node }
            | Op::SetXattr { node, .. }
            | Op::RemoveXattr { node, .. } => nodes.push(*node),
        }
        let dirs: HashSet<Id> =
            nodes.iter().copied().filter(|n| self.tree.node(*n).is_dir()).collect();
        for node in nodes {
            self.past.changed.insert(node, now);
            if dirs.contains(&node) {
                self.mtimes.remove(&node);
            }
        }
    }

    /// Changes the contents of a file on both sides.
    pub fn change(&mut self, id: Id, change: Change) {
        let node = self.refer(id);
        let ino = node.ino();
        let (unit, extents) = (self.cluster_size, self.extents);
        let mut content = self.contents[&id].clone();
        self.trace(&(id, content.size, change));
        let now = self.now();
        let mut between = None;
        let (done, expected): (Result<()>, Result<()>) = match change {
            Change::Write { at, len, seed } => {
                let data = pattern(seed, len);
                match self.fs.write(ino, at, &data) {
                    Ok(n) if n == len || (self.tight && n > 0 && n < len) => {
                        content.write(at, &data[..n]);
                        self.full += usize::from(n < len);
                        (Ok(()), Ok(()))
                    }
                    Ok(n) => self.fail(&format!("{n} of {len} bytes written")),
                    Err(e) => (Err(e), Ok(())),
                }
            }
            Change::Truncate { size } => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                let done = self.fs.setattr(ino, &set).map(|attr| assert_eq!(attr.size, size));
                if done.is_ok() {
                    content.resize(size);
                }
                (done, Ok(()))
            }
            Change::Allocate { mode, at, len } => {
                let done = plain(self.fs.fallocate(ino, mode, at, len));
                let size = content.size;
                let aligned = at % unit == 0 && len % unit == 0;
                let expected = match mode {
                    Fallocate::PunchHole => {
                        content.zero(at, at + len);
                        Ok(())
                    }
                    _ if !extents => Err(FsError::NotSupported("")),
                    Fallocate::Allocate { keep_size } | Fallocate::ZeroRange { keep_size } => {
                        if matches!(mode, Fallocate::ZeroRange { .. }) {
                            content.zero(at, at + len);
                        }
                        if !keep_size {
                            content.size = size.max(at + len);
                        }
                        Ok(())
                    }
                    Fallocate::CollapseRange if !aligned || at + len >= size => {
                        Err(FsError::Invalid(""))
                    }
                    Fallocate::InsertRange if !aligned || at >= size => Err(FsError::Invalid("")),
                    Fallocate::CollapseRange => {
                        // First the range becomes a hole, then the rest moves.
                        let mut hole = content.clone();
                        hole.zero(at, at + len);
                        between = Some(hole);
                        content.collapse(at, len);
                        Ok(())
                    }
                    Fallocate::InsertRange => {
                        content.insert(at, len);
                        Ok(())
                    }
                };
                (done, expected)
            }
        };
        if self.tight && matches!(done, Err(FsError::NoSpace)) {
            self.full += 1;
            if matches!(change, Change::Write { .. } | Change::Truncate { .. }) {
                self.verify_file(id, &node);
            } else {
                // It stopped half way: take the contents from the volume.
                self.resync(id, &node);
            }
            return;
        }
        if done != expected {
            self.fail(&format!("{change:?} of node {id} gave {done:?} instead of {expected:?}"));
        }
        if done.is_ok() {
            let versions = self.past.versions.entry(id).or_default();
            versions.extend(between);
            versions.push(content.clone());
            self.past.echo(id, &content);
            self.past.shifts.entry(id).or_default().extend(Shift::of(&change));
            self.contents.insert(id, content);
            self.past.changed.insert(id, now);
            self.mtimes.remove(&id);
        }
    }

    /// Takes the contents from the volume: only the size must be as before.
    fn resync(&mut self, id: Id, node: &Inode) {
        let size = node.attr().unwrap().size;
        let old = &self.contents[&id];
        if size != old.size {
            self.fail(&format!(
                "the size of node {id} changed from {} to {size} without room",
                old.size
            ));
        }
        let read = self.read_content(node);
        self.past.versions.entry(id).or_default().push(read.clone());
        self.contents.insert(id, read);
    }

    /// Reads somewhere and compares.
    pub fn read(&mut self, id: Id, at: u64, len: usize) {
        let mut buf = vec![0xA5; len];
        let n = self.fs.read(self.refer(id).ino(), at, &mut buf).unwrap();
        let expected = self.contents[&id].read(at, len);
        if n != expected.len() || buf[..n] != expected[..] {
            let first = buf.iter().zip(&expected).position(|(a, b)| a != b);
            self.fail(&format!(
                "node {id}: {n} bytes at {at}, wrong from {first:?} of {}",
                expected.len()
            ));
        }
    }

    pub fn set_mtime(&mut self, id: Id, time: Timestamp) {
        let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
        let attr = self.fs.setattr(self.refer(id).ino(), &set).unwrap();
        // Small inodes have 32 bits of seconds and nothing else.
        let small = Timestamp { sec: time.sec.min(i64::from(i32::MAX)), nsec: 0 };
        assert_eq!(attr.mtime, if self.small_inodes { small } else { time });
        self.mtimes.insert(id, attr.mtime);
        self.past.changed.insert(id, self.now());
    }

    /// fsync: what was changed in the file is there after a crash, and everything that was done
    /// before its last change.
    pub fn fsync(&mut self, id: Id, data_only: bool) {
        self.trace(&("fsync", id, data_only));
        let ino = self.refer(id).ino();
        // In turn as a FUSE request does it, and as a library call does.
        let told = if id.is_multiple_of(2) {
            fsync_told(&*self.fs, ino, data_only)
        } else {
            self.fs.fsync(ino, data_only)
        };
        if let Err(e) = told {
            self.fail(&format!("fsync of node {id}: {e}"));
        }
        if let Some(content) = self.contents.get(&id) {
            self.past.versions.insert(id, vec![content.clone()]);
            self.past.shifts.remove(&id);
            self.past.echoes.remove(&id);
        }
        if !data_only {
            self.past.is_durable(self.past.changed.get(&id).copied().unwrap_or(0), self.block_size);
        }
    }

    /// sync: everything.
    pub fn sync(&mut self) {
        self.trace(&"sync");
        if let Err(e) = self.fs.sync() {
            self.fail(&format!("sync: {e}"));
        }
        self.all_is_durable();
    }

    pub fn all_is_durable(&mut self) {
        self.past.is_durable(self.now(), self.block_size);
        self.past.versions = self.contents.iter().map(|(id, c)| (*id, vec![c.clone()])).collect();
        self.past.shifts.clear();
        self.past.echoes.clear();
    }

    /// Keeps a reference.
    pub fn hold(&mut self, id: Id) {
        let node = self.refer(id);
        self.held.insert(id, node);
    }

    /// Drops a kept reference.
    pub fn release(&mut self, id: Id) {
        self.held.remove(&id);
        self.drop_unnamed();
    }

    /// Drops files without names and references from the model.
    pub fn drop_unnamed(&mut self) {
        let held = &self.held;
        self.tree.forget_unnamed(|id| held.contains_key(&id));
        let tree = &self.tree;
        self.contents.retain(|id, _| tree.nodes.contains_key(id));
        self.mtimes.retain(|id, _| tree.nodes.contains_key(id));
    }
}
