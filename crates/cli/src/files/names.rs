//! `extol mv` and `extol ln`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol_cli_common::{Failure, Result};
use extol_vfs::{FsError, NewNode, RenameFlags};

use super::attrs::Owner;
use super::change::{Change, Problem};
use super::put::{give_name, with_temporary};
use super::{InodeRef, Tree, ends_with_name, show, sources_and_destination};
use crate::args::{LnArgs, MvArgs, VolumeArgs};
use crate::interrupt;

/// What the operands of mv and of ln are.
const MOVED: &str = "what to move, and where to";
const LINKED: &str = "the target, and the name of the link";

/// Where the new names go.
enum Place<'t> {
    /// Into this directory, each with its own last name.
    Into(InodeRef<'t>),
    /// The path is the name.
    Name,
}

impl<'t> Place<'t> {
    /// What a destination is. `own`: it is the name even if it is a directory. `follow`: a link to
    /// a directory is one.
    fn of(tree: &'t Tree, dest: &OsStr, own: bool, follow: bool) -> extol_vfs::Result<Self> {
        if own {
            return Ok(Self::Name);
        }
        match tree.find(dest, follow) {
            Ok(inode) if inode.is_dir()? => Ok(Self::Into(inode)),
            Ok(_) | Err(FsError::NotFound) => Ok(Self::Name),
            Err(error) => Err(error),
        }
    }

    /// The path of what `name` is moved to, for messages.
    fn shown(&self, dest: &OsStr, name: &[u8]) -> String {
        match self {
            Self::Into(_) => show(Path::new(dest).join(OsStr::from_bytes(name)).as_os_str()),
            Self::Name => show(dest),
        }
    }

    fn is_name(&self) -> bool {
        matches!(self, Self::Name)
    }
}

/// Says what is wrong with several sources and a destination that is no directory.
fn check_many(sources: usize, place: &Place<'_>, dest: &OsStr) -> std::result::Result<(), String> {
    if sources > 1 && place.is_name() {
        return Err(format!("{}: is no directory, and several paths are given", show(dest)));
    }
    Ok(())
}

impl Change for MvArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        let (sources, dest) = sources_and_destination(&self.paths, MOVED)?;
        let option = if self.exchange { "--exchange" } else { "-T" };
        match (sources, self.no_target_directory || self.exchange) {
            ([_, _, ..], true) => Err(Failure::usage(format_args!(
                "{option} takes two names, and {} is one more",
                show(dest)
            ))),
            _ => Ok(()),
        }
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let (sources, dest) = sources_and_destination(&self.paths, MOVED)?;
        let own = self.no_target_directory || self.exchange;
        let place = Place::of(tree, dest, own, true).map_err(|error| tree.about(dest, error));
        let place = match place {
            Ok(place) => place,
            Err(problem) => return tree.reported(problem),
        };
        if let Err(problem) = check_many(sources.len(), &place, dest) {
            return tree.reported(problem);
        }
        for source in sources.iter().take_while(|_| !interrupt::came()) {
            if let Err(problem) = self.one(tree, source, dest, &place) {
                tree.report(show(source), problem);
            }
        }
        Ok(())
    }
}

