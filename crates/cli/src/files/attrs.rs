//! `extol chmod`, `extol chown` and `extol touch`.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::path::Path;

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;
use extol_vfs::{FileKind, FsError, Mode, Mountable as _, SetAttr, SetTime};

use super::change::{Change, Problem, find_or_make, walk};
use super::when::{self, Times};
use super::{InodeRef, Tree, show};
use crate::args::{ChmodArgs, ChownArgs, TouchArgs, VolumeArgs};
use crate::interrupt;

impl Change for ChmodArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        Mode::parse(&self.mode).map(drop).map_err(Failure::usage)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let mode = Mode::parse(&self.mode).map_err(Failure::usage)?;
        let umask = (super::cp::umask() & 0o777) as u16;
        let set = |inode: &InodeRef<'_>| -> extol_vfs::Result<()> {
            let attr = inode.attr()?;
            if attr.kind == FileKind::Symlink {
                return Ok(());
            }
            let is_dir = attr.kind == FileKind::Directory;
            let perm = Some(mode.applied(attr.perm, is_dir, umask));
            inode.fs.setattr(inode.ino, &SetAttr { perm, ..SetAttr::default() })?;
            Ok(())
        };
        for path in self.paths.iter().take_while(|_| !interrupt::came()) {
            match tree.find(path, true) {
                Ok(inode) if self.recursive => {
                    walk(tree, path, inode, &mut |_, inode| set(inode));
                }
                found => {
                    if let Err(error) = found.and_then(|inode| set(&inode)) {
                        tree.report(show(path), error);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a file's owner becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Owner {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Owner {
    /// Refuses what names no owner of any volume.
    pub fn check(text: &str) -> Result<()> {
        match Self::parse(text, &|_| Err(FsError::NotFound)) {
            Err(why) if why.starts_with("bad") => Err(Failure::usage(why)),
            _ => Ok(()),
        }
    }

    /// Reads USER, USER:GROUP, :GROUP or `USER:`. `file` gives a file of the volume.
    pub fn parse(
        text: &str,
        file: &dyn Fn(&str) -> extol_vfs::Result<Vec<u8>>,
    ) -> std::result::Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        if user.is_empty() && group.is_none_or(str::is_empty) {
            return Err(format!("bad owner {text:?}: give USER, USER:GROUP or :GROUP"));
        }
        let passwd = OnceCell::new();
        let in_passwd = |column| {
            let text = passwd.get_or_init(|| file("/etc/passwd").unwrap_or_default());
            looked_up(text, user, column)
        };
        let uid = match user {
            "" => None,
            user => Some(match number(user)? {
                Some(uid) => uid,
                None => in_passwd(2).ok_or_else(|| unknown(user, "user", "passwd"))?,
            }),
        };
        let gid = match group {
            None => None,
            Some("") => {
                let why = format!("{user:?} has no group in /etc/passwd on the volume: name one");
                Some(in_passwd(3).ok_or(why)?)
            }
            Some(group) => Some(match number(group)? {
                Some(gid) => gid,
                None => looked_up(&file("/etc/group").unwrap_or_default(), group, 2)
                    .ok_or_else(|| unknown(group, "group", "group"))?,
            }),
        };
        Ok(Self { uid, gid })
    }
}

fn unknown(name: &str, what: &str, file: &str) -> String {
    format!("there is no {what} {name:?} in /etc/{file} on the volume: give a number")
}

/// An id, or none if it is a name.
fn number(text: &str) -> std::result::Result<Option<u32>, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    // The largest number means "none".
    let id = text.parse().ok().filter(|id| *id != u32::MAX);
    id.map(Some).ok_or_else(|| format!("bad id {text:?}: it is larger than {}", u32::MAX - 1))
}

/// The number in a column of the line of a name.
fn looked_up(text: &[u8], name: &str, column: usize) -> Option<u32> {
    let mut lines = text.split(|&byte| byte == b'\n');
    lines.find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        (fields.next() == Some(name.as_bytes())).then_some(())?;
        std::str::from_utf8(fields.nth(column - 1)?).ok()?.parse().ok()
    })
}

/// Largest table of users that is read.
const MAX_TABLE: u64 = 1 << 20;

