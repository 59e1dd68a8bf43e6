//! Snapshots of directory trees: everything that a user can see of each file, compared between file
//! systems.
//!
//! Contents are hashed block by block, skipping blocks of zeros, so a hole and written zeros are
//! the same. Access and change times, inode numbers and sizes of directories are left out: they may
//! differ between two right file systems. Names of one inode are recorded as a group through its
//! first name.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::hash::Hasher;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is recorded of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Kind in one character, as `ls -l` prints it.
    pub kind: char,
    /// Permission bits.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u64,
    /// Size; 0 for directories.
    pub size: u64,
    /// Modification time.
    pub mtime: (i64, i64),
    /// Device number of device files.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: Option<PathBuf>,
    /// Extended attributes with ACLs.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Hash of the contents of a regular file.
    pub content: Option<u64>,
    /// First name of the same inode, if this is not it.
    pub same_as: Option<PathBuf>,
}

/// A whole tree, by path below its root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// All names; the root itself is the empty path.
    pub nodes: BTreeMap<PathBuf, Node>,
}

impl Tree {
    /// Takes a snapshot; `lost+found` is left out.
    ///
    /// # Panics
    /// If anything cannot be read.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self::try_of(root).unwrap_or_else(|e| panic!("snapshot of {}: {e}", root.display()))
    }

    /// Takes a snapshot; the error names the path.
    pub fn try_of(root: &Path) -> Result<Self, String> {
        let mut names = vec![PathBuf::new()];
        let mut nodes = BTreeMap::new();
        let mut inodes: HashMap<u64, PathBuf> = HashMap::new();
        // Breadth first in sorted order, so that the first name of an inode is the same on every
        // file system.
        let mut next = 0;
        while let Some(name) = names.get(next).cloned() {
            next += 1;
            let path = root.join(&name);
            let fail = |what: &str, e: std::io::Error| format!("{what} {}: {e}", path.display());
            let meta = path.symlink_metadata().map_err(|e| fail("lstat", e))?;
            if meta.is_dir() {
                let mut found = Vec::new();
                for entry in path.read_dir().map_err(|e| fail("read", e))? {
                    let entry = entry.map_err(|e| fail("read", e))?;
                    let child = name.join(entry.file_name());
                    if child != Path::new("lost+found") {
                        found.push(child);
                    }
                }
                found.sort();
                if let Some(twice) = found.windows(2).find(|w| w[0] == w[1]) {
                    return Err(format!("{} is listed twice", root.join(&twice[0]).display()));
                }
                names.extend(found);
            }
            let same_as = if meta.nlink() > 1 && !meta.is_dir() {
                let first = inodes.entry(meta.ino()).or_insert_with(|| name.clone());
                (*first != name).then(|| first.clone())
            } else {
                None
            };
            let node = Self::node(&path, &meta, same_as)?;
            nodes.insert(name, node);
        }
        Ok(Self { nodes })
    }

    fn node(
        path: &Path,
        meta: &std::fs::Metadata,
        same_as: Option<PathBuf>,
    ) -> Result<Node, String> {
        let fail = |what: &str, e: std::io::Error| format!("{what} {}: {e}", path.display());
        let kind = meta.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        let content = if meta.is_file() && same_as.is_none() {
            Some(content_hash(path).map_err(|e| fail("read", e))?)
        } else {
            None
        };
        let target = if kind.is_symlink() {
            Some(path.read_link().map_err(|e| fail("readlink", e))?)
        } else {
            None
        };
        Ok(Node {
            kind: match () {
                () if kind.is_dir() => 'd',
                () if kind.is_symlink() => 'l',
                () if kind.is_fifo() => 'p',
                () if kind.is_socket() => 's',
                () if kind.is_char_device() => 'c',
                () if kind.is_block_device() => 'b',
                () => '-',
            },
            perm: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: meta.nlink(),
            size: if kind.is_dir() { 0 } else { meta.size() },
            mtime: (meta.mtime(), meta.mtime_nsec()),
            rdev: if is_device { meta.rdev() } else { 0 },
            target,
            xattrs: xattrs(path).map_err(|e| fail("xattrs of", e.into()))?,
            content,
            same_as,
        })
    }

    /// The tree with times as an inode of 128 bytes can hold them: whole seconds from 1901 to 2038.
    #[must_use]
    pub fn with_coarse_times(mut self) -> Self {
        for node in self.nodes.values_mut() {
            node.mtime = (node.mtime.0.clamp(i64::from(i32::MIN), i64::from(i32::MAX)), 0);
        }
        self
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there is nothing at all, not even a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The differences, one per line, `self` first.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, ours) in &self.nodes {
            match other.nodes.get(path) {
                None => lines.push(format!("{}: only in the first", show(path))),
                Some(theirs) if ours != theirs => {
                    lines.push(format!("{}: {}", show(path), ours.difference(theirs)))
                }
                Some(_) => {}
            }
        }
        let only = other.nodes.keys().filter(|p| !self.nodes.contains_key(*p));
        lines.extend(only.map(|p| format!("{}: only in the second", show(p))));
        lines
    }

    /// Fails the test unless both trees are the same.
    ///
    /// # Panics
    /// If they differ; the message lists the first differences.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, first: &str, second: &str) {
        let lines = self.diff(other);
        let shown = lines.iter().take(25).map(|l| format!("  {l}\n")).collect::<String>();
        assert!(
            lines.is_empty(),
            "{first} and {second} differ in {} of {} names:\n{shown}",
            lines.len(),
            self.len()
        );
    }
}

