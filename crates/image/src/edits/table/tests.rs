use extol_vfs::Rdev;

use super::MetaFile;
use crate::edits::{Edits, Owner};
use crate::tree::{DataRef, Kind, Limits, Meta, Tree, TreeBuilder};

fn apply(text: &str) -> Result<Tree, String> {
    let mut tree = TreeBuilder::new(Limits::default());
    let meta = |mode| Meta { mode, uid: 1000, gid: 1000, ..Meta::default() };
    tree.add(b"etc", meta(0o755), Kind::Dir).expect("a directory");
    let kind = Kind::File { size: 3, data: DataRef(0) };
    tree.add(b"etc/shadow", meta(0o600), kind).expect("a file");
    tree.add(b"etc/a b", meta(0o644), kind).expect("a file");
    let meta_file = MetaFile::parse("table", text.as_bytes()).map_err(|e| e.to_string())?;
    let edits = Edits { meta_file: Some(meta_file), ..Edits::default() };
    edits.apply(&mut tree, Owner::default()).map_err(|error| error.to_string())?;
    Ok(tree.finish())
}

fn node(tree: &Tree, path: &str) -> (Kind, u16, u32, u32) {
    let id = tree.find(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
    let node = tree.node(id);
    (node.kind, node.meta.mode, node.meta.uid, node.meta.gid)
}

const NULL: Rdev = Rdev { major: 1, minor: 3 };

#[test]
fn three_formats_say_the_same() {
    let table = "# a comment\n/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 0 0 -\n\
                 /etc/shadow f 640 0 42 - - - - -\n/run/pipe p 600 1 2\n";
    let cpio = "dir /dev 0755 0 0\nnod /dev/null 0666 0 0 c 1 3\nfile etc/shadow - 640 0 42\n\
                pipe /run/pipe 600 1 2\n";
    let mtree = "#mtree\n/set type=file uid=0 gid=0\n. type=dir\n    dev type=dir mode=0755\n\
                 null type=char mode=0666 \\\n   device=linux,1,3\n..\n\
                 etc type=dir nochange\nshadow mode=0640 gid=42 size=9 sha256=x time=5.7\n\
                 missing optional\n..\n..\n./run/pipe type=fifo uid=1 gid=2 mode=600\n";
    let plain = &mtree.replace("#mtree\n", "#  machine: x\n\n# .\n");
    for text in [table, cpio, mtree, plain] {
        let tree = apply(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(node(&tree, "dev"), (Kind::Dir, 0o755, 0, 0), "{text}");
        assert_eq!(node(&tree, "dev/null"), (Kind::Char(NULL), 0o666, 0, 0), "{text}");
        let (kind, mode, uid, gid) = node(&tree, "etc/shadow");
        assert!(matches!(kind, Kind::File { size: 3, .. }), "{text}");
        assert_eq!((mode, uid, gid), (0o640, 0, 42), "{text}");
        assert_eq!(node(&tree, "run/pipe"), (Kind::Fifo, 0o600, 1, 2), "{text}");
        assert_eq!(node(&tree, "etc").2, 1000, "{text}");
        assert!(tree.find(b"etc/missing").is_none());
    }
    let tree = apply(mtree).expect("applies");
    let time = tree.node(tree.find(b"etc/shadow").expect("there")).meta.mtime;
    assert_eq!((time.sec, time.nsec), (5, 7));
}

#[test]
fn rows_of_devices_and_links() {
    let tree = apply("/dev/x c 640 1 2 4 10 2 3 6\n/dev/y b 640 1 2 4 10 0 1 3\n").expect("rows");
    for (path, minor) in [("x2", 14), ("x3", 17), ("x4", 20), ("x5", 23)] {
        let kind = Kind::Char(Rdev { major: 4, minor });
        assert_eq!(node(&tree, &format!("dev/{path}")).0, kind);
    }
    assert!(tree.find(b"dev/x6").is_none() && tree.find(b"dev/x1").is_none());
    assert_eq!(node(&tree, "dev/y2").0, Kind::Block(Rdev { major: 4, minor: 12 }));
    let tree = apply("slink /l ../target 777 0 0\nsock /s 600 0 0\n").expect("links");
    let Kind::Symlink(target) = node(&tree, "l").0 else { panic!() };
    assert_eq!((tree.bytes(target), node(&tree, "s").0), (&b"../target"[..], Kind::Socket));
    let tree = apply(
        "#mtree\n./etc/a\\sb uid=7\n./etc/\\141\\040b gid=8\n./\\M-C\\M-)\\^A\\M^A type=fifo\n",
    )
    .expect("escapes");
    assert_eq!((node(&tree, "etc/a b").2, node(&tree, "etc/a b").3), (7, 8));
    assert!(tree.find(b"\xc3\xa9\x01\x81").is_some());
}

#[test]
fn lines_that_are_refused() {
    for (text, needle) in [
        ("", "is no metadata file"),
        ("hello\n", "is no metadata file"),
        ("/x c 666 0 0 1\n/y q 1\n", "line 2: the type 'q'"),
        ("/x c 999 0 0 1 3\n", "the mode '999'"),
        ("/x c 666 0 4294967295 1 3\n", "the group 4294967295 is none"),
        ("/x c 666 0 0 1 3 0 0 4000000000\n", "names more than"),
        ("/x c 666 0 0 1 0 9 0 20\n", "file 9 has no minor number"),
        ("/x c 666 0 0 1 0 9 1 9\n", "no number from 9"),
        ("/x f 666 0 0\n", "table line 1: /x: is not in the source"),
        ("/etc c 666 0 0 1 3\n", "table line 1: /etc: is something else"),
        ("dir /x 755 0\n", "line 1: is not: dir NAME"),
        ("dir /x 755 0 0\nnod /y 666 0 0 x 1 3\n", "line 2: the type 'x'"),
        ("#mtree\n..\n", "line 2: '..' leaves"),
        ("#mtree\nx type=char\n", "has no device="),
        ("#mtree\nx type=door\n", "the type 'door'"),
        ("#mtree\n\nx uname=root\n", "line 3: the owner 'root' is a name"),
        ("#mtree\nx\\q uid=0\n", "an escape"),
        ("#mtree\nx time=1.9999999999\n", "the time"),
        ("#mtree\nx uid=0\n", "is not in the source, and the line does not say"),
    ] {
        let error = apply(text).expect_err(text);
        assert!(error.starts_with("table") && error.contains(needle), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert_eq!(apply("/a/../../b d 755 0 0\n").map(|tree| tree.find(b"b").is_some()), Ok(true));
}

/// A file that is made, and one that is there.
#[test]
fn a_name_behind_dots_is_noted_once() {
    for text in ["/../b d 755 0 0\n", "/../etc d 755 0 0\n"] {
        let tree = apply(text).expect(text);
        let (notes, more) = tree.notes();
        assert_eq!((notes.len(), more), (1, 0), "{notes:?}");
        assert!(notes[0].what.contains("below the root"), "{notes:?}");
    }
}
