//! What the file system holds: nodes, their names and how often each is referred to.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use extol_vfs::{Attr, Creds, FileId, FileKind, FsError, Result, Timestamp};

pub(super) struct Node {
    pub(super) attr: Attr,
    pub(super) references: u64,
    pub(super) data: Vec<u8>,
    pub(super) target: Vec<u8>,
    /// Name to (inode, cookie).
    pub(super) entries: BTreeMap<Vec<u8>, (u32, u64)>,
    pub(super) parent: u32,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(super) struct State {
    pub(super) nodes: HashMap<u32, Node>,
    pub(super) next_ino: u32,
    pub(super) next_cookie: u64,
}

pub(super) fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp { sec: now.as_secs() as i64, nsec: now.subsec_nanos() }
}

impl State {
    /// Nothing; the first node has this number.
    pub(super) fn new(first: u32) -> Self {
        Self { nodes: HashMap::new(), next_ino: first, next_cookie: 10 }
    }

    pub(super) fn node(&mut self, ino: u32) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(FsError::Stale)
    }

    pub(super) fn add_node(&mut self, kind: FileKind, perm: u16, creds: Creds, parent: u32) -> u32 {
        let ino = self.next_ino;
        self.next_ino += 1;
        let id = FileId { ino, generation: ino ^ 0x5555 };
        let attr = Attr::fresh(id, kind, perm, creds, now());
        let node = Node {
            attr,
            references: 0,
            data: Vec::new(),
            target: Vec::new(),
            entries: BTreeMap::new(),
            parent,
            xattrs: BTreeMap::new(),
        };
        self.nodes.insert(ino, node);
        ino
    }

    pub(super) fn find(&mut self, dir: u32, name: &[u8]) -> Result<u32> {
        let node = self.node(dir)?;
        if node.attr.kind != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        match name {
            b"." => Ok(dir),
            b".." => Ok(node.parent),
            _ => node.entries.get(name).map(|entry| entry.0).ok_or(FsError::NotFound),
        }
    }

    pub(super) fn insert(&mut self, dir: u32, name: &[u8], ino: u32) -> Result<()> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let is_dir = self.node(ino)?.attr.kind == FileKind::Directory;
        let node = self.node(dir)?;
        node.entries.insert(name.to_vec(), (ino, cookie));
        node.attr.nlink += u32::from(is_dir);
        node.attr.mtime = now();
        node.attr.ctime = node.attr.mtime;
        if is_dir {
            self.node(ino)?.parent = dir;
        }
        Ok(())
    }

    pub(super) fn take_out(&mut self, dir: u32, name: &[u8]) -> Result<u32> {
        let ino = self.find(dir, name)?;
        let is_dir = self.node(ino)?.attr.kind == FileKind::Directory;
        let node = self.node(dir)?;
        node.entries.remove(name);
        node.attr.nlink -= u32::from(is_dir);
        node.attr.mtime = now();
        node.attr.ctime = node.attr.mtime;
        Ok(ino)
    }

    pub(super) fn drop_link(&mut self, ino: u32) -> Result<()> {
        let node = self.node(ino)?;
        node.attr.nlink =
            if node.attr.kind == FileKind::Directory { 0 } else { node.attr.nlink - 1 };
        node.attr.ctime = now();
        self.reap(ino);
        Ok(())
    }

    pub(super) fn reap(&mut self, ino: u32) {
        if self.nodes.get(&ino).is_some_and(|node| node.references == 0 && node.attr.nlink == 0) {
            self.nodes.remove(&ino);
        }
    }

    pub(super) fn hold(&mut self, ino: u32) -> Result<Attr> {
        let node = self.node(ino)?;
        node.references += 1;
        Ok(node.attr())
    }
}

impl Node {
    pub(super) fn attr(&self) -> Attr {
        let mut attr = self.attr.clone();
        if attr.kind == FileKind::Regular {
            attr.size = self.data.len() as u64;
            attr.blocks = attr.size.div_ceil(512);
        } else if attr.kind == FileKind::Symlink {
            attr.size = self.target.len() as u64;
        }
        attr
    }
}
