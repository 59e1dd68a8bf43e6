//! Requests without a kernel, for tests that give arbitrary bytes to the decoding of requests, or
//! count what a request costs.
//!
//! The path is that of a mount (`wire`, `ops`) with three differences: the kernel gets no
//! notifications, a panic does not become EIO, and after each reply its references are dropped and
//! the files that it opened are closed, unless the test sends FORGET and RELEASE itself
//! ([`Connection::keeping`]).

use extol_vfs::Mountable;

use crate::abi::op;
use crate::config::{MountConfig, Transport};
use crate::counts::Counts;
use crate::errno::Errno;
use crate::init::{self, Agreed};
use crate::interrupts::Interrupts;
use crate::ops::{self, Context, Outcome, Server};
use crate::rights::Owner;
use crate::wire::{Reply, Request};
use crate::writers::Writers;

/// There is no kernel to notify, and nothing to wait for.
struct NoKernel;

impl Server for NoKernel {
    fn invalidate(&self, _nodeid: u64, _offset: i64) {}

    fn wait_for_others(&self, _wait: &mut dyn FnMut()) -> bool {
        true
    }
}

/// A connection that a mount would have, without the mount.
pub struct Connection<'a> {
    fs: &'a dyn Mountable,
    agreed: Agreed,
    reply: Reply<'static>,
    counts: Counts,
    writers: Writers,
    interrupts: Interrupts,
    owner: Owner,
    keeps: bool,
}

impl std::fmt::Debug for Connection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("agreed", &self.agreed).finish_non_exhaustive()
    }
}

impl<'a> Connection<'a> {
    /// A connection with these capabilities agreed upon (bits of INIT).
    #[must_use]
    pub fn new(fs: &'a dyn Mountable, capabilities: u64) -> Self {
        Self {
            fs,
            agreed: Agreed { caps: capabilities, ..Agreed::default() },
            reply: Reply::default(),
            counts: Counts::default(),
            writers: Writers::default(),
            interrupts: Interrupts::default(),
            owner: Owner::of_tests(),
            keeps: false,
        }
    }

    /// The connection of a peer that keeps what replies give it, as a kernel does.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self { keeps: true, ..self }
    }

    /// Works on one request and gives the bytes of the reply; `None` if there is none.
    pub fn answer(&mut self, request: &[u8]) -> Option<&[u8]> {
        let request = Request::parse(request)?;
        let context = Context {
            fs: self.fs,
            root: self.fs.root(),
            agreed: self.agreed,
            server: &NoKernel,
            counts: &self.counts,
            writers: &self.writers,
            interrupts: &self.interrupts,
            transport: Transport::Device,
            owner: &self.owner,
        };
        self.reply.clear();
        let outcome = if request.opcode == op::INIT {
            init::negotiate(request.args(), &MountConfig::default(), &mut self.reply, || false).map(
                |agreed| {
                    self.agreed = agreed;
                    Outcome::Reply
                },
            )
        } else {
            ops::dispatch(&context, &request, &mut self.reply)
        };
        if !self.keeps || outcome.is_err() {
            ops::take_back(self.fs, &self.writers, &mut self.reply);
        }
        let code = match outcome {
            Ok(Outcome::NoReply) => return None,
            Ok(Outcome::Reply) => 0,
            Err(Errno(number)) => {
                self.reply.clear();
                -number
            }
        };
        Some(self.reply.finish(request.unique, code))
    }
}
