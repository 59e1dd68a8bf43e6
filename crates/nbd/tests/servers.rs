//! The client beside servers of others.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extol_nbd::{Client, Error, ExportFlags, Uri};
use extol_testkit::{NbdServer, Need, Scratch, require, run_ok, tool};

fn connect(uri: &str) -> Client {
    Client::connect(&Uri::parse(uri).unwrap()).unwrap()
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn read(client: &Client, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    client.read(&mut [IoSliceMut::new(&mut bytes)], offset).unwrap();
    bytes
}

fn write(client: &Client, bytes: &[u8], offset: u64) {
    client.write(&[IoSlice::new(bytes)], offset, false).unwrap();
}

#[test]
fn what_is_written_is_read_from_nbdkit() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["memory", "64M"]);
    let client = connect(&server.uri());
    let export = client.export();
    assert_eq!(export.size, 64 << 20);
    assert!(export.is_structured && export.allocation.is_some(), "{export:?}");
    assert!(export.flags.contains(ExportFlags::MULTI_CONN | ExportFlags::FUA | ExportFlags::FLUSH));
    assert_eq!(client.connections(), 4);
    // Longer than one request, with the ends inside of blocks.
    let bytes = pattern(1, (20 << 20) + 12_345);
    write(&client, &bytes, 777);
    client.flush().unwrap();
    assert_eq!(read(&client, 777, bytes.len()), bytes);
    assert!(read(&client, 0, 777).iter().all(|byte| *byte == 0));
    // Into several buffers.
    let mut three = [vec![0; 1000], vec![0; 3 << 20], vec![0; 5]];
    let mut bufs: Vec<_> = three.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
    client.read(&mut bufs, 5000).unwrap();
    let len = 1000 + (3 << 20) + 5;
    assert_eq!(three.concat(), bytes[5000 - 777..5000 - 777 + len]);
    // Several writes at a time, in two buffers each.
    let places = [(0u64, 600u64), (40 << 20, 3 << 20), (60 << 20, 1)];
    let all = pattern(2, 600 + (3 << 20) + 1);
    let (a, b) = all.split_at(300);
    client.write_all(&places, &[IoSlice::new(a), IoSlice::new(b)], true).unwrap();
    let mut at = 0;
    for (offset, len) in places {
        let len = len as usize;
        assert_eq!(read(&client, offset, len), all[at..at + len]);
        at += len;
    }
    client.write_zeroes(41 << 20..43 << 20, true).unwrap();
    assert!(read(&client, 41 << 20, 2 << 20).iter().all(|byte| *byte == 0));
    client.trim(0..60 << 20).unwrap();
}

#[test]
fn holes_are_told() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["memory", "8G"]);
    let client = connect(&server.uri());
    write(&client, &[1; 65536], 5 << 30);
    let mut at = 0;
    let mut data = Vec::new();
    while at < 8 << 30 {
        let extents = client.block_status(at..8 << 30).unwrap().unwrap();
        assert_eq!(extents[0].range.start, at);
        at = extents.last().unwrap().range.end;
        data.extend(extents.into_iter().filter(|extent| !extent.is_zero).map(|e| e.range));
    }
    let only = 5 << 30..(5 << 30) + 65536;
    assert_eq!(data, std::slice::from_ref(&only));
    let server = NbdServer::nbdkit(&["--filter=noextents", "memory", "1M"]);
    let client = connect(&server.uri());
    let all = client.block_status(0..1 << 20).unwrap();
    assert!(all.is_none_or(|extents| extents.iter().all(|extent| !extent.is_zero)));
}

#[test]
fn qemu_serves_with_its_block_sizes() {
    if !require(&[Need::Tool("qemu-nbd"), Need::Tool("qemu-img")]) {
        return;
    }
    let dir = Scratch::new();
    let image = dir.path().join("disk.qcow2");
    run_ok(tool("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&image).arg("32M"));
    let image = image.to_str().unwrap();
    let server = NbdServer::qemu_nbd(&["--shared=8", "-f", "qcow2", "-x", "a b", image]);
    let uri = server.uri().replace(":///", ":///a%20b");
    let client = connect(&uri);
    assert_eq!(client.export().size, 32 << 20);
    let bytes = pattern(3, 5 << 20);
    write(&client, &bytes, 1 << 20);
    client.flush().unwrap();
    assert_eq!(read(&client, 1 << 20, bytes.len()), bytes);
    let extents = client.block_status(0..32 << 20).unwrap().unwrap();
    assert!(extents.iter().any(|e| !e.is_zero) && extents.iter().any(|e| e.is_zero));
    let error = Client::connect(&Uri::parse(&server.uri()).unwrap());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no default export"), "{error}");
}

#[test]
fn a_server_without_structured_replies_is_used() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["--no-sr", "memory", "16M"]);
    let client = connect(&server.uri());
    assert!(!client.export().is_structured);
    assert!(client.block_status(0..4096).unwrap().is_none());
    let bytes = pattern(4, 3 << 20);
    write(&client, &bytes, 4096);
    assert_eq!(read(&client, 4096, bytes.len()), bytes);
}

