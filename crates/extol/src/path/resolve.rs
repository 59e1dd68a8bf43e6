//! From a path to an inode, name by name.
//!
//! The names to go are on a stack. A link pushes the names of its target instead of its own; an
//! absolute target starts again at the root.
//!
//! Invariants
//! - PA-1: a walk ends: it follows at most [`MAX_LINKS`] links, each shorter than a block.

use std::borrow::Cow;
use std::sync::Arc;

use extol_vfs::{Attr, FileKind, FileSystem as _, FsError, Result};
use smallvec::SmallVec;

use super::guard::Held;
use crate::ext4::Ext4;

/// Most links that a path may lead through, as on Linux.
const MAX_LINKS: u32 = 40;

/// What to do with a link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    /// The last name is not looked up, unless the path ends in a slash: the operation will do it.
    Unseen,
    /// The link is meant.
    Keep,
    /// The link is meant, unless the path ends in a slash.
    FollowIfSlash,
    /// What it points to is meant.
    Follow,
}

/// Where a path leads: a name in a directory, and its inode.
#[derive(Debug)]
pub(super) struct Spot<'a> {
    /// The directory of the last name.
    pub dir: Held<'a>,
    /// The last name; `None` if the path names no entry (`/`).
    pub name: Option<Vec<u8>>,
    /// The inode with the name. `None`: all but the last name exists, or it was not looked up.
    pub node: Option<Held<'a>>,
    /// Its attributes, if they were read.
    attr: Option<Attr>,
    /// The path ended in a slash.
    pub slash: bool,
}

impl<'a> Spot<'a> {
    /// The inode.
    pub fn found(self) -> Result<Held<'a>> {
        self.node.ok_or(FsError::NotFound)
    }

    /// The attributes of the inode.
    pub fn attributes(self) -> Result<Attr> {
        match self.attr {
            Some(attr) => Ok(attr),
            None => self.found()?.attr(),
        }
    }

    /// Directory and name of an entry that exists.
    pub fn entry(&self) -> Result<(&Held<'a>, &[u8])> {
        let name = self.name.as_deref().ok_or(FsError::Busy)?;
        self.node.as_ref().ok_or(FsError::NotFound)?;
        Ok((&self.dir, name))
    }
}

/// Names to go, the next one last.
type Names<'a> = SmallVec<[Cow<'a, [u8]>; 8]>;

/// Pushes the names of a path. True if it ends in a slash.
fn push<'a>(work: &mut Names<'a>, path: Cow<'a, [u8]>) -> bool {
    fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
        path.rsplit(|b| *b == b'/').filter(|n| !n.is_empty())
    }
    match &path {
        Cow::Borrowed(path) => work.extend(names(path).map(Cow::Borrowed)),
        Cow::Owned(path) => work.extend(names(path).map(|name| Cow::Owned(name.to_vec()))),
    }
    path.ends_with(b"/")
}

/// A walk along a path.
struct Walk<'a, 'p> {
    fs: &'a Arc<Ext4>,
    at: Held<'a>,
    names: Names<'p>,
    slash: bool,
    links: u32,
}

impl<'a> Walk<'a, '_> {
    /// Ends at an entry.
    fn end(self, name: &[u8], node: Option<Held<'a>>, attr: Option<Attr>) -> Spot<'a> {
        Spot { dir: self.at, name: Some(name.to_vec()), node, attr, slash: self.slash }
    }

    /// Follows a link: its target comes next.
    fn follow(&mut self, link: &Held<'_>) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(FsError::SymlinkLoop);
        }
        let target = self.fs.readlink(link.ino())?;
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.starts_with(b"/") {
            self.at = Held::root(self.fs)?;
        }
        let is_last = self.names.is_empty();
        let ends_in_slash = push(&mut self.names, Cow::Owned(target));
        self.slash |= is_last && ends_in_slash;
        Ok(())
    }
}

pub(super) fn resolve<'a>(fs: &'a Arc<Ext4>, path: &[u8], last: Last) -> Result<Spot<'a>> {
    if path.is_empty() {
        return Err(FsError::NotFound);
    }
    let mut names = Names::new();
    let slash = push(&mut names, Cow::Borrowed(path));
    let mut walk = Walk { fs, at: Held::root(fs)?, names, slash, links: 0 };
    loop {
        let Some(name) = walk.names.pop() else {
            let Walk { at, slash, .. } = walk;
            return Ok(Spot { dir: at.clone(), name: None, node: Some(at), attr: None, slash });
        };
        let is_last = walk.names.is_empty();
        if is_last && last == Last::Unseen && !walk.slash {
            return Ok(walk.end(&name, None, None));
        }
        if !is_last && walk.at.enter_cached(&name) {
            continue;
        }
        let attr = match walk.at.find(&name) {
            Ok(attr) => attr,
            Err(FsError::NotFound) if is_last => return Ok(walk.end(&name, None, None)),
            Err(e) => return Err(e),
        };
        let follow = match last {
            _ if attr.kind != FileKind::Symlink => false,
            _ if !is_last => true,
            Last::Keep | Last::Unseen => false,
            Last::FollowIfSlash => walk.slash,
            Last::Follow => true,
        };
        if !is_last && !follow {
            walk.at.enter(&attr);
            continue;
        }
        let next = Held::from_attr(fs, &attr);
        if follow {
            walk.follow(&next)?;
            continue;
        }
        if walk.slash && next.kind() != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        return Ok(walk.end(&name, Some(next), Some(attr)));
    }
}
