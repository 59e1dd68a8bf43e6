//! Attributes, and the file system as a whole: GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use extol_vfs::{Attr, FileKind, SetAttr, SetTime};

use super::{After, put_status, read_handle};
use crate::access::{Caller, EXECUTE, NO_ID, READ, WRITE};
use crate::attrs::{self, Change};
use crate::export::{Export, Held};
use crate::limits;
use crate::status::{Result, Status};
use crate::xdr::{self, Args, Out};

/// Flags of an inode.
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const CASEFOLD: u32 = 0x4000_0000;

pub(super) fn getattr(
    export: &Export,
    _caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    args.end()?;
    let held = export.hold(handle);
    put_status(out, &held);
    if let Ok(held) = held {
        attrs::put(out, &held.attr, export.handles.volume());
    }
    Ok(After::Nothing)
}

pub(super) fn setattr(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    let set = attrs::settings(args)?;
    let guard = args.optional(attrs::time)?;
    args.end()?;
    let mut change = Change::default();
    let done = export.change(handle, &mut change, |file| {
        if guard.is_some_and(|ctime| !attrs::is_told(file.attr.ctime, ctime)) {
            return Err(Status::NOT_SYNC);
        }
        apply(export, caller, &file.attr, set)?;
        export.hold(handle)
    });
    put_status(out, &done);
    export.put_change(out, &change);
    Ok(After::of(done))
}

/// Sets attributes that the caller may set.
fn apply(export: &Export, caller: &Caller, attr: &Attr, mut set: SetAttr) -> Result<()> {
    check_settings(export, caller, attr, &set)?;
    set.perm = set.perm.map(|perm| match attr.kind {
        FileKind::Symlink => attr.perm,
        _ => caller.allowed_bits(perm, set.gid.unwrap_or(attr.gid)),
    });
    if set.size.is_some() && set.mtime.is_none() {
        set.mtime = Some(SetTime::Now);
    }
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    if changes_owner || set.size.is_some() {
        // First, so that no crash leaves a file with a new owner and old privileges.
        export.take_privileges(caller, attr, changes_owner)?;
    }
    if set != SetAttr::default() {
        export.fs.setattr(attr.id.ino, &set)?;
    }
    Ok(())
}

/// Err for the number that stands for "no owner".
pub(super) fn check_ids(set: &SetAttr) -> Result<()> {
    let is_none = |id: Option<u32>| id == Some(NO_ID);
    if is_none(set.uid) || is_none(set.gid) { Err(Status::INVALID) } else { Ok(()) }
}

/// Err unless the caller may make these changes.
fn check_settings(export: &Export, caller: &Caller, attr: &Attr, set: &SetAttr) -> Result<()> {
    check_ids(set)?;
    let refuse_unless = |may: bool| if may { Ok(()) } else { Err(Status::PERMISSION) };
    if let Some(uid) = set.uid {
        refuse_unless(caller.is_root() || (caller.uid == attr.uid && uid == attr.uid))?;
    }
    if let Some(gid) = set.gid {
        let may_give = caller.uid == attr.uid && (gid == attr.gid || caller.is_in(gid));
        refuse_unless(caller.is_root() || may_give)?;
    }
    if set.perm.is_some() {
        refuse_unless(caller.owns(attr))?;
    }
    let times = [set.atime, set.mtime];
    if times.iter().any(|time| matches!(time, Some(SetTime::At(_)))) {
        refuse_unless(caller.owns(attr))?;
    } else if times.iter().any(Option::is_some) && !caller.owns(attr) {
        caller.check(&*export.fs, attr, WRITE)?;
    }
    if set.size.is_some() {
        match attr.kind {
            FileKind::Regular => caller.check_open(&*export.fs, attr, WRITE)?,
            FileKind::Directory => return Err(Status::IS_A_DIRECTORY),
            _ => return Err(Status::INVALID),
        }
    }
    Ok(())
}

impl Export {
    /// Takes from a file what a change of its contents or its owner takes: set-id bits, file
    /// capabilities. Root may change contents without that.
    pub(super) fn take_privileges(
        &self,
        caller: &Caller,
        attr: &Attr,
        changes_owner: bool,
    ) -> Result<()> {
        let may_have = attr.kind != FileKind::Directory && attr.perm & 0o6111 != 0;
        if !may_have || (caller.is_root() && !changes_owner) {
            return Ok(());
        }
        if attr.flags & (IMMUTABLE | APPEND) != 0 && changes_owner {
            return Err(Status::PERMISSION);
        }
        let outsider = !caller.is_root() && !caller.is_in(attr.gid);
        Ok(self.fs.kill_privileges(attr.id.ino, outsider)?)
    }
}

