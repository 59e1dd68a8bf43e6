//! Tests of edits on trees.

use extol_ondisk::Time;

use super::{Edits, ModeChange, Owner, Pattern, TimeEdit};
use crate::tree::{DataRef, Kind, Limits, Meta, NodeId, OtherTimes, Tree, TreeBuilder, XattrSetId};

const FILE: Kind = Kind::File { size: 1, data: DataRef(0) };

fn at(sec: i64) -> Time {
    Time { sec, nsec: 0 }
}

fn meta(uid: u32, mode: u16) -> Meta {
    Meta { uid, gid: uid, mode, mtime: at(9), ..Meta::default() }
}

fn tree() -> TreeBuilder {
    let mut tree = TreeBuilder::new(Limits::default());
    tree.add(b"d", meta(1, 0o700), Kind::Dir).expect("d");
    tree.add(b"d/f", meta(2, 0o600), FILE).expect("d/f");
    tree.add(b"d/g.o", meta(3, 0o600), FILE).expect("d/g.o");
    tree.link(b"h.o", b"d/f").expect("h.o");
    let target = tree.target(b"l", b"x").expect("a target");
    tree.add(b"l", meta(1, 0o777), Kind::Symlink(target)).expect("l");
    tree
}

fn edit(mut tree: TreeBuilder, edits: &Edits) -> Tree {
    edits.apply(&mut tree, Owner::default()).expect("edits");
    tree.finish()
}

fn meta_of<'t>(tree: &'t Tree, path: &str) -> &'t Meta {
    &tree.node(tree.find(path.as_bytes()).expect(path)).meta
}

#[test]
fn names_are_left_out() {
    let mut edits = Edits::default();
    edits.exclude.push(Pattern::parse("--exclude", b"*.o").expect("parses"));
    // An owner that is asked for only of what is left.
    edits.map_users.add("--map-users", "0:0:3").expect("a range");
    let tree = edit(tree(), &edits);
    assert!(tree.find(b"d/g.o").is_none() && tree.find(b"h.o").is_none());
    assert_eq!(tree.node(tree.find(b"d/f").expect("stays")).nlink, 1);
    assert_eq!(tree.len(), 4);

    let mut edits = Edits::default();
    edits.exclude.push(Pattern::parse("--exclude", b"/d/").expect("parses"));
    let tree = edit(super::tests::tree(), &edits);
    assert_eq!(tree.len(), 3);
    assert!(tree.find(b"h.o").is_some());
}

#[test]
fn files_of_verity_are_named_by_any_name_or_directory() {
    for (pattern, wanted) in [
        ("h.o", [true, false]),
        ("*.o", [true, true]),
        ("d/", [true, true]),
        ("/d/g*", [false, true]),
        ("l", [false, false]),
    ] {
        let mut edits = Edits::default();
        edits.verity.push(Pattern::parse("--verity", pattern.as_bytes()).expect("parses"));
        let tree = edit(tree(), &edits);
        assert_eq!(["d/f", "d/g.o"].map(|path| meta_of(&tree, path).verity), wanted, "{pattern}");
        assert!(!meta_of(&tree, "d").verity && !meta_of(&tree, "l").verity, "{pattern}");
    }
    let error = Pattern::parse("--verity", b"/").expect_err("refused").to_string();
    assert_eq!(error, "--verity '/': matches no name");
}