fn show(path: &Path) -> String {
    let text = format!("{path:?}");
    if text.len() > 120 {
        format!("{}…", text.chars().take(100).collect::<String>())
    } else {
        text
    }
}

impl Node {
    fn difference(&self, other: &Self) -> String {
        let mut parts = Vec::new();
        let mut field = |name: &str, ours: String, theirs: String| {
            if ours != theirs {
                let cut = |s: String| {
                    if s.len() > 160 {
                        format!("{}…", s.chars().take(150).collect::<String>())
                    } else {
                        s
                    }
                };
                parts.push(format!("{name} {} / {}", cut(ours), cut(theirs)));
            }
        };
        field("kind", self.kind.to_string(), other.kind.to_string());
        field("mode", format!("{:o}", self.perm), format!("{:o}", other.perm));
        field("uid", self.uid.to_string(), other.uid.to_string());
        field("gid", self.gid.to_string(), other.gid.to_string());
        field("links", self.nlink.to_string(), other.nlink.to_string());
        field("size", self.size.to_string(), other.size.to_string());
        field("mtime", format!("{:?}", self.mtime), format!("{:?}", other.mtime));
        field("rdev", format!("{:x}", self.rdev), format!("{:x}", other.rdev));
        field("target", format!("{:?}", self.target), format!("{:?}", other.target));
        for name in
            self.xattrs.keys().chain(other.xattrs.keys().filter(|n| !self.xattrs.contains_key(*n)))
        {
            let value = |node: &Self| {
                node.xattrs
                    .get(name)
                    .map(|v| format!("{} bytes {:?}", v.len(), v.get(..v.len().min(32))))
            };
            field(
                &String::from_utf8_lossy(name),
                format!("{:?}", value(self)),
                format!("{:?}", value(other)),
            );
        }
        field("content", format!("{:x?}", self.content), format!("{:x?}", other.content));
        field("same inode as", format!("{:?}", self.same_as), format!("{:?}", other.same_as));
        parts.join(", ")
    }
}

/// Hash of a file's bytes. Zero blocks and the size do not enter.
fn content_hash(path: &Path) -> std::io::Result<u64> {
    const BLOCK: usize = 4096;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut hash = std::hash::DefaultHasher::new();
    let mut buffer = vec![0; 64 * BLOCK];
    let mut offset = 0;
    while offset < size {
        // Skips holes; a file system that reports data as a hole gives a wrong hash, which is right
        // for a test.
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => offset = data - data % BLOCK as u64,
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => {}
        }
        let got = file.read_at(&mut buffer, offset)?;
        if got == 0 {
            break;
        }
        for (i, block) in buffer[..got].chunks(BLOCK).enumerate() {
            if block.iter().any(|&b| b != 0) {
                hash.write_u64(offset + (i * BLOCK) as u64);
                // A short last block hashes like one with zeros behind it.
                let end = block.iter().rposition(|&b| b != 0).map_or(0, |p| p + 1);
                hash.write(&block[..end]);
            }
        }
        offset += got as u64;
        if got % BLOCK != 0 {
            break;
        }
    }
    Ok(hash.finish())
}

fn xattrs(path: &Path) -> rustix::io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 65536];
    let len = match rustix::fs::llistxattr(path, &mut list) {
        Ok(len) => len,
        Err(rustix::io::Errno::NOTSUP) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    let mut out = BTreeMap::new();
    for name in list[..len].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        // Labels of a security module come from the running system, not from the volume.
        if name == b"security.selinux" {
            continue;
        }
        let key = CString::new(name).expect("no NUL inside a name");
        let mut value = vec![0; 65536];
        let len = rustix::fs::lgetxattr(path, &key, &mut value)?;
        value.truncate(len);
        out.insert(name.to_vec(), value);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn equal_trees_are_equal_and_each_difference_is_named() {
        let scratch = Scratch::new();
        let (a, b) = (scratch.dir("a"), scratch.dir("b"));
        for dir in [&a, &b] {
            std::fs::write(dir.join("file"), b"same").unwrap();
            std::fs::hard_link(dir.join("file"), dir.join("link")).unwrap();
            std::os::unix::fs::symlink("target", dir.join("sym")).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH;
            File::open(dir.join("file")).unwrap().set_modified(time).unwrap();
        }
        let same = |x: &Path, y: &Path| -> Vec<String> {
            let lines = Tree::of(x).diff(&Tree::of(y));
            lines
                .into_iter()
                .filter(|l| !l.starts_with("\"\"") && !l.starts_with("\"sym"))
                .collect()
        };
        assert_eq!(same(&a, &b), Vec::<String>::new());
        std::fs::write(b.join("file"), b"other").unwrap();
        std::fs::write(b.join("new"), b"").unwrap();
        let lines = same(&a, &b);
        assert!(
            lines.iter().any(|l| l.contains("size 4 / 5") && l.contains("content")),
            "{lines:?}"
        );
        assert!(lines.iter().any(|l| l == "\"new\": only in the second"), "{lines:?}");
    }

    #[test]
    fn holes_and_written_zeros_hash_alike_and_moved_data_does_not() {
        let scratch = Scratch::new();
        let (a, b, c) = (scratch.join("a"), scratch.join("b"), scratch.join("c"));
        std::fs::write(&a, [vec![0; 8192], b"tail".to_vec()].concat()).unwrap();
        File::create(&b).unwrap().write_all_at(b"tail", 8192).unwrap();
        File::create(&c).unwrap().write_all_at(b"tail", 12288).unwrap();
        assert_eq!(content_hash(&a).unwrap(), content_hash(&b).unwrap());
        assert_ne!(content_hash(&a).unwrap(), content_hash(&c).unwrap());
    }
}
