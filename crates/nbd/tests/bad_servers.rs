//! Servers that break the protocol: each ends in an error that says what, and in nothing else.

use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use extol_nbd::{Client, Error, Result, Uri};

const SIZE: u64 = 1 << 20;

fn reply(option: u32, kind: u32, contents: &[u8]) -> Vec<u8> {
    let head = [option, kind, contents.len() as u32].map(u32::to_be_bytes).concat();
    [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &head, contents].concat()
}

/// Reads an option: its number.
fn option(peer: &mut TcpStream) -> u32 {
    let mut head = [0; 16];
    peer.read_exact(&mut head).unwrap();
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let mut contents = vec![0; number(12) as usize];
    peer.read_exact(&mut contents).unwrap();
    number(8)
}

/// Negotiates as a good server with chunks.
fn negotiate(peer: &mut TcpStream) {
    peer.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    peer.read_exact(&mut [0; 4]).unwrap();
    loop {
        let answer = match option(peer) {
            8 => reply(8, 1, &[]),
            10 => [reply(10, 4, b"\0\0\0\x01base:allocation"), reply(10, 1, &[])].concat(),
            7 => {
                let export = [&[0, 0][..], &SIZE.to_be_bytes(), &0x6d_u16.to_be_bytes()].concat();
                peer.write_all(&[reply(7, 3, &export), reply(7, 1, &[])].concat()).unwrap();
                return;
            }
            other => panic!("option {other}"),
        };
        peer.write_all(&answer).unwrap();
    }
}

/// Reads a request: its command and its cookie.
fn request(peer: &mut TcpStream) -> Option<(u16, [u8; 8])> {
    let mut head = [0; 28];
    peer.read_exact(&mut head).ok()?;
    let command = u16::from_be_bytes([head[6], head[7]]);
    if command == 1 {
        let len = u32::from_be_bytes(head[24..].try_into().unwrap());
        peer.read_exact(&mut vec![0; len as usize]).ok()?;
    }
    Some((command, head[8..16].try_into().unwrap()))
}

fn chunk(cookie: [u8; 8], flags: u16, kind: u16, contents: &[u8]) -> Vec<u8> {
    let len = (contents.len() as u32).to_be_bytes();
    let head = [&0x668e_33ef_u32.to_be_bytes()[..], &flags.to_be_bytes(), &kind.to_be_bytes()];
    [&head.concat()[..], &cookie, &len, contents].concat()
}

fn data(cookie: [u8; 8], flags: u16, offset: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(cookie, flags, 1, &[&offset.to_be_bytes(), bytes].concat())
}

fn simple(cookie: [u8; 8], error: u32) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie].concat()
}

