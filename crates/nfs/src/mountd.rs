//! The MOUNT protocol, version 3: from a path to a handle.
//!
//! A path is looked up with the rights of the caller, name by name from the root of the export, and
//! no symbolic link is followed. No list of clients is kept: it would say what they claim.

use extol_vfs::FileKind;

use crate::access::{Caller, EXECUTE};
use crate::export::{Export, Held};
use crate::rpc;
use crate::status::{Result, Status};
use crate::xdr::{self, Args, Out};

pub(crate) const PROGRAM: u32 = 100_005;
pub(crate) const VERSION: u32 = 3;

/// Longest path.
const PATH: usize = 1024;

mod procedure {
    pub(super) const NULL: u32 = 0;
    pub(super) const MOUNT: u32 = 1;
    pub(super) const DUMP: u32 = 2;
    pub(super) const UNMOUNT: u32 = 3;
    pub(super) const UNMOUNT_ALL: u32 = 4;
    pub(super) const EXPORT: u32 = 5;
}

/// Answers a call. False: there is no such procedure.
pub(crate) fn answer(
    export: &Export,
    caller: &Caller,
    number: u32,
    args: &mut Args<'_>,
    out: &mut Out,
) -> xdr::Result<bool> {
    match number {
        procedure::NULL | procedure::UNMOUNT_ALL => args.end()?,
        procedure::UNMOUNT => {
            args.opaque(PATH)?;
            args.end()?;
        }
        procedure::MOUNT => {
            let path = args.opaque(PATH)?;
            args.end()?;
            mount(export, caller, path, out);
        }
        procedure::DUMP => {
            args.end()?;
            out.bool(false);
        }
        procedure::EXPORT => {
            args.end()?;
            list(export, out);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn mount(export: &Export, caller: &Caller, path: &[u8], out: &mut Out) {
    match walk(export, caller, path) {
        Ok(held) => {
            out.u32(0).opaque(&export.handle(held.attr.id));
            // One kind of credentials.
            out.u32(1).u32(rpc::SYS);
        }
        Err(status) => {
            out.u32(code(status));
        }
    }
}

fn walk(export: &Export, caller: &Caller, path: &[u8]) -> Result<Held> {
    if !path.starts_with(b"/") {
        return Err(Status::NOT_FOUND);
    }
    let mut held = export.hold(&export.handle(export.root.attr.id))?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if held.attr.kind == FileKind::Directory {
            caller.check(&*export.fs, &held.attr, EXECUTE)?;
        }
        held = export.find(&held.attr, name)?;
    }
    if held.attr.kind == FileKind::Directory { Ok(held) } else { Err(Status::NOT_A_DIRECTORY) }
}

/// The status as MOUNT has it, which lacks some.
fn code(status: Status) -> u32 {
    match status.0 {
        known @ (1 | 2 | 5 | 13 | 20 | 22 | 63 | 10004 | 10006) => known,
        _ => Status::IO.0,
    }
}

/// The exports: one, and the networks that may have it.
fn list(export: &Export, out: &mut Out) {
    out.bool(true).opaque(b"/");
    for network in &export.config.allowed {
        out.bool(true).opaque(network.to_string().as_bytes());
    }
    out.bool(false).bool(false);
}
