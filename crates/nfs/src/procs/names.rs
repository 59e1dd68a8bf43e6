//! Names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
//!
//! A new name is durable when its inode is, a removed one when its directory is.

use extol_vfs::{Attr, FileKind, FsError, NewNode, Rdev, RenameFlags, SetAttr, SetTime, Timestamp};

use super::files::check_ids;
use super::{After, TARGET, is_dots, put_status, read_handle, read_place};
use crate::access::{Caller, EXECUTE, WRITE};
use crate::attrs::{self, Before, Change};
use crate::export::{Export, Held};
use crate::status::{Result, Status};
use crate::xdr::{self, Args, Garbage, Out};

const SET_GID: u16 = 0o2000;

pub(super) fn lookup(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let (handle, name) = read_place(args)?;
    args.end()?;
    let mut dir = None;
    let found = export.hold(handle).and_then(|held| {
        dir = Some(held.attr.clone());
        if held.attr.kind != FileKind::Directory {
            return Err(Status::NOT_A_DIRECTORY);
        }
        caller.check(&*export.fs, &held.attr, EXECUTE)?;
        export.find(&held.attr, name)
    });
    put_status(out, &found);
    if let Ok(found) = &found {
        out.opaque(&export.handle(found.attr.id));
        export.put_attr(out, Some(&found.attr));
    }
    export.put_attr(out, dir.as_ref());
    Ok(After::Nothing)
}

/// How CREATE makes a file.
enum How {
    /// Or opens the one that is there.
    Unchecked(SetAttr),
    /// Or fails.
    Guarded(SetAttr),
    /// Or fails, unless the same request has made it.
    Exclusive([u8; 8]),
}

pub(super) fn create(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let place = read_place(args)?;
    let how = match args.u32()? {
        0 => How::Unchecked(attrs::settings(args)?),
        1 => How::Guarded(attrs::settings(args)?),
        2 => How::Exclusive(args.fixed()?),
        _ => return Err(Garbage),
    };
    args.end()?;
    Ok(made(export, place, out, |dir, name| {
        match (find_existing(export, caller, dir, name)?, how) {
            (Some(_), How::Guarded(_)) => Err(Status::EXISTS),
            (Some(held), How::Unchecked(set)) => open_existing(export, caller, held, set.size),
            (Some(held), How::Exclusive(verifier)) => same_request(held, verifier),
            (None, How::Unchecked(set) | How::Guarded(set)) => {
                make(export, caller, dir, name, NewNode::Regular, &set)
            }
            (None, How::Exclusive(verifier)) => {
                let [atime, mtime] = times_of(verifier).map(|time| Some(SetTime::At(time)));
                let set = SetAttr { perm: Some(0), atime, mtime, ..SetAttr::default() };
                make(export, caller, dir, name, NewNode::Regular, &set)
            }
        }
    }))
}

pub(super) fn mkdir(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let place = read_place(args)?;
    let set = SetAttr { size: None, ..attrs::settings(args)? };
    args.end()?;
    Ok(made(export, place, out, |dir, name| {
        make(export, caller, dir, name, NewNode::Directory, &set)
    }))
}

pub(super) fn symlink(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let place = read_place(args)?;
    let set = attrs::settings(args)?;
    let target = args.opaque(TARGET)?;
    args.end()?;
    // Permission bits of a symbolic link mean nothing, and are all set.
    let set = SetAttr { size: None, perm: Some(0o777), ..set };
    Ok(made(export, place, out, |dir, name| {
        make(export, caller, dir, name, NewNode::Symlink(target.to_vec()), &set)
    }))
}

pub(super) fn mknod(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let place = read_place(args)?;
    let kind = args.u32()?;
    let mut set = SetAttr::default();
    let mut new = Err(Status::BAD_TYPE);
    if let 3 | 4 | 6 | 7 = kind {
        set = SetAttr { size: None, ..attrs::settings(args)? };
        new = Ok(match kind {
            3 => NewNode::BlockDevice(device(args)?),
            4 => NewNode::CharDevice(device(args)?),
            6 => NewNode::Socket,
            _ => NewNode::Fifo,
        });
        args.end()?;
    }
    Ok(made(export, place, out, |dir, name| {
        let new = new?;
        if let NewNode::BlockDevice(rdev) | NewNode::CharDevice(rdev) = new {
            if !caller.is_root() {
                return Err(Status::PERMISSION);
            }
            // (Inodes have 12 and 20 bits for them.)
            if rdev.major > 0xFFF || rdev.minor > 0xF_FFFF {
                return Err(Status::INVALID);
            }
        }
        make(export, caller, dir, name, new, &set)
    }))
}

