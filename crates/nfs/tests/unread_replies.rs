//! Peers that ask and do not read, in a process of their own: its memory is measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_nfs::{Config, Export, Server};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const CONNECTIONS: usize = 250;
const MEMORY: usize = 16 << 20;
/// Beside requests and replies each connection has threads and a buffer.
const CONNECTION: usize = 128 << 10;
/// Bytes of a READ.
const LEN: u32 = 1 << 20;

/// A call without credentials, as a record. The arguments are words and opaque bytes.
fn call(program: u32, procedure: u32, opaque: &[u8], words: &[u32]) -> Vec<u8> {
    let mut call = Vec::new();
    let len = u32::try_from(opaque.len()).expect("short");
    for word in [7, 0, 2, program, 3, procedure, 0, 0, 0, 0, len] {
        call.extend_from_slice(&u32::to_be_bytes(word));
    }
    call.extend_from_slice(opaque);
    call.resize(call.len().next_multiple_of(4), 0);
    words.iter().for_each(|word| call.extend_from_slice(&word.to_be_bytes()));
    let marker = u32::try_from(call.len()).expect("short") | 1 << 31;
    [&marker.to_be_bytes()[..], &call].concat()
}

/// The results of a call.
fn ask(stream: &mut TcpStream, call: &[u8]) -> Vec<u8> {
    stream.write_all(call).expect("send");
    let mut marker = [0; 4];
    stream.read_exact(&mut marker).expect("a reply");
    let mut reply = vec![0; (u32::from_be_bytes(marker) & !(1 << 31)) as usize];
    stream.read_exact(&mut reply).expect("a reply");
    reply.split_off(24)
}

/// Serves a volume with a file of 1 MiB to all threads of the test.
fn serve() -> SocketAddr {
    let device = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).expect("mkfs");
    let fs = Ext4::open(device, &MountOptions::default()).expect("open");
    fs.write_file("/file", vec![7; LEN as usize]).expect("write");
    fs.set_permissions("/file", 0o644).expect("chmod");
    let config = Config { memory: MEMORY, ..Config::default() };
    let export = Export::new(fs, config).expect("export");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    let server = Server::new(export, listener, Arc::new(|_: &str| {})).expect("a server");
    thread::spawn(move || server.run());
    address
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize = statm.split(' ').nth(1).expect("a word").parse().expect("a number");
    pages * 4096
}

#[test]
fn peers_that_read_nothing_stay_within_the_memory() {
    let address = serve();
    let mut first = TcpStream::connect(address).expect("connect");
    let root = ask(&mut first, &call(MOUNT, 1, b"/", &[]))[8..40].to_vec();
    let words = [4, u32::from_be_bytes(*b"file")];
    let file = ask(&mut first, &call(NFS, 3, &root, &words))[8..40].to_vec();
    let read = call(NFS, 6, &file, &[0, 0, LEN]);
    assert!(ask(&mut first, &read).len() > LEN as usize);

    let before = resident();
    let burst = read.repeat(100);
    let greedy: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("connect");
            stream.set_nonblocking(true).expect("an option");
            // (What the system does not take would not be read either.)
            let _ = stream.write(&burst);
            stream
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(4);
    let mut most = 0;
    while Instant::now() < end {
        most = most.max(resident().saturating_sub(before));
        thread::sleep(Duration::from_millis(20));
    }
    let limit = MEMORY + CONNECTIONS * CONNECTION;
    assert!(most < limit, "{} MiB for {CONNECTIONS} peers that read nothing", most >> 20);
    // One that reads is served all the same.
    let mut modest = TcpStream::connect(address).expect("connect");
    assert!(ask(&mut modest, &read).len() > LEN as usize);
    drop(greedy);
}
