//! Tests of trees.

use std::collections::{BTreeMap, HashMap, VecDeque};

use extol_vfs::Rdev;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

use super::{DataRef, Kind, Limits, MAX_NAME, Meta, NodeId, Tree, TreeBuilder};
use crate::error::Result;

fn meta(mode: u16) -> Meta {
    Meta { mode, ..Meta::default() }
}

fn file(data: u64) -> Kind {
    Kind::File { size: 1, data: DataRef(data) }
}

fn builder() -> TreeBuilder {
    TreeBuilder::new(Limits::default())
}

fn names(tree: &Tree, dir: NodeId) -> Vec<String> {
    tree.children(dir).map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn numbers_are_in_layout_order() {
    let mut b = builder();
    for path in ["z/y", "b", "a/sub/x", "a/f", "c"] {
        b.add(path.as_bytes(), meta(0o644), file(0)).expect(path);
    }
    let tree = b.finish();
    let order: Vec<_> = tree.nodes().map(|(id, _)| tree.path(id)).collect();
    let order: Vec<_> = order.iter().map(|p| std::str::from_utf8(p).expect("text")).collect();
    assert_eq!(order, ["", "b", "c", "a", "a/f", "a/sub", "a/sub/x", "z", "z/y"]);
    assert_eq!(names(&tree, tree.root()), ["a", "b", "c", "z"]);
    assert_eq!(tree.node(tree.root()).nlink, 4);
}

/// All that a tree says, as text.
fn dump(tree: &Tree) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for (id, node) in tree.nodes() {
        let kind = match node.kind {
            Kind::Symlink(target) => format!("-> {:?}", tree.bytes(target)),
            other => format!("{other:?}"),
        };
        let (mode, links) = (node.meta.mode, node.nlink);
        writeln!(out, "{id:?} {mode:o} {links} {kind}").expect("text");
        for (name, child) in tree.children(id) {
            writeln!(out, "  {:?} {child:?}", String::from_utf8_lossy(name)).expect("text");
        }
    }
    out
}

/// What a tree must be, by paths: files are numbers, so that links are equal numbers.
#[derive(Default, Debug)]
struct Model {
    /// By path without a slash in front; of the root directory "".
    files: BTreeMap<String, (u16, ModelFile)>,
}

/// What a file of the model is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ModelFile {
    Dir,
    File(u64),
    Symlink(String),
}

impl Model {
    fn new() -> Self {
        Self { files: BTreeMap::from([(String::new(), (0o755, ModelFile::Dir))]) }
    }

    /// A path without links among its parents, without dots, below the root.
    fn clean(&mut self, path: &str, make: bool) -> Option<String> {
        let mut todo: VecDeque<String> = parts(path);
        let (mut done, mut links) = (Vec::<String>::new(), 0);
        while let Some(part) = todo.pop_front() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(part);
            let path = done.join("/");
            if todo.is_empty() {
                break;
            }
            match self.files.get(&path).cloned() {
                None if make => {
                    self.files.insert(path, (0o755, ModelFile::Dir));
                }
                None | Some((_, ModelFile::File(_))) => return None,
                Some((_, ModelFile::Dir)) => {}
                Some((_, ModelFile::Symlink(target))) => {
                    links += 1;
                    if links > 40 {
                        return None;
                    }
                    done.pop();
                    if target.starts_with('/') {
                        done.clear();
                    }
                    let mut ahead = parts(&target);
                    ahead.extend(todo);
                    todo = ahead;
                }
            }
        }
        Some(done.join("/"))
    }

    fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.files.retain(|name, _| name != path && !name.starts_with(&below));
    }

    fn add(&mut self, path: &str, mode: u16, what: ModelFile) -> bool {
        let dir = is_dir(path);
        let Some(path) = self.clean(path, true) else { return false };
        let both_dirs = what == ModelFile::Dir
            && self.files.get(&path).is_some_and(|(_, there)| *there == ModelFile::Dir);
        if dir && !both_dirs {
            return false;
        }
        if !both_dirs {
            self.remove(&path);
        }
        self.files.insert(path, (mode, what));
        true
    }

    fn link(&mut self, path: &str, target: &str) -> bool {
        let Some(target) = self.clean(target, false) else { return false };
        let Some(file) = self.files.get(&target).cloned() else { return false };
        if file.1 == ModelFile::Dir {
            return false;
        }
        let dir = is_dir(path);
        let Some(path) = self.clean(path, true) else { return false };
        if path == target || dir {
            return false;
        }
        self.remove(&path);
        self.files.insert(path, file);
        true
    }
}

