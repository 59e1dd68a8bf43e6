//! Connections that break: what was acknowledged is there, or nothing is acknowledged any more.
//!
//! nbdkit's cache filter keeps writes to itself until a flush, and loses them when it is killed, as
//! a server with a volatile cache does.

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use extol_nbd::{Client, Error, Result, Uri};
use extol_testkit::{Cut, Image, NbdServer, Need, Scratch, require, text};

const BLOCK: usize = 4096;

fn connect(uri: &str) -> Client {
    let has_own = uri.contains("reconnect=");
    let uri = if has_own { uri.to_owned() } else { format!("{uri}&reconnect=30") };
    Client::connect(&Uri::parse(&uri).unwrap()).unwrap()
}

fn write(client: &Client, block: u64, byte: u8, fua: bool) -> Result<()> {
    client.write(&[IoSlice::new(&[byte; BLOCK])], block * BLOCK as u64, fua)
}

fn read(client: &Client, block: u64) -> Result<u8> {
    let mut bytes = [0; BLOCK];
    client.read(&mut [IoSliceMut::new(&mut bytes)], block * BLOCK as u64)?;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    Ok(bytes[0])
}

fn in_file(path: &Path, block: u64) -> u8 {
    let mut byte = [0];
    std::fs::File::open(path).unwrap().read_exact_at(&mut byte, block * BLOCK as u64).unwrap();
    byte[0]
}

/// A server that loses what was not flushed when it is killed.
fn volatile(image: &Image) -> NbdServer {
    let at = text(&image.path);
    NbdServer::nbdkit(&["--filter=cache", "file", at, "cache=writeback", "cache-min-block-size=4K"])
}

#[test]
fn what_a_server_loses_is_written_again() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 8 << 20);
    let mut server = volatile(&image);
    let client = connect(&server.uri());
    write(&client, 0, 1, false).unwrap();
    client.flush().unwrap();
    for block in 0..100 {
        write(&client, block, 2, false).unwrap();
    }
    write(&client, 7, 3, false).unwrap();
    client.write_zeroes(50 * BLOCK as u64..60 * BLOCK as u64, true).unwrap();
    server.kill();
    let lost = (in_file(&image.path, 0), in_file(&image.path, 99));
    assert_eq!(lost, (1, 0), "the server has lost what was not flushed");
    server.restart();
    let contents = |block| match block {
        7 => 3,
        50..60 => 0,
        _ => 2,
    };
    for block in 0..100 {
        assert_eq!(read(&client, block), Ok(contents(block)), "{block}");
    }
    client.flush().unwrap();
    server.kill();
    for block in 0..100 {
        assert_eq!(in_file(&image.path, block), contents(block), "{block}");
    }
    // What a flush has covered is not written again.
    image.write_at(BLOCK as u64, &[9; BLOCK]);
    server.restart();
    assert_eq!(read(&client, 1), Ok(9));
}

#[test]
fn a_flush_that_meets_the_break_covers_what_was_lost() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 8 << 20);
    let mut server = volatile(&image);
    let client = connect(&server.uri());
    for round in 1..=20 {
        for block in 0..50 {
            write(&client, block, round, false).unwrap();
        }
        if round % 2 == 0 {
            server.restart();
        }
        client.flush().unwrap();
        server.kill();
        for block in 0..50 {
            assert_eq!(in_file(&image.path, block), round, "an acknowledged flush is one");
        }
        server.restart();
    }
}

/// An older write that no flush has covered must not undo a newer one that is durable.
#[test]
fn what_is_durable_is_not_undone() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 8 << 20);
    let mut server = volatile(&image);
    let client = connect(&server.uri());
    write(&client, 3, 1, false).unwrap();
    write(&client, 4, 1, false).unwrap();
    write(&client, 3, 2, true).unwrap();
    server.restart();
    assert_eq!((read(&client, 3), read(&client, 4)), (Ok(2), Ok(1)));
    server.kill();
    assert_eq!(in_file(&image.path, 3), 2);
}

#[test]
fn a_cut_connection_is_made_again_while_idle_and_while_reading() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["--filter=delay", "memory", "64M", "delay-read=500ms"]);
    let cut = Cut::before(server.socket());
    let client = connect(&cut.uri());
    for round in 1..5 {
        cut.cut();
        std::thread::sleep(Duration::from_millis(20));
        write(&client, round.into(), round, false).unwrap();
    }
    std::thread::scope(|s| {
        let client = &client;
        let readers: Vec<_> = (1..5).map(|nr| s.spawn(move || read(client, nr))).collect();
        std::thread::sleep(Duration::from_millis(200));
        cut.refuse(true);
        cut.cut();
        std::thread::sleep(Duration::from_millis(300));
        cut.refuse(false);
        for (nr, reader) in (1..5).zip(readers) {
            assert_eq!(reader.join().unwrap(), Ok(nr));
        }
    });
}

