//! Archives that are damaged, odd, or mean no good.

use std::fs::{self, File};

use extol_testkit::Scratch;

use super::{error, file, notes, paths, scan};
use crate::error::BuildError;
use crate::source::maker::Maker;
use crate::source::{Source as _, TarSource};
use crate::tree::{Kind, Limits, TreeBuilder};

#[test]
fn hostile_names_stay_below_the_root() {
    let long = "n".repeat(255);
    let archive = Maker::default()
        .entry("../../etc/passwd", b'0', b"x")
        .entry("/abs", b'0', b"x")
        .link("up", b'2', "../../..")
        .entry("up/inside", b'0', b"x")
        .pax(&[("path", &long)])
        .entry("short", b'0', b"x")
        .entry("a/./b//c/", b'5', b"")
        .end();
    let (_, tree) = scan(&archive, Limits::default()).expect("scan");
    assert_eq!(
        paths(&tree),
        ["abs", "inside", &*long, "up", "a", "a/b", "a/b/c", "etc", "etc/passwd"]
    );
    assert_eq!(notes(&tree).len(), 3);

    let long = "n".repeat(256);
    let why = error(&Maker::default().pax(&[("path", &long)]).entry("x", b'0', b"").end());
    assert_eq!(why, format!("{long}: has a name of 256 bytes; ext4 has at most 255"));
    let why = error(&Maker::default().pax(&[("path", "a\0b")]).entry("x", b'0', b"").end());
    assert_eq!(why, "a\\u{0}b: its name has a NUL byte");
    let deep = "d/".repeat(5000);
    let why = error(&Maker::default().pax(&[("path", &deep)]).entry("x", b'5', b"").end());
    assert!(why.ends_with("is more than 4096 directories deep (--limits depth=NUMBER)"), "{why}");
}

#[test]
fn hostile_links() {
    for (archive, why) in [
        (file("a", b"").link("b", b'1', "gone"), "b: a hard link to 'gone': is not there"),
        (file("a", b"").link("a", b'1', "a"), "a: a hard link to 'a': is the name itself"),
        (file("d/a", b"").link("b", b'1', "d"), "b: a hard link to 'd': is a directory, which"),
        (Maker::default().link("b", b'2', ""), "b: is a symbolic link without a target"),
        (
            Maker::default().link("a", b'2', "b").link("b", b'2', "a").entry("a/x", b'0', b""),
            "a/x: leads through more than 40 symbolic links",
        ),
        (file("a", b"").entry("a/b", b'0', b""), "a/b: leads through a file that is not a dir"),
        (Maker::default().entry("./", b'0', b""), ""),
        (Maker::default().link("", b'2', "x"), "/: stands for a directory, and is said to be"),
    ] {
        if why.is_empty() {
            scan(&archive.end(), Limits::default()).expect("scan");
        } else {
            let error = error(&archive.end());
            assert!(error.starts_with(why), "{error}");
        }
    }
    // Links in a circle are what they are, as long as nothing leads through them.
    let archive = Maker::default().link("a", b'2', "b").link("b", b'2', "a").end();
    assert_eq!(paths(&scan(&archive, Limits::default()).expect("scan").1), ["a", "b"]);
}

#[test]
fn the_last_of_equal_names_counts() {
    let archive = file("a", b"old").entry("d/x", b'0', b"").entry("d/y", b'0', b"");
    let archive = archive.entry("a", b'0', b"new").link("d", b'2', "a").entry("e", b'5', b"");
    let archive = archive.entry("e/f", b'0', b"").entry("e", b'5', b"").end();
    let (source, tree) = scan(&archive, Limits::default()).expect("scan");
    assert_eq!(paths(&tree), ["a", "d", "e", "e/f"]);
    // (That of a file, and a directory that is said again, lose nothing that goes unsaid.)
    assert_eq!(notes(&tree), ["d: takes the place of a directory of that name and of all in it"]);
    let Kind::File { data, .. } = tree.node(tree.find(b"a").expect("a")).kind else { panic!() };
    let mut buf = [0; 3];
    source.reader(data).expect("opens").read_at(0, &mut buf).expect("reads");
    assert_eq!(&buf, b"new");
}

