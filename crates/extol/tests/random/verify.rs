//! Comparing the volume with the model.

use std::collections::BTreeMap;

use extol::path::Inode;
use extol::vfs::{Attr, FileSystem, FsError, Seek};

use super::content::{CHUNK, Content};
use super::engine::Engine;
use super::tree::{Id, ROOT, What};

/// Size of the pieces in which large files are read.
const STEP: u64 = 256 << 10;

impl Engine {
    /// Everything.
    pub fn verify(&self) {
        let mut todo = vec![(ROOT, self.root.clone())];
        while let Some((id, node)) = todo.pop() {
            self.verify_node(id, &node);
            if !self.tree.node(id).is_dir() {
                continue;
            }
            for (name, child) in self.verify_listing(id, &node) {
                let found = node.lookup(&name).unwrap();
                if found.id() != self.ids[&child] {
                    self.fail(&format!(
                        "{name:?} in {id} leads to {:?}, not to {:?}",
                        found.id(),
                        self.ids[&child]
                    ));
                }
                todo.push((child, found));
            }
        }
        for (id, node) in &self.held {
            self.verify_node(*id, node);
        }
    }

    /// The names of a directory; gives the model's.
    fn verify_listing(&self, id: Id, node: &Inode) -> BTreeMap<Vec<u8>, Id> {
        let mut seen = BTreeMap::new();
        let mut dots = 0;
        self.fs
            .readdir(node.ino(), 0, &mut |entry| {
                if entry.name == b"." || entry.name == b".." {
                    dots += 1;
                } else if seen.insert(entry.name.clone(), entry).is_some() {
                    self.fail("a name was listed twice");
                }
                true
            })
            .unwrap();
        let entries = self.tree.entries(id);
        if dots != 2 || !seen.keys().eq(entries.keys()) {
            let missing: Vec<_> = entries.keys().filter(|n| !seen.contains_key(*n)).collect();
            let extra: Vec<_> = seen.keys().filter(|n| !entries.contains_key(*n)).collect();
            self.fail(&format!(
                "directory {id}: {dots} dots, missing {missing:?}, extra {extra:?}"
            ));
        }
        for (name, child) in entries {
            let entry = &seen[name];
            let kind = self.tree.node(*child).what.kind();
            if entry.ino != self.ids[child].ino || entry.kind.is_some_and(|k| k != kind) {
                self.fail(&format!("entry {entry:?} should be {kind:?} {:?}", self.ids[child]));
            }
        }
        entries.clone()
    }

    fn verify_node(&self, id: Id, node: &Inode) {
        let attr = node.attr().unwrap();
        let model = self.tree.node(id);
        let want = (model.what.kind(), model.perm, model.uid, model.gid, self.tree.nlink(id));
        let have = (attr.kind, attr.perm, attr.uid, attr.gid, attr.nlink);
        if want != have {
            self.fail(&format!("node {id} has {have:?} instead of {want:?}"));
        }
        if let Some(mtime) = self.mtimes.get(&id)
            && *mtime != attr.mtime
        {
            self.fail(&format!("node {id} has mtime {:?} instead of {mtime:?}", attr.mtime));
        }
        let xattrs = self.xattrs(node);
        if xattrs != model.xattrs {
            self.fail(&format!(
                "node {id} has attributes {:?} instead of {:?}",
                xattrs.keys(),
                model.xattrs.keys()
            ));
        }
        match &model.what {
            What::File => self.verify_file(id, node),
            What::Symlink(target) => {
                let read = self.fs.readlink(node.ino()).unwrap();
                if read != *target || attr.size != target.len() as u64 {
                    self.fail(&format!(
                        "link {id} says {read:?} instead of {target:?}, size {}",
                        attr.size
                    ));
                }
            }
            What::Char(dev) | What::Block(dev) => assert_eq!(attr.rdev, *dev),
            What::Dir(_) | What::Fifo | What::Socket => {}
        }
    }

