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
//! *References.* A reply that is not delivered, or that is an error, carries no references: they
//! are dropped ([`ops::take_back`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::op;
use crate::errno::Errno;
use crate::ops::{self, Context, Kernel, Outcome};
use crate::pool;
use crate::session::Shared;
use crate::wire::{Reply, Request};

/// The error of a change while the volume is frozen ([`FsError::Frozen`](extol_vfs::FsError)).
const FROZEN: Errno = Errno(libc::EAGAIN);
/// The error of a request that needs more space than there is.
const FULL: Errno = Errno(libc::ENOSPC);
/// Number and distance of the checks of [`settle_forgets`].
const LOOKS: u32 = 100;
const LOOK: Duration = Duration::from_micros(50);

/// The thread that serves a request.
pub(crate) trait Server: Kernel {
    /// Calls `wait`, which waits for other requests, while other threads serve requests. False if
    /// there would be none; then `wait` is not called.
    fn wait_for_others(&self, wait: &mut dyn FnMut()) -> bool;

    /// Its number, if it is a worker of `/dev/fuse`.
    fn worker(&self) -> Option<pool::Id>;
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handled {
    /// The reply is to be sent, with this code.
    Reply(i32),
    /// This kind of request has no reply.
    Silent,
    /// The reply is sent later, by another thread.
    Deferred,
}

/// Handles a request and builds its reply.
pub(crate) fn handle(
    shared: &Shared,
    server: &dyn Server,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let context = Context {
        fs: &*shared.fs,
        root: shared.root,
        agreed: shared.agreed,
        kernel: server,
        counts: &shared.counts,
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
        for &ino in &reply.references {
            shared.fs.forget(ino, 1);
        }
    };
    match outcome {
        Ok(Outcome::Deferred) => Handled::Deferred,
        Ok(Outcome::Silent) => Handled::Silent,
        Err(_) if matches!(request.opcode, op::FORGET | op::BATCH_FORGET) => Handled::Silent,
        Ok(Outcome::Reply) => Handled::Reply(0),
        Err(Errno(number)) => {
            reply.clear_body();
            Handled::Reply(-number)
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
