//! Paths of a source, followed inside the tree that is being made.
//!
//! `.` and empty parts are dropped; `..` and a leading slash end at the root. A parent that is a
//! symbolic link is followed inside the tree, as a container runtime does that unpacks a layer
//! below a root directory; the last part is not followed.

use super::MAX_NAME;
use super::add::TreeBuilder;
use super::types::{Kind, Meta, NodeId};
use crate::error::{BuildError, Result};

/// How many links one path may lead through.
const MAX_LINKS: u32 = 40;

/// Where a path ends.
#[derive(Debug)]
pub(super) enum Place {
    /// At the root, or at a directory above by `..`.
    Dir(NodeId),
    /// At a name of a directory, which may be there or not.
    Name(NodeId, Vec<u8>),
}

/// What to do about a parent that is not there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Missing<'m> {
    /// Make it a directory, with the times and the owner of root and this mtime.
    Make(&'m Meta),
    /// Say that it is missing.
    Refuse,
}

/// A walk under way.
struct Walk<'p> {
    path: &'p [u8],
    /// The directories from the root to where the walk is.
    dirs: Vec<NodeId>,
    links: u32,
    clamped: bool,
}

impl TreeBuilder {
    /// Follows a path up to its last part.
    pub(super) fn resolve(&mut self, path: &[u8], missing: Missing<'_>) -> Result<Place> {
        if path.contains(&0) {
            return Err(BuildError::entry(path, "its name has a NUL byte"));
        }
        let mut walk =
            Walk { path, dirs: vec![NodeId::ROOT], links: 0, clamped: path.starts_with(b"/") };
        let mut parts = split(path);
        let last = parts.next_back();
        for part in parts {
            self.step(&mut walk, part, missing)?;
        }
        let place = match last {
            None => Place::Dir(NodeId::ROOT),
            Some(b"..") => {
                walk.up();
                Place::Dir(walk.here())
            }
            Some(name) => {
                check_name(path, name)?;
                Place::Name(walk.here(), name.to_vec())
            }
        };
        // (Every name of the root is one of its own.)
        if walk.clamped && split(path).next().is_some() {
            self.note(path, "its name is taken as one below the root of the image");
        }
        Ok(place)
    }

    /// One part that must lead to a directory.
    fn step(&mut self, walk: &mut Walk<'_>, part: &[u8], missing: Missing<'_>) -> Result<()> {
        // Parts that are to be gone, the next one last: the targets of links.
        let mut ahead = vec![part.to_vec()];
        while let Some(part) = ahead.pop() {
            if part == b".." {
                walk.up();
                continue;
            }
            check_name(walk.path, &part)?;
            let dir = walk.here();
            let node = match (self.child(dir, &part), missing) {
                (Some(node), _) => node,
                (None, Missing::Make(meta)) => {
                    self.check_depth(walk.path, walk.dirs.len())?;
                    self.put(dir, &part, *meta, Kind::Dir)?
                }
                (None, Missing::Refuse) => {
                    return Err(BuildError::entry(walk.path, "is not there"));
                }
            };
            match self.node(node).kind {
                Kind::Dir => {
                    self.check_depth(walk.path, walk.dirs.len())?;
                    walk.dirs.push(node);
                }
                Kind::Symlink(target) => {
                    walk.links += 1;
                    if walk.links > MAX_LINKS {
                        let why = format!("leads through more than {MAX_LINKS} symbolic links");
                        return Err(BuildError::entry(walk.path, why));
                    }
                    let target = self.bytes(target);
                    if target.starts_with(b"/") {
                        walk.dirs.truncate(1);
                    }
                    ahead.extend(split(target).rev().map(<[u8]>::to_vec));
                }
                _ => {
                    let why = "leads through a file that is not a directory";
                    return Err(BuildError::entry(walk.path, why));
                }
            }
        }
        Ok(())
    }

    fn check_depth(&self, path: &[u8], depth: usize) -> Result<()> {
        let limit = self.limits().depth;
        if depth as u64 > u64::from(limit) {
            let why = format!("is more than {limit} directories deep (--limits depth=NUMBER)");
            return Err(BuildError::entry(path, why));
        }
        Ok(())
    }
}

impl Walk<'_> {
    fn here(&self) -> NodeId {
        self.dirs.last().copied().unwrap_or(NodeId::ROOT)
    }

    fn up(&mut self) {
        if self.dirs.len() > 1 {
            self.dirs.pop();
        } else {
            self.clamped = true;
        }
    }
}

/// The parts of a path that mean something.
fn split(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

pub(super) fn check_name(path: &[u8], name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME {
        let why = format!("has a name of {} bytes; ext4 has at most {MAX_NAME}", name.len());
        return Err(BuildError::entry(path, why));
    }
    Ok(())
}