/// Bits of ACCESS.
mod access_bit {
    pub(super) const READ: u32 = 1;
    pub(super) const LOOKUP: u32 = 2;
    pub(super) const MODIFY: u32 = 4;
    pub(super) const EXTEND: u32 = 8;
    pub(super) const DELETE: u32 = 16;
    pub(super) const EXECUTE: u32 = 32;
    pub(super) const CHANGES: u32 = MODIFY | EXTEND | DELETE;
}

pub(super) fn access(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let (handle, wanted) = (read_handle(args)?, args.u32()?);
    args.end()?;
    let mut attr = None;
    let allowed = export.hold(handle).and_then(|held| {
        attr = Some(held.attr.clone());
        allowed(export, caller, &held.attr)
    });
    put_status(out, &allowed);
    export.put_attr(out, attr.as_ref());
    if let Ok(allowed) = allowed {
        out.u32(allowed & wanted);
    }
    Ok(After::Nothing)
}

fn allowed(export: &Export, caller: &Caller, attr: &Attr) -> Result<u32> {
    let is_dir = attr.kind == FileKind::Directory;
    let mut bits = 0;
    for (right, its_bits) in [
        (READ, access_bit::READ),
        (WRITE, access_bit::CHANGES),
        (EXECUTE, access_bit::LOOKUP | access_bit::EXECUTE),
    ] {
        if caller.may(&*export.fs, attr, right)? {
            bits |= its_bits;
        }
    }
    if export.config.read_only || attr.flags & IMMUTABLE != 0 {
        bits &= !access_bit::CHANGES;
    }
    let foreign =
        if is_dir { access_bit::EXECUTE } else { access_bit::LOOKUP | access_bit::DELETE };
    Ok(bits & !foreign)
}

/// The inode that a request about the whole file system names.
fn root(export: &Export, args: &mut Args<'_>) -> xdr::Result<Result<Held>> {
    let handle = read_handle(args)?;
    args.end()?;
    Ok(export.hold(handle))
}

pub(super) fn fsstat(
    export: &Export,
    _caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let held = root(export, args)?;
    let stat = held.as_ref().map_err(|status| *status).and_then(|_| Ok(export.fs.statfs()?));
    put_status(out, &stat);
    export.put_attr(out, held.ok().as_ref().map(|held| &held.attr));
    if let Ok(stat) = stat {
        let bytes = |blocks: u64| blocks.saturating_mul(stat.block_size.into());
        out.u64(bytes(stat.blocks)).u64(bytes(stat.blocks_free)).u64(bytes(stat.blocks_available));
        out.u64(stat.inodes).u64(stat.inodes_free).u64(stat.inodes_free).u32(0);
    }
    Ok(After::Nothing)
}

/// What the file system can: hard links, symbolic links, the same everywhere, times are kept.
const PROPERTIES: u32 = 1 | 2 | 8 | 16;
/// Requests are best as multiples of this.
const MULTIPLE: u32 = 4096;
/// Wanted bytes of a READDIR.
const LISTING: u32 = 64 << 10;
/// Blocks of a file, at most.
const MOST_BLOCKS: u64 = u32::MAX as u64;

pub(super) fn fsinfo(
    export: &Export,
    _caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let held = root(export, args)?;
    put_status(out, &held);
    let is_there = held.is_ok();
    export.put_attr(out, held.ok().as_ref().map(|held| &held.attr));
    if is_there {
        let block_size = export.fs.statfs().map_or(1024, |stat| stat.block_size);
        out.u32(limits::DATA).u32(limits::DATA).u32(MULTIPLE);
        out.u32(limits::DATA).u32(limits::DATA).u32(MULTIPLE);
        out.u32(LISTING).u64(MOST_BLOCKS * u64::from(block_size)).u32(0).u32(1).u32(PROPERTIES);
    }
    Ok(After::Nothing)
}

const MOST_LINKS: u32 = 65000;
const NAME_MAX: u32 = 255;

pub(super) fn pathconf(
    export: &Export,
    _caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let held = root(export, args)?;
    put_status(out, &held);
    export.put_attr(out, held.as_ref().ok().map(|held| &held.attr));
    if let Ok(held) = held {
        let folds = held.attr.flags & CASEFOLD != 0;
        out.u32(MOST_LINKS).u32(NAME_MAX).bool(true).bool(true).bool(folds).bool(true);
    }
    Ok(After::Nothing)
}