/// A server for one connection.
fn serve(server: impl FnOnce(TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nbd://{}/?timeout=2&reconnect=0", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || server(listener.accept().unwrap().0));
    (uri, thread)
}

fn connect(uri: &str) -> Result<Client> {
    Client::connect(&Uri::parse(uri).unwrap())
}

/// What a read of 4096 bytes at 8192 ends in, if this answers it.
fn read_answered(answer: impl Fn([u8; 8]) -> Vec<u8> + Send + 'static) -> Result<Vec<u8>> {
    let (uri, thread) = serve(move |mut peer| {
        negotiate(&mut peer);
        let Some((0, cookie)) = request(&mut peer) else { panic!("no read") };
        peer.write_all(&answer(cookie)).unwrap();
        let _ = request(&mut peer);
    });
    let client = connect(&uri).unwrap();
    let mut bytes = vec![0xee; 4096];
    let read = client.read(&mut [IoSliceMut::new(&mut bytes)], 8192);
    if matches!(read, Err(Error::Protocol(_))) {
        let write = client.write(&[IoSlice::new(&[1; 512])], 0, false);
        assert_eq!(write, read, "nothing is sent any more");
    }
    drop(client);
    thread.join().unwrap();
    read.map(|()| bytes)
}

const LAST: u16 = 1;

#[test]
fn chunks_in_any_order_are_put_in_place() {
    let bytes = read_answered(|cookie| {
        let hole = [&10_240_u64.to_be_bytes()[..], &1024_u32.to_be_bytes()].concat();
        let parts = [
            data(cookie, 0, 11_264, &[3; 1024]),
            chunk(cookie, 0, 2, &hole),
            data(cookie, 0, 8192, &[1; 2048]),
            chunk(cookie, LAST, 0, &[]),
        ];
        parts.concat()
    });
    let expected = [vec![1; 2048], vec![0; 1024], vec![3; 1024]].concat();
    assert_eq!(bytes.unwrap(), expected);
}

type Answer = fn([u8; 8]) -> Vec<u8>;

#[test]
fn replies_against_the_rules_are_named() {
    let answers: [(&str, Answer); 14] = [
        ("before all of it", |cookie| data(cookie, LAST, 8192, &[1; 4095])),
        ("before all of it", |cookie| chunk(cookie, LAST, 0, &[])),
        ("come twice", |cookie| {
            [data(cookie, 0, 8192, &[1; 4096]), data(cookie, LAST, 8192, &[2; 4096])].concat()
        }),
        ("come where", |cookie| data(cookie, LAST, 8191, &[1; 4096])),
        ("come where", |cookie| data(cookie, LAST, 12_000, &[1; 4096])),
        ("a chunk of", |cookie| data(cookie, LAST, 8192, &[1; 5000])),
        ("a chunk of", |cookie| data(cookie, LAST, 8192, &[])),
        ("a chunk of", |cookie| chunk(cookie, LAST, 5, &[0; 12])),
        ("a chunk of", |cookie| chunk(cookie, LAST, 2, &[0; 13])),
        ("unknown kind", |cookie| chunk(cookie, LAST, 77, &[])),
        ("without chunks", |cookie| [simple(cookie, 0), vec![1; 4096]].concat()),
        ("belongs to no request", |_| simple([9; 8], 0)),
        ("begins with", |_| vec![b'x'; 64]),
        ("a chunk of", |cookie| {
            let mut head = chunk(cookie, LAST, 1, &[]);
            head[16..].copy_from_slice(&u32::MAX.to_be_bytes());
            head
        }),
    ];
    for (expected, answer) in answers {
        let error = read_answered(answer).unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn an_error_in_a_chunk_fails_the_read_alone() {
    let answer: Answer = |cookie| {
        let error = [&5_u32.to_be_bytes()[..], &[0, 2], b"no"].concat();
        [data(cookie, 0, 8192, &[1; 512]), chunk(cookie, LAST, 0x8001, &error)].concat()
    };
    assert_eq!(read_answered(answer), Err(Error::Refused { code: 5 }));
    // An error of a kind that is not known yet.
    let answer: Answer = |cookie| chunk(cookie, LAST, 0x9234, &[0, 0, 0, 28, 0, 0, 1, 2, 3]);
    assert_eq!(read_answered(answer), Err(Error::Refused { code: 28 }));
}

#[test]
fn a_reply_that_is_cut_or_slow_ends() {
    let cut: Answer = |cookie| data(cookie, LAST, 8192, &[1; 4096])[..1000].to_vec();
    let error = read_answered(cut).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    // A byte at a time, each before the timeout.
    let (uri, thread) = serve(|mut peer| {
        negotiate(&mut peer);
        let (_, cookie) = request(&mut peer).unwrap();
        for byte in data(cookie, LAST, 8192, &[1; 4096]) {
            if peer.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let client = connect(&uri).unwrap();
    let begin = Instant::now();
    let read = client.read(&mut [IoSliceMut::new(&mut [0; 4096])], 8192);
    assert!(matches!(read, Err(Error::TimedOut { .. })), "{read:?}");
    assert!(begin.elapsed() < Duration::from_secs(20));
    thread.join().unwrap();
}

#[test]
fn what_is_no_server_is_told() {
    for (greeting, expected) in [
        (&b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n"[..], "no NBD server"),
        (b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0", "too old"),
        (b"NBDMAGIC", "closed the connection"),
        (b"", "closed the connection"),
    ] {
        let (uri, thread) = serve(move |mut peer| peer.write_all(greeting).unwrap());
        let error = connect(&uri).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        thread.join().unwrap();
    }
    // One that says nothing at all.
    let (uri, thread) = serve(|mut peer| drop(peer.read(&mut [0; 1])));
    let begin = Instant::now();
    let error = connect(&uri).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(10));
    thread.join().unwrap();
}

/// Each prefix of a good conversation, and each with a byte changed, ends.
#[test]
fn a_conversation_that_is_damaged_anywhere_ends() {
    let cookie = 1_u64.to_be_bytes();
    let export = [&[0, 0][..], &SIZE.to_be_bytes(), &0x6d_u16.to_be_bytes()].concat();
    let good = [
        b"NBDMAGICIHAVEOPT\0\x03".to_vec(),
        reply(8, 1, &[]),
        reply(10, 1, &[]),
        reply(7, 3, &export),
        reply(7, 1, &[]),
        data(cookie, LAST, 0, &[5; 512]),
    ]
    .concat();
    let talk = |bytes: Vec<u8>| -> Result<Vec<u8>> {
        let (uri, thread) = serve(move |mut peer| {
            let _ = peer.write_all(&bytes);
            let _ = peer.shutdown(std::net::Shutdown::Write);
            let _ = peer.read_to_end(&mut Vec::new());
        });
        let got = connect(&uri).and_then(|client| {
            let mut bytes = vec![0; 512];
            client.read(&mut [IoSliceMut::new(&mut bytes)], 0).map(|()| bytes)
        });
        thread.join().unwrap();
        got
    };
    assert_eq!(talk(good.clone()).unwrap(), [5; 512]);
    for len in (0..good.len()).step_by(3) {
        assert!(talk(good[..len].to_vec()).is_err(), "{len}");
    }
    for at in 0..good.len() - 512 {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        // (The size and unknown flags may change without harm.)
        let _ = talk(bytes);
    }
}
