//! A request and its reply in the memory of an entry.
//!
//! The kernel puts a request there in three parts: the header, the fixed fields, and the rest (names, data). Behind each other
//! they are what a read of `/dev/fuse` would give. The reply goes the same way: its header where that of the request was, its
//! body where the rest was.
//!
//! 1. Every size that the kernel says is checked before it is used ([`Sizes::of`]); a request with sizes that cannot be gets EIO.
//! 2. Request and reply never share bytes: small requests are copied out, and the reply is put together in place. The data of a
//!    write, and anything large, stays where it is (data on a page boundary); the reply to these is put together elsewhere.

use extol_fuse_ring::{FIXED, FIXED_SIZE, PAYLOAD, PAYLOAD_SIZE};

use crate::abi::{IN_HEADER, OUT_HEADER, op};
use crate::wire::{Reply, Request};

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
    /// Answers it. Gives the code of the reply, or `None` for kinds that have no reply (over io_uring all have).
    fn work(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<i32>;

    /// The reply is not to be sent, though it was `good`, or because it was not: what it carries is taken back.
    fn take_back(&self, request: &Request<'_>, references: &[u32], good: bool);
}

/// Lets somebody answer the request in the memory, of which at least the part before the payload is there. Afterwards the reply is
/// there; gives the size of its body.
pub(super) fn answer(
    memory: &mut [u8],
    sizes: Option<Sizes>,
    scratch: &mut Scratch,
    worker: &dyn Work,
) -> u32 {
    let unique = unique(memory);
    let (mut code, mut body) = (-libc::EIO, 0);
    match sizes {
        None => {}
        Some(Sizes { opcode, fixed, payload, .. }) if opcode != op::WRITE && fixed + payload <= SMALL => {
            scratch.request.clear();
            for (start, len) in [(0, IN_HEADER), (FIXED, fixed), (PAYLOAD, payload)] {
                scratch.request.extend_from_slice(&memory[start..start + len]);
            }
            let references = std::mem::take(&mut scratch.references);
            let mut reply = Reply::lent(&mut memory[PAYLOAD - OUT_HEADER..], references);
            if let Some(request) = Request::parse(&scratch.request) {
                code = finish(&request, &mut reply, worker, |reply| !reply.moved());
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
                code = finish(&request, &mut reply, worker, |reply| reply.body_len() <= room);
            }
            if code == 0 {
                body = reply.body_len();
                memory[PAYLOAD..PAYLOAD + body].copy_from_slice(&reply.finish(unique, 0)[OUT_HEADER..]);
            }
        }
    }
    if code != 0 {
        body = 0;
    }
    let body = u32::try_from(body).unwrap_or_default();
    memory[..4].copy_from_slice(&(OUT_HEADER as u32 + body).to_ne_bytes());
    memory[4..8].copy_from_slice(&code.to_ne_bytes());
    memory[8..OUT_HEADER].copy_from_slice(&unique.to_ne_bytes());
    body
}

/// Has the request answered, and gives the code of the reply. One that has no room in the kernel's memory is an error.
fn finish<'a>(
    request: &Request<'_>,
    reply: &mut Reply<'a>,
    worker: &dyn Work,
    fits: impl FnOnce(&Reply<'a>) -> bool,
) -> i32 {
    reply.clear();
    let worked = worker.work(request, reply).unwrap_or(0);
    let code = if worked == 0 && !fits(reply) { -libc::EIO } else { worked };
    if code != 0 {
        worker.take_back(request, &reply.references, worked == 0);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const ROOM: usize = 64 << 10;

    /// Memory with a request as the kernel writes it.
    fn memory(opcode: u32, fixed: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut memory = vec![0xee; PAYLOAD + ROOM];
        let len = (IN_HEADER + fixed.len() + payload.len()) as u32;
        memory[..IN_HEADER].fill(0);
        memory[..4].copy_from_slice(&len.to_ne_bytes());
        memory[4..8].copy_from_slice(&opcode.to_ne_bytes());
        memory[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        memory[16..24].copy_from_slice(&5_u64.to_ne_bytes());
        memory[FIXED..FIXED + fixed.len()].copy_from_slice(fixed);
        memory[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&(payload.len() as u32).to_ne_bytes());
        memory[PAYLOAD..PAYLOAD + payload.len()].copy_from_slice(payload);
        memory
    }

    /// Answers with `reply` and one reference, after a look at the body of the request.
    struct Script<'a> {
        expected: &'a [u8],
        reply: &'a [u8],
        code: i32,
        back: RefCell<Vec<(u32, bool)>>,
    }

    impl Work for Script<'_> {
        fn work(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<i32> {
            assert_eq!((request.unique, request.nodeid, request.body), (77, 5, self.expected));
            reply.references.push(9);
            reply.bytes(self.reply);
            Some(self.code)
        }

        fn take_back(&self, _request: &Request<'_>, references: &[u32], good: bool) {
            self.back.borrow_mut().extend(references.iter().map(|&ino| (ino, good)));
        }
    }

    /// Nobody who would answer.
    struct Nobody;

    impl Work for Nobody {
        fn work(&self, _request: &Request<'_>, _reply: &mut Reply<'_>) -> Option<i32> {
            panic!("that is no request")
        }

        fn take_back(&self, _request: &Request<'_>, _references: &[u32], _good: bool) {
            panic!("that is no request")
        }
    }

    /// Gives the code of the reply, its body, and what was taken back.
    fn exchange(
        memory: &mut [u8],
        expected: &[u8],
        reply: &[u8],
        code: i32,
    ) -> (i32, Vec<u8>, Vec<(u32, bool)>) {
        let script = Script { expected, reply, code, back: RefCell::default() };
        let sizes = Sizes::of(memory);
        let body = answer(memory, sizes, &mut Scratch::default(), &script) as usize;
        assert_eq!(memory[..4], (OUT_HEADER as u32 + body as u32).to_ne_bytes());
        assert_eq!(memory[8..16], 77_u64.to_ne_bytes());
        let code = i32::from_ne_bytes(*memory[4..].first_chunk().unwrap());
        (code, memory[PAYLOAD..PAYLOAD + body].to_vec(), script.back.into_inner())
    }

    #[test]
    fn requests_in_three_parts() {
        let large = vec![3; ROOM];
        for (opcode, payload) in [
            (op::LOOKUP, &b"name\0"[..]),
            (op::GETATTR, &[]),
            (op::WRITE, b"data"),
            (op::WRITE, &large),
            (op::SETXATTR, &large),
        ] {
            for fixed in [&[][..], &[7; 40], &[1; FIXED_SIZE]] {
                let expected = [fixed, payload].concat();
                let mut memory = memory(opcode, fixed, payload);
                let got = exchange(&mut memory, &expected, b"reply", 0);
                assert_eq!(got, (0, b"reply".to_vec(), vec![]), "{opcode}");
                // The data of a write is not moved.
                assert!(
                    opcode != op::WRITE
                        || memory[PAYLOAD + 5..].starts_with(payload.get(5..).unwrap_or_default())
                );
            }
        }
    }

    #[test]
    fn what_is_not_sent_is_taken_back() {
        for (opcode, payload) in [(op::LOOKUP, &b"name\0"[..]), (op::SETXATTR, &[3; 20_000])] {
            let failed = exchange(&mut memory(opcode, &[], payload), payload, b"reply", -libc::ENOENT);
            assert_eq!(failed, (-libc::ENOENT, vec![], vec![(9, false)]));
            let longest = exchange(&mut memory(opcode, &[], payload), payload, &[1; ROOM], 0);
            assert_eq!(longest, (0, vec![1; ROOM], vec![]));
            let too_long = exchange(&mut memory(opcode, &[], payload), payload, &[1; ROOM + 1], 0);
            assert_eq!(too_long, (-libc::EIO, vec![], vec![(9, true)]));
        }
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        let sound = memory(op::LOOKUP, &[0; 8], b"name\0");
        assert_eq!(Sizes::of(&sound), Some(Sizes { opcode: op::LOOKUP, nodeid: 5, fixed: 8, payload: 5 }));
        for (at, value) in [
            (0, 0),
            (0, IN_HEADER as u32 + 4),
            (0, IN_HEADER as u32 + 5 + FIXED_SIZE as u32 + 1),
            (0, u32::MAX),
            (PAYLOAD_SIZE, 14),
            (PAYLOAD_SIZE, u32::MAX),
        ] {
            let mut memory = sound.clone();
            memory[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            assert_eq!(Sizes::of(&memory), None, "{at} {value}");
            let refused = answer(&mut memory, None, &mut Scratch::default(), &Nobody);
            assert_eq!((refused, i32::from_ne_bytes(*memory[4..].first_chunk().unwrap())), (0, -libc::EIO));
        }
        let mut whole = memory(op::LOOKUP, &[], &vec![1; ROOM]);
        assert!(Sizes::of(&whole).is_some());
        whole.pop();
        assert_eq!(Sizes::of(&whole), None, "more than there is room for");
        assert_eq!(Sizes::of(&[]), None);
        // Extensions longer than the request.
        let mut memory = sound;
        memory[36..38].copy_from_slice(&u16::MAX.to_ne_bytes());
        let sizes = Sizes::of(&memory);
        assert_eq!(answer(&mut memory, sizes, &mut Scratch::default(), &Nobody), 0);
    }
}
