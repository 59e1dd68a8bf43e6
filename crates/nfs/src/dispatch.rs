//! From a call to its reply.

use std::sync::Arc;
use std::sync::mpsc;

use extol_vfs::{Job, OpenNr, acting_for};

use crate::access::Caller;
use crate::export::{Export, Held};
use crate::mountd;
use crate::procs::{self, After, Sync};
use crate::rpc::{self, Call, Credentials, Refused, accept};
use crate::status::Status;
use crate::xdr::{Garbage, Out};

/// NFS.
pub(crate) const PROGRAM: u32 = 100_003;
const VERSION: u32 = 3;

/// Room for a reply that holds no data.
const SHORT_REPLY: usize = 512;

/// Takes the reply of a call, once, perhaps in another thread.
pub(crate) type Send = Box<dyn FnOnce(Vec<u8>) + std::marker::Send>;

/// Works on a call. What takes long is passed to `lead`, as with
/// [`fsync_then`](extol_vfs::Mountable::fsync_then).
pub(crate) fn work(export: &Export, mut call: Call<'_>, send: Send, lead: &mut dyn FnMut(Job)) {
    let xid = call.xid;
    let (program, procedure) = (call.program, call.procedure);
    let version = match program {
        PROGRAM => VERSION,
        mountd::PROGRAM => mountd::VERSION,
        _ => return send(rpc::state(xid, accept::PROGRAM_UNAVAILABLE)),
    };
    if call.version != version {
        return send(rpc::program_mismatch(xid, version));
    }
    if program == PROGRAM {
        export.calls.note(procedure);
    }
    // A call that does nothing needs no credentials.
    if procedure == 0 {
        return send(rpc::state(xid, accept::SUCCESS));
    }
    if call.credentials == Credentials::Unknown {
        return send(rpc::too_weak(xid));
    }
    let caller = Caller::of(&export.config, &call.credentials);
    let mut out = rpc::accepted(xid, accept::SUCCESS, SHORT_REPLY);
    if program == mountd::PROGRAM {
        let answered = mountd::answer(export, &caller, procedure, &mut call.args, &mut out);
        return send(match answered {
            Ok(true) => rpc::finish(out),
            Ok(false) => rpc::state(xid, accept::PROCEDURE_UNAVAILABLE),
            Err(Garbage) => rpc::state(xid, accept::GARBAGE_ARGUMENTS),
        });
    }
    let Some((run, failure)) = procs::of(procedure) else {
        return send(rpc::state(xid, accept::PROCEDURE_UNAVAILABLE));
    };
    let done = acting_for(Some(caller.creds()), || run(export, &caller, &mut call.args, &mut out));
    match done {
        Err(Garbage) => send(rpc::state(xid, accept::GARBAGE_ARGUMENTS)),
        Ok(After::Nothing) => send(rpc::finish(out)),
        Ok(After::Sync(held, how)) => {
            sync_then(export, held, how, Waiting { xid, out, failure, send }, lead);
        }
    }
}

/// A result that waits for durability.
struct Waiting {
    xid: u32,
    out: Out,
    /// How many bytes follow the status of a failure.
    failure: usize,
    send: Send,
}

/// Sends a result when an inode is durable (NF-1).
fn sync_then(export: &Export, held: Held, how: Sync, waiting: Waiting, lead: &mut dyn FnMut(Job)) {
    let verifier = Arc::clone(&export.verifier);
    let done = Box::new(move |result: extol_vfs::Result<()>| {
        let Waiting { xid, mut out, failure, send } = waiting;
        if let Err(error) = result {
            verifier.change();
            let Status(status) = error.into();
            let mut failed = rpc::accepted(xid, accept::SUCCESS, failure);
            failed.u32(status).zeros(failure);
            return send(rpc::finish(failed));
        }
        if let Some(at) = how.verifier_at {
            // Behind the sync: what was lost before has another one.
            let now = verifier.now();
            out.set_u32(at, (now >> 32) as u32);
            out.set_u32(at + 4, now as u32);
        }
        send(rpc::finish(out));
    });
    let file = (held.ino(), OpenNr::default());
    export.fs.fsync_then(file, how.data_only, done, lead);
    // Behind all that names the inode.
    drop(held);
}

/// The reply to a record without its marker, for tests. `None`: the peer is not worth one.
#[must_use]
pub fn answer_bytes(export: &Export, record: &[u8]) -> Option<Vec<u8>> {
    let call = match Call::decode(record) {
        Ok(call) => call,
        Err(Refused::NoCall) => return None,
        Err(Refused::Reply(reply)) => return reply.get(4..).map(Into::into),
    };
    let (sender, receiver) = mpsc::channel();
    let send = Box::new(move |reply: Vec<u8>| drop(sender.send(reply)));
    work(export, call, send, &mut |job| job());
    receiver.recv().ok().and_then(|reply| reply.get(4..).map(Into::into))
}