impl Tree {
    /// What a file of the volume holds.
    pub(super) fn table(&self, path: &str) -> extol_vfs::Result<Vec<u8>> {
        let inode = self.find(OsStr::new(path), true)?;
        let attr = inode.attr()?;
        if attr.kind != FileKind::Regular || attr.size > MAX_TABLE {
            return Err(FsError::NotFound);
        }
        let mut bytes = vec![0; attr.size as usize];
        let len = inode.fs.read(inode.ino, 0, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Changes the owner of a file as chown(2) does.
    pub(super) fn chown(&self, inode: &InodeRef<'_>, owner: Owner) -> extol_vfs::Result<()> {
        if !inode.is_dir()? {
            self.volume.kill_privileges(inode.ino, false)?;
        }
        let set = SetAttr { uid: owner.uid, gid: owner.gid, ..SetAttr::default() };
        inode.fs.setattr(inode.ino, &set).map(drop)
    }
}

impl Change for ChownArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        Owner::check(&self.owner)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let owner = match Owner::parse(&self.owner, &|path| tree.table(path)) {
            Ok(owner) => owner,
            Err(why) => return tree.reported(why),
        };
        let follow = !self.no_dereference && !self.recursive;
        for path in self.paths.iter().take_while(|_| !interrupt::came()) {
            match tree.find(path, follow) {
                Ok(inode) if self.recursive => {
                    walk(tree, path, inode, &mut |_, inode| tree.chown(inode, owner));
                }
                found => {
                    if let Err(error) = found.and_then(|inode| tree.chown(&inode, owner)) {
                        tree.report(show(path), error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl TouchArgs {
    /// The times that the arguments name; none: those of a file.
    fn times(&self) -> std::result::Result<Option<Times>, String> {
        let time = match (&self.date, &self.stamp, &self.reference) {
            (Some(date), ..) => SetTime::At(when::date(date)?),
            (_, Some(stamp), _) => SetTime::At(when::stamp(stamp, when::this_year())?),
            (_, _, Some(_)) => return Ok(None),
            _ => SetTime::Now,
        };
        Ok(Some(Times { access: time, modification: time }))
    }

    fn one(
        &self,
        tree: &Tree,
        path: &Path,
        times: Times,
        owner: Owner,
    ) -> std::result::Result<(), Problem> {
        let make = (!self.no_create && !self.no_dereference).then_some(owner);
        let found = find_or_make(tree, path.as_os_str(), !self.no_dereference, make)?;
        let Some(inode) = found else {
            return if self.no_create { Ok(()) } else { Err(FsError::NotFound.into()) };
        };
        let set = SetAttr {
            atime: (self.access || !self.modification).then_some(times.access),
            mtime: (self.modification || !self.access).then_some(times.modification),
            ..SetAttr::default()
        };
        inode.fs.setattr(inode.ino, &set)?;
        Ok(())
    }
}

impl Change for TouchArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        self.owner.as_deref().map_or(Ok(()), Owner::check)?;
        self.times().map(drop).map_err(Failure::usage)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let owner = match tree.owner(self.owner.as_deref()) {
            Ok(owner) => owner,
            Err(why) => return tree.reported(why),
        };
        let times = match (self.times().map_err(Failure::usage)?, &self.reference) {
            (Some(times), _) => times,
            (None, reference) => {
                let path = reference.as_deref().unwrap_or_default();
                match tree.find(path, !self.no_dereference).and_then(|inode| inode.attr()) {
                    Ok(attr) => Times {
                        access: SetTime::At(attr.atime),
                        modification: SetTime::At(attr.mtime),
                    },
                    Err(error) => return tree.reported(tree.about(path, error)),
                }
            }
        };
        for path in self.paths.iter().take_while(|_| !interrupt::came()) {
            if let Err(problem) = self.one(tree, Path::new(path), times, owner) {
                tree.report(path.shown(), problem);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners() {
        let file = |path: &str| match path {
            "/etc/passwd" => Ok(b"root:x:0:0::/:/bin/sh\nada:x:1000:100\nbad:x:y:z\n".to_vec()),
            "/etc/group" => Ok(b"users:x:100:ada\n".to_vec()),
            _ => Err(FsError::NotFound),
        };
        let owner = |text| Owner::parse(text, &file);
        let some = |uid, gid| Ok(Owner { uid, gid });
        assert_eq!(owner("0:0"), some(Some(0), Some(0)));
        assert_eq!(owner("ada"), some(Some(1000), None));
        assert_eq!(owner("ada:"), some(Some(1000), Some(100)));
        assert_eq!(owner("ada:users"), some(Some(1000), Some(100)));
        assert_eq!(owner(":users"), some(None, Some(100)));
        assert_eq!(owner(":7"), some(None, Some(7)));
        for text in ["", ":", "eve", "ada:eve", "bad", "4294967295", "7:", ":99999999999"] {
            assert!(owner(text).is_err(), "{text}");
        }
    }
}
