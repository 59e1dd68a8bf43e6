//! Memory and connections are shared, and nothing that a client does takes them from others.

use std::net::SocketAddr;

use super::running::{Running, receive, send};
use super::*;

/// Calls that do nothing keep no place of a client that has more than another.
#[test]
fn a_client_does_not_hold_all_connections() {
    let server = Running::start(Config { connections: 8, ..Config::default() });
    let greedy: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let answers = |stream, xid| {
        send(stream, &server.null(xid));
        receive(stream).is_some()
    };
    assert!(greedy.iter().all(|stream| answers(stream, 1)));
    let modest = |address| server.connect_from(SocketAddr::from(([127, 0, 0, address], 0)));
    let others: Vec<_> = (2..5).map(modest).collect();
    assert!(others.iter().all(|stream| answers(stream, 2)));
    assert_eq!(greedy.iter().filter(|stream| answers(stream, 3)).count(), 5);
    assert!(server.said("others need its place"));
    // Within its share the first client keeps what it has.
    assert!(others.iter().all(|stream| answers(stream, 4)));
}

/// A client that repeats what is answered, and reads nothing, comes to a stop.
#[test]
fn unread_replies_that_are_kept_take_memory() {
    let server = Running::start(Config { memory: 0, ..Config::default() });
    let root = server.client.root();
    let request = server.request(1, REMOVE, |out| {
        out.opaque(&root).opaque(b"missing");
    });
    let stream = server.connect_from(SocketAddr::from(([127, 0, 0, 2], 0)));
    stream.set_write_timeout(Some(std::time::Duration::from_secs(2))).expect("a timeout");
    let marker = u32::try_from(request.len()).expect("short") | 1 << 31;
    let burst = [&marker.to_be_bytes()[..], &request].concat().repeat(1000);
    let mut taken = 0;
    while std::io::Write::write_all(&mut &stream, &burst).is_ok() {
        taken += burst.len();
        assert!(taken < 256 << 20, "it is read without an end");
    }
    let (held, _) = server.shared.memory.held_and_waiting();
    assert!(held <= 4 << 20, "{held}");
    let other = server.connect();
    send(&other, &server.null(1));
    assert!(receive(&other).is_some());
}
