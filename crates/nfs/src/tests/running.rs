//! A server in threads of a test, and connections to it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use extol_sync::plain::Mutex;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use super::*;
use crate::work::Shared;
use crate::{Server, Stopper};

/// A server that ends with the test.
pub(super) struct Running {
    pub(super) client: Client,
    pub(super) address: SocketAddr,
    pub(super) stopper: Stopper,
    pub(super) shared: Arc<Shared>,
    pub(super) thread: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub(super) fn start(config: Config) -> Self {
        let (_, client) = Client::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        let log = Arc::new(move |line: &str| log.lock().push(line.to_owned()));
        let server = Server::new(Arc::clone(&client.export), listener, log).expect("a server");
        let (stopper, shared) = (server.stopper(), server.shared());
        let thread = std::thread::spawn(move || server.run().expect("serve"));
        Self { client, address, stopper, shared, thread: Some(thread), lines }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    /// A connection from this address of the machine. It ends at once when it is dropped, so that
    /// another can have its port.
    pub(super) fn connect_from(&self, from: SocketAddr) -> TcpStream {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("an option");
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).expect("an option");
        bind(&socket, &from).expect("bind");
        connect(&socket, &self.address).expect("connect");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    /// The request of a client for this procedure, under a number.
    pub(super) fn request(&self, xid: u32, number: u32, args: impl FnOnce(&mut Out)) -> Vec<u8> {
        let mut request = self.client.request(dispatch::PROGRAM, number, args);
        request[..4].copy_from_slice(&xid.to_be_bytes());
        request
    }

    /// How often a procedure was worked on.
    pub(super) fn calls(&self, name: &str) -> u64 {
        let calls = self.client.export.calls.by_procedure();
        calls.into_iter().find(|(its, _)| its == name).map_or(0, |(_, calls)| calls)
    }

    /// Waits until this holds.
    pub(super) fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn said(&self, what: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if self.lines.lock().iter().any(|line| line.contains(what)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    pub(super) fn null(&self, xid: u32) -> Vec<u8> {
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

pub(super) fn send(mut stream: &TcpStream, record: &[u8]) {
    let marker = u32::try_from(record.len()).expect("short") | 1 << 31;
    let bytes = [&marker.to_be_bytes()[..], record].concat();
    // (A server that has seen enough may not read it all.)
    let _ = stream.write_all(&bytes);
}

/// The next reply; `None`: the connection has ended.
pub(super) fn receive(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut marker = [0; 4];
    stream.read_exact(&mut marker).ok()?;
    let len = u32::from_be_bytes(marker) & !(1 << 31);
    let mut reply = vec![0; len as usize];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}
