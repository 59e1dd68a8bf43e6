//! From paths to inodes.

use extol::path::Inode;
use extol::vfs::{FileKind, FileSystem};
use rustix::io::Errno;

use super::access::SEARCH;
use super::{Library, attr, errno};
use crate::posix::Result;

const PATH_MAX: usize = 4096;
/// Symbolic links followed in one walk.
const MOST_LINKS: usize = 40;

/// The last component of a path, not looked up yet.
pub(super) struct Last<'p> {
    /// The directory it is in.
    pub dir: Inode,
    /// Its name.
    pub name: &'p str,
    /// A slash behind it: it must be a directory.
    pub slash: bool,
}

impl Last<'_> {
    /// True for a name; false for `.` and `..`, which cannot be made, removed or moved.
    pub fn is_name(&self) -> bool {
        !matches!(self.name, "." | "..")
    }
}

impl Library {
    /// The inode of a path.
    pub(super) fn walk(&self, path: &str, follow: bool) -> Result<Inode> {
        check_path(path)?;
        self.walk_from(self.base()?, path, follow, &mut 0)
    }

    /// The directory of a path and its last component.
    pub(super) fn parent<'p>(&self, path: &'p str) -> Result<Last<'p>> {
        check_path(path)?;
        self.parent_from(self.base()?, path, &mut 0)
    }

    /// The inode of a last component, not following a link.
    pub(super) fn find(&self, last: &Last<'_>) -> Result<Inode> {
        self.child(&last.dir, last.name)
    }

    fn walk_from(
        &self,
        start: Inode,
        path: &str,
        follow: bool,
        links: &mut usize,
    ) -> Result<Inode> {
        let last = self.parent_from(start, path, links)?;
        let found = self.child(&last.dir, last.name)?;
        let found = match found.kind() {
            FileKind::Symlink if follow || last.slash => self.follow(last.dir, &found, links)?,
            _ => found,
        };
        if last.slash && found.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(found)
    }

    fn parent_from<'p>(&self, start: Inode, path: &'p str, links: &mut usize) -> Result<Last<'p>> {
        let bare = path.trim_end_matches('/');
        let (dirs, name) = bare.rsplit_once('/').unwrap_or(("", bare));
        let mut dir = start;
        for part in dirs.split('/').filter(|p| !p.is_empty()) {
            let mut found = self.child(&dir, part)?;
            if found.kind() == FileKind::Symlink {
                found = self.follow(dir, &found, links)?;
            }
            dir = found;
            if dir.kind() != FileKind::Directory {
                return Err(Errno::NOTDIR);
            }
        }
        if dir.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.permit(&attr(&dir)?, SEARCH)?;
        Ok(Last { dir, name, slash: bare.len() < path.len() })
    }

    fn follow(&self, dir: Inode, link: &Inode, links: &mut usize) -> Result<Inode> {
        *links += 1;
        if *links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        let target = self.fs().readlink(link.ino()).map_err(errno)?;
        let target = String::from_utf8_lossy(&target).into_owned();
        self.walk_from(dir, &target, true, links)
    }

    fn child(&self, dir: &Inode, name: &str) -> Result<Inode> {
        if dir.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.permit(&attr(dir)?, SEARCH)?;
        if name == "." {
            return Ok(dir.clone());
        }
        dir.lookup(name).map_err(errno)
    }
}

fn check_path(path: &str) -> Result<()> {
    match path.len() {
        0 => Err(Errno::NOENT),
        PATH_MAX.. => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}
