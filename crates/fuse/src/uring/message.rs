//! A request and its reply in the memory of an entry.
//!
//! The kernel puts a request there in three parts: the header, the fixed fields, and the payload
//! (names, data). In this order they are what a read of `/dev/fuse` gives. The reply takes the same
//! places: its header that of the request's header, its body that of the payload.
//!
//! *Invariants*
//! - UR-3: every size from the kernel is checked before it is used ([`Sizes::of`]); a request with
//!   impossible sizes fails with EIO.
//! - UR-4: request and reply never share bytes ([`answer`]): small requests are copied out, and the
//!   reply is built in place. The data of a write, and anything large, stays where it is
//!   (data on a page boundary); the reply to these is built elsewhere.

use extol_fuse_uring::{FIXED, FIXED_SIZE, PAYLOAD, PAYLOAD_SIZE};

use crate::abi::{IN_HEADER, OUT_HEADER, op};
use crate::handle::Handled;
use crate::wire::{self, Reply, Request};

/// Requests up to this size are copied out.
const SMALL: usize = 8 << 10;

/// What the kernel says about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes {
    opcode: u32,
    /// Bytes of fixed fields.
    fixed: usize,
    /// Bytes of payload.
    payload: usize,
}

impl Sizes {
    /// `None` if the sizes cannot be.
    fn of(memory: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*memory.get(at..)?.first_chunk()?));
        let (len, opcode, payload) = (word(0)? as usize, word(4)?, word(PAYLOAD_SIZE)? as usize);
        let fixed = len.checked_sub(IN_HEADER)?.checked_sub(payload)?;
        let fits = fixed <= FIXED_SIZE && payload <= memory.len().checked_sub(PAYLOAD)?;
        fits.then_some(Self { opcode, fixed, payload })
    }
}

/// What a thread keeps from request to request, so that nothing is allocated for most of them.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    request: Vec<u8>,
    references: Vec<u32>,
}

/// What is done with a request.
pub(super) trait Handler {
    /// Handles it and puts the reply together.
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Handled;

    /// The reply is not to be sent, though it was `good`, or because it was not: what it carries is
    /// taken back.
    fn take_back(&self, request: &Request<'_>, references: &[u32], good: bool);
}

/// Bytes of payload of the request in the memory.
pub(super) fn payload(memory: &[u8]) -> usize {
    Sizes::of(memory).map_or(0, |sizes| sizes.payload)
}

/// Answers the request in the memory, of which at least the part before the payload is there. Gives
/// the bytes of the reply's body.
pub(super) fn answer(memory: &mut [u8], scratch: &mut Scratch, handler: &dyn Handler) -> u32 {
    let unique = memory[8..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
    let (mut code, mut body) = (-libc::EIO, 0);
    match Sizes::of(memory) {
        None => {}
        Some(Sizes { opcode, fixed, payload })
            if opcode != op::WRITE && fixed + payload <= SMALL =>
        {
            scratch.request.clear();
            for (start, len) in [(0, IN_HEADER), (FIXED, fixed), (PAYLOAD, payload)] {
                scratch.request.extend_from_slice(&memory[start..start + len]);
            }
            let references = std::mem::take(&mut scratch.references);
            let mut reply = Reply::lent(&mut memory[PAYLOAD - OUT_HEADER..], references);
            if let Some(request) = Request::parse(&scratch.request) {
                code = finish(&request, &mut reply, handler, |reply| !reply.moved());
            }
            body = reply.body_len();
            scratch.references = reply.references;
        }
        Some(Sizes { fixed, payload, .. }) => {
            let start = PAYLOAD - fixed - IN_HEADER;
            memory.copy_within(FIXED..FIXED + fixed, PAYLOAD - fixed);
            memory.copy_within(..IN_HEADER, start);
            let room = memory.len() - PAYLOAD;
            let mut reply = Reply::default();
            if let Some(request) = Request::parse(&memory[start..PAYLOAD + payload]) {
                code = finish(&request, &mut reply, handler, |reply| reply.body_len() <= room);
            }
            if code == 0 {
                body = reply.body_len();
                memory[PAYLOAD..PAYLOAD + body]
                    .copy_from_slice(&reply.finish(unique, 0)[OUT_HEADER..]);
            }
        }
    }
    let body = if code == 0 { body } else { 0 };
    memory[..OUT_HEADER].copy_from_slice(&wire::header(body, unique, code));
    u32::try_from(body).unwrap_or_default()
}

/// Has the request handled and gives the code of the reply. A reply that has no room in the
/// kernel's memory is an error.
fn finish<'a>(
    request: &Request<'_>,
    reply: &mut Reply<'a>,
    handler: &dyn Handler,
    fits: impl FnOnce(&Reply<'a>) -> bool,
) -> i32 {
    reply.clear();
    let code = match handler.handle(request, reply) {
        Handled::Reply(code) => code,
        // Over io_uring all kinds have a reply, and none is deferred.
        Handled::Silent | Handled::Deferred => 0,
    };
    let sent = if code == 0 && !fits(reply) { -libc::EIO } else { code };
    if sent != 0 {
        handler.take_back(request, &reply.references, code == 0);
    }
    sent
}

#[cfg(test)]
mod tests;
