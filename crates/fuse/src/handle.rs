//! One request, from its bytes to its reply: the part that both transports share.
//!
//! ```text
//!   transport ──► handle ──► guard { ops::dispatch } ──► reply ──► transport
//!                   ▲              │ panic: EIO
//!                   ╰── again ─────┤ the volume is frozen: wait for the thaw
//!                                  │ no space (io_uring): wait for pending FORGETs
//! ```
//!
//! *A frozen volume* lets no change through. A change waits for the thaw only if other threads
//! serve requests meanwhile ([`Server::wait_for_others`]): one of them must receive the request
//! that thaws. Otherwise the change fails with EAGAIN.
//!
//! *Forgotten inodes.* FORGET always comes through `/dev/fuse`, and other requests overtake it. But
//! a program that has deleted a file expects its blocks to be free. So a STATFS, and over io_uring
//! a request that finds the volume full, waits until the workers have read all that the kernel has
//! sent so far. The wait is bounded.
//!
//! *References.* A reply that is an error, or is not delivered, carries no references and opens no
//! file: the transport gives both back ([`ops::take_back`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::op;
use crate::connection::Shared;
use crate::errno::Errno;
use crate::ops::{self, Context, Outcome, Server};
use crate::wire::{Reply, Request};

/// The error of a change while the volume is frozen ([`FsError::Frozen`](extol_vfs::FsError)).
const FROZEN: Errno = Errno(libc::EAGAIN);
/// The error of a request that needs more space than there is.
const FULL: Errno = Errno(libc::ENOSPC);
/// Number and distance of the checks of [`settle_forgets`].
const LOOKS: u32 = 100;
const LOOK: Duration = Duration::from_micros(50);

/// Handles a request and builds its reply. Gives the code of the reply; `None`: this thread sends
/// none.
pub(crate) fn handle(
    shared: &Shared,
    server: &dyn Server,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Option<i32> {
    let context = Context {
        fs: &*shared.fs,
        root: shared.root,
        agreed: shared.agreed,
        server,
        counts: &shared.counts,
        writers: &shared.writers,
        interrupts: &shared.interrupts,
        transport: shared.transport(),
        owner: &shared.owner,
    };
    if request.opcode == op::STATFS {
        settle_forgets(shared, server);
    }
    // The error of an fsync is reported once; a second one might succeed.
    let syncs = matches!(request.opcode, op::FSYNC | op::FSYNCDIR | op::SYNCFS);
    let mut may_settle = server.worker().is_none() && !syncs;
    let outcome = loop {
        reply.clear();
        let work = AssertUnwindSafe(|| ops::dispatch(&context, request, reply));
        let outcome = catch_unwind(work).unwrap_or(Err(Errno(libc::EIO)));
        if outcome == Err(FULL) && std::mem::take(&mut may_settle) {
            settle_forgets(shared, server);
        } else if outcome != Err(FROZEN) || !server.wait_for_others(&mut || shared.fs.wait_thawed())
        {
            break outcome;
        }
        ops::take_back(context.fs, context.writers, reply);
    };
    match outcome {
        Ok(Outcome::NoReply) => None,
        Ok(Outcome::Reply) => Some(0),
        Err(Errno(number)) => {
            reply.truncate_body(0);
            Some(-number)
        }
    }
}

/// Waits until the workers of `/dev/fuse` have handled what the kernel has sent so far.
fn settle_forgets(shared: &Shared, server: &dyn Server) {
    let mut quiet = false;
    for _ in 0..LOOKS {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut device = [PollFd::new(&shared.device, PollFlags::IN)];
        let unread = poll(&mut device, Some(&now)).is_ok_and(|ready| ready > 0);
        if unread || shared.pool.is_busy(server.worker()) {
            quiet = false;
        } else if quiet {
            return;
        } else {
            // A worker that has just read a request counts as reading for a moment.
            quiet = true;
        }
        thread::sleep(LOOK);
    }
}
