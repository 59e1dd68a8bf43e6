//! A request and its reply in the memory of an entry.
//!
//! The kernel puts a request there in three parts: the header, the fixed fields, and the payload
//! (names, data). In this order they are what a read of `/dev/fuse` gives. The reply takes the same
//! places: its header that of the request's header, its body that of the payload.
//!
//! Header and fixed fields are moved to where they and the payload are in one piece; the payload,
//! the data of a write among them, stays where it is (on a page boundary).
//!
//! *Invariants*
//! - UR-3: every size from the kernel is checked before it is used ([`Sizes::of`]); a request with
//!   impossible sizes fails with EIO.
//! - UR-4: request and reply never share bytes ([`answer`]): the reply to a request without payload
//!   (a read) is built in place, any other one elsewhere, and is copied.

use extol_fuse_uring::{FIXED, FIXED_SIZE, PAYLOAD, PAYLOAD_SIZE};

use crate::abi::{IN_HEADER, OUT_HEADER};
use crate::control::may_hold_secret;
use crate::wire::{Reply, Request, header};

/// What the kernel says about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes {
    /// Bytes of fixed fields.
    fixed: usize,
    /// Bytes of payload.
    payload: usize,
}

impl Sizes {
    /// `None` if the sizes cannot be.
    fn of(memory: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*memory.get(at..)?.first_chunk()?));
        let (len, payload) = (word(0)? as usize, word(PAYLOAD_SIZE)? as usize);
        let fixed = len.checked_sub(IN_HEADER)?.checked_sub(payload)?;
        let fits = fixed <= FIXED_SIZE && payload <= memory.len().checked_sub(PAYLOAD)?;
        fits.then_some(Self { fixed, payload })
    }
}

/// What is done with a request.
pub(super) trait Handler {
    /// As [`handle`](crate::handle::handle). (Over io_uring all kinds have a reply, and none is
    /// deferred.)
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<i32>;

    /// As [`take_back`](crate::ops::take_back).
    fn take_back(&self, reply: &mut Reply<'_>);
}

/// Bytes of payload of the request in the memory.
pub(super) fn payload(memory: &[u8]) -> usize {
    Sizes::of(memory).map_or(0, |sizes| sizes.payload)
}

/// Answers the request in the memory, of which at least the part before the payload is there.
/// `elsewhere` is used again from request to request. Gives the bytes of the reply's body.
pub(super) fn answer(memory: &mut [u8], elsewhere: &mut Reply<'_>, handler: &dyn Handler) -> u32 {
    let unique = memory[8..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
    let room = memory.len() - PAYLOAD;
    let done = match Sizes::of(memory) {
        None => Err(libc::EIO),
        Some(Sizes { fixed, payload: 0 }) => {
            let (request, back) = memory.split_at_mut(PAYLOAD - OUT_HEADER);
            request.copy_within(FIXED..FIXED + fixed, IN_HEADER);
            let mut reply = Reply::lent(back);
            let done = run(&request[..IN_HEADER + fixed], &mut reply, room, handler);
            // It was longer for a while.
            if let Some(moved) = reply.own_body().map(<[u8]>::to_vec) {
                back[OUT_HEADER..][..moved.len()].copy_from_slice(&moved);
            }
            done
        }
        Some(Sizes { fixed, payload }) => {
            let start = PAYLOAD - fixed - IN_HEADER;
            memory.copy_within(FIXED..FIXED + fixed, PAYLOAD - fixed);
            memory.copy_within(..IN_HEADER, start);
            elsewhere.clear();
            let request = &memory[start..PAYLOAD + payload];
            let wipe = Request::parse(request).is_some_and(|r| may_hold_secret(r.opcode));
            let done = run(request, elsewhere, room, handler);
            if wipe {
                memory[PAYLOAD..PAYLOAD + payload].fill(0);
            }
            if let Some(body) = elsewhere.own_body() {
                memory[PAYLOAD..][..body.len()].copy_from_slice(body);
            }
            done
        }
    };
    let (code, body) = done.map_or_else(|errno| (-errno, 0), |body| (0, body));
    memory[..OUT_HEADER].copy_from_slice(&header(body, unique, code));
    u32::try_from(body).unwrap_or_default()
}

/// Has the request handled and gives the size of the reply's body. A reply that has no room in the
/// kernel's memory is an error.
fn run(
    request: &[u8],
    reply: &mut Reply<'_>,
    room: usize,
    handler: &dyn Handler,
) -> Result<usize, i32> {
    let request = Request::parse(request).ok_or(libc::EIO)?;
    let code = handler.handle(&request, reply).unwrap_or(0);
    let body = reply.body_len();
    if code == 0 && body <= room {
        return Ok(body);
    }
    handler.take_back(reply);
    reply.clear();
    Err(if code == 0 { libc::EIO } else { -code })
}

#[cfg(test)]
mod tests;