#[test]
fn owners_modes_and_times() {
    let edits = Edits {
        owner: Owner { uid: Some(7), gid: None },
        root_owner: Owner { uid: None, gid: Some(8) },
        chmod: Some(ModeChange::parse("u+x,go=r").expect("parses")),
        mtime: Some(TimeEdit::Clamp(at(5))),
        ..Edits::default()
    };
    let mut builder = tree();
    let times = OtherTimes { atime: Some(at(3)), ctime: Some(at(8)), crtime: None };
    let times = builder.times(times).expect("times");
    builder.add(b"t", Meta { times, ..meta(0, 0o600) }, FILE).expect("t");
    let tree = edit(builder, &edits);
    let file = meta_of(&tree, "d/f");
    assert_eq!((file.uid, file.gid, file.mode, file.mtime), (7, 2, 0o744, at(5)));
    assert_eq!(meta_of(&tree, "l").mode, 0o777);
    let root = &tree.node(NodeId::ROOT).meta;
    assert_eq!((root.uid, root.gid), (7, 8));
    let times = tree.times(meta_of(&tree, "t").times);
    assert_eq!((times.atime, times.ctime, times.crtime), (Some(at(3)), Some(at(5)), None));
}

#[test]
fn numbers_are_mapped_once() {
    let mut edits = Edits::default();
    edits.map_users.add("--map-users", "0:2:1").expect("a range");
    edits.map_users.add("--map-users", "2:3:1").expect("a range");
    edits.map_groups.add("--map-groups", "0:0:10").expect("a range");
    let mut builder = TreeBuilder::new(Limits::default());
    let cap = [&[1, 0, 0, 3][..], &[0; 20]].concat();
    let set = vec![(b"security.capability"[..].into(), cap.into())];
    let xattrs = builder.xattrs(set).expect("a set");
    for path in ["a", "b"] {
        builder.add(path.as_bytes(), Meta { xattrs, ..meta(2, 0) }, FILE).expect(path);
        builder.link(format!("{path}2").as_bytes(), path.as_bytes()).expect("link");
    }
    let tree = edit(builder, &edits);
    for path in ["a", "a2", "b", "b2"] {
        let meta = meta_of(&tree, path);
        assert_eq!((meta.uid, meta.gid), (3, 2));
        assert_eq!(tree.xattrs(meta.xattrs)[0].1[20], 2, "the root user of the capability");
    }
    assert_eq!(meta_of(&tree, "a").xattrs, meta_of(&tree, "b").xattrs);
    assert_eq!(tree.node(NodeId::ROOT).meta.xattrs, XattrSetId::NONE);
}

#[test]
fn a_number_without_a_range_is_an_error() {
    let mut edits = Edits::default();
    edits.map_users.add("--map-users", "0:0:3").expect("a range");
    let error =
        edits.apply(&mut tree(), Owner::default()).expect_err("3 is in no range").to_string();
    assert!(error.starts_with("d/g.o: belongs to 3, which is in no range of --map-users"));
}

/// The source does not say what the root directory and a parent belong to: no range must have it.
#[test]
fn owners_that_are_given_or_implied_need_no_range() {
    let mut edits = Edits::default();
    edits.map_users.add("--map-users", "100:0:10").expect("a range");
    let source = || {
        let mut tree = TreeBuilder::new(Limits::default());
        tree.add(b"p/f", meta(101, 0o600), FILE).expect("p/f");
        tree
    };
    let tree = edit(source(), &edits);
    let owner = |tree: &Tree, path: &str| (meta_of(tree, path).uid, meta_of(tree, path).gid);
    assert_eq!(
        [owner(&tree, ""), owner(&tree, "p"), owner(&tree, "p/f")],
        [(0, 0), (0, 0), (1, 1)]
    );

    let mut told = source();
    told.add(b".", meta(5, 0o755), Kind::Dir).expect("the root directory");
    let error = edits.apply(&mut told, Owner::default()).expect_err("5 is in no range");
    assert!(error.to_string().contains("belongs to 5, which is in no range"), "{error}");
    let mut told = source();
    told.add(b".", meta(5, 0o755), Kind::Dir).expect("the root directory");
    edits.root_owner = Owner { uid: Some(7), gid: None };
    edits.apply(&mut told, Owner { uid: Some(8), gid: Some(9) }).expect("both are given");
    assert_eq!(owner(&told.finish(), ""), (7, 9));
}
