//! A request and its reply in the memory of an entry.
//!
//! The kernel puts a request there in three parts: the header, the fixed fields, and the rest
//! (names, data). Behind each other they are what a read of `/dev/fuse` would give. The reply goes
//! the same way: its header where that of the request was, its body where the rest was.
//!
//! 1. Every size that the kernel says is checked before it is used ([`Sizes::of`]); a request with
//!    sizes that cannot be gets EIO.
//! 2. Request and reply never share bytes: small requests are copied out, and the reply is put
//!    together in place. The data of a write, and anything large, stays where it is (data on a page
//!    boundary); the reply to these is put together elsewhere.

use extol_fuse_uring::{FIXED, FIXED_SIZE, PAYLOAD, PAYLOAD_SIZE};

use crate::abi::{IN_HEADER, OUT_HEADER, op};
use crate::wire::{Reply, Request};
use crate::worker::Worked;

/// Requests up to this size are copied out.
const SMALL: usize = 8 << 10;

/// What the kernel says about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) opcode: u32,
    pub(super) nodeid: u64,
    /// Bytes of fixed fields.
    fixed: usize,
    /// Bytes of the rest.
    pub(super) payload: usize,
}

impl Sizes {
    /// `None` if the sizes cannot be.
    pub(super) fn of(memory: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*memory.get(at..)?.first_chunk()?));
        let (len, opcode, payload) = (word(0)? as usize, word(4)?, word(PAYLOAD_SIZE)? as usize);
        let fixed = len.checked_sub(IN_HEADER)?.checked_sub(payload)?;
        let fits = fixed <= FIXED_SIZE && payload <= memory.len().checked_sub(PAYLOAD)?;
        fits.then_some(Self { opcode, nodeid: long(memory, 16), fixed, payload })
    }
}

/// The number of the request in the memory.
fn unique(memory: &[u8]) -> u64 {
    long(memory, 8)
}

fn long(memory: &[u8], at: usize) -> u64 {
    memory.get(at..).and_then(|bytes| bytes.first_chunk().copied()).map_or(0, u64::from_ne_bytes)
}

/// What a worker keeps from request to request, so that nothing is allocated for most of them.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    request: Vec<u8>,
    references: Vec<u32>,
}

/// What is done with a request.
pub(super) trait Work {
    /// Answers it, or says who will.
    fn work(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Worked;

    /// The reply is not to be sent, though it was `good`, or because it was not: what it carries is
    /// taken back.
    fn take_back(&self, request: &Request<'_>, references: &[u32], good: bool);
}

/// What has become of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// The reply is in the memory, with so many bytes of body.
    Reply(u32),
    /// Somebody has its answer for later.
    Later,
    /// It is to be done where it may wait; the request is in the memory as it was.
    Elsewhere,
}

/// Lets somebody answer the request in the memory, of which at least the part before the payload is
/// there.
pub(super) fn answer(
    memory: &mut [u8],
    sizes: Option<Sizes>,
    scratch: &mut Scratch,
    worker: &dyn Work,
) -> Answered {
    let unique = unique(memory);
    let (mut done, mut body) = (Worked::Reply(-libc::EIO), 0);
    match sizes {
        None => {}
        Some(Sizes { opcode, fixed, payload, .. })
            if opcode != op::WRITE && fixed + payload <= SMALL =>
        {
            scratch.request.clear();
            for (start, len) in [(0, IN_HEADER), (FIXED, fixed), (PAYLOAD, payload)] {
                scratch.request.extend_from_slice(&memory[start..start + len]);
            }
            let references = std::mem::take(&mut scratch.references);
            let mut reply = Reply::lent(&mut memory[PAYLOAD - OUT_HEADER..], references);
            if let Some(request) = Request::parse(&scratch.request) {
                done = finish(&request, &mut reply, worker, |reply| !reply.moved());
            }
            body = reply.body_len();
            scratch.references = reply.references;
            if done == Worked::Elsewhere {
                memory[PAYLOAD..PAYLOAD + payload]
                    .copy_from_slice(&scratch.request[IN_HEADER + fixed..]);
            }
        }
        Some(Sizes { fixed, payload, .. }) => {
            let start = PAYLOAD - fixed - IN_HEADER;
            memory.copy_within(FIXED..FIXED + fixed, PAYLOAD - fixed);
            memory.copy_within(..IN_HEADER, start);
            let room = memory.len() - PAYLOAD;
            let mut reply = Reply::default();
            if let Some(request) = Request::parse(&memory[start..PAYLOAD + payload]) {
                done = finish(&request, &mut reply, worker, |reply| reply.body_len() <= room);
            }
            if done == Worked::Reply(0) {
                body = reply.body_len();
                memory[PAYLOAD..PAYLOAD + body]
                    .copy_from_slice(&reply.finish(unique, 0)[OUT_HEADER..]);
            }
        }
    }
    let code = match done {
        Worked::Reply(code) => code,
        // Over io_uring all kinds have a reply.
        Worked::Silent => 0,
        Worked::Later => return Answered::Later,
        Worked::Elsewhere => return Answered::Elsewhere,
    };
    let body = if code == 0 { u32::try_from(body).unwrap_or_default() } else { 0 };
    put_header(memory, unique, code, body);
    Answered::Reply(body)
}

/// Puts the header of a reply into the memory.
pub(super) fn put_header(memory: &mut [u8], unique: u64, code: i32, body: u32) {
    memory[..4].copy_from_slice(&(OUT_HEADER as u32 + body).to_ne_bytes());
    memory[4..8].copy_from_slice(&code.to_ne_bytes());
    memory[8..OUT_HEADER].copy_from_slice(&unique.to_ne_bytes());
}

/// Answers the request in the memory with EIO. Gives the size of the reply's body.
pub(super) fn refuse(memory: &mut [u8]) -> u32 {
    let unique = unique(memory);
    put_header(memory, unique, -libc::EIO, 0);
    0
}

/// Has the request answered. A reply that has no room in the kernel's memory is an error.
fn finish<'a>(
    request: &Request<'_>,
    reply: &mut Reply<'a>,
    worker: &dyn Work,
    fits: impl FnOnce(&Reply<'a>) -> bool,
) -> Worked {
    reply.clear();
    let worked = worker.work(request, reply);
    let done =
        if worked == Worked::Reply(0) && !fits(reply) { Worked::Reply(-libc::EIO) } else { worked };
    if matches!(done, Worked::Reply(code) if code != 0) {
        worker.take_back(request, &reply.references, worked == Worked::Reply(0));
    }
    done
}

#[cfg(test)]
mod tests;
