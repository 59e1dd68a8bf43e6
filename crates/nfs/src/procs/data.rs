//! Contents: READ, WRITE, COMMIT, READLINK.
//!
//! A WRITE that is UNSTABLE stays in memory until a COMMIT, or until the file system writes it back
//! by itself. The verifier that it is answered with is read before the data are taken, and that of
//! a COMMIT behind the sync: so data that are lost in between have another one (NF-2).

use extol_vfs::{Author, FileKind};

use super::{After, Sync, put_status, read_handle};
use crate::access::{Caller, EXECUTE, READ, WRITE};
use crate::attrs::Change;
use crate::export::Export;
use crate::limits;
use crate::status::{Result, Status};
use crate::xdr::{self, Args, Garbage, Out};

/// How durable a WRITE is to be.
const UNSTABLE: u32 = 0;
const DATA_SYNC: u32 = 1;
const FILE_SYNC: u32 = 2;

pub(super) fn readlink(
    export: &Export,
    _caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    args.end()?;
    let mut attr = None;
    let target = export.hold(handle).and_then(|held| {
        attr = Some(held.attr.clone());
        if held.attr.kind != FileKind::Symlink {
            return Err(Status::INVALID);
        }
        Ok(export.fs.readlink(held.ino())?)
    });
    put_status(out, &target);
    export.put_attr(out, attr.as_ref());
    if let Ok(target) = &target {
        out.opaque(target);
    }
    Ok(After::Nothing)
}

pub(super) fn read(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    let (offset, count) = (args.u64()?, args.u32()?.min(limits::DATA));
    args.end()?;
    let mut attr = None;
    let file = export.hold(handle).and_then(|held| {
        attr = Some(held.attr.clone());
        check_regular(held.attr.kind)?;
        // A program may be run without the right to read it; the client reads it for that.
        if !caller.may(&*export.fs, &held.attr, EXECUTE)? {
            caller.check_open(&*export.fs, &held.attr, READ)?;
        }
        Ok(held)
    });
    let held = match file {
        Ok(held) => held,
        Err(status) => {
            put_status::<()>(out, &Err(status));
            export.put_attr(out, attr.as_ref());
            return Ok(After::Nothing);
        }
    };
    let start = out.len();
    out.u32(0);
    export.put_attr(out, Some(&held.attr));
    let at = out.len();
    out.u32(0).bool(false);
    // No more room than the file can fill.
    let left = held.attr.size.saturating_sub(offset).min(count.into());
    let left = usize::try_from(left).unwrap_or(0);
    let read = |room: &mut [u8]| export.readers.read(&export.fs, &held.attr, offset, room);
    match out.opaque_with(left, read) {
        Ok(read) => {
            let is_end = offset.saturating_add(read as u64) >= held.attr.size;
            out.set_u32(at, u32::try_from(read).unwrap_or(0));
            out.set_u32(at + 4, is_end.into());
        }
        Err(error) => {
            out.truncate(start);
            put_status::<()>(out, &Err(error.into()));
            export.put_attr(out, Some(&held.attr));
        }
    }
    Ok(After::Nothing)
}

pub(super) fn write(
    export: &Export,
    caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    let (offset, count, stable) = (args.u64()?, args.u32()?, args.u32()?);
    let data = args.opaque(limits::DATA as usize)?;
    args.end()?;
    if data.len() != count as usize || stable > FILE_SYNC {
        return Err(Garbage);
    }
    let verifier = export.verifier.now();
    let mut change = Change::default();
    let done = export.change(handle, &mut change, |file| {
        check_regular(file.attr.kind)?;
        caller.check_open(&*export.fs, &file.attr, WRITE)?;
        if data.is_empty() {
            return Ok((0, None));
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Status::FILE_TOO_LARGE);
        }
        export.take_privileges(caller, &file.attr, false)?;
        let author = Author::Process(caller.creds());
        let written = export.fs.write_as(file.ino(), offset, data, author)?;
        // (Nothing is left to do for one that is not to be durable.)
        let held = (stable != UNSTABLE).then(|| export.hold(handle)).transpose()?;
        Ok((written, held))
    });
    put_status(out, &done);
    export.put_change(out, &change);
    let Ok((written, held)) = done else { return Ok(After::Nothing) };
    out.u32(u32::try_from(written).unwrap_or(count)).u32(stable);
    let verifier_at = Some(out.len()).filter(|_| stable != UNSTABLE);
    out.u64(verifier);
    let sync = Sync { data_only: stable == DATA_SYNC, verifier_at };
    Ok(held.map_or(After::Nothing, |held| After::Sync(held, sync)))
}

pub(super) fn commit(
    export: &Export,
    _caller: &Caller,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<After> {
    let handle = read_handle(args)?;
    // The range: all of the file becomes durable.
    args.u64()?;
    args.u32()?;
    args.end()?;
    let mut change = Change::default();
    let done = export.change(handle, &mut change, |file| {
        check_regular(file.attr.kind)?;
        export.hold(handle)
    });
    put_status(out, &done);
    export.put_change(out, &change);
    let Ok(held) = done else { return Ok(After::Nothing) };
    let verifier_at = Some(out.len());
    out.u64(0);
    Ok(After::Sync(held, Sync { data_only: false, verifier_at }))
}

fn check_regular(kind: FileKind) -> Result<()> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::IS_A_DIRECTORY),
        _ => Err(Status::INVALID),
    }
}
