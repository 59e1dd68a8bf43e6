//! Peers over TCP.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::*;
use crate::{Server, Stopper, limits};

/// A server that ends with the test.
struct Running {
    client: Client,
    address: std::net::SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(config: Config) -> Self {
        let (_, client) = Client::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        let log = Arc::new(move |line: &str| log.lock().push(line.to_owned()));
        let server = Server::new(Arc::clone(&client.export), listener, log).expect("a server");
        let stopper = server.stopper();
        let thread = std::thread::spawn(move || server.run().expect("serve"));
        Self { client, address, stopper, thread: Some(thread), lines }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    fn said(&self, what: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if self.lines.lock().iter().any(|line| line.contains(what)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    fn null(&self, xid: u32) -> Vec<u8> {
        let mut request = self.client.request(dispatch::PROGRAM, 0, |_| ());
        request[..4].copy_from_slice(&xid.to_be_bytes());
        request
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

fn send(mut stream: &TcpStream, record: &[u8]) {
    let marker = u32::try_from(record.len()).expect("short") | 1 << 31;
    let bytes = [&marker.to_be_bytes()[..], record].concat();
    // (A server that has seen enough may not read it all.)
    let _ = stream.write_all(&bytes);
}

/// The next reply; `None`: the connection has ended.
fn receive(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut marker = [0; 4];
    stream.read_exact(&mut marker).ok()?;
    let len = u32::from_be_bytes(marker) & !(1 << 31);
    let mut reply = vec![0; len as usize];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}

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

/// The reply was lost: the same request again, over another connection, gets it once more.
#[test]
fn a_repeated_request_is_done_once() {
    let server = Running::start(Config::default());
    let client = &server.client;
    let root = client.root();
    client.create(&root, b"file", 0o600).expect("create");
    let remove = client.request(dispatch::PROGRAM, REMOVE, |out| {
        out.opaque(&root).opaque(b"file");
    });
    let replies: Vec<_> = (0..3)
        .map(|_| {
            let stream = server.connect();
            send(&stream, &remove);
            receive(&stream).expect("a reply")
        })
        .collect();
    assert_eq!(replies[0][24..28], [0; 4]);
    assert!(replies.iter().all(|reply| *reply == replies[0]));
    let mut other = remove;
    other[3] ^= 1;
    let stream = server.connect();
    send(&stream, &other);
    assert_eq!(receive(&stream).expect("a reply")[24..28], 2u32.to_be_bytes());
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
