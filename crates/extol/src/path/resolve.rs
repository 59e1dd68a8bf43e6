//! From a path to an inode, step by step.
//!
//! A worklist of names, the next one on top. A link puts the names of its target on top instead of
//! its own; an absolute target starts again at the root. Bounded: at most [`MAX_LINKS`] links, each
//! shorter than a block.

use std::borrow::Cow;
use std::sync::Arc;

use extol_vfs::{Attr, FileKind, FileSystem as _, FsError, Result};
use smallvec::SmallVec;

use super::guard::Held;
use crate::Ext4;

/// Links followed before a path is called a circle, as on Linux.
const MAX_LINKS: u32 = 40;

/// What to do with a link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    /// Nobody looks at what has the last name, unless the path ends in a slash: who makes or
    /// removes it will.
    Unseen,
    /// The link is meant.
    Keep,
    /// The link is meant, unless the path ends in a slash.
    FollowIfSlash,
    /// What it points to is meant.
    Follow,
}

/// Where a path leads: a name in a directory, and what is there.
#[derive(Debug)]
pub(super) struct Spot<'a> {
    /// The directory of the last name.
    pub dir: Held<'a>,
    /// The last name; `None` if the path names no entry (`/`).
    pub name: Option<Vec<u8>>,
    /// What has the name. Nothing: all but the last name exists, or it was not to be seen.
    pub node: Option<Held<'a>>,
    /// Its attributes, if they were seen.
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

/// Names to go, the next one last. (Most paths are short.)
type Work<'a> = SmallVec<[Cow<'a, [u8]>; 8]>;

/// Puts the names of a path on the worklist. True if it ends in a slash.
fn push<'a>(work: &mut Work<'a>, path: Cow<'a, [u8]>) -> bool {
    fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
        path.rsplit(|b| *b == b'/').filter(|n| !n.is_empty())
    }
    match &path {
        Cow::Borrowed(path) => work.extend(names(path).map(Cow::Borrowed)),
        Cow::Owned(path) => work.extend(names(path).map(|name| Cow::Owned(name.to_vec()))),
    }
    path.ends_with(b"/")
}

pub(super) fn resolve<'a>(fs: &'a Arc<Ext4>, path: &[u8], last: Last) -> Result<Spot<'a>> {
    if path.is_empty() {
        return Err(FsError::NotFound);
    }
    let mut work = Work::new();
    let mut slash = push(&mut work, Cow::Borrowed(path));
    let mut at = Held::root(fs)?;
    let mut links = 0;
    loop {
        let Some(name) = work.pop() else {
            return Ok(Spot { dir: at.clone(), name: None, node: Some(at), attr: None, slash });
        };
        let is_last = work.is_empty();
        if is_last && last == Last::Unseen && !slash {
            return Ok(Spot {
                dir: at,
                name: Some(name.into_owned()),
                node: None,
                attr: None,
                slash,
            });
        }
        if !is_last && at.step(&name) {
            continue;
        }
        let attr = match at.find(&name) {
            Ok(attr) => attr,
            Err(FsError::NotFound) if is_last => {
                return Ok(Spot {
                    dir: at,
                    name: Some(name.into_owned()),
                    node: None,
                    attr: None,
                    slash,
                });
            }
            Err(e) => return Err(e),
        };
        let follow = match last {
            _ if attr.kind != FileKind::Symlink => false,
            _ if !is_last => true,
            Last::Keep | Last::Unseen => false,
            Last::FollowIfSlash => slash,
            Last::Follow => true,
        };
        if !is_last && !follow {
            at.go(&attr);
            continue;
        }
        let next = Held::adopt(fs, &attr);
        if follow {
            links += 1;
            if links > MAX_LINKS {
                return Err(FsError::SymlinkLoop);
            }
            let target = fs.readlink(next.ino())?;
            if target.is_empty() {
                return Err(FsError::NotFound);
            }
            if target.starts_with(b"/") {
                at = Held::root(fs)?;
            }
            let ends_in_slash = push(&mut work, Cow::Owned(target));
            slash |= is_last && ends_in_slash;
            continue;
        }
        if slash && next.kind() != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        return Ok(Spot {
            dir: at,
            name: Some(name.into_owned()),
            node: Some(next),
            attr: Some(attr),
            slash,
        });
    }
}