#[test]
fn a_refused_request_leaves_the_connection_usable() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let dir = Scratch::new();
    let trigger = dir.path().join("fail");
    let file = format!("error-file={}", trigger.display());
    let server = NbdServer::nbdkit(&[
        "--filter=error",
        "memory",
        "16M",
        "error=ENOSPC",
        "error-pwrite-rate=100%",
        "error-pread-rate=100%",
        &file,
    ]);
    let client = connect(&server.uri());
    write(&client, &[7; 4096], 0);
    std::fs::write(&trigger, b"").unwrap();
    let refused = Err(Error::Refused { code: 28 });
    assert_eq!(client.write(&[IoSlice::new(&[1; 4096])], 0, false), refused);
    assert_eq!(client.read(&mut [IoSliceMut::new(&mut [0; 4096])], 0), refused);
    std::fs::remove_file(&trigger).unwrap();
    assert_eq!(read(&client, 0, 4096), [7; 4096]);
}

#[test]
fn a_read_only_export_says_so() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["-r", "memory", "1M"]);
    let client = connect(&server.uri());
    assert!(client.export().flags.contains(ExportFlags::READ_ONLY));
    let written = client.write(&[IoSlice::new(&[1; 512])], 0, false);
    assert_eq!(written, Err(Error::Refused { code: 1 }));
}

/// With a delay of 100 ms for each request, 64 of them one behind the other take 6.4 s.
#[test]
fn many_requests_are_under_way() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server =
        NbdServer::nbdkit(&["-t", "64", "--filter=delay", "memory", "64M", "delay-read=100ms"]);
    let uri = format!("{}&connections=1", server.uri());
    let client = connect(&uri);
    let begin = Instant::now();
    std::thread::scope(|s| {
        for nr in 0..64 {
            let client = &client;
            s.spawn(move || read(client, nr << 20, 4096));
        }
    });
    let together = begin.elapsed();
    assert!(together < Duration::from_secs(3), "{together:?}");
    let begin = Instant::now();
    let _ = read(&client, 0, 8 << 20);
    let divided = begin.elapsed();
    assert!(divided < Duration::from_millis(500), "8 requests of one call: {divided:?}");
}

#[test]
fn threads_get_their_own_bytes() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["memory", "256M"]);
    for connections in [1, 3] {
        let client = connect(&format!("{}&connections={connections}", server.uri()));
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            for thread in 0..8u64 {
                let (client, stop) = (&client, &stop);
                s.spawn(move || {
                    let base = thread * (16 << 20);
                    for round in 0.. {
                        let len = [512, 4096, 70_000, 3 << 20][(round + thread) as usize % 4];
                        let bytes = pattern(round * 8 + thread, len);
                        write(client, &bytes, base + round * 512 % (4 << 20));
                        if round % 5 == 0 {
                            client.flush().unwrap();
                        }
                        assert!(read(client, base + round * 512 % (4 << 20), len) == bytes);
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_server_that_is_killed_ends_all_requests() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let mut server = NbdServer::nbdkit(&["--filter=delay", "memory", "64M", "delay-read=10"]);
    let client = connect(&format!("{}&reconnect=0", server.uri()));
    std::thread::scope(|s| {
        let readers: Vec<_> = (0..8)
            .map(|nr| {
                let client = &client;
                s.spawn(move || client.read(&mut [IoSliceMut::new(&mut [0; 512])], nr * 512))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        server.kill();
        for reader in readers {
            let read = reader.join().unwrap();
            assert!(matches!(read, Err(Error::Broken { .. })), "{read:?}");
        }
    });
    assert!(client.flush().is_err());
    let error = Client::connect(&Uri::parse(&server.uri()).unwrap());
    assert!(error.unwrap_err().to_string().contains("cannot connect"));
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["--filter=delay", "memory", "64M", "delay-read=10"]);
    let client = connect(&format!("{}&timeout=1", server.uri()));
    let begin = Instant::now();
    let read = client.read(&mut [IoSliceMut::new(&mut [0; 512])], 0);
    assert_eq!(read, Err(Error::TimedOut { after: Duration::from_secs(1) }));
    assert!(begin.elapsed() < Duration::from_secs(5));
}