impl MvArgs {
    fn one(
        &self,
        tree: &Tree,
        source: &OsStr,
        dest: &OsStr,
        place: &Place<'_>,
    ) -> std::result::Result<(), Problem> {
        let (from, name) = tree.find_parent(source)?;
        let moved = from.child(name)?;
        let is_dir = moved.is_dir()?;
        if source.as_bytes().ends_with(b"/") && !is_dir {
            return Err(FsError::NotADirectory.into());
        }
        let named;
        let (to, new_name) = match place {
            Place::Into(dir) => (dir, name),
            Place::Name => {
                let found = tree.find_parent(dest).map_err(|error| tree.about(dest, error))?;
                named = found.0;
                (&named, found.1)
            }
        };
        if place.is_name() && dest.as_bytes().ends_with(b"/") && !is_dir {
            return Err(tree.about(dest, FsError::NotADirectory).into());
        }
        let flags = match (self.exchange, self.no_clobber) {
            (true, _) => RenameFlags::EXCHANGE,
            (false, true) => RenameFlags::NOREPLACE,
            (false, false) => RenameFlags::empty(),
        };
        let there = to.child(new_name).ok().map(|inode| inode.ino);
        if there == Some(moved.ino) {
            return Err("both are the same file".into());
        }
        match from.fs.rename(from.ino, name, to.ino, new_name, flags) {
            Err(FsError::Exists) if self.no_clobber => Ok(()),
            Err(FsError::Invalid(_)) if is_dir => Err("cannot be moved into itself".into()),
            Err(FsError::IsADirectory) if !is_dir => {
                Err(format!("is no directory, and {} is one", place.shown(dest, name)).into())
            }
            Err(FsError::NotADirectory) if is_dir => {
                Err(format!("is a directory, and {} is none", place.shown(dest, name)).into())
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }
}

impl Change for LnArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        self.owner.as_deref().map_or(Ok(()), Owner::check)?;
        sources_and_destination(&self.paths, LINKED).map(|_| ())
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let (targets, dest) = sources_and_destination(&self.paths, LINKED)?;
        let owner = match tree.owner(self.owner.as_deref()) {
            Ok(owner) => owner,
            Err(why) => return tree.reported(why),
        };
        let follow = !self.no_dereference;
        let place = Place::of(tree, dest, self.no_target_directory, follow);
        let place = match place.map_err(|error| tree.about(dest, error)) {
            Ok(place) => place,
            Err(problem) => return tree.reported(problem),
        };
        if let Err(problem) = check_many(targets.len(), &place, dest) {
            return tree.reported(problem);
        }
        for target in targets.iter().take_while(|_| !interrupt::came()) {
            if let Err(problem) = self.one(tree, target, dest, &place, owner) {
                // Of a symbolic link the target is any text; it is the new name that fails.
                let what = if self.symbolic && place.is_name() { dest } else { target };
                tree.report(show(what), problem);
            }
        }
        Ok(())
    }
}

impl LnArgs {
    fn one(
        &self,
        tree: &Tree,
        target: &OsStr,
        dest: &OsStr,
        place: &Place<'_>,
        owner: Owner,
    ) -> std::result::Result<(), Problem> {
        let named;
        let (dir, name) = match place {
            Place::Into(dir) => (dir, last_name(target).ok_or("has no name")?),
            Place::Name => {
                named = tree.find_parent(dest).map_err(|error| tree.about(dest, error))?;
                (&named.0, named.1)
            }
        };
        let over = match dir.child(name) {
            Ok(there) if there.is_dir()? => return Err(FsError::Exists.into()),
            Ok(_) if !self.force => return Err(FsError::Exists.into()),
            Ok(_) => true,
            Err(FsError::NotFound) => false,
            Err(error) => return Err(error.into()),
        };
        if !self.symbolic {
            let node = tree.find(target, false)?;
            if node.is_dir()? {
                return Err("is a directory, which has one name: use -s".into());
            }
            return give_name(&node, dir, name, over);
        }
        let make = |name: &[u8]| -> std::result::Result<(), Problem> {
            let new = NewNode::Symlink(target.as_bytes().to_vec());
            dir.make(name, new, 0o777, owner)?;
            Ok(())
        };
        if !over {
            return make(name);
        }
        let ((), temporary) = with_temporary(make)?;
        let renamed = dir.fs.rename(dir.ino, &temporary, dir.ino, name, RenameFlags::empty());
        if renamed.is_err() {
            let _ = dir.fs.unlink(dir.ino, &temporary);
        }
        Ok(renamed?)
    }
}

/// The last name of a path, if it has one.
fn last_name(path: &OsStr) -> Option<&[u8]> {
    let names = path.as_bytes().rsplit(|&byte| byte == b'/');
    names.into_iter().find(|name| !name.is_empty()).filter(|_| ends_with_name(path))
}
