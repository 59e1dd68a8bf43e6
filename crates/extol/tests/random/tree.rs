//! Names and attributes in the model, and what every operation does to them.
//!
//! Contents are kept apart ([`super::content`]), so a tree is cheap to copy and to replay, which
//! the check after a crash does.

use std::collections::{BTreeMap, BTreeSet};

use extol::vfs::{Creds, FileKind, FsError, NewNode, Rdev, RenameFlags, Result, XattrSet};

/// A node of the model.
pub type Id = u32;
/// The directory that everything is in.
pub const ROOT: Id = 0;

/// What a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    File,
    Dir(BTreeMap<Vec<u8>, Id>),
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    Char(Rdev),
    Block(Rdev),
}

impl What {
    pub fn kind(&self) -> FileKind {
        match self {
            Self::File => FileKind::Regular,
            Self::Dir(_) => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
            Self::Char(_) => FileKind::CharDevice,
            Self::Block(_) => FileKind::BlockDevice,
        }
    }
}

/// A node with its attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub what: What,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Every (directory, name) that leads here.
    pub names: BTreeSet<(Id, Vec<u8>)>,
}

impl Node {
    pub fn is_dir(&self) -> bool {
        matches!(self.what, What::Dir(_))
    }
}

/// One operation that changes something.
#[derive(Clone, Debug)]
pub enum Op {
    Create { dir: Id, name: Vec<u8>, new: NewNode, perm: u16, umask: u16, owner: Creds },
    Unnamed { dir: Id, perm: u16, owner: Creds },
    Link { node: Id, dir: Id, name: Vec<u8> },
    Unlink { dir: Id, name: Vec<u8> },
    Rmdir { dir: Id, name: Vec<u8> },
    Rename { dir: Id, name: Vec<u8>, new_dir: Id, new_name: Vec<u8>, flags: RenameFlags },
    Chmod { node: Id, perm: u16 },
    Chown { node: Id, uid: u32, gid: u32 },
    KillPrivileges { node: Id },
    SetXattr { node: Id, name: Vec<u8>, value: Vec<u8>, how: XattrSet },
    RemoveXattr { node: Id, name: Vec<u8> },
}

/// All nodes. Those without a name stay until [`Tree::forget_unnamed`].
#[derive(Clone, Debug)]
pub struct Tree {
    pub nodes: BTreeMap<Id, Node>,
    next: Id,
}

impl Tree {
    pub fn new(perm: u16) -> Self {
        let root = Node {
            what: What::Dir(BTreeMap::new()),
            perm,
            uid: 0,
            gid: 0,
            xattrs: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        Self { nodes: BTreeMap::from([(ROOT, root)]), next: 1 }
    }

    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("the model knows the node")
    }

