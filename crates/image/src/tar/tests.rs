//! What headers say is what the reader of archives understands.

use std::fs;

use extol_testkit::Scratch;
use extol_vfs::{Rdev, Timestamp};

use super::header::Entry;
use super::records::Records;
use crate::source::{Source as _, TarSource};
use crate::tree::{Kind, Limits, NodeId, Tree, TreeBuilder};

fn entry(path: &[u8], kind: u8) -> Entry<'_> {
    Entry {
        path,
        link: b"",
        kind,
        mode: 0o644,
        uid: 1,
        gid: 2,
        size: 0,
        mtime: Timestamp { sec: 7, nsec: 0 },
        rdev: Rdev::default(),
        real_size: None,
        records: Records::default(),
    }
}

/// Looks a path of an archive up.
fn find(tree: &Tree, path: &[u8]) -> NodeId {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    tree.find(path).unwrap_or_else(|| panic!("{} is not there", path.escape_ascii()))
}

fn read(entries: Vec<Entry<'_>>) -> (Tree, Vec<u8>) {
    let mut archive: Vec<u8> = entries.into_iter().flat_map(Entry::encode).collect();
    archive.resize(archive.len() + 1024, 0);
    let scratch = Scratch::new();
    let path = scratch.join("x.tar");
    fs::write(&path, &archive).expect("write");
    let mut tree = TreeBuilder::new(Limits::default());
    TarSource::open(&path, scratch.path()).expect("opens").scan(&mut tree).expect("scan");
    (tree.finish(), archive)
}

#[test]
fn names_of_all_lengths_and_bytes() {
    let mut paths: Vec<Vec<u8>> = vec![
        "./ü\u{2028}".into(),
        b"./\xff\xfe".to_vec(),
        b"./new\nline".to_vec(),
        [b"./", &b"\xff"[..], &[b'x'; 200]].concat(),
    ];
    for len in [98, 99, 100, 101, 154, 155, 156, 157, 255] {
        paths.push([b"./".to_vec(), vec![b'a'; len.min(255)]].concat());
        paths.push([b"./".to_vec(), vec![b'd'; 150], b"/".to_vec(), vec![b'b'; len]].concat());
        paths.push([vec![b'p'; 155], b"/".to_vec(), vec![b'c'; len]].concat());
        paths.push([vec![b'q'; 156], b"/".to_vec(), vec![b'c'; len]].concat());
        paths.push([b"x/".repeat(300), vec![b'e'; len]].concat());
    }
    let (tree, _) = read(paths.iter().map(|path| entry(path, b'6')).collect());
    for path in &paths {
        let node = find(&tree, path);
        assert_eq!(tree.node(node).kind, Kind::Fifo, "{}", path.escape_ascii());
        assert_eq!(tree.node(node).meta.mtime.sec, 7);
    }
    // Short names need one block, long ones an extended header.
    assert_eq!(entry(b"./a", b'6').encode().len(), 512);
    assert_eq!(entry(&[b'a'; 101], b'6').encode().len(), 3 * 512);
}

#[test]
fn numbers_beyond_a_header() {
    let mut large = entry(b"large", b'3');
    (large.uid, large.gid) = (0o777_7777, 4_000_000_000);
    large.rdev = Rdev { major: 4095, minor: 0xf_ffff };
    large.mtime = Timestamp { sec: -3, nsec: 250_000_000 };
    large.records.xattr(b"user.a=b%", b"\0value=\n");
    large.records.xattr(b"user.plain", b"");
    large.records.xattr(b"security.selinux", b"u:r:t\0");
    let list = [
        &[2, 0, 0, 0][..],
        &[1, 0, 7, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 0xf6, 1, 0, 0],
        &[4, 0, 5, 0, 255, 255, 255, 255],
        &[16, 0, 5, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    large.records.xattr(b"system.posix_acl_access", &list);
    let mut late = entry(b"late", b'6');
    late.mtime = Timestamp { sec: 1 << 34, nsec: 0 };
    let (tree, _) = read(vec![large, late]);
    let node = tree.node(find(&tree, b"large"));
    assert_eq!((node.meta.uid, node.meta.gid), (0o777_7777, 4_000_000_000));
    assert_eq!(node.kind, Kind::Char(Rdev { major: 4095, minor: 0xf_ffff }));
    assert_eq!((node.meta.mtime.sec, node.meta.mtime.nsec), (-3, 250_000_000));
    assert_eq!(node.meta.mode, 0o750);
    let xattrs: Vec<(&[u8], &[u8])> =
        tree.xattrs(node.meta.xattrs).iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(
        xattrs,
        [
            (&b"security.selinux"[..], &b"u:r:t\0"[..]),
            (b"system.posix_acl_access", &list),
            (b"user.a=b%", b"\0value=\n"),
            (b"user.plain", b""),
        ]
    );
    let late = tree.node(find(&tree, b"late"));
    assert_eq!(late.meta.mtime.sec, 1 << 34);
}

#[test]
fn links_with_long_targets() {
    let first = [b"./".to_vec(), vec![b'n'; 150]].concat();
    let mut link = entry(b"./link", b'1');
    link.link = &first;
    let target = vec![b't'; 3000];
    let mut symlink = entry(b"./symlink", b'2');
    symlink.link = &target;
    let (tree, _) = read(vec![entry(&first, b'6'), link, symlink]);
    assert_eq!(find(&tree, b"link"), find(&tree, &first));
    let node = tree.node(find(&tree, b"symlink"));
    let Kind::Symlink(found) = node.kind else { panic!("{node:?}") };
    assert_eq!(tree.bytes(found), target);
}
