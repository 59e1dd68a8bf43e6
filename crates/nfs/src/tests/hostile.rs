//! Requests that are no good end in an error.

use super::*;
use crate::rpc::accept;

/// The state of the reply to a record.
fn state(client: &Client, record: &[u8]) -> Option<u32> {
    let reply = answer_bytes(&client.export, record)?;
    assert!(reply.len() % 4 == 0 && reply[..4] == record[..4], "{reply:?}");
    if reply[8..12] != [0; 4] {
        return None;
    }
    Some(u32::from_be_bytes(reply[20..24].try_into().expect("a word")))
}

/// Arguments of each procedure, with a handle of a directory.
fn requests(client: &Client) -> Vec<Vec<u8>> {
    let root = client.root();
    let place = |out: &mut Out, name: &[u8]| {
        out.opaque(&root).opaque(name);
    };
    let mut requests = Vec::new();
    for number in GETATTR..=COMMIT {
        requests.push(client.request(dispatch::PROGRAM, number, |out| match number {
            LOOKUP | REMOVE | RMDIR => place(out, b"x"),
            CREATE | MKDIR | SYMLINK | MKNOD => {
                place(out, b"x");
                if number == CREATE {
                    out.u32(0);
                } else if number == MKNOD {
                    out.u32(7);
                }
                settings(out, Some(0o600));
                if number == SYMLINK {
                    out.opaque(b"target");
                }
            }
            RENAME => {
                place(out, b"x");
                place(out, b"y");
            }
            LINK => {
                out.opaque(&root);
                place(out, b"x");
            }
            SETATTR => {
                out.opaque(&root);
                settings(out, Some(0o777));
                out.u32(0);
            }
            ACCESS => {
                out.opaque(&root).u32(63);
            }
            READ => {
                out.opaque(&root).u64(0).u32(10);
            }
            WRITE => {
                out.opaque(&root).u64(0).u32(4).u32(0).opaque(b"data");
            }
            READDIR => {
                out.opaque(&root).u64(0).u64(0).u32(4096);
            }
            READDIRPLUS => {
                out.opaque(&root).u64(0).u64(0).u32(4096).u32(4096);
            }
            COMMIT => {
                out.opaque(&root).u64(0).u32(0);
            }
            _ => {
                out.opaque(&root);
            }
        }));
    }
    requests
}

#[test]
fn arguments_that_are_cut_or_too_long_are_garbage() {
    let (_, client) = Client::new(Config::default());
    for request in requests(&client) {
        assert_eq!(state(&client, &request), Some(accept::SUCCESS));
        let head = client.request(0, 0, |_| ()).len();
        for len in head..request.len() {
            let found = state(&client, &request[..len]);
            assert_eq!(found, Some(accept::GARBAGE_ARGUMENTS), "{len} of {request:?}");
        }
        let longer = [&request[..], &[0; 4]].concat();
        assert_eq!(state(&client, &longer), Some(accept::GARBAGE_ARGUMENTS));
    }
}

/// Each word becomes large, small or odd. (The server may do as it is asked, and answers.)
#[test]
fn numbers_that_lie_are_answered() {
    let (_, client) = Client::new(Config::default());
    for request in requests(&client) {
        for at in (4..request.len()).step_by(4) {
            for word in [0, 1, 3, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
                let mut changed = request.clone();
                changed[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
                state(&client, &changed);
            }
        }
    }
    // It still works.
    assert!(client.create(&client.root(), b"after all", 0o600).is_ok());
}

#[test]
fn programs_and_procedures_that_are_not_there() {
    let (_, client) = Client::new(Config::default());
    let at = |program, version: u32, number| {
        let mut request = client.request(program, number, |_| ());
        request[16..20].copy_from_slice(&version.to_be_bytes());
        state(&client, &request)
    };
    assert_eq!(at(dispatch::PROGRAM, 3, 0), Some(accept::SUCCESS));
    assert_eq!(at(mountd::PROGRAM, 3, 0), Some(accept::SUCCESS));
    assert_eq!(at(dispatch::PROGRAM, 3, 22), Some(accept::PROCEDURE_UNAVAILABLE));
    assert_eq!(at(mountd::PROGRAM, 3, 6), Some(accept::PROCEDURE_UNAVAILABLE));
    assert_eq!(at(dispatch::PROGRAM, 4, 1), Some(accept::PROGRAM_MISMATCH));
    assert_eq!(at(mountd::PROGRAM, 1, 1), Some(accept::PROGRAM_MISMATCH));
    assert_eq!(at(100_227, 3, 1), Some(accept::PROGRAM_UNAVAILABLE));
}

#[test]
fn handles_of_any_length_name_nothing() {
    let (_, client) = Client::new(Config::default());
    for len in 0..=64 {
        for byte in [0, 1, 0xff] {
            assert_eq!(client.attr(&vec![byte; len]), Err(10001));
        }
    }
    let longer = client.request(dispatch::PROGRAM, GETATTR, |out| {
        out.opaque(&[0; 65]);
    });
    assert_eq!(state(&client, &longer), Some(accept::GARBAGE_ARGUMENTS));
}