#[test]
fn damaged_archives() {
    let whole = Maker::default().pax(&[("mtime", "5")]).entry("a", b'0', &[b'x'; 1000]).end();
    // Cut off anywhere but between two entries, it is an error.
    for len in (0..whole.len() - 1024).step_by(100).filter(|len| *len > 0) {
        let why = error(&whole[..len]);
        assert!(why.contains("cut off"), "{len}: {why}");
    }
    let (_, tree) = scan(&whole[..whole.len() - 1024], Limits::default()).expect("scan");
    assert!(notes(&tree)[0].contains("does not end with blocks of zeros"));
    assert_eq!(error(b""), "x.tar: is empty: no tar archive");
    assert!(
        error(&[b'x'; 3000]).starts_with("x.tar: is no tar archive: the checksum of its first")
    );
    assert!(error(b"a few words").starts_with("x.tar: is no tar archive, or cut off"));
    // A volume begins with zeros, as an archive without entries is.
    let mut volume = vec![0; 4096];
    assert!(scan(&volume, Limits::default()).is_ok());
    volume[1080] = 0x53;
    assert!(error(&volume).starts_with("x.tar: is no tar archive: it begins with zeros"));
    let mut damaged = file("a", b"1").entry("b", b'0', b"2").end();
    damaged[1024] = b'x';
    assert!(error(&damaged).starts_with("x.tar: at byte 1024: is no header"));

    for (records, why) in [
        (&[("size", "99999999999999999999")][..], "a: has an extended header whose 'size' cannot"),
        (&[("uid", "4294967295")], "a: has the owner 4294967295, which Linux cannot have"),
        (&[("gid", "-1")], "a: has the group -1, which Linux cannot have"),
        (&[("GNU.sparse.major", "9")], "a: is a sparse file without a size"),
        (
            &[("GNU.sparse.major", "9"), ("GNU.sparse.realsize", "5")],
            "a: is a sparse file of the unknown format 9.0",
        ),
        (
            &[("GNU.sparse.map", "0,99"), ("GNU.sparse.size", "5")],
            "a: has a map of a sparse file that is out of order, or leads behind its end",
        ),
        (
            &[("GNU.sparse.map", "0,4"), ("GNU.sparse.size", "5")],
            "a: has a map of a sparse file that does not fit its contents",
        ),
        (
            &[("GNU.sparse.map", "0,5"), ("GNU.sparse.size", "99999999999999")],
            "a: is 99999999999999 bytes long, more than 17592186044416 (--limits file-size=",
        ),
        (&[("size", "1000000000000000")], "a: is 1000000000000000 bytes long, more than"),
        (&[("size", "1000000000")], "x.tar: is cut off: the archive ends within an entry"),
    ] {
        let archive = Maker::default().pax(records).entry("a", b'0', b"12345").end();
        let got = error(&archive);
        assert!(got.starts_with(why), "{got}");
    }
    // Far more than an extension may have, without as many bytes.
    let mut maker = Maker::default();
    maker.header(b"bomb", b'x', (1 << 33) - 1, b"");
    assert_eq!(error(&maker.end()), "bomb: has more than 1048576 bytes of extended headers");
    let mut maker = Maker::default();
    for _ in 0..5 {
        maker = maker.entry("name", b'L', &[b'n'; 300_000]);
    }
    assert!(error(&maker.end()).contains("bytes of extended headers"));
}

#[test]
fn global_headers_hold_for_all_that_follows() {
    let archive = Maker::default()
        .records(b'g', &[("uid", "7"), ("mtime", "9.5"), ("path", "evil"), ("comment", "x")])
        .entry("a", b'0', b"")
        .pax(&[("uid", "8"), ("mtime", "")])
        .entry("b", b'0', b"")
        .end();
    let (_, tree) = scan(&archive, Limits::default()).expect("scan");
    let meta = |path: &[u8]| tree.node(tree.find(path).expect("is there")).meta;
    assert_eq!((meta(b"a").uid, meta(b"a").mtime.nsec), (7, 500_000_000));
    assert_eq!((meta(b"b").uid, meta(b"b").mtime.sec), (8, 7));
    assert_eq!(notes(&tree), ["pax: names and sizes in a global header are passed over"]);
}