    pub fn xattrs(&self, node: &Inode) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let names = self.fs.listxattr(node.ino()).unwrap();
        names.into_iter().map(|n| (n.clone(), self.fs.getxattr(node.ino(), &n).unwrap())).collect()
    }

    /// Size and every byte.
    pub fn verify_file(&self, id: Id, node: &Inode) {
        let want = &self.contents[&id];
        let have = self.read_content(node);
        if want.size != have.size {
            self.fail(&format!("node {id} has {} bytes instead of {}", have.size, want.size));
        }
        for nr in chunks(&[want, &have]) {
            if want.chunk(nr) != have.chunk(nr) {
                let at = want.chunk(nr).iter().zip(have.chunk(nr)).position(|(a, b)| a != b);
                self.fail(&format!(
                    "node {id} of {} bytes differs at {}; blocks {:?}",
                    want.size,
                    nr * CHUNK + at.unwrap_or(0) as u64,
                    self.fs.fiemap(node.ino(), nr * CHUNK, CHUNK)
                ));
            }
        }
    }

    /// Reads a file by its data and holes; checks that those make sense.
    pub fn read_content(&self, node: &Inode) -> Content {
        let fs = &self.fs;
        let size = node.attr().unwrap().size;
        let mut content = Content::of_size(size);
        let mut buf = vec![0; STEP as usize];
        let mut at = 0;
        while at < size {
            let data = match fs.seek(node.ino(), at, Seek::Data) {
                Ok(data) => data,
                Err(FsError::NoDataThere) => break,
                Err(e) => self.fail(&format!("seek to data at {at} of {size}: {e}")),
            };
            let hole = fs.seek(node.ino(), data, Seek::Hole).unwrap();
            if data < at || data >= size || hole <= data || hole > size {
                self.fail(&format!("data at {data}, hole at {hole}, from {at} in {size} bytes"));
            }
            let mut from = data;
            while from < hole {
                let k = (hole - from).min(STEP) as usize;
                assert_eq!(fs.read(node.ino(), from, &mut buf[..k]).unwrap(), k);
                content.write(from, &buf[..k]);
                from += k as u64;
            }
            if hole < size {
                // A little of the hole must read as zeros.
                let k = (size - hole).min(CHUNK) as usize;
                assert_eq!(fs.seek(node.ino(), hole, Seek::Hole).unwrap(), hole);
                assert_eq!(fs.read(node.ino(), hole, &mut buf[..k]).unwrap(), k);
                let next = fs.seek(node.ino(), hole, Seek::Data).unwrap_or(size);
                let zeros = k.min((next - hole) as usize);
                if buf[..zeros].iter().any(|b| *b != 0) {
                    self.fail(&format!("the hole at {hole} holds data"));
                }
            }
            at = hole;
        }
        self.verify_extents(node, &node.attr().unwrap());
        content
    }

    fn verify_extents(&self, node: &Inode, attr: &Attr) {
        let extents = self.fs.fiemap(node.ino(), 0, u64::MAX).unwrap();
        let mut at = 0;
        let mut blocks = 0;
        for e in &extents {
            if e.len == 0 || (e.logical < at && !e.inline) {
                self.fail(&format!("extents of {} out of order: {extents:?}", node.ino()));
            }
            at = e.logical + e.len;
            blocks += if e.inline { 0 } else { e.len / 512 };
        }
        // Beside data there are mapping and attribute blocks.
        if attr.blocks < blocks {
            self.fail(&format!(
                "inode {} counts {} blocks and has {blocks}",
                node.ino(),
                attr.blocks
            ));
        }
    }
}

/// Every chunk that one of these has.
pub fn chunks(contents: &[&Content]) -> Vec<u64> {
    let mut nrs: Vec<u64> = contents.iter().flat_map(|c| c.chunks_in(0, u64::MAX)).collect();
    nrs.sort_unstable();
    nrs.dedup();
    nrs
}
