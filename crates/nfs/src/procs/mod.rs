//! The procedures of NFS. Each reads its arguments, does its work, and writes its whole result, the
//! status first.

mod data;
mod dirs;
mod files;
mod names;

use crate::access::Caller;
use crate::attrs::{self, Change};
use crate::export::{Export, Held};
use crate::handle;
use crate::status::{Result, Status};
use crate::xdr::{self, Args, Out};

/// What has to happen before a result is sent.
pub(crate) enum After {
    Nothing,
    /// The inode becomes durable.
    Sync(Held, Sync),
}

/// How it becomes durable.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sync {
    /// Only what reading the data back needs.
    pub(crate) data_only: bool,
    /// Where in the result the write verifier is, which is told as it is behind the sync.
    pub(crate) verifier_at: Option<usize>,
}

impl After {
    /// A change of names or attributes: durable before the reply (NF-1).
    fn durable(held: Held) -> Self {
        Self::Sync(held, Sync::default())
    }

    fn of(done: Result<Held>) -> Self {
        done.map_or(Self::Nothing, Self::durable)
    }
}

/// What a procedure does.
type Procedure = fn(&Export, &Caller, &mut Args<'_>, &mut Out) -> xdr::Result<After>;

/// How many procedures there are, with that which does nothing.
pub(crate) const COUNT: usize = PROCEDURES.len() + 1;

/// The procedures by their numbers, from 1: the name, what it does, and how many bytes follow the
/// status of a failure without attributes.
const PROCEDURES: [(&str, Procedure, usize); 21] = [
    ("getattr", files::getattr, 0),
    ("setattr", files::setattr, 8),
    ("lookup", names::lookup, 4),
    ("access", files::access, 4),
    ("readlink", data::readlink, 4),
    ("read", data::read, 4),
    ("write", data::write, 8),
    ("create", names::create, 8),
    ("mkdir", names::mkdir, 8),
    ("symlink", names::symlink, 8),
    ("mknod", names::mknod, 8),
    ("remove", names::remove, 8),
    ("rmdir", names::rmdir, 8),
    ("rename", names::rename, 16),
    ("link", names::link, 12),
    ("readdir", dirs::readdir, 4),
    ("readdirplus", dirs::readdirplus, 4),
    ("fsstat", files::fsstat, 4),
    ("fsinfo", files::fsinfo, 4),
    ("pathconf", files::pathconf, 4),
    ("commit", data::commit, 8),
];

/// Procedures that do nothing else if they are repeated, at any time. (A WRITE may hide a later
/// one.)
pub(crate) fn is_repeatable(number: u32) -> bool {
    !matches!(number, 2 | 7..=15)
}

/// The procedure that reads as many bytes as its last argument says, or lists them.
pub(crate) fn has_long_reply(number: u32) -> bool {
    matches!(number, 6 | 16 | 17)
}

/// The procedure with this number, from 1.
pub(crate) fn of(number: u32) -> Option<(Procedure, usize)> {
    let (_, run, failure) = *PROCEDURES.get((number as usize).checked_sub(1)?)?;
    Some((run, failure))
}

/// The name of a procedure in lower case.
pub(crate) fn name(number: usize) -> &'static str {
    number.checked_sub(1).and_then(|at| PROCEDURES.get(at)).map_or("null", |(name, ..)| name)
}

/// Appends the status of a result.
fn put_status<T>(out: &mut Out, result: &Result<T>) {
    out.u32(result.as_ref().map_or_else(|Status(status)| *status, |_| 0));
}

fn read_handle<'a>(args: &mut Args<'a>) -> xdr::Result<&'a [u8]> {
    args.opaque(handle::MOST)
}

/// Longest name that is looked at, to be refused as too long.
const NAME: usize = 4096;
/// Longest target of a symbolic link.
const TARGET: usize = 4096;

/// A directory and a name in it.
fn read_place<'a>(args: &mut Args<'a>) -> xdr::Result<(&'a [u8], &'a [u8])> {
    Ok((read_handle(args)?, args.opaque(NAME)?))
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl Export {
    fn put_change(&self, out: &mut Out, change: &Change) {
        change.put(out, self.handles.volume());
    }

    fn put_attr(&self, out: &mut Out, attr: Option<&extol_vfs::Attr>) {
        attrs::put_known(out, attr, self.handles.volume());
    }
}
