//! Patterns in names of files inside a volume, as a shell has them for names outside: `*`, `?` and
//! `[a-z]` in each part of a path.
//!
//! A shell cannot see the names on a volume, so it leaves a pattern in quotes as it is, and the
//! command looks at the directories. What a pattern means is decided once, before the command does
//! anything. A name that is there by that very spelling is meant itself; a pattern that no name
//! matches stays as it is, and the command says that there is no such file. A name that begins with
//! a dot is matched only by a pattern that begins with one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use extol::image::edits::{Pattern, Patterns};
use extol_vfs::FileKind;

use super::Files;
use super::text::join;

impl Files {
    /// The names that operands mean, in order; those of a pattern are sorted.
    pub(super) fn expanded(&self, operands: &[OsString]) -> Vec<OsString> {
        operands.iter().flat_map(|operand| self.matching(operand)).collect()
    }

    fn matching(&self, operand: &OsStr) -> Vec<OsString> {
        let as_is = || vec![operand.to_owned()];
        if !is_pattern(operand.as_bytes()) || self.find(operand, false).is_ok() {
            return as_is();
        }
        let found = self.expand(operand.as_bytes());
        if found.is_empty() { as_is() } else { found.into_iter().map(OsString::from_vec).collect() }
    }

    /// The paths that match, part by part.
    fn expand(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let start = if path.starts_with(b"/") { b"/".to_vec() } else { Vec::new() };
        let mut found = vec![start];
        let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none() && !path.ends_with(b"/");
            found = match is_pattern(part) {
                true => {
                    found.iter().flat_map(|dir| self.in_directory(dir, part, is_last)).collect()
                }
                false => found.into_iter().map(|dir| join(&dir, part)).collect(),
            };
        }
        // (A part behind a pattern need not be in each of its directories.)
        found.retain(|path| self.find(OsStr::from_bytes(path), false).is_ok());
        found
    }

    /// The paths of the names in a directory that match; before the last part those of directories.
    fn in_directory(&self, dir: &[u8], part: &[u8], is_last: bool) -> Vec<Vec<u8>> {
        let Ok(pattern) = Pattern::parse("", part) else { return Vec::new() };
        let mut patterns = Patterns::default();
        patterns.push(pattern);
        let start = patterns.start();
        let place = if dir.is_empty() { b"/" } else { dir };
        let Ok(inode) = self.find(OsStr::from_bytes(place), true) else { return Vec::new() };
        if !inode.is_dir().unwrap_or(false) {
            return Vec::new();
        }
        let (entries, _) = inode.entries();
        let leads_on =
            |kind| is_last || matches!(kind, None | Some(FileKind::Directory | FileKind::Symlink));
        let matches = |name: &[u8]| {
            (part.starts_with(b".") || !name.starts_with(b"."))
                && patterns.matches(&start, name, true)
        };
        entries
            .into_iter()
            .filter(|entry| leads_on(entry.kind) && matches(&entry.name))
            .map(|entry| join(dir, &entry.name))
            .collect()
    }
}

fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}
