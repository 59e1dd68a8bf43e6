//! What a volume must hold after a crash.
//!
//! Transactions become durable in order. So names and attributes must be exactly as they were after
//! *some* operation, not before the last one that a sync covered. For contents: what was synced and
//! not touched since is exactly there; otherwise every byte is one that the file had at this place
//! since its last sync. (If a range was inserted or collapsed since then and that is lost, the
//! place counts from before it: data is written to its blocks ahead of the commit, and the blocks
//! are where they were.)

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use extol::Ext4;
use extol::path::Inode;
use extol::vfs::{FileId, FileSystem};

use super::content::{CHUNK, Content};
use super::engine::Engine;
use super::tree::{Id, ROOT, Tree, What};
use super::verify::chunks;

/// What one path shows.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    id: FileId,
    what: String,
    perm: u16,
    owner: (u32, u32),
    nlink: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

type View = BTreeMap<Vec<u8>, Shown>;

impl Engine {
    /// Continues with a recovered volume: checks it, and takes its state into the model.
    pub fn recovered(&mut self, fs: &Arc<Ext4>, root: Inode) {
        self.held.clear();
        self.fs = Arc::clone(fs);
        self.root = root;
        let seen = self.view();
        let mut tree = self.past.base.clone();
        let mut ops = self.past.ops.iter();
        let first = self.expected(&tree);
        let mut best: Option<(usize, View)> = None;
        loop {
            let wanted = self.expected(&tree);
            if wanted == seen {
                break;
            }
            let distance = differences(&wanted, &seen).len();
            if best.as_ref().is_none_or(|(d, _)| distance < *d) {
                best = Some((distance, wanted));
            }
            let Some(op) = ops.next() else {
                let nearest = best.map_or(first, |(_, view)| view);
                let shown: Vec<_> = differences(&nearest, &seen).into_iter().take(5).collect();
                self.fail(&format!(
                    "after the crash the tree is as it never was in the last {} operations; \
                     nearest:\n{}",
                    self.past.ops.len(),
                    shown.join("\n")
                ));
            };
            tree.apply(op, self.block_size as usize).expect("it was applied before");
        }
        self.tree = tree;
        self.mtimes.clear();
        self.drop_unnamed();
        let files: Vec<Id> = self
            .tree
            .nodes
            .iter()
            .filter(|(_, n)| n.what == What::File)
            .map(|(id, _)| *id)
            .collect();
        self.contents = files
            .into_iter()
            .map(|id| {
                let found = self.read_content(&self.refer(id));
                let echoes = self.past.echoes.get(&id).map_or(&[][..], Vec::as_slice);
                self.check_content(id, &found, &self.past.versions[&id], echoes);
                (id, found)
            })
            .collect();
        self.past.base = self.tree.clone();
        self.past.ops.clear();
        self.past.changed = HashMap::new();
        self.all_is_durable();
    }

    fn check_content(&self, id: Id, found: &Content, versions: &[Content], echoes: &[Content]) {
        let least = versions.iter().map(|v| v.size).min().unwrap_or(0);
        let most = versions.iter().map(|v| v.size).max().unwrap_or(0);
        if found.size < least || found.size > most {
            self.fail(&format!(
                "file {id} has {} bytes after the crash, not {least} to {most}",
                found.size
            ));
        }
        let mut all: Vec<&Content> = versions.iter().collect();
        all.push(found);
        for nr in chunks(&all) {
            let chunk = found.chunk(nr);
            let known = versions.iter().chain(echoes);
            if known.clone().any(|v| v.chunk(nr) == chunk) {
                continue;
            }
            for (i, byte) in chunk.iter().enumerate() {
                let at = nr * CHUNK + i as u64;
                if at < found.size && !known.clone().any(|v| v.chunk(nr)[i] == *byte) {
                    self.fail(&format!(
                        "file {id}: byte {at} of {} after the crash is one that it never had \
                         ({} versions, sizes {:?})",
                        found.size,
                        versions.len(),
                        versions.iter().map(|v| v.size).collect::<Vec<_>>()
                    ));
                }
            }
        }
    }

    /// What the model shows.
    fn expected(&self, tree: &Tree) -> View {
        let mut view = View::new();
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((path, id)) = todo.pop() {
            let node = tree.node(id);
            if let What::Dir(entries) = &node.what {
                todo.extend(entries.iter().map(|(name, child)| (below(&path, name), *child)));
            }
            let what = match &node.what {
                What::Dir(_) => "directory".to_owned(),
                other => format!("{other:?}"),
            };
            let shown = Shown {
                id: self.ids[&id],
                what,
                perm: node.perm,
                owner: (node.uid, node.gid),
                nlink: tree.nlink(id),
                xattrs: node.xattrs.clone(),
            };
            view.insert(path, shown);
        }
        view
    }

    /// What the volume shows.
    fn view(&self) -> View {
        let mut view = View::new();
        let mut todo = vec![(Vec::new(), self.root.clone())];
        while let Some((path, node)) = todo.pop() {
            let attr = node.attr().unwrap();
            let what = match attr.kind {
                extol::vfs::FileKind::Directory => "directory".to_owned(),
                extol::vfs::FileKind::Regular => format!("{:?}", What::File),
                extol::vfs::FileKind::Symlink => {
                    format!("{:?}", What::Symlink(self.fs.readlink(node.ino()).unwrap()))
                }
                extol::vfs::FileKind::Fifo => format!("{:?}", What::Fifo),
                extol::vfs::FileKind::Socket => format!("{:?}", What::Socket),
                extol::vfs::FileKind::CharDevice => format!("{:?}", What::Char(attr.rdev)),
                extol::vfs::FileKind::BlockDevice => format!("{:?}", What::Block(attr.rdev)),
            };
            if attr.kind == extol::vfs::FileKind::Directory {
                let mut names = Vec::new();
                self.fs
                    .readdir(node.ino(), 0, &mut |entry| {
                        names.push(entry.name);
                        true
                    })
                    .unwrap();
                names.retain(|n| n != b"." && n != b"..");
                todo.extend(names.iter().map(|n| (below(&path, n), node.lookup(n).unwrap())));
            }
            let shown = Shown {
                id: attr.id,
                what,
                perm: attr.perm,
                owner: (attr.uid, attr.gid),
                nlink: attr.nlink,
                xattrs: self.xattrs(&node),
            };
            view.insert(path, shown);
        }
        view
    }
}

fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}

fn differences(wanted: &View, seen: &View) -> Vec<String> {
    let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    let missing = wanted
        .iter()
        .filter(|(p, _)| !seen.contains_key(*p))
        .map(|(p, _)| format!("missing {}", text(p)));
    let extra = seen
        .iter()
        .filter(|(p, _)| !wanted.contains_key(*p))
        .map(|(p, _)| format!("extra {}", text(p)));
    let other = wanted.iter().filter_map(|(p, w)| match seen.get(p) {
        Some(s) if s != w => Some(format!("{} is {s:?} instead of {w:?}", text(p))),
        _ => None,
    });
    missing.chain(extra).chain(other).collect()
}
