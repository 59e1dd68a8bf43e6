//! Two sources compared, entry by entry, contents among it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use extol_vfs::bytes_text;

use super::{DirOptions, DirSource, FileData, Source};
use crate::tree::{Kind, Limits, NodeId, Tree, TreeBuilder};

/// What a source says: a line for each path.
pub(super) type Listing = BTreeMap<String, String>;

/// A source that is listed.
pub(super) fn list(source: &mut dyn Source) -> Listing {
    let mut builder = TreeBuilder::new(Limits::default());
    source.scan(&mut builder).expect("scan");
    listing(source, &builder.finish())
}

/// A directory.
pub(super) fn list_dir(dir: &Path) -> Listing {
    list(&mut DirSource::open(dir, DirOptions::default()).expect("opens"))
}

/// A tree and the contents of its files.
pub(super) fn listing(source: &dyn Source, tree: &Tree) -> Listing {
    let mut out = Listing::new();
    let mut first = HashMap::new();
    let mut dirs = vec![(String::new(), tree.root())];
    out.insert(".".into(), describe(source, tree, tree.root()));
    while let Some((path, dir)) = dirs.pop() {
        for (name, node) in tree.children(dir) {
            let path = format!("{path}/{}", bytes_text(name));
            let mut text = describe(source, tree, node);
            if tree.node(node).kind.is_dir() {
                dirs.push((path.clone(), node));
            } else if tree.node(node).nlink > 1 {
                // Links of one file are known by the first of their names.
                let first = first.entry(node).or_insert_with(|| first_name(tree, node));
                write!(text, " linked to {first}").expect("text");
            }
            out.insert(path, text);
        }
    }
    out
}

fn first_name(tree: &Tree, node: NodeId) -> String {
    bytes_text(&tree.path(node))
}

fn describe(source: &dyn Source, tree: &Tree, id: NodeId) -> String {
    let node = tree.node(id);
    let kind = match node.kind {
        Kind::Symlink(target) => format!("-> {}", bytes_text(tree.bytes(target))),
        Kind::File { size, data } => {
            let mut reader = source.reader(data).expect("a reader");
            let sum = contents(&mut *reader, size);
            reader.end().expect("unchanged");
            format!("file of {size} bytes, {sum:x}")
        }
        other => format!("{other:?}"),
    };
    let meta = &node.meta;
    let mut out = format!(
        "{kind} {:o} {}:{} {}.{:09} links {}",
        meta.mode, meta.uid, meta.gid, meta.mtime.sec, meta.mtime.nsec, node.nlink
    );
    for (name, value) in tree.xattrs(meta.xattrs) {
        write!(out, " {}={}", bytes_text(name), value.escape_ascii()).expect("text");
    }
    out
}

/// A checksum of all bytes, read in odd portions; and what is said of holes must be so.
fn contents(reader: &mut dyn FileData, size: u64) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    let mut buf = vec![0; 70_001];
    let mut at = 0;
    let mut data = reader.data_from(0).expect("a map");
    loop {
        let len = reader.read_at(at, &mut buf).expect("reads");
        hasher.write(&buf[..len]);
        for (nr, byte) in (at..).zip(&buf[..len]) {
            while data.as_ref().is_some_and(|run| run.end <= nr) {
                data = reader.data_from(nr).expect("a map");
            }
            let in_hole = data.as_ref().is_none_or(|run| nr < run.start);
            assert!(!in_hole || *byte == 0, "byte {nr} is said to be in a hole");
        }
        at += len as u64;
        if len < buf.len() {
            assert_eq!(at, size);
            return hasher.finish();
        }
    }
}

/// Says where two listings differ.
pub(super) fn assert_same(got: &Listing, wanted: &Listing, what: &str) {
    let mut differences = Vec::new();
    for path in got.keys().chain(wanted.keys()) {
        let (got, wanted) = (got.get(path), wanted.get(path));
        if got != wanted {
            differences.push(format!("{path}\n   got    {got:?}\n   wanted {wanted:?}"));
        }
    }
    differences.sort();
    differences.dedup();
    assert!(
        differences.is_empty(),
        "{what}:\n{}",
        differences[..differences.len().min(20)].join("\n")
    );
}
