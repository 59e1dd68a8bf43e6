//! Directories: READDIR and READDIRPLUS.
//!
//! Cookies are the file system's own and stay good while the directory changes, so their verifier
//! is the same for all directories of the volume.

use extol_vfs::{Attr, DirEntry, FileKind, FsError};

use super::{After, put_status, read_handle};
use crate::access::{Caller, EXECUTE, READ};
use crate::export::{Export, Held};
use crate::limits;
use crate::status::{Result, Status};
use crate::xdr::{self, Args, Out};

pub(super) fn readdir(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    let (cookie, verifier) = (args.u64()?, args.fixed()?);
    let most = args.u32()?;
    args.end()?;
    let wanted = Wanted { cookie, verifier, most, plus: false };
    Ok(listed(export, caller, handle, &wanted, out))
}

pub(super) fn readdirplus(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    let (cookie, verifier) = (args.u64()?, args.fixed()?);
    // Bytes of names, of which the other limit is enough.
    args.u32()?;
    let most = args.u32()?;
    args.end()?;
    let wanted = Wanted { cookie, verifier, most, plus: true };
    Ok(listed(export, caller, handle, &wanted, out))
}

/// What is to be listed.
struct Wanted {
    /// From where.
    cookie: u64,
    verifier: [u8; 8],
    /// Most bytes of the result.
    most: u32,
    /// With attributes and handles.
    plus: bool,
}

fn listed(
    export: &Export,
    caller: &Caller,
    handle: &[u8],
    wanted: &Wanted,
    out: &mut Out,
) -> After {
    let start = out.len();
    let mut dir = None;
    let listed = export.hold(handle).and_then(|held| {
        dir = Some(held.attr.clone());
        list(export, caller, &held.attr, wanted, out)
    });
    if listed.is_err() {
        out.truncate(start);
        put_status(out, &listed);
        export.put_attr(out, dir.as_ref());
    }
    After::Nothing
}

fn list(
    export: &Export,
    caller: &Caller,
    dir: &Attr,
    wanted: &Wanted,
    out: &mut Out,
) -> Result<()> {
    if dir.kind != FileKind::Directory {
        return Err(Status::NOT_A_DIRECTORY);
    }
    caller.check(&*export.fs, dir, READ)?;
    let verifier = export.handles.volume().to_be_bytes();
    if wanted.cookie != 0 && wanted.verifier != verifier {
        return Err(Status::BAD_COOKIE);
    }
    let with_attrs = wanted.plus && caller.may(&*export.fs, dir, EXECUTE)?;
    // The end of the list takes two words.
    let most = (wanted.most.min(limits::LISTING) as usize).saturating_sub(8);
    let start = out.len();
    out.u32(0);
    export.put_attr(out, Some(dir));
    out.fixed(&verifier);
    let first = out.len();
    let mut is_end = true;
    export.fs.readdir(dir.id.ino, wanted.cookie, &mut |entry| {
        let before = out.len();
        put_entry(export, dir, &entry, out);
        if wanted.plus {
            put_plus(export, dir, &entry, with_attrs, out);
        }
        // (The status counts for none of the clients; it is left out of the limit.)
        is_end = out.len() - start - 4 <= most;
        if !is_end {
            out.truncate(before);
        }
        is_end
    })?;
    if out.len() == first && !is_end {
        return Err(Status::TOO_SMALL);
    }
    out.bool(false).bool(is_end);
    Ok(())
}

fn put_entry(export: &Export, dir: &Attr, entry: &DirEntry, out: &mut Out) {
    // Nothing is told of what is above the export.
    let is_above = entry.name == b".." && dir.id == export.root.attr.id;
    let number = if is_above { dir.id.ino } else { entry.ino };
    out.bool(true).u64(number.into()).opaque(&entry.name).u64(entry.cookie);
}

/// Attributes and handle of an entry, if they are to be had.
fn put_plus(export: &Export, dir: &Attr, entry: &DirEntry, with_attrs: bool, out: &mut Out) {
    let found = match &entry.name[..] {
        _ if !with_attrs => None,
        b"." | b".." => None,
        name => {
            let found = match export.fs.open_by_number(entry.ino) {
                Err(FsError::Stale) => export.fs.lookup(dir.id.ino, name),
                found => found,
            };
            found.ok().map(|attr| Held::taken(&export.fs, attr))
        }
    };
    export.put_attr(out, found.as_ref().map(|held| &held.attr));
    out.bool(found.is_some());
    if let Some(held) = found {
        out.opaque(&export.handle(held.attr.id));
    }
}
