//! Choosing the next operation.

use extol::vfs::{Creds, Fallocate, NewNode, Rdev, RenameFlags, Timestamp, XattrSet};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::content::CHUNK;
use super::engine::{Change, Engine};
use super::tree::{Id, Op, ROOT, What};

/// No deeper than this.
const DEPTH: usize = 5;
/// Farther than any file reaches on the smallest kind of volume.
const FAR: u64 = 8 << 30;

/// How large things may become.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes in all files; above it, files are made smaller.
    pub bytes: u64,
    /// Nodes; above it, names are removed.
    pub nodes: usize,
}

impl Engine {
    /// One random step.
    pub fn step(&mut self, bounds: Bounds) {
        let too_many = self.tree.nodes.len() > bounds.nodes;
        let weight: u64 = self.contents.values().map(|c| c.weight()).sum();
        if weight > bounds.bytes && self.rng.random_bool(0.5) {
            return self.make_smaller();
        }
        match self.rng.random_range(0..100) {
            0..12 if !too_many => self.create(),
            0..14 if too_many => self.remove(),
            12..14 => self.link(),
            14..20 => self.remove(),
            20..30 => self.rename(),
            30..34 => self.attributes(),
            34..38 => self.set_xattr(),
            38..70 => self.change_contents(),
            70..80 => self.look(),
            80..85 => self.references(),
            85..93 => self.make_durable(),
            93 => self.unnamed(),
            94 => self.burst(bounds),
            _ => self.append(),
        }
    }

    fn any(&mut self, wanted: impl Fn(&What) -> bool) -> Option<Id> {
        let nodes: Vec<Id> = self
            .tree
            .nodes
            .iter()
            .filter(|(id, n)| {
                wanted(&n.what) && (!self.tree.is_gone(**id) || self.held.contains_key(*id))
            })
            .map(|(id, _)| *id)
            .collect();
        nodes.choose(&mut self.rng).copied()
    }

    fn any_file(&mut self) -> Option<Id> {
        self.any(|w| *w == What::File)
    }

    fn any_dir(&mut self) -> Id {
        // The root more often than others: then names meet.
        if self.rng.random_bool(0.3) {
            return ROOT;
        }
        self.any(|w| matches!(w, What::Dir(_))).unwrap_or(ROOT)
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.random_range(0..20) {
            0 => vec![b'L'; self.rng.random_range(200..=255)],
            1 => vec![b'n'; 256],
            2..5 => format!("a-longer-name-number-{}", self.rng.random_range(0..30)).into_bytes(),
            _ => format!("n{}", self.rng.random_range(0..25)).into_bytes(),
        }
    }

    /// A name that a directory has, or sometimes one that it may not have.
    fn old_name(&mut self, dir: Id) -> Vec<u8> {
        if self.rng.random_bool(0.1) {
            return self.name();
        }
        let names: Vec<Vec<u8>> = self.tree.entries(dir).keys().cloned().collect();
        names.choose(&mut self.rng).cloned().unwrap_or_else(|| b"none".to_vec())
    }

    fn owner(&mut self) -> Creds {
        Creds { uid: self.rng.random_range(0..3) * 40_000, gid: self.rng.random_range(0..70_000) }
    }

    fn create(&mut self) {
        let dir = self.any_dir();
        let name = self.name();
        let deep = self.tree.depth(dir) >= DEPTH;
        let new = match self.rng.random_range(0..20) {
            0..5 if !deep => NewNode::Directory,
            5 => NewNode::Symlink(vec![b's'; self.rng.random_range(1..59)]),
            6 => NewNode::Symlink(vec![b'S'; self.rng.random_range(59..1100)]),
            7 => NewNode::Fifo,
            8 => NewNode::Socket,
            9 => NewNode::CharDevice(Rdev {
                major: self.rng.random_range(0..300),
                minor: self.rng.random_range(0..70_000),
            }),
            10 => NewNode::BlockDevice(Rdev { major: 8, minor: 1 }),
            _ => NewNode::Regular,
        };
        let set_gid = matches!(new, NewNode::Directory) && self.rng.random_bool(0.1);
        let perm = self.rng.random_range(0..=0o777) | if set_gid { 0o2000 } else { 0 };
        let owner = self.owner();
        self.op(Op::Create { dir, name, new, perm, umask: 0o022, owner });
    }

    fn unnamed(&mut self) {
        let dir = self.any_dir();
        let owner = self.owner();
        if !self.tree.is_gone(dir) {
            self.op(Op::Unnamed { dir, perm: 0o600, owner });
        }
    }

    fn link(&mut self) {
        let Some(node) = self.any(|_| true) else { return };
        let (dir, name) = (self.any_dir(), self.name());
        self.op(Op::Link { node, dir, name });
    }