fn device(args: &mut Args<'_>) -> xdr::Result<Rdev> {
    Ok(Rdev { major: args.u32()?, minor: args.u32()? })
}

/// Makes something in a directory, and writes the result of all procedures that do.
fn made(
    export: &Export,
    (handle, name): (&[u8], &[u8]),
    out: &mut Out,
    work: impl FnOnce(&Attr, &[u8]) -> Result<Held>,
) -> After {
    let mut change = Change::default();
    let made = export.change(handle, &mut change, |dir| match dir.attr.kind {
        FileKind::Directory if is_dots(name) => Err(Status::EXISTS),
        FileKind::Directory => work(&dir.attr, name),
        _ => Err(Status::NOT_A_DIRECTORY),
    });
    put_status(out, &made);
    if let Ok(made) = &made {
        out.bool(true).opaque(&export.handle(made.attr.id));
        export.put_attr(out, Some(&made.attr));
    }
    export.put_change(out, &change);
    After::of(made)
}

fn find_existing(
    export: &Export,
    caller: &Caller,
    dir: &Attr,
    name: &[u8],
) -> Result<Option<Held>> {
    caller.check(&*export.fs, dir, EXECUTE)?;
    match export.fs.lookup(dir.id.ino, name) {
        Ok(attr) => Ok(Some(Held::taken(&export.fs, attr))),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The file that CREATE finds instead; cut to a size, if one is given.
fn open_existing(
    export: &Export,
    caller: &Caller,
    mut held: Held,
    size: Option<u64>,
) -> Result<Held> {
    if held.attr.kind == FileKind::Regular && size.is_some() {
        caller.check_open(&*export.fs, &held.attr, WRITE)?;
        export.take_privileges(caller, &held.attr, false)?;
        let set = SetAttr { size, mtime: Some(SetTime::Now), ..SetAttr::default() };
        held.attr = export.fs.setattr(held.ino(), &set)?;
    }
    Ok(held)
}

/// The verifier of an exclusive CREATE is kept in the times of the file, until the client sets
/// them. (They have no sign, so that they survive on inodes with times of 32 bits.)
fn times_of(verifier: [u8; 8]) -> [Timestamp; 2] {
    let [a, b, c, d, e, f, g, h] = verifier;
    [[a, b, c, d], [e, f, g, h]].map(|word| {
        let sec = u32::from_be_bytes(word) & i32::MAX.unsigned_abs();
        Timestamp { sec: sec.into(), nsec: 0 }
    })
}

fn same_request(held: Held, verifier: [u8; 8]) -> Result<Held> {
    let Attr { kind, size, atime, mtime, .. } = &held.attr;
    let is_new = *kind == FileKind::Regular && *size == 0;
    let same = [atime.sec, mtime.sec] == times_of(verifier).map(|time| time.sec);
    if is_new && same { Ok(held) } else { Err(Status::EXISTS) }
}

/// Makes an inode with a name, and gives it the attributes that the caller may give.
fn make(
    export: &Export,
    caller: &Caller,
    dir: &Attr,
    name: &[u8],
    new: NewNode,
    set: &SetAttr,
) -> Result<Held> {
    check_ids(set)?;
    caller.check(&*export.fs, dir, WRITE | EXECUTE)?;
    let group = if dir.perm & SET_GID != 0 { dir.gid } else { caller.gid };
    let perm = set.perm.unwrap_or(0);
    let perm = match new {
        NewNode::Directory => perm,
        _ => caller.allowed_bits(perm, group),
    };
    let fs = &export.fs;
    let attr = fs.create(dir.id.ino, name, new, perm, 0, caller.creds())?;
    let mut held = Held::taken(fs, attr);
    let rest = SetAttr {
        perm: None,
        uid: set.uid.filter(|_| caller.is_root()),
        gid: set.gid.filter(|gid| caller.is_root() || caller.is_in(*gid)),
        ..*set
    };
    let rest = SetAttr { gid: rest.gid.filter(|gid| *gid != held.attr.gid), ..rest };
    if rest != SetAttr::default() {
        held.attr = fs.setattr(held.ino(), &rest)?;
    }
    Ok(held)
}

pub(super) fn remove(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    removed(export, caller, args, out, |dir, name| export.fs.unlink(dir, name))
}

pub(super) fn rmdir(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    removed(export, caller, args, out, |dir, name| export.fs.rmdir(dir, name))
}

fn removed(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
    remove: impl FnOnce(u32, &[u8]) -> extol_vfs::Result<()>,
) -> xdr::Result<After> {
    let (handle, name) = read_place(args)?;
    args.end()?;
    let mut change = Change::default();
    let done = export.change(handle, &mut change, |dir| {
        check_removal(export, caller, &dir.attr, name)?;
        remove(dir.ino(), name)?;
        export.hold(handle)
    });
    put_status(out, &done);
    export.put_change(out, &change);
    Ok(After::of(done))
}

/// Err unless the caller may take a name out of a directory.
fn check_removal(export: &Export, caller: &Caller, dir: &Attr, name: &[u8]) -> Result<()> {
    if dir.kind != FileKind::Directory {
        return Err(Status::NOT_A_DIRECTORY);
    }
    if is_dots(name) {
        return Err(Status::INVALID);
    }
    caller.check(&*export.fs, dir, WRITE | EXECUTE)?;
    // Only where it decides: a reference on the target would keep its inode until it is gone.
    if dir.perm & 0o1000 == 0 || caller.owns(dir) {
        return Ok(());
    }
    match find_existing(export, caller, dir, name)? {
        Some(target) => caller.check_sticky(dir, &target.attr),
        None => Ok(()),
    }
}

pub(super) fn rename(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let (from, to) = (read_place(args)?, read_place(args)?);
    args.end()?;
    let mut changes = [Change::default(), Change::default()];
    let done = renamed(export, caller, from, to, &mut changes);
    put_status(out, &done);
    changes.iter().for_each(|change| export.put_change(out, change));
    Ok(After::of(done))
}

/// Renames; gives the inode that has the new name.
fn renamed(
    export: &Export,
    caller: &Caller,
    (from_handle, from): (&[u8], &[u8]),
    (to_handle, to): (&[u8], &[u8]),
    changes: &mut [Change; 2],
) -> Result<Held> {
    let fs = &export.fs;
    let (mut from_dir, mut to_dir) = (export.hold(from_handle)?, export.hold(to_handle)?);
    let inodes = [from_dir.ino(), to_dir.ino()];
    let _locks = export.lock_both(inodes[0], inodes[1]);
    from_dir.attr = fs.getattr(inodes[0])?;
    to_dir.attr = fs.getattr(inodes[1])?;
    changes[0].before = Some(Before::of(&from_dir.attr));
    changes[1].before = Some(Before::of(&to_dir.attr));
    let work = || {
        export.check_writable()?;
        check_removal(export, caller, &from_dir.attr, from)?;
        check_removal(export, caller, &to_dir.attr, to)?;
        let source = export.find(&from_dir.attr, from)?;
        if source.attr.kind == FileKind::Directory && inodes[0] != inodes[1] {
            // Its entry for the parent changes.
            caller.check(&**fs, &source.attr, WRITE)?;
        }
        fs.rename(inodes[0], from, inodes[1], to, RenameFlags::empty())?;
        Ok(source)
    };
    let done = work();
    for (change, ino) in changes.iter_mut().zip(inodes) {
        change.after = fs.getattr(ino).ok();
    }
    done
}

pub(super) fn link(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let file = read_handle(args)?;
    let (handle, name) = read_place(args)?;
    args.end()?;
    let mut change = Change::default();
    let mut known = None;
    let done = export.hold(file).and_then(|held| {
        known = Some(held.attr.clone());
        export.change(handle, &mut change, |dir| {
            if dir.attr.kind != FileKind::Directory {
                return Err(Status::NOT_A_DIRECTORY);
            }
            if held.attr.kind == FileKind::Directory {
                return Err(Status::PERMISSION);
            }
            if is_dots(name) {
                return Err(Status::EXISTS);
            }
            caller.check(&*export.fs, &dir.attr, WRITE | EXECUTE)?;
            let linked = export.fs.link(held.ino(), dir.ino(), name)?;
            Ok(Held::taken(&export.fs, linked))
        })
    });
    put_status(out, &done);
    export.put_attr(out, done.as_ref().map_or(known.as_ref(), |held| Some(&held.attr)));
    export.put_change(out, &change);
    Ok(After::of(done))
}