/// The server may carry out the write later, after newer bytes: nothing goes on.
#[test]
fn a_change_without_a_reply_is_the_end() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["--filter=delay", "memory", "64M", "delay-write=3"]);
    let cut = Cut::before(server.socket());
    let client = connect(&cut.uri());
    std::thread::scope(|s| {
        let writer = s.spawn(|| write(&client, 1, 1, false));
        std::thread::sleep(Duration::from_secs(1));
        cut.cut();
        let error = writer.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("settle="), "{error}");
        assert_eq!(write(&client, 2, 1, false), Err(error.clone()));
        assert_eq!(client.flush(), Err(error.clone()));
        assert_eq!(read(&client, 1), Err(error));
    });
}

#[test]
fn a_change_without_a_reply_is_made_again_after_the_promised_time() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let server = NbdServer::nbdkit(&["--filter=delay", "memory", "64M", "delay-write=1500ms"]);
    let cut = Cut::before(server.socket());
    let client = connect(&format!("{}&settle=4", cut.uri()));
    std::thread::scope(|s| {
        let writer = s.spawn(|| write(&client, 1, 1, false));
        std::thread::sleep(Duration::from_millis(700));
        cut.cut();
        let begin = Instant::now();
        writer.join().unwrap().unwrap();
        assert!(begin.elapsed() > Duration::from_millis(3500), "{:?}", begin.elapsed());
        write(&client, 1, 2, false).unwrap();
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(read(&client, 1), Ok(2), "the first write does not come late");
}

#[test]
fn another_export_and_no_server_are_the_end() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 8 << 20);
    let mut server = NbdServer::nbdkit(&["file", text(&image.path)]);
    let client = connect(&server.uri());
    write(&client, 1, 1, false).unwrap();
    server.kill();
    std::fs::File::options().write(true).open(&image.path).unwrap().set_len(16 << 20).unwrap();
    server.restart();
    let error = read(&client, 1).unwrap_err();
    assert!(matches!(error, Error::NoExport(_)), "{error}");
    let client = connect(&format!("{}&reconnect=1", server.uri()));
    server.kill();
    let begin = Instant::now();
    assert!(read(&client, 1).is_err());
    assert!(begin.elapsed() < Duration::from_secs(10));
    server.restart();
    assert!(read(&client, 1).is_err(), "gone is gone");
}

/// With a cache for each connection the old one may still write what is in it.
#[test]
fn a_server_whose_connections_share_no_cache_must_say_when_it_has_done() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let args = ["--filter=multi-conn", "memory", "1M", "multi-conn-mode=disable"];
    let server = NbdServer::nbdkit(&args);
    let cut = Cut::before(server.socket());
    let client = connect(&cut.uri());
    assert_eq!(client.connections(), 1);
    write(&client, 1, 1, false).unwrap();
    client.flush().unwrap();
    cut.cut();
    std::thread::sleep(Duration::from_millis(20));
    write(&client, 2, 1, false).unwrap();
    cut.cut();
    std::thread::sleep(Duration::from_millis(20));
    let error = read(&client, 2).unwrap_err();
    assert!(error.to_string().contains("settle="), "{error}");
    let client = connect(&format!("{}&settle=0", cut.uri()));
    write(&client, 2, 2, false).unwrap();
    cut.cut();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(read(&client, 2), Ok(2));
}

/// The start of the export is one of those that it can have, or the server is not gone on with.
#[test]
fn another_content_at_the_same_address_is_the_end() {
    if !require(&[Need::Tool("nbdkit")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 8 << 20);
    let mut server = volatile(&image);
    let client = connect(&server.uri());
    write(&client, 0, 1, false).unwrap();
    client.flush().unwrap();
    write(&client, 0, 2, false).unwrap();
    server.restart();
    assert_eq!(read(&client, 0), Ok(2), "what was lost is one of the contents");
    client.flush().unwrap();
    server.kill();
    let file = std::fs::File::options().write(true).open(&image.path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1], 100).unwrap();
    server.restart();
    let error = read(&client, 5).unwrap_err();
    assert!(error.to_string().contains("another content"), "{error}");
    assert!(write(&client, 5, 5, false).is_err());
    drop(client);
    assert_eq!(in_file(&image.path, 5), 0, "nothing was written to it");
}
