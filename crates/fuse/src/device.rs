//! The transport over `/dev/fuse`: workers read requests and write replies.
//!
//! ```text
//!   worker:  read ──► pool.take ──► handle ──► write ──► pool.finish ──► read … or sleep
//!                                     │          │ not delivered: its references are dropped
//!                                     ╰─ fsync: deferred, the worker goes on
//! ```
//!
//! Which worker reads is decided by [`pool`](crate::pool). A reply goes out with one `write`, by
//! any thread.
//!
//! *Deferred replies.* A worker that sleeps until its fsync is durable costs two thread switches,
//! and cannot serve another request. So the file system calls a function when the file is durable
//! ([`fsync_then`](extol_vfs::Mountable::fsync_then)), and that function writes the reply
//! ([`DeferredReply`]). As a rule it runs on the worker that leads the commit of all concurrent
//! fsyncs, which counts as waiting in the pool.
//!
//! *Invariants*
//! - DV-1: each request that has a reply gets one. A deferred reply is sent when its result is
//!   known; if it is dropped before, EIO is sent ([`DeferredReply`]).
//! - DV-2: no mount ends before its deferred replies are sent. Each belongs to an open file, which
//!   keeps the connection. If the connection is aborted, the threads that send the replies are
//!   workers, and the end of the mount waits for them ([`Mount::run`](crate::Mount::run)).

use std::io;
use std::sync::Arc;
use std::thread;

use extol_vfs::{Done, FsError};
use rustix::io::Errno as Os;

use crate::abi::{IN_HEADER, MAX_FIXED, WRITE_HEADER, op};
use crate::buffer::{Buffer, LARGE};
use crate::connection::{End, Shared};
use crate::control;
use crate::handle::handle;
use crate::init;
use crate::ops::{self, Server};
use crate::pool;
use crate::wire::{Reply, Request, header};

/// True for requests that mostly wait for a device or for other requests. (An fsync that waits
/// says so itself, [`Server::about_to_wait`]: most are deferred.)
fn waits(opcode: u32, direct_io: bool) -> bool {
    match opcode {
        op::READ | op::SYNCFS | op::IOCTL | op::FALLOCATE | op::LSEEK => true,
        // Where files are devices; else they go to memory.
        op::WRITE => direct_io,
        _ => false,
    }
}

/// Starts the first workers and the watchdog.
pub(crate) fn start(shared: &Arc<Shared>, workers: usize) -> io::Result<()> {
    for _ in 0..workers {
        if !shared.pool.start(&|id| start_worker(shared, id)) {
            return Err(io::Error::other("cannot start a thread: raise the limit (ulimit -u)"));
        }
    }
    let its = Arc::clone(shared);
    let watch = move || its.pool.watch(&|id| start_worker(&its, id));
    thread::Builder::new().name("fuse-watchdog".into()).spawn(watch)?;
    Ok(())
}

fn start_worker(shared: &Arc<Shared>, id: pool::Id) -> bool {
    shared.thread_begins();
    let worker = Worker { shared: Arc::clone(shared), id };
    let started = thread::Builder::new().name(format!("fuse-{id}")).spawn(move || worker.run());
    if started.is_err() {
        shared.thread_ends(End::NotNeeded);
    }
    started.is_ok()
}

/// A thread of the pool.
struct Worker {
    shared: Arc<Shared>,
    id: pool::Id,
}

impl Worker {
    fn run(&self) {
        let shared = &*self.shared;
        let size = IN_HEADER + MAX_FIXED + init::max_data() as usize;
        let mut buffer = Buffer::new(size, IN_HEADER + WRITE_HEADER);
        let mut reply = Reply::default();
        let mut large = false;
        let start = |id| start_worker(&self.shared, id);
        let end = loop {
            let size = match rustix::io::read(&shared.device, &mut *buffer) {
                Ok(size) => size,
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => continue,
                // The second where the end came between the choice of a request and its delivery.
                Err(Os::NODEV | Os::CONNABORTED) => break End::Disconnected,
                Err(error) => break End::Failed(error.into()),
            };
            let request = buffer.get(..size).and_then(Request::parse);
            let waits = request.as_ref().is_some_and(|r| waits(r.opcode, shared.agreed.direct_io));
            shared.pool.take(self.id, waits, &start);
            let wipe = request.as_ref().is_some_and(|r| control::may_hold_secret(r.opcode));
            if let Some(request) = request {
                self.answer(&request, &mut reply);
            }
            if wipe {
                buffer.get_mut(..size).into_iter().for_each(|request| request.fill(0));
            }
            large |= size > LARGE || reply.body_len() > LARGE;
            if !shared.pool.finish(self.id, large) {
                break End::NotNeeded;
            }
        };
        drop((buffer, reply));
        if !matches!(end, End::NotNeeded) {
            shared.pool.leave(self.id);
        }
        shared.thread_ends(end);
    }

    fn answer(&self, request: &Request<'_>, reply: &mut Reply<'_>) {
        let shared = &*self.shared;
        let Some(code) = handle(shared, self, request, reply) else { return };
        let sent = rustix::io::write(&shared.device, reply.finish(request.unique, code));
        if code != 0 || sent.is_err() {
            ops::take_back(&*shared.fs, &shared.writers, reply);
        }
    }
}

impl Server for Worker {
    fn invalidate(&self, nodeid: u64, offset: i64) {
        self.shared.invalidate(nodeid, offset);
    }

    fn drop_caches(&self, inodes: Vec<u32>) {
        let mut thread = self.shared.drop_caches(inodes).ok();
        // (Where this thread may not wait, the other one ends a moment later.)
        self.wait_for_others(&mut || {
            let _ = thread.take().map(std::thread::JoinHandle::join);
        });
    }

    fn wait_for_others(&self, wait: &mut dyn FnMut()) -> bool {
        self.shared.pool.wait_for_others(self.id, wait, &|id| start_worker(&self.shared, id))
    }

    fn about_to_wait(&self) {
        self.shared.pool.take(self.id, true, &|id| start_worker(&self.shared, id));
    }

    fn defer(&self, request: &Request<'_>) -> Option<Done> {
        let reply = DeferredReply::new(&self.shared, request.unique);
        Some(Box::new(move |result| reply.send(result)))
    }

    fn worker(&self) -> Option<pool::Id> {
        Some(self.id)
    }
}

/// The reply, sent later, to a request whose reply is only a result. It is sent when this is
/// dropped.
struct DeferredReply {
    shared: Arc<Shared>,
    unique: u64,
    code: i32,
}

impl DeferredReply {
    /// EIO, unless a result is sent.
    fn new(shared: &Arc<Shared>, unique: u64) -> Self {
        Self { shared: Arc::clone(shared), unique, code: -libc::EIO }
    }

    /// Sends the result.
    fn send(mut self, result: Result<(), FsError>) {
        self.code = result.err().map_or(0, |error| -error.errno());
    }
}

impl Drop for DeferredReply {
    fn drop(&mut self) {
        // It fails if the connection is gone: no caller waits any more.
        let _ = rustix::io::write(&self.shared.device, &header(0, self.unique, self.code));
    }
}

#[cfg(test)]
mod tests;
