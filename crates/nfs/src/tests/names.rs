//! Names and what they lead to.

use super::*;

#[test]
fn names_come_move_and_go() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let file = client.create(&root, b"file", 0o640).expect("create");
    assert_eq!(client.attr(&file).expect("attributes")[..5], [1, 0o640, 1, 1000, 100]);
    assert_eq!(client.lookup(&root, b"file"), Ok(file.clone()));
    assert_eq!(client.create(&root, b"file", 0o640), Err(17));
    let dir = client.mkdir(&root, b"dir", 0o750).expect("mkdir");
    assert_eq!(client.attr(&dir).expect("attributes")[..3], [2, 0o750, 2]);
    assert_eq!(client.lookup(&dir, b".."), Ok(root.clone()));
    assert_eq!(client.lookup(&dir, b"."), Ok(dir.clone()));
    assert_eq!(client.lookup(&file, b"x"), Err(20));
    assert_eq!(client.lookup(&root, &[b'x'; 256]), Err(63));

    let linked = client.call(LINK, |out| {
        out.opaque(&file).opaque(&dir).opaque(b"hard");
    });
    assert_eq!(linked.0, 0);
    assert_eq!(client.attr(&file).expect("attributes")[2], 2);
    assert_eq!(client.rename((&root, b"file"), (&dir, b"moved")), 0);
    assert_eq!(client.lookup(&root, b"file"), Err(2));
    assert_eq!(client.lookup(&dir, b"moved"), Ok(file.clone()));
    assert_eq!(client.rename((&root, b"file"), (&dir, b"moved")), 2);

    assert_eq!(client.remove(RMDIR, &root, b"dir"), 66);
    assert_eq!(client.remove(REMOVE, &root, b"dir"), 21);
    assert_eq!(client.remove(RMDIR, &dir, b"hard"), 20);
    assert_eq!(client.remove(REMOVE, &dir, b"hard"), 0);
    assert_eq!(client.remove(REMOVE, &dir, b"moved"), 0);
    assert_eq!(client.remove(REMOVE, &dir, b"moved"), 2);
    assert_eq!(client.attr(&file), Err(70));
    assert_eq!(client.remove(RMDIR, &root, b"dir"), 0);
    assert_eq!(client.attr(&dir), Err(70));
    for name in [&b"."[..], b".."] {
        assert_eq!(client.create(&root, name, 0o600), Err(17));
        assert_eq!(client.remove(REMOVE, &root, name), 22);
        assert_eq!(client.remove(RMDIR, &root, name), 22);
        assert_eq!(client.rename((&root, name), (&root, b"x")), 22);
    }
}

#[test]
fn symbolic_links_and_special_files() {
    let (_, client) = Client::new(Config { squash: crate::Squash::None, ..Config::default() });
    let root = client.root();
    let link = client.make(SYMLINK, &root, b"link", |out| {
        settings(out, Some(0o777));
        out.opaque(b"some/where");
    });
    let link = link.expect("symlink");
    let (status, rest) = client.call(READLINK, |out| {
        out.opaque(&link);
    });
    assert_eq!((status, &rest[4 + ATTR + 4..]), (0, &b"some/where\0\0"[..]));
    assert_eq!(
        client
            .call(READLINK, |out| {
                out.opaque(&root);
            })
            .0,
        22
    );
    let node = |client: &Client, name: &[u8], kind: u32| {
        client.make(MKNOD, &root, name, |out| {
            out.u32(kind);
            settings(out, Some(0o600));
            if kind < 6 {
                out.u32(9).u32(300);
            }
        })
    };
    let fifo = node(&client, b"fifo", 7).expect("mknod");
    assert_eq!(client.attr(&fifo).expect("attributes")[0], 7);
    assert_eq!(node(&client, b"null", 4), Err(1));
    let device = node(&client.user(0, 0), b"null", 4).expect("mknod");
    let words = client.attr(&device).expect("attributes");
    assert_eq!((words[0], &words[9..11]), (4, &[9, 300][..]));
    let unknown = client.make(MKNOD, &root, b"odd", |out| {
        out.u32(9);
    });
    assert_eq!(unknown, Err(10007));
}

#[test]
fn an_exclusive_create_may_be_repeated() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let exclusive = |verifier: &[u8; 8]| {
        client.make(CREATE, &root, b"lock", |out| {
            out.u32(2).fixed(verifier);
        })
    };
    let file = exclusive(b"\xffverifi\x80").expect("create");
    assert_eq!(exclusive(b"\xffverifi\x80"), Ok(file.clone()));
    assert_eq!(exclusive(b"another!"), Err(17));
    assert_eq!(client.write(&file, 0, b"used", 2).0, 0);
    assert_eq!(exclusive(b"\xffverifi\x80"), Err(17));
    // An unchecked one finds it, and cuts it if it says so.
    let unchecked = client.make(CREATE, &root, b"lock", |out| {
        out.u32(0).u32(0).u32(0).u32(0).bool(true).u64(1).u32(0).u32(0);
    });
    assert_eq!((unchecked, client.size(&file)), (Ok(file.clone()), 1));
}

/// What a client takes for unchanged is what it knew before, and nothing else.
#[test]
fn changes_tell_attributes_before_and_after() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let before = client.attr(&root).expect("attributes");
    let (status, rest) = client.call(MKDIR, |out| {
        out.opaque(&root).opaque(b"dir");
        settings(out, Some(0o700));
    });
    assert_eq!(status, 0);
    let words: Vec<u32> = rest
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().expect("a word")))
        .collect();
    // Handle (1, 32, 8 words), attributes (1, 21 words); then before (1, 6 words) and after.
    let change = &words[10 + 22..];
    assert_eq!(change.len(), 7 + 22);
    let known = [&before[5..7], &before[17..21]].concat();
    assert_eq!((change[0], &change[1..7]), (1, &known[..]));
    assert_eq!((change[7], &change[8..]), (1, &client.attr(&root).expect("attributes")[..]));
    // A guard that is too old changes nothing.
    let guarded = |sec: u32, nsec: u32| {
        let set = |out: &mut Out| {
            out.opaque(&root);
            settings(out, None);
            out.bool(true).u32(sec).u32(nsec);
        };
        client.call(SETATTR, set).0
    };
    let now = client.attr(&root).expect("attributes");
    assert_eq!(guarded(now[19], now[20] ^ 1), 10002);
    assert_eq!(guarded(now[19], now[20]), 0);
}

#[test]
fn mount_finds_directories_only() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let dir = client.mkdir(&root, b"dir", 0o700).expect("mkdir");
    let inner = client.mkdir(&dir, b"inner", 0o755).expect("mkdir");
    client.create(&root, b"file", 0o600).expect("create");
    assert_eq!(client.mount(b"//dir/inner/"), Ok(inner));
    for (path, status) in
        [(&b"/file"[..], 20), (b"/none", 2), (b"dir", 2), (b"/file/x", 20), (b"", 2)]
    {
        assert_eq!(client.mount(path), Err(status), "{path:?}");
    }
    // Rights count on the way.
    assert_eq!(client.user(2000, 200).mount(b"/dir/inner"), Err(13));
}
