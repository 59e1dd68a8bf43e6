//! Comparing the whole tree with the model, and checking it after a crash.

use std::collections::{BTreeMap, HashMap};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::model::{Id, Model, Shown};
use super::ops::Op;
use super::tester::Tester;
use crate::posix::Posix;

/// Room for any attribute here.
const ROOM: usize = 65_536;

type View = BTreeMap<String, Shown>;

pub(super) fn same_bytes(found: &[u8], expected: &[u8], at: u64) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} bytes at {at} instead of {}", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(n) => Err(format!("byte {} is {} and not {}", at + n as u64, found[n], expected[n])),
    }
}

fn told(e: Errno) -> String {
    std::io::Error::from(e).to_string()
}

impl Tester {
    fn shown(&self, fs: &dyn Posix, path: &str) -> Result<Shown, String> {
        let full = self.path(path);
        let s = fs.lstat(&full).map_err(told)?;
        let target =
            (s.kind == FileType::Symlink).then(|| fs.readlink(&full).map_err(told)).transpose()?;
        let mut xattrs = BTreeMap::new();
        for name in fs.listxattr(&full, ROOM).map_err(told)? {
            let value = fs.getxattr(&full, &name, ROOM).map_err(told)?;
            xattrs.insert(name, value);
        }
        Ok(Shown { kind: s.kind, mode: s.mode, links: s.nlink, target, xattrs })
    }

    pub fn compare_one(
        &self,
        fs: &dyn Posix,
        path: &str,
        id: Id,
        contents: bool,
    ) -> Result<(), String> {
        let (found, expected) = (self.shown(fs, path)?, self.model.shown(id));
        if found != expected {
            return Err(format!("{path:?} is {found:?} and not {expected:?}"));
        }
        match expected.kind {
            FileType::Directory => {
                let names = fs.names(&self.path(path)).map_err(told)?;
                let expected: Vec<&String> = self.model.entries(id).map_err(told)?.keys().collect();
                if !names.iter().eq(expected.iter().copied()) {
                    return Err(format!("{path:?} lists {names:?} and not {expected:?}"));
                }
            }
            FileType::RegularFile => {
                let bytes = &self.contents[&id];
                let size = fs.lstat(&self.path(path)).map_err(told)?.size;
                if size != bytes.len() as u64 {
                    return Err(format!("{path:?} has {size} bytes and not {}", bytes.len()));
                }
                if contents {
                    let found = fs.get(&self.path(path)).map_err(told)?;
                    same_bytes(&found, bytes, 0).map_err(|e| format!("{path:?}: {e}"))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares everything.
    pub fn compare(&self, fs: &dyn Posix) -> Result<(), String> {
        for (path, id) in self.model.paths() {
            self.compare_one(fs, &path, id, true).map_err(|e| format!("{}: {e}", self.root))?;
        }
        Ok(())
    }

    /// The file system went down and came up again.
    pub fn came_up(&mut self, fs: &dyn Posix, how: Op) -> Result<(), String> {
        let crashed = how == Op::Crash;
        self.past.push(how);
        if crashed {
            self.recovered(fs).map_err(|e| format!("{}: after a crash: {e}", self.root))?;
        }
        self.compare(fs)?;
        self.is_durable(self.before + self.since.len());
        self.base = self.model.clone();
        self.changed.clear();
        let reachable: HashMap<Id, ()> =
            self.model.paths().into_iter().map(|(_, id)| (id, ())).collect();
        self.contents.retain(|id, _| reachable.contains_key(id));
        self.histories.retain(|id, _| reachable.contains_key(id));
        for (id, bytes) in &self.contents {
            self.histories.entry(*id).or_default().durable(bytes);
        }
        Ok(())
    }

    /// Finds the operation after which the model was as the tree is, and takes what the files hold
    /// as the truth.
    fn recovered(&mut self, fs: &dyn Posix) -> Result<(), String> {
        let seen = self.view(fs)?;
        let mut model = self.base.clone();
        let mut nearest: Option<(usize, String)> = None;
        let mut ops = self.since.clone().into_iter();
        loop {
            let wanted: View =
                model.paths().into_iter().map(|(p, id)| (p, model.shown(id))).collect();
            let different = differences(&wanted, &seen);
            let wrong = if different.is_empty() {
                match self.verify(fs, &model) {
                    Ok(contents) => {
                        self.contents.extend(contents);
                        self.model = model;
                        self.since.clear();
                        return Ok(());
                    }
                    Err(e) => (0, e),
                }
            } else {
                (different.len(), different.into_iter().take(4).collect::<Vec<_>>().join("\n"))
            };
            if nearest.as_ref().is_none_or(|(n, _)| wrong.0 < *n) {
                nearest = Some(wrong);
            }
            match ops.next() {
                Some(op) => drop(model.apply(&op).expect("it was applied before")),
                None => {
                    let (_, text) = nearest.unwrap_or_default();
                    return Err(format!(
                        "the tree is as it never was in the last {} operations; nearest:\n{text}",
                        self.since.len()
                    ));
                }
            }
        }
    }

    /// What all files of a model hold now, if they may.
    fn verify(&self, fs: &dyn Posix, model: &Model) -> Result<HashMap<Id, Vec<u8>>, String> {
        let mut found = HashMap::new();
        for (path, id) in model.paths() {
            if model.is_file(id) {
                let bytes = fs.get(&self.path(&path)).map_err(told)?;
                self.histories[&id].verify(&bytes).map_err(|e| format!("{path:?}: {e}"))?;
                found.insert(id, bytes);
            }
        }
        Ok(found)
    }

    fn view(&self, fs: &dyn Posix) -> Result<View, String> {
        let mut view = View::new();
        let mut todo = vec![String::new()];
        while let Some(path) = todo.pop() {
            let shown = self.shown(fs, &path)?;
            if shown.kind == FileType::Directory {
                let names = fs.names(&self.path(&path)).map_err(told)?;
                todo.extend(
                    names
                        .into_iter()
                        .map(|n| if path.is_empty() { n } else { format!("{path}/{n}") }),
                );
            }
            view.insert(path, shown);
        }
        Ok(view)
    }
}

fn differences(wanted: &View, seen: &View) -> Vec<String> {
    let missing = wanted.keys().filter(|p| !seen.contains_key(*p)).map(|p| format!("missing {p}"));
    let extra = seen.keys().filter(|p| !wanted.contains_key(*p)).map(|p| format!("extra {p}"));
    let other = wanted.iter().filter_map(|(p, w)| match seen.get(p) {
        Some(s) if s != w => Some(format!("{p:?} is {s:?} and not {w:?}")),
        _ => None,
    });
    missing.chain(extra).chain(other).collect()
}