/// True for a path that stands for a directory whatever is there.
fn is_dir(path: &str) -> bool {
    parts(path).back().is_none_or(|part| part == "..")
}

fn parts(path: &str) -> VecDeque<String> {
    path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Dir(String),
    File(String),
    Symlink(String, String),
    Link(String, String),
}

fn step() -> impl Strategy<Value = Step> {
    let path = || "(/|\\./|\\.\\./)?[abc](/([abc]|\\.\\.)){0,3}";
    prop_oneof![
        path().prop_map(Step::Dir),
        path().prop_map(Step::File),
        (path(), path()).prop_map(|(path, target)| Step::Symlink(path, target)),
        (path(), path()).prop_map(|(path, target)| Step::Link(path, target)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn as_the_model(steps in prop::collection::vec(step(), 1..30)) {
        let (mut b, mut model) = (builder(), Model::new());
        for (nr, step) in steps.iter().enumerate() {
            let mode = nr as u16;
            let (got, wanted) = match step {
                Step::Dir(path) => (
                    b.add(path.as_bytes(), meta(mode), Kind::Dir).is_ok(),
                    model.add(path, mode, ModelFile::Dir),
                ),
                Step::File(path) => (
                    b.add(path.as_bytes(), meta(mode), file(nr as u64)).is_ok(),
                    model.add(path, mode, ModelFile::File(nr as u64)),
                ),
                Step::Symlink(path, target) => {
                    let kept = b.target(path.as_bytes(), target.as_bytes()).expect("short");
                    let kind = Kind::Symlink(kept);
                    (
                        b.add(path.as_bytes(), meta(mode), kind).is_ok(),
                        model.add(path, mode, ModelFile::Symlink(target.clone())),
                    )
                }
                Step::Link(path, target) => (
                    b.link(path.as_bytes(), target.as_bytes()).is_ok(),
                    model.link(path, target),
                ),
            };
            prop_assert_eq!(got, wanted, "{:?}", step);
        }
        let tree = b.finish();
        prop_assert_eq!(tree.names() + 1, model.files.len());
        let mut links = HashMap::new();
        for (path, (mode, what)) in &model.files {
            let id = tree.find(path.as_bytes()).expect(path);
            let node = tree.node(id);
            *links.entry(id).or_insert(0) += 1;
            prop_assert_eq!(node.meta.mode, *mode);
            match (what, node.kind) {
                (ModelFile::Dir, Kind::Dir) => {
                    prop_assert_eq!(&tree.path(id), path.as_bytes());
                }
                (ModelFile::File(nr), Kind::File { data, .. }) => prop_assert_eq!(data.0, *nr),
                (ModelFile::Symlink(target), Kind::Symlink(kept)) => {
                    prop_assert_eq!(tree.bytes(kept), target.as_bytes());
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(links.len(), tree.len());
        for (id, node) in tree.nodes().filter(|(_, node)| !node.kind.is_dir()) {
            prop_assert_eq!(node.nlink, links[&id]);
        }
        in_layout_order(&tree);
    }

    /// A set of files gives one tree, in whatever order it is added.
    #[test]
    fn the_order_of_adding_does_not_count(
        paths in prop::collection::btree_set("[ab]{1,2}(/[ab]{1,2}){0,2}", 1..20),
        seed in any::<u64>(),
    ) {
        let mut order: Vec<_> = paths.iter().collect();
        let is_parent = |path: &str| paths.iter().any(|p| p.starts_with(&format!("{path}/")));
        let mut dumps = Vec::new();
        for round in 0..2 {
            if round == 1 {
                order.shuffle(&mut SmallRng::seed_from_u64(seed));
            }
            let mut b = builder();
            for path in &order {
                let kind = if is_parent(path) { Kind::Dir } else { file(7) };
                b.add(path.as_bytes(), meta(0o755), kind).expect("add");
            }
            dumps.push(dump(&b.finish()));
        }
        prop_assert_eq!(&dumps[0], &dumps[1]);
    }
}

/// TE-2.
fn in_layout_order(tree: &Tree) {
    let mut next = 0;
    let mut dirs = vec![tree.root()];
    while let Some(dir) = dirs.pop() {
        assert_eq!(dir.0, next, "a directory comes behind all before it");
        next += 1;
        let mut subdirs = Vec::new();
        for (_, child) in tree.children(dir) {
            if tree.node(child).kind.is_dir() {
                subdirs.push(child);
            } else if child.0 >= next {
                assert_eq!(child.0, next);
                next += 1;
            }
        }
        dirs.extend(subdirs.into_iter().rev());
    }
    assert_eq!(next as usize, tree.len());
}

#[test]
fn names_that_ext4_cannot_have() {
    let mut b = builder();
    let long = vec![b'n'; MAX_NAME];
    b.add(&long, meta(0), file(0)).expect("255 bytes");
    for name in [&[b'n'; 256][..], b"a\0b", &[&[b'n'; 256][..], b"/x"].concat()] {
        let error = b.add(name, meta(0), file(0)).expect_err("refused").to_string();
        assert!(error.len() < 500 && !error.contains('\0'), "{error}");
    }
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        b.add_child(NodeId::ROOT, name, meta(0), file(0)).expect_err("refused");
    }
    assert_eq!(b.finish().len(), 2);
}

#[test]
fn links_that_cannot_be() {
    let mut b = builder();
    b.add(b"d/f", meta(0), file(0)).expect("add");
    let target = b.target(b"loop", b"loop").expect("target");
    b.add(b"loop", meta(0), Kind::Symlink(target)).expect("add");
    for (path, target, why) in [
        ("x", "gone", "x: a hard link to 'gone': is not there"),
        ("x", "gone/y", "x: a hard link to 'gone/y': is not there"),
        ("x", "d", "x: a hard link to 'd': is a directory, which has one name only"),
        ("d/f", "d/../d/f", "d/f: a hard link to 'd/../d/f': is the name itself"),
        ("x", "loop/y", "x: a hard link to 'loop/y': leads through more than 40 symbolic links"),
        ("loop/x", "d/f", "loop/x: leads through more than 40 symbolic links"),
        ("d/f/x", "d/f", "d/f/x: leads through a file that is not a directory"),
    ] {
        let error = b.link(path.as_bytes(), target.as_bytes()).expect_err(why);
        assert_eq!(error.to_string(), why);
    }
    for target in [&b""[..], b"a\0", &[b't'; 4096]] {
        b.target(b"l", target).expect_err("refused");
    }
}

#[test]
fn what_leads_out_ends_at_the_root() {
    let mut b = builder();
    for (path, target) in [("up", "../../.."), ("abs", "/d"), ("d/rel", "..")] {
        let target = b.target(path.as_bytes(), target.as_bytes()).expect("target");
        b.add(path.as_bytes(), meta(0), Kind::Symlink(target)).expect("add");
    }
    for path in ["../a", "/b", "up/c", "abs/e", "d/rel/f", "d/../../g"] {
        b.add(path.as_bytes(), meta(0), file(0)).expect(path);
    }
    let tree = b.finish();
    assert_eq!(names(&tree, tree.root()), ["a", "abs", "b", "c", "d", "f", "g", "up"]);
    assert_eq!(names(&tree, tree.find(b"d").expect("d")), ["e", "rel"]);
    let (notes, more) = tree.notes();
    let notes: Vec<_> = notes.iter().map(|note| note.entry.as_str()).collect();
    assert_eq!((notes, more), (vec!["../a", "/b", "up/c", "d/../../g"], 0));
}

#[test]
fn limits_hold() {
    let small = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        TreeBuilder::new(limits)
    };
    let mut b = small(|limits| limits.entries = 3);
    let all: Result<Vec<_>> =
        (0..9).map(|nr| b.add(format!("{nr}").as_bytes(), meta(0), file(0))).collect();
    let error = all.expect_err("too many").to_string();
    assert_eq!(
        error,
        "the source has more than 3 entries: allow more with --limits entries=NUMBER"
    );

    let mut b = small(|limits| limits.meta_bytes = 1000);
    b.add(&[b'n'; 200], meta(0), file(0)).expect("fits");
    b.target(b"l", &[b't'; 900]).expect_err("too many bytes");
    let mut b = small(|limits| limits.meta_bytes = 1000);
    let set = vec![(b"user.a"[..].into(), vec![0; 900].into())];
    b.xattrs(set).expect_err("too many bytes");

    let mut b = small(|limits| limits.depth = 10);
    b.add(&b"d/".repeat(10), meta(0), Kind::Dir).expect("10 directories");
    b.add(&b"d/".repeat(11), meta(0), file(0)).expect("a file in them");
    b.add(&b"d/".repeat(12), meta(0), file(0)).expect_err("too deep");
    // A depth that comes from a link's target.
    let target = b.target(b"l", &b"e/".repeat(300)).expect("target");
    b.add(b"l", meta(0), Kind::Symlink(target)).expect("add");
    b.add(b"l/x", meta(0), file(0)).expect_err("too deep");

    let mut b = small(|limits| limits.file_size = 10);
    let kind = |size| Kind::File { size, data: DataRef(0) };
    b.add(b"f", meta(0), kind(10)).expect("fits");
    let error = b.add(b"f", meta(0), kind(11)).expect_err("too large").to_string();
    assert_eq!(error, "f: is 11 bytes long, more than 10 (--limits file-size=NUMBER)");
}

/// TE-4, and that nothing is quadratic.
#[test]
fn many_files_cost_little() {
    use super::entries::Entry;
    let slots = 4 * 8 / 3;
    let building = size_of::<super::Node>() + size_of::<Entry>() + slots;
    let ending = size_of::<super::Node>() + size_of::<Entry>() + size_of::<super::Name>() + 4;
    assert!(building.max(ending) <= 120, "{building} {ending}");

    let mut b = builder();
    for nr in 0..200_000 {
        b.add(format!("d{}/{nr}", nr % 7).as_bytes(), meta(0), file(nr)).expect("add");
    }
    for nr in 0..40_000 {
        b.link(format!("l/{nr}").as_bytes(), b"d0/0").expect("link");
    }
    let tree = b.finish();
    assert_eq!((tree.len(), tree.names()), (200_009, 240_008));
    assert_eq!(tree.node(tree.find(b"l/9").expect("a link")).nlink, 40_001);
    in_layout_order(&tree);
}

#[test]
fn attributes_are_kept_once_and_sorted() {
    let mut b = builder();
    let pair = |name: &[u8], value: &[u8]| (name.into(), value.into());
    let one = b.xattrs(vec![pair(b"user.b", b"1"), pair(b"user.a", b"2")]).expect("a set");
    let two = b
        .xattrs(vec![pair(b"user.a", b"old"), pair(b"user.a", b"2"), pair(b"user.b", b"1")])
        .expect("a set");
    assert_eq!(one, two);
    assert_eq!(b.xattr_set(one), &vec![pair(b"user.a", b"2"), pair(b"user.b", b"1")]);
    assert_eq!(b.xattrs(Vec::new()).expect("none"), super::XattrSetId::NONE);
}

#[test]
fn remarks_are_bounded() {
    let mut b = builder();
    for nr in 0..150 {
        b.add(format!("/{nr}").as_bytes(), meta(0), file(0)).expect("add");
    }
    let tree = b.finish();
    assert_eq!((tree.notes().0.len(), tree.notes().1), (100, 50));
}

/// A number that is cut would be another device.
#[test]
fn device_numbers_are_those_that_linux_can_have() {
    let mut b = builder();
    let number = |major, minor| Rdev { major, minor };
    b.add(b"highest", meta(0), Kind::Char(number(0xFFF, 0xF_FFFF))).expect("the highest");
    for kind in [Kind::Char(number(0x1000, 0)), Kind::Block(number(8, 0x10_0000))] {
        let error = b.add(b"cut", meta(0), kind).expect_err("too high").to_string();
        assert!(error.starts_with("cut: is a device with the number"), "{error}");
    }
}
