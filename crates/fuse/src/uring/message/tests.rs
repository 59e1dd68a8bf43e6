use super::*;
use crate::abi::op;
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
    back: RefCell<Vec<u32>>,
}

impl Handler for Script<'_> {
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<i32> {
        assert_eq!((request.unique, request.nodeid, request.body), (77, 5, self.expected));
        reply.references.push(9);
        reply.bytes(self.reply);
        Some(self.code)
    }

    fn take_back(&self, reply: &mut Reply<'_>) {
        self.back.borrow_mut().append(&mut reply.references);
    }
}

/// Answers nothing.
struct Never;

impl Handler for Never {
    fn handle(&self, _request: &Request<'_>, _reply: &mut Reply<'_>) -> Option<i32> {
        panic!("that is no request")
    }

    fn take_back(&self, _reply: &mut Reply<'_>) {
        panic!("that is no request")
    }
}

/// Gives the code of the reply, its body, and what was taken back.
fn exchange(
    memory: &mut [u8],
    expected: &[u8],
    reply: &[u8],
    code: i32,
) -> (i32, Vec<u8>, Vec<u32>) {
    let script = Script { expected, reply, code, back: RefCell::default() };
    let body = answer(memory, &mut Reply::default(), &script) as usize;
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
    for (opcode, payload) in
        [(op::READ, &[][..]), (op::LOOKUP, b"name\0"), (op::SETXATTR, &[3; 20_000])]
    {
        let failed = exchange(&mut memory(opcode, &[], payload), payload, b"reply", -libc::ENOENT);
        assert_eq!(failed, (-libc::ENOENT, vec![], vec![9]));
        let longest = exchange(&mut memory(opcode, &[], payload), payload, &[1; ROOM], 0);
        assert_eq!(longest, (0, vec![1; ROOM], vec![]));
        let too_long = exchange(&mut memory(opcode, &[], payload), payload, &[1; ROOM + 1], 0);
        assert_eq!(too_long, (-libc::EIO, vec![], vec![9]));
    }
}

#[test]
fn sizes_that_lie_are_refused() {
    let sound = memory(op::LOOKUP, &[0; 8], b"name\0");
    let sizes = Sizes { fixed: 8, payload: 5 };
    assert_eq!(Sizes::of(&sound), Some(sizes));
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
        let refused = answer(&mut memory, &mut Reply::default(), &Never);
        assert_eq!(
            (refused, i32::from_ne_bytes(*memory[4..].first_chunk().unwrap())),
            (0, -libc::EIO)
        );
    }
    let mut whole = memory(op::LOOKUP, &[], &vec![1; ROOM]);
    assert!(Sizes::of(&whole).is_some());
    whole.pop();
    assert_eq!(Sizes::of(&whole), None, "more than there is room for");
    assert_eq!(Sizes::of(&[]), None);
    // Extensions longer than the request.
    let mut memory = sound;
    memory[36..38].copy_from_slice(&u16::MAX.to_ne_bytes());
    assert_eq!(answer(&mut memory, &mut Reply::default(), &Never), 0);
}
