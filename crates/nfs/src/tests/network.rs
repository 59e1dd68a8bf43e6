//! Peers over TCP.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::running::{Running, receive, send};
use super::*;
use crate::limits;

#[test]
fn requests_of_one_connection_are_answered_as_they_are_done() {
    let server = Running::start(Config::default());
    let stream = server.connect();
    for xid in 0..200 {
        send(&stream, &server.null(xid));
    }
    let mut xids: Vec<_> = (0..200)
        .map(|_| receive(&stream).expect("a reply"))
        .map(|reply| u32::from_be_bytes(reply[..4].try_into().expect("a word")))
        .collect();
    xids.sort_unstable();
    assert_eq!(xids, (0..200).collect::<Vec<_>>());
}

#[test]
fn a_peer_that_breaks_the_rules_loses_its_connection_alone() {
    let server = Running::start(Config::default());
    let good = server.connect();
    for bytes in [
        // Longer than any record.
        &(u32::try_from(limits::RECORD).expect("short") + 1).to_be_bytes()[..],
        b"GET / HTTP/1.1\r\n\r\n",
        // No call.
        b"\x80\0\0\x08\0\0\0\x01\0\0\0\x01",
        b"\x80\0\0\x00",
    ] {
        let mut bad = server.connect();
        bad.write_all(bytes).expect("write");
        assert_eq!(receive(&bad), None, "{bytes:?}");
        send(&good, &server.null(1));
        assert!(receive(&good).is_some());
    }
    assert!(server.said("a record is too long") && server.said("a record is no call"));
}

#[test]
fn connections_have_a_limit() {
    let server = Running::start(Config { connections: 3, ..Config::default() });
    let mut peers: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for peer in &peers {
        send(peer, &server.null(1));
        assert!(receive(peer).is_some());
    }
    let refused = server.connect();
    assert_eq!(receive(&refused), None);
    assert!(server.said("there are too many connections"));
    peers.pop();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let next = server.connect();
        send(&next, &server.null(2));
        if receive(&next).is_some() {
            break;
        }
        assert!(Instant::now() < end, "the place of a closed connection is not free");
    }
}

#[test]
fn thousands_of_connections_leave_a_server_that_answers() {
    let server = Running::start(Config { connections: 8, ..Config::default() });
    let first = server.connect();
    send(&first, &server.null(1));
    assert!(receive(&first).is_some());
    for _ in 0..2000 {
        drop(server.connect());
    }
    send(&first, &server.null(2));
    assert!(receive(&first).is_some());
}

#[test]
fn only_low_ports_if_it_says_so() {
    let server = Running::start(Config { low_ports: true, ..Config::default() });
    assert_eq!(receive(&server.connect()), None);
    assert!(server.said("the port is not below 1024"));
}

/// A peer that asks and does not read fills its own buffers, and no one else waits for it.
#[test]
fn a_peer_that_takes_no_replies_stops_no_other() {
    let server = Running::start(Config { memory: 4 << 20, ..Config::default() });
    let client = &server.client;
    let file = client.create(&client.root(), b"file", 0o600).expect("create");
    assert_eq!(client.write(&file, 0, &vec![1; 1 << 20], 0).0, 0);
    let read = client.request(dispatch::PROGRAM, READ, |out| {
        out.opaque(&file).u64(0).u32(1 << 20);
    });
    let greedy: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for stream in &greedy {
        stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        for _ in 0..200 {
            send(stream, &read);
        }
    }
    let modest = server.connect();
    for xid in 0..50 {
        send(&modest, &server.null(xid));
        assert!(receive(&modest).is_some());
    }
    send(&modest, &read);
    assert_eq!(receive(&modest).expect("a reply").len(), 24 + 4 + 4 + ATTR + 12 + (1 << 20));
}

#[test]
fn what_was_read_is_answered_when_the_server_stops() {
    let mut server = Running::start(Config::default());
    let client = &server.client;
    let root = client.root();
    let streams: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for (nr, stream) in streams.iter().enumerate() {
        let request = client.request(dispatch::PROGRAM, CREATE, |out| {
            out.opaque(&root).opaque(format!("file{nr}").as_bytes()).u32(1);
            settings(out, Some(0o600));
        });
        send(stream, &request);
    }
    // One is answered, so its reader has read it.
    assert!(receive(&streams[0]).is_some());
    server.stopper.stop();
    server.thread.take().expect("a thread").join().expect("it ends");
    let done = streams[1..].iter().filter(|stream| receive(stream).is_some()).count();
    let made = (1..4).filter(|nr| client.lookup(&root, format!("file{nr}").as_bytes()).is_ok());
    assert_eq!(done, made.count());
    assert!(TcpStream::connect(server.address).is_err());
}