#[test]
fn kinds_that_are_odd() {
    let archive = file("old-dir/", b"")
        .entry("contiguous", b'7', b"1")
        .entry("dumped", b'D', b"Ya\0")
        .entry("label", b'V', b"")
        .entry("what", b'~', b"data")
        .end();
    let (_, tree) = scan(&archive, Limits::default()).expect("scan");
    assert_eq!(paths(&tree), ["contiguous", "what", "dumped", "old-dir"]);
    assert_eq!(notes(&tree), ["what: is of the unknown type ~: taken as a file"]);
    assert!(error(&file("a", b"").entry("b", b'M', b"").end()).starts_with("b: goes on from"));
}

#[test]
fn an_archive_that_changes_is_an_error() {
    let scratch = Scratch::new();
    let path = scratch.join("x.tar");
    fs::write(&path, file("a", b"1").end()).expect("write");
    let mut source = TarSource::open(&path, scratch.path()).expect("opens");
    let mut builder = TreeBuilder::new(Limits::default());
    source.scan(&mut builder).expect("scan");
    let tree = builder.finish();
    let Kind::File { data, .. } = tree.node(tree.find(b"a").expect("a")).kind else { panic!() };
    let mut reader = source.reader(data).expect("opens");
    reader.end().expect("unchanged");
    File::options().write(true).open(&path).expect("opens").set_len(600).expect("cut");
    assert!(matches!(reader.end(), Err(BuildError::Changed { .. })));
    drop(reader);
    let error = source.scan(&mut TreeBuilder::new(Limits::default())).expect_err("once only");
    assert!(error.to_string().ends_with("was read before"));
    let error = TarSource::open(scratch.path(), scratch.path()).expect_err("a directory");
    assert!(error.to_string().ends_with("is a directory, not a tar archive"));
}

#[test]
fn limits_of_sparse_files() {
    let mut map = String::new();
    for nr in 0..2000 {
        map += &format!("{},1,", nr * 10);
    }
    let archive = || {
        let records = [("GNU.sparse.map", &*map), ("GNU.sparse.size", "20000")];
        Maker::default().pax(&records).entry("a", b'0', &[b'x'; 2000]).end()
    };
    scan(&archive(), Limits::default()).expect("scan");
    let limits = Limits { sparse_runs: 1999, ..Limits::default() };
    scan(&archive(), limits).expect_err("too many runs");
    let limits = Limits { meta_bytes: 2000 * 23, ..Limits::default() };
    scan(&archive(), limits).expect_err("too much memory");
}

#[test]
fn attributes_and_device_numbers() {
    let archive = Maker::default()
        .pax(&[
            ("SCHILY.xattr.user.x", "v"),
            ("SCHILY.acl.access", "user::rwx,user:lisa:r--:5,group::r--,mask::rwx,other::---"),
            ("RHT.security.selinux", "system_u:object_r:etc_t:s0"),
            ("SCHILY.xattr.com.apple.x", "v"),
        ])
        .entry("a", b'0', b"")
        .pax(&[("SCHILY.devmajor", "4095"), ("SCHILY.devminor", "1048575")])
        .entry("dev", b'4', b"")
        .end();
    let (_, tree) = scan(&archive, Limits::default()).expect("scan");
    let node = tree.node(tree.find(b"a").expect("a"));
    let names: Vec<_> = tree.xattrs(node.meta.xattrs).iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, [&b"security.selinux"[..], b"system.posix_acl_access", b"user.x"]);
    assert_eq!(node.meta.mode, 0o770, "the group's bits are those of the mask");
    assert_eq!(notes(&tree), ["a: its attribute 'com.apple.x' is left out: ext4 cannot have it"]);
    let Kind::Block(rdev) = tree.node(tree.find(b"dev").expect("dev")).kind else { panic!() };
    assert_eq!((rdev.major, rdev.minor), (4095, 1_048_575));
}
