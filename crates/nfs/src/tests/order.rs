//! Requests of connections that end, and requests that come again: no call runs behind what its
//! client has done since.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::running::{Running, receive, send};
use super::*;
use crate::memory::{Hold, Owner};

/// A record that is read before there is memory for it, and one that is not.
const LENGTHS: [usize; 2] = [100, 64 << 10];

/// Takes all memory of a server, so that requests wait.
fn block(server: &Running) -> Vec<Hold> {
    let mut holds = Vec::new();
    for bytes in [64 << 10, 1 << 10, 1] {
        let next = |connection| {
            let client = crate::client::Client::of([10, 1, 0, connection as u8].into());
            server.shared.memory.take(Owner { client, connection }, bytes, Duration::ZERO)
        };
        let mut failures = 0;
        for connection in (1_000_000..1_000_200).cycle() {
            match next(connection) {
                Some(hold) => (failures, _) = (0, holds.push(hold)),
                None => failures += 1,
            }
            if failures == 200 {
                break;
            }
        }
    }
    holds
}

fn waiting(server: &Running, count: usize) {
    server.wait_until("requests wait for memory", |server| {
        server.shared.memory.held_and_waiting().1 == count
    });
}

/// All that was read is done.
fn is_quiet(server: &Running) -> bool {
    server.shared.memory.held_and_waiting() == (0, 0)
}

/// A file, and the WRITE of a byte over its first bytes.
fn write_of(server: &Running, len: usize) -> (Handle, impl Fn(u32, u8) -> Vec<u8>) {
    let client = &server.client;
    let file = client.create(&client.root(), b"file", 0o600).expect("create");
    let handle = file.clone();
    let write = move |xid, byte| {
        server.request(xid, WRITE, |out| {
            let count = u32::try_from(len).expect("short");
            out.opaque(&handle).u64(0).u32(count).u32(0).opaque(&vec![byte; len]);
        })
    };
    (file, write)
}

fn status(stream: &TcpStream) -> u32 {
    let reply = receive(stream).expect("a reply");
    u32::from_be_bytes(reply[24..28].try_into().expect("a word"))
}

/// A WRITE waits for memory, its client gives up the connection and writes something else, and then
/// there is memory.
#[test]
fn a_write_of_an_ended_connection_does_not_run() {
    for len in LENGTHS {
        let server = Running::start(Config { memory: 0, ..Config::default() });
        let (file, write) = write_of(&server, len);
        let memory = block(&server);
        let old = server.connect();
        send(&old, &write(1, 1));
        waiting(&server, 1);
        drop(old);
        // As over another connection that has its memory.
        assert_eq!(server.client.write(&file, 0, &vec![2; len], 0).0, 0);
        drop(memory);
        server.wait_until("an old request is left", is_quiet);
        let (data, _) = server.client.read(&file, 0, 1 << 20).expect("read");
        assert!(data == vec![2; len], "an old write of {len} bytes is over a later one");
        assert_eq!(server.calls("write"), 1);
    }
}

/// The same, but the server does not see that the first connection has ended.
#[test]
fn a_write_that_comes_again_runs_once() {
    for len in LENGTHS {
        let server = Running::start(Config { memory: 0, ..Config::default() });
        let (file, write) = write_of(&server, len);
        let memory = block(&server);
        let old = server.connect();
        send(&old, &write(1, 1));
        waiting(&server, 1);
        let new = server.connect();
        send(&new, &write(1, 1));
        if len == LENGTHS[0] {
            // The server knows the call already, and that its client has given up the connection.
            assert_eq!(receive(&old), None);
        } else {
            waiting(&server, 2);
        }
        drop(memory);
        assert_eq!(status(&new), 0);
        send(&new, &write(2, 2));
        assert_eq!(status(&new), 0);
        server.wait_until("an old request is left", is_quiet);
        let (data, _) = server.client.read(&file, 0, 1 << 20).expect("read");
        assert!(data == vec![2; len], "an old write of {len} bytes is over a later one");
        assert_eq!(server.calls("write"), 2);
    }
}

/// A copy of a WRITE arrives when the client has its reply and has written something else.
#[test]
fn a_late_copy_of_a_write_does_not_run() {
    let server = Running::start(Config::default());
    let (file, write) = write_of(&server, 100);
    let [old, new] = [(); 2].map(|()| server.connect());
    // Both are accepted.
    for stream in [&old, &new] {
        send(stream, &server.null(9));
        assert!(receive(stream).is_some());
    }
    for (xid, byte) in [(1, 1), (2, 2)] {
        send(&new, &write(xid, byte));
        assert_eq!(status(&new), 0);
    }
    send(&old, &write(1, 1));
    assert_eq!(status(&old), 0);
    assert_eq!(server.client.read(&file, 0, 100), Ok((vec![2; 100], true)));
    assert_eq!(server.calls("write"), 2);
}

/// The reply was lost: Linux's client asks again from its port, and gets it once more.
#[test]
fn a_repeated_request_is_done_once() {
    let server = Running::start(Config::default());
    let client = &server.client;
    let root = client.root();
    client.create(&root, b"file", 0o600).expect("create");
    let remove = |xid| {
        server.request(xid, REMOVE, |out| {
            out.opaque(&root).opaque(b"file");
        })
    };
    let mut from = SocketAddr::from(([127, 0, 0, 1], 0));
    for _ in 0..3 {
        let stream = server.connect_from(from);
        from = stream.local_addr().expect("an address");
        send(&stream, &remove(1));
        assert_eq!(status(&stream), 0);
    }
    assert_eq!(server.calls("remove"), 1);
    let stream = server.connect_from(from);
    send(&stream, &remove(2));
    assert_eq!(status(&stream), 2);
}

/// Another program of the same host, with the same numbers, is not told of a file that is gone.
#[test]
fn numbers_that_begin_anew_are_new_requests() {
    let server = Running::start(Config::default());
    let client = &server.client;
    let root = client.root();
    let create = server.request(1, CREATE, |out| {
        out.opaque(&root).opaque(b"file").u32(0);
        settings(out, Some(0o600));
    });
    for _ in 0..2 {
        let stream = server.connect();
        send(&stream, &create);
        let reply = receive(&stream).expect("a reply");
        assert_eq!(reply[24..32], [0, 0, 0, 0, 0, 0, 0, 1]);
        let handle = Args::new(&reply[32..]).opaque(64).expect("a handle").to_vec();
        assert!(client.attr(&handle).is_ok(), "the handle of a file that was removed");
        assert_eq!(client.remove(REMOVE, &root, b"file"), 0);
    }
}

/// Many requests of another client push no reply out.
#[test]
fn the_replies_to_a_client_are_its_own() {
    let server = Running::start(Config::default());
    let client = &server.client;
    let root = client.root();
    client.create(&root, b"file", 0o600).expect("create");
    let remove = server.request(1, REMOVE, |out| {
        out.opaque(&root).opaque(b"file");
    });
    let stream = server.connect_from(SocketAddr::from(([127, 0, 0, 2], 0)));
    let from = stream.local_addr().expect("an address");
    send(&stream, &remove);
    assert_eq!(status(&stream), 0);
    drop(stream);
    let other = server.connect();
    for xid in 0..2200 {
        send(
            &other,
            &server.request(xid, SETATTR, |out| {
                out.opaque(&root);
                settings(out, None);
                out.bool(false);
            }),
        );
        assert_eq!(status(&other), 0);
    }
    let again = server.connect_from(from);
    send(&again, &remove);
    assert_eq!(status(&again), 0);
}
