//! What a volume shows: every name, what it stands for, and the contents of the files.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use extol::{Ext4, FsError};
use extol_vfs::{FileKind, FileSystem as _, VolumeControl as _};

use crate::model::{Kind, Line};
use crate::spelling::in_model;

/// One name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    ino: u64,
    kind: Kind,
    links: u32,
    content: Option<Arc<Vec<u8>>>,
    /// Of a file of fs-verity.
    digest: Option<Vec<u8>>,
}

/// Everything below the root, without `lost+found`.
#[derive(Clone, Debug, Default)]
pub struct View {
    names: BTreeMap<String, Seen>,
}

/// A name that no load makes and every volume has.
const LOST_FOUND: &str = "lost+found";

impl View {
    /// Reads a volume through Extol.
    ///
    /// # Errors
    /// One line: what could not be read, or is none of the kinds that loads make.
    pub fn of(fs: &Arc<Ext4>) -> Result<Self, String> {
        let mut view = Self::default();
        let mut dirs = vec![(String::new(), fs.root())];
        let mut held = Vec::new();
        let result = view.read(fs, &mut dirs, &mut held);
        for ino in held {
            fs.forget(ino, 1);
        }
        result.map(|()| view)
    }

    fn read(
        &mut self,
        fs: &Arc<Ext4>,
        dirs: &mut Vec<(String, u32)>,
        held: &mut Vec<u32>,
    ) -> Result<(), String> {
        while let Some((dir, ino)) = dirs.pop() {
            let fail = |what: &str, e: extol::FsError| format!("{what} /{dir}: {e}");
            let mut names = Vec::new();
            fs.readdir(ino, 0, &mut |entry| {
                names.push(entry.name);
                true
            })
            .map_err(|e| fail("listing", e))?;
            for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
                let text = in_model(&name);
                if dir.is_empty() && text == LOST_FOUND {
                    continue;
                }
                let path = if dir.is_empty() { text } else { format!("{dir}/{text}") };
                let attr = fs.lookup(ino, &name).map_err(|e| format!("looking up /{path}: {e}"))?;
                let child = attr.id.ino;
                held.push(child);
                let (mut content, mut digest) = (None, None);
                let kind = match attr.kind {
                    FileKind::Directory => {
                        dirs.push((path.clone(), child));
                        Kind::Dir
                    }
                    FileKind::Regular => {
                        if attr.size > 1 << 26 {
                            return Err(format!("/{path} has {} bytes", attr.size));
                        }
                        let mut bytes = vec![0; attr.size as usize];
                        let n = fs
                            .read(child, 0, &mut bytes)
                            .map_err(|e| format!("reading /{path}: {e}"))?;
                        if n != bytes.len() {
                            return Err(format!(
                                "/{path}: {n} of {} bytes can be read",
                                bytes.len()
                            ));
                        }
                        content = Some(Arc::new(bytes));
                        digest = match fs.measure_verity(child) {
                            Ok(digest) => Some(digest.bytes),
                            Err(FsError::NoAttribute) => None,
                            Err(e) => return Err(format!("the digest of /{path}: {e}")),
                        };
                        Kind::File
                    }
                    FileKind::Symlink => {
                        let target =
                            fs.readlink(child).map_err(|e| format!("reading link /{path}: {e}"))?;
                        Kind::Symlink(String::from_utf8_lossy(&target).into_owned())
                    }
                    other => return Err(format!("/{path} is a {other:?}")),
                };
                let seen = Seen { ino: child.into(), kind, links: attr.nlink, content, digest };
                if self.names.insert(path.clone(), seen).is_some() {
                    return Err(format!("/{path} is listed twice"));
                }
            }
        }
        Ok(())
    }

    /// Empty files of these names.
    #[cfg(test)]
    pub(crate) fn of_empty_files(names: &[&str]) -> Self {
        Self::of_empty_inodes(&names.iter().map(std::slice::from_ref).collect::<Vec<_>>())
    }

    /// One file.
    #[cfg(test)]
    pub(crate) fn of_file(name: &str, bytes: Vec<u8>) -> Self {
        let content = Some(Arc::new(bytes));
        let seen = Seen { ino: 12, kind: Kind::File, links: 1, content, digest: None };
        Self { names: [(name.to_owned(), seen)].into() }
    }

    /// Empty files, each with all its names, and empty directories, whose names end with a slash.
    #[cfg(test)]
    pub(crate) fn of_empty_inodes(inodes: &[&[&str]]) -> Self {
        let seen = |(ino, names): (usize, &&[&str])| {
            let is_dir = names.iter().all(|n| n.ends_with('/'));
            let (kind, links) =
                if is_dir { (Kind::Dir, 2) } else { (Kind::File, names.len() as u32) };
            let content = (!is_dir).then(Arc::default);
            let seen = Seen { ino: ino as u64, kind, links, content, digest: None };
            names
                .iter()
                .map(|n| (n.trim_end_matches('/').to_owned(), seen.clone()))
                .collect::<Vec<_>>()
        };
        Self { names: inodes.iter().enumerate().flat_map(seen).collect() }
    }

    /// Reads a tree that something else has mounted, without digests.
    ///
    /// # Errors
    /// One line: what could not be read.
    pub fn of_dir(root: &Path) -> Result<Self, String> {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::MetadataExt as _;
        let mut view = Self::default();
        let mut dirs = vec![(String::new(), root.to_owned())];
        while let Some((dir, place)) = dirs.pop() {
            let fail = |e: std::io::Error| format!("{}: {e}", place.display());
            for entry in std::fs::read_dir(&place).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let text = in_model(entry.file_name().as_bytes());
                if dir.is_empty() && text == LOST_FOUND {
                    continue;
                }
                let path = if dir.is_empty() { text } else { format!("{dir}/{text}") };
                let here = entry.path();
                let fail = |e: std::io::Error| format!("{}: {e}", here.display());
                let meta = here.symlink_metadata().map_err(fail)?;
                let mut content = None;
                let kind = if meta.is_dir() {
                    dirs.push((path.clone(), here.clone()));
                    Kind::Dir
                } else if meta.is_symlink() {
                    Kind::Symlink(
                        std::fs::read_link(&here).map_err(fail)?.to_string_lossy().into_owned(),
                    )
                } else {
                    content = Some(Arc::new(std::fs::read(&here).map_err(fail)?));
                    Kind::File
                };
                let links = meta.nlink() as u32;
                let seen = Seen { ino: meta.ino(), kind, links, content, digest: None };
                view.names.insert(path, seen);
            }
        }
        Ok(view)
    }

    /// The names that begin so (empty: all), without that, as they can be compared.
    #[must_use]
    pub fn lines_of(&self, prefix: &str) -> Vec<Line> {
        let part =
            || self.names.range(prefix.to_owned()..).take_while(|(p, _)| p.starts_with(prefix));
        let mut first: HashMap<u64, &str> = HashMap::new();
        for (path, seen) in part() {
            first.entry(seen.ino).or_insert(&path[prefix.len()..]);
        }
        part()
            .map(|(path, seen)| Line {
                path: path[prefix.len()..].to_owned(),
                kind: seen.kind.clone(),
                links: seen.links,
                first: first.get(&seen.ino).copied().unwrap_or_default().to_owned(),
            })
            .collect()
    }

    /// Contents of the file of this name behind that prefix.
    #[must_use]
    pub fn content_of(&self, prefix: &str, path: &str) -> Option<&[u8]> {
        self.names.get(&format!("{prefix}{path}"))?.content.as_ref().map(|c| c.as_slice())
    }

    /// Digest of the file of this name behind that prefix, if it is one of fs-verity.
    #[must_use]
    pub fn digest_of(&self, prefix: &str, path: &str) -> Option<&[u8]> {
        self.names.get(&format!("{prefix}{path}"))?.digest.as_deref()
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The first differences from another view, in lines; `None` if both show the same.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (ours, theirs) = (self.lines_of(""), other.lines_of(""));
        let mut lines = Vec::new();
        for line in &ours {
            match theirs.iter().find(|l| l.path == line.path) {
                None => lines.push(format!("/{} only in the first", line.path)),
                Some(o) if o != line => lines.push(format!("{line:?} and {o:?}")),
                Some(_) => {
                    let (a, b) =
                        (self.content_of("", &line.path), other.content_of("", &line.path));
                    if a != b {
                        let len = |c: Option<&[u8]>| c.map_or(0, <[u8]>::len);
                        lines.push(format!(
                            "/{}: contents differ ({} and {} bytes)",
                            line.path,
                            len(a),
                            len(b)
                        ));
                    }
                }
            }
        }
        let extra = theirs.iter().filter(|l| !ours.iter().any(|o| o.path == l.path));
        lines.extend(extra.map(|l| format!("/{} only in the second", l.path)));
        lines.truncate(8);
        (!lines.is_empty()).then(|| lines.join("\n  "))
    }
}