    pub fn entries(&self, dir: Id) -> &BTreeMap<Vec<u8>, Id> {
        match &self.node(dir).what {
            What::Dir(entries) => entries,
            other => panic!("{other:?} is no directory"),
        }
    }

    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.node_mut(dir).what {
            What::Dir(entries) => entries,
            other => panic!("{other:?} is no directory"),
        }
    }

    /// True if no name leads to it.
    pub fn is_gone(&self, id: Id) -> bool {
        id != ROOT && self.node(id).names.is_empty()
    }

    pub fn nlink(&self, id: Id) -> u32 {
        match &self.node(id).what {
            What::Dir(_) if self.is_gone(id) => 0,
            What::Dir(entries) => {
                2 + entries.values().filter(|i| self.node(**i).is_dir()).count() as u32
            }
            _ => self.node(id).names.len() as u32,
        }
    }

    /// Directories above a directory, itself included.
    fn above(&self, dir: Id) -> Vec<Id> {
        let mut chain = vec![dir];
        while let Some((parent, _)) = self.node(chain[chain.len() - 1]).names.first() {
            chain.push(*parent);
        }
        chain
    }

    pub fn depth(&self, dir: Id) -> usize {
        self.above(dir).len()
    }

    /// The id that the next new node gets.
    pub fn next(&self) -> Id {
        self.next
    }

    pub fn forget_unnamed(&mut self, keep: impl Fn(Id) -> bool) {
        let gone: Vec<Id> =
            self.nodes.keys().copied().filter(|i| self.is_gone(*i) && !keep(*i)).collect();
        for id in gone {
            self.nodes.remove(&id);
        }
    }

    fn insert(&mut self, dir: Id, name: &[u8], id: Id) {
        self.entries_mut(dir).insert(name.to_vec(), id);
        self.node_mut(id).names.insert((dir, name.to_vec()));
    }

    fn remove(&mut self, dir: Id, name: &[u8]) -> Id {
        let id = self.entries_mut(dir).remove(name).expect("the name was looked up");
        self.node_mut(id).names.remove(&(dir, name.to_vec()));
        id
    }

    fn check_name(name: &[u8]) -> Result<()> {
        if name.len() > 255 { Err(FsError::NameTooLong) } else { Ok(()) }
    }

    fn check_dir(&self, dir: Id) -> Result<()> {
        if self.is_gone(dir) { Err(FsError::NotFound) } else { Ok(()) }
    }

    fn find(&self, dir: Id, name: &[u8]) -> Result<Id> {
        self.entries(dir).get(name).copied().ok_or(FsError::NotFound)
    }

    /// Applies an operation, or gives the error that it must fail with. An error changes nothing.
    pub fn apply(&mut self, op: &Op, block_size: usize) -> Result<()> {
        match op {
            Op::Create { dir, name, new, perm, umask, owner } => {
                Self::check_name(name)?;
                if let NewNode::Symlink(target) = new
                    && target.len() >= block_size.min(4096)
                {
                    return Err(FsError::NameTooLong);
                }
                self.check_dir(*dir)?;
                if self.find(*dir, name).is_ok() {
                    return Err(FsError::Exists);
                }
                let id = self.make(*dir, new, perm & !umask, *owner);
                self.insert(*dir, name, id);
            }
            Op::Unnamed { dir, perm, owner } => {
                self.make(*dir, &NewNode::Regular, *perm, *owner);
            }
            Op::Link { node, dir, name } => {
                Self::check_name(name)?;
                if self.node(*node).is_dir() {
                    return Err(FsError::NotPermitted);
                }
                self.check_dir(*dir)?;
                if self.find(*dir, name).is_ok() {
                    return Err(FsError::Exists);
                }
                self.insert(*dir, name, *node);
            }
            Op::Unlink { dir, name } => {
                Self::check_name(name)?;
                self.check_dir(*dir)?;
                if self.node(self.find(*dir, name)?).is_dir() {
                    return Err(FsError::IsADirectory);
                }
                self.remove(*dir, name);
            }
            Op::Rmdir { dir, name } => {
                Self::check_name(name)?;
                self.check_dir(*dir)?;
                match &self.node(self.find(*dir, name)?).what {
                    What::Dir(entries) if entries.is_empty() => {}
                    What::Dir(_) => return Err(FsError::NotEmpty),
                    _ => return Err(FsError::NotADirectory),
                }
                self.remove(*dir, name);
            }
            Op::Rename { dir, name, new_dir, new_name, flags } => {
                Self::check_name(name)?;
                Self::check_name(new_name)?;
                self.rename(*dir, name, *new_dir, new_name, *flags)?;
            }
            Op::Chmod { node, perm } => self.node_mut(*node).perm = *perm,
            Op::Chown { node, uid, gid } => {
                let node = self.node_mut(*node);
                (node.uid, node.gid) = (*uid, *gid);
            }
            Op::KillPrivileges { node } => {
                let node = self.node_mut(*node);
                if node.what == What::File {
                    node.perm &= !(0o4000 | if node.perm & 0o010 != 0 { 0o2000 } else { 0 });
                    node.xattrs.remove(&b"security.capability"[..]);
                }
            }
            Op::SetXattr { node, name, value, how } => {
                let xattrs = &mut self.node_mut(*node).xattrs;
                match how {
                    XattrSet::Create if xattrs.contains_key(name) => return Err(FsError::Exists),
                    XattrSet::Replace if !xattrs.contains_key(name) => {
                        return Err(FsError::NoAttribute);
                    }
                    _ => xattrs.insert(name.clone(), value.clone()),
                };
            }
            Op::RemoveXattr { node, name } => {
                self.node_mut(*node).xattrs.remove(name).ok_or(FsError::NoAttribute)?;
            }
        }
        Ok(())
    }

    fn make(&mut self, dir: Id, new: &NewNode, perm: u16, owner: Creds) -> Id {
        let parent = self.node(dir);
        let grouped = parent.perm & 0o2000 != 0;
        let gid = if grouped { parent.gid } else { owner.gid };
        let what = match new {
            NewNode::Regular => What::File,
            NewNode::Directory => What::Dir(BTreeMap::new()),
            NewNode::Symlink(target) => What::Symlink(target.clone()),
            NewNode::Fifo => What::Fifo,
            NewNode::Socket => What::Socket,
            NewNode::CharDevice(dev) => What::Char(*dev),
            NewNode::BlockDevice(dev) => What::Block(*dev),
        };
        let perm = match new {
            NewNode::Symlink(_) => 0o777,
            NewNode::Directory if grouped => perm | 0o2000,
            _ => perm,
        };
        let id = self.next;
        self.next += 1;
        let node = Node {
            what,
            perm,
            uid: owner.uid,
            gid,
            xattrs: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        self.nodes.insert(id, node);
        id
    }

    fn rename(
        &mut self,
        dir: Id,
        name: &[u8],
        new_dir: Id,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_dir(dir)?;
        self.check_dir(new_dir)?;
        let source = self.find(dir, name)?;
        let target = self.find(new_dir, new_name).ok();
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if self.above(new_dir).contains(&source) {
            return Err(FsError::Invalid(""));
        }
        match target {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(FsError::Exists),
            Some(t) if self.above(dir).contains(&t) => {
                return Err(if exchange { FsError::Invalid("") } else { FsError::NotEmpty });
            }
            None if exchange => return Err(FsError::NotFound),
            Some(t) if t == source => return Ok(()),
            _ => {}
        }
        if exchange {
            self.remove(dir, name);
            let target = self.remove(new_dir, new_name);
            self.insert(new_dir, new_name, source);
            self.insert(dir, name, target);
            return Ok(());
        }
        if let Some(t) = target {
            match (self.node(source).is_dir(), &self.node(t).what) {
                (true, What::Dir(entries)) if !entries.is_empty() => return Err(FsError::NotEmpty),
                (true, What::Dir(_)) => {}
                (true, _) => return Err(FsError::NotADirectory),
                (false, What::Dir(_)) => return Err(FsError::IsADirectory),
                _ => {}
            }
            self.remove(new_dir, new_name);
        }
        self.remove(dir, name);
        self.insert(new_dir, new_name, source);
        Ok(())
    }
}