    fn remove(&mut self) {
        let dir = self.any_dir();
        let name = self.old_name(dir);
        let is_dir =
            self.tree.entries(dir).get(&name).is_some_and(|id| self.tree.node(*id).is_dir());
        // Sometimes the wrong call.
        if is_dir != self.rng.random_bool(0.05) {
            self.op(Op::Rmdir { dir, name });
        } else {
            self.op(Op::Unlink { dir, name });
        }
        self.drop_unnamed();
    }

    fn rename(&mut self) {
        let dir = self.any_dir();
        let name = self.old_name(dir);
        let new_dir = if self.rng.random_bool(0.4) { dir } else { self.any_dir() };
        let flags = match self.rng.random_range(0..10) {
            0 => RenameFlags::NOREPLACE,
            1..4 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let replace = flags == RenameFlags::EXCHANGE || self.rng.random_bool(0.5);
        let new_name = if replace { self.old_name(new_dir) } else { self.name() };
        self.op(Op::Rename { dir, name, new_dir, new_name, flags });
        self.drop_unnamed();
    }

    fn attributes(&mut self) {
        let Some(node) = self.any(|w| !matches!(w, What::Symlink(_))) else { return };
        if node == ROOT {
            return;
        }
        match self.rng.random_range(0..5) {
            0 => {
                let Creds { uid, gid } = self.owner();
                self.op(Op::Chown { node, uid, gid });
            }
            1 => {
                self.op(Op::KillPrivileges { node });
            }
            2 => {
                let sec =
                    self.rng.random_range(i64::from(i32::MIN)..=i64::from(i32::MAX) + 1_000_000);
                let nsec = self.rng.random_range(0..1_000_000_000);
                self.set_mtime(node, Timestamp { sec, nsec });
            }
            _ => {
                let perm = self.rng.random_range(0..=0o7777);
                self.op(Op::Chmod { node, perm });
            }
        }
    }

    fn set_xattr(&mut self) {
        let Some(node) = self.any(|w| matches!(w, What::File | What::Dir(_))) else { return };
        let names: [&[u8]; 6] = [
            b"user.a",
            b"user.bb",
            b"trusted.c",
            b"security.d",
            b"user.name-of-some-length",
            b"security.capability",
        ];
        let name = names[self.rng.random_range(0..names.len())].to_vec();
        if self.rng.random_bool(0.3) {
            self.op(Op::RemoveXattr { node, name });
            return;
        }
        let len = match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..self.block_size as usize),
            1 => self.rng.random_range(0..300),
            _ => self.rng.random_range(0..30),
        };
        // Few different values, so that blocks are shared.
        let value = vec![self.rng.random_range(0..3); len / 10 * 10];
        let how = *[XattrSet::Any, XattrSet::Any, XattrSet::Create, XattrSet::Replace]
            .choose(&mut self.rng)
            .unwrap();
        self.op(Op::SetXattr { node, name, value, how });
    }

    fn place(&mut self, id: Id) -> u64 {
        let size = self.contents[&id].size;
        let at = match self.rng.random_range(0..20) {
            0 => 1 << self.rng.random_range(0..33),
            1..10 => self.rng.random_range(0..=size.min(FAR)),
            10..12 => size,
            12..14 => self.rng.random_range(0..100),
            _ => self.rng.random_range(0..200_000),
        };
        match self.rng.random_range(0..3) {
            0 => at / self.block_size * self.block_size,
            _ => at,
        }
    }

    fn write_len(&mut self) -> usize {
        match self.rng.random_range(0..20) {
            0 => self.rng.random_range(256 << 10..700 << 10),
            1 => (self.rng.random_range(64..200) * CHUNK * 4) as usize,
            2..6 => self.rng.random_range(1..40_000),
            6..10 => self.block_size as usize * self.rng.random_range(1..5),
            _ => self.rng.random_range(1..200),
        }
    }

    fn change_contents(&mut self) {
        let Some(id) = self.any_file() else { return };
        let at = self.place(id);
        let size = self.contents[&id].size;
        let change = match self.rng.random_range(0..20) {
            0..11 => Change::Write { at, len: self.write_len(), seed: self.rng.random() },
            11..13 => Change::Truncate { size: self.rng.random_range(0..=size) },
            13 => Change::Truncate { size: at },
            _ => {
                let len = match self.rng.random_range(0..5) {
                    0 => self.rng.random_range(1..400_000),
                    1 => self.rng.random_range(1..100),
                    2 => self.rng.random_range(1..4) * self.cluster_size,
                    _ => self.rng.random_range(1..8) * self.block_size,
                };
                let keep_size = self.rng.random_bool(0.5);
                let mode = match self.rng.random_range(0..8) {
                    0 | 1 => Fallocate::Allocate { keep_size },
                    2 | 3 => Fallocate::PunchHole,
                    4 | 5 => Fallocate::ZeroRange { keep_size },
                    6 => Fallocate::CollapseRange,
                    _ => Fallocate::InsertRange,
                };
                // Ranges that are inserted or collapsed are whole blocks most of the time.
                let moves = matches!(mode, Fallocate::CollapseRange | Fallocate::InsertRange);
                let down = |n: u64| {
                    if moves && !n.is_multiple_of(7) {
                        n / self.cluster_size * self.cluster_size
                    } else {
                        n
                    }
                };
                let (at, len) = (down(at.min(size.max(1) - 1)), down(len));
                let least = if moves { self.cluster_size } else { self.block_size };
                Change::Allocate { mode, at, len: len.max(least) }
            }
        };
        let reach = match change {
            Change::Write { at, len, .. } => at + len as u64,
            Change::Truncate { size } => size,
            Change::Allocate { at, len, .. } => at.max(size) + len,
        };
        if reach < 2 * FAR {
            self.change(id, change);
        }
    }

    fn append(&mut self) {
        let Some(id) = self.any_file() else { return };
        for _ in 0..self.rng.random_range(1..6) {
            let at = self.contents[&id].size;
            let len = self.rng.random_range(1..9000);
            let seed = self.rng.random();
            if at + (len as u64) < FAR {
                self.change(id, Change::Write { at, len, seed });
            }
        }
    }

    fn make_smaller(&mut self) {
        let mut files: Vec<(u64, Id)> =
            self.contents.iter().map(|(id, c)| (c.weight(), *id)).collect();
        files.sort_unstable();
        let Some((_, id)) = files.pop() else { return };
        let size = self.contents[&id].size;
        if self.rng.random_bool(0.5) {
            self.change(id, Change::Truncate { size: self.rng.clone().random_range(0..=size / 2) });
        } else if let Some((dir, name)) = self.tree.node(id).names.first().cloned() {
            self.op(Op::Unlink { dir, name });
            self.drop_unnamed();
        } else {
            self.release(id);
        }
    }

    fn look(&mut self) {
        if let Some(id) = self.any_file() {
            let at = self.place(id);
            let len = self.write_len();
            self.read(id, at, len);
            if self.rng.random_bool(0.2) {
                self.verify_file(id, &self.refer(id));
            }
        }
    }

    fn references(&mut self) {
        if self.held.len() > 6 || (self.rng.random_bool(0.4) && !self.held.is_empty()) {
            let mut ids: Vec<Id> = self.held.keys().copied().collect();
            ids.sort_unstable();
            let id = *ids.choose(&mut self.rng).unwrap();
            self.release(id);
        } else if let Some(id) = self.any(|w| matches!(w, What::File | What::Dir(_))) {
            self.hold(id);
        }
    }

    fn make_durable(&mut self) {
        match self.rng.random_range(0..12) {
            0 => self.sync(),
            1..4 => {
                let dir = self.any_dir();
                self.fsync(dir, false);
            }
            n => {
                if let Some(id) = self.any_file() {
                    self.fsync(id, n < 7);
                }
            }
        }
    }

    /// Many entries with long names in one directory, or many of them removed.
    fn burst(&mut self, bounds: Bounds) {
        let dir = self.any_dir();
        if self.tree.is_gone(dir) {
            return;
        }
        if self.tree.entries(dir).len() > 40 || self.tree.nodes.len() > bounds.nodes {
            let names: Vec<Vec<u8>> = self.tree.entries(dir).keys().cloned().collect();
            for name in names {
                let empty =
                    |e: &Self, id: Id| !e.tree.node(id).is_dir() || e.tree.entries(id).is_empty();
                let id = self.tree.entries(dir)[&name];
                if self.rng.random_bool(0.8) && empty(self, id) {
                    let is_dir = self.tree.node(id).is_dir();
                    self.op(if is_dir {
                        Op::Rmdir { dir, name }
                    } else {
                        Op::Unlink { dir, name }
                    });
                }
            }
            self.drop_unnamed();
            return;
        }
        let len = self.rng.random_range(20..230);
        for i in 0..self.rng.random_range(20..100) {
            let name = format!("{i:05}{}", "x".repeat(len)).into_bytes();
            let new = if i % 10 == 3 { NewNode::Directory } else { NewNode::Regular };
            if self.tree.depth(dir) < DEPTH || new == NewNode::Regular {
                self.op(Op::Create {
                    dir,
                    name,
                    new,
                    perm: 0o644,
                    umask: 0,
                    owner: Creds::default(),
                });
            }
        }
    }
}
