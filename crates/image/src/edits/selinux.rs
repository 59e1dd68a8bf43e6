//! SELinux labels by a file of contexts, as the policy of a distribution has it
//! (`/etc/selinux/POLICY/contexts/files/file_contexts`): a pattern of paths, perhaps the type of
//! file, and the label.
//!
//! A line without special characters is stronger than all patterns; of several the last one counts.
//! `<<none>>` leaves a file without a change.

use std::collections::HashMap;

use regex::bytes::{Regex, RegexBuilder};

use crate::error::{BuildError, Result, shown};
use crate::tree::{Kind, Meta, NodeId, TreeBuilder, XattrSet, XattrSetId};

/// The attribute.
const NAME: &[u8] = b"security.selinux";
/// The longest file of contexts, and what a pattern may take in memory.
const MAX_BYTES: usize = 64 << 20;
const MAX_PROGRAM: usize = 1 << 20;

/// Labels by path.
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    lines: Vec<Line>,
    /// Whole paths: the lines that name them, the last one first.
    exact: HashMap<Vec<u8>, Vec<u32>>,
    /// The lines with patterns, the last one first.
    patterns: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Line {
    kind: Option<u8>,
    /// What every path that matches begins with: most lines end here.
    start: Vec<u8>,
    pattern: Option<Regex>,
    /// None: the file is left as it is.
    label: Option<Box<[u8]>>,
}

impl Contexts {
    /// Reads a file of contexts; `name` is for messages.
    ///
    /// # Errors
    /// A line that is none, with its number.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            let why = format!("{name}: is longer than {MAX_BYTES} bytes");
            return Err(BuildError::Refused(why));
        }
        let mut contexts = Self::default();
        for (nr, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            contexts
                .line(line)
                .map_err(|why| BuildError::Refused(format!("{name}: line {}: {why}", nr + 1)))?;
        }
        if contexts.lines.is_empty() {
            return Err(BuildError::Refused(format!("{name}: has no labels in it")));
        }
        contexts.patterns.reverse();
        contexts.exact.values_mut().for_each(|lines| lines.reverse());
        Ok(contexts)
    }

    fn line(&mut self, line: &[u8]) -> std::result::Result<(), String> {
        let words: Vec<_> =
            line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let (path, kind, label) = match words[..] {
            [path, label] => (path, None, label),
            [path, kind, label] => (path, Some(kind), label),
            _ => return Err("is not PATTERN [-TYPE] LABEL".into()),
        };
        let kind = match kind {
            None => None,
            Some(&[b'-', kind @ (b'-' | b'd' | b'c' | b'b' | b'p' | b'l' | b's')]) => Some(kind),
            Some(kind) => {
                let kind = shown(kind);
                return Err(format!("the type '{kind}' is none of -- -d -c -b -p -l -s"));
            }
        };
        let label = match label {
            b"<<none>>" => None,
            label if label.contains(&0) => return Err("has a label with a NUL in it".into()),
            // As the kernel keeps it.
            label => Some([label, b"\0"].concat().into()),
        };
        let nr = self.lines.len() as u32;
        let (start, is_exact) = literal(path);
        let pattern = match is_exact {
            true => {
                self.exact.entry(start.clone()).or_default().push(nr);
                None
            }
            false => {
                self.patterns.push(nr);
                Some(compiled(path)?)
            }
        };
        self.lines.push(Line { kind, start, pattern, label });
        Ok(())
    }

    /// The label of a path, without a slash at its end. The outer `None`: no line says anything.
    fn label(&self, path: &[u8], kind: u8) -> Option<Option<&[u8]>> {
        let fits = |nr: &&u32| {
            let line = &self.lines[**nr as usize];
            line.kind.is_none_or(|wanted| wanted == kind)
                && line
                    .pattern
                    .as_ref()
                    .is_none_or(|pattern| path.starts_with(&line.start) && pattern.is_match(path))
        };
        let exact = self.exact.get(path).and_then(|lines| lines.iter().find(fits));
        let nr = exact.or_else(|| self.patterns.iter().find(fits))?;
        Some(self.lines[*nr as usize].label.as_deref())
    }

    /// A lost+found that mkfs would make is a file of the tree if it has a label.
    fn name_lost_and_found(&self, tree: &mut TreeBuilder) -> Result<()> {
        const PATH: &[u8] = b"/lost+found";
        let there = tree.child(NodeId::ROOT, &PATH[1..]).is_some();
        if there || !matches!(self.label(PATH, b'd'), Some(Some(_))) {
            return Ok(());
        }
        let mtime = tree.node(NodeId::ROOT).meta.mtime;
        let meta = Meta { mode: 0o700, mtime, ..Meta::default() };
        tree.add_child(NodeId::ROOT, &PATH[1..], meta, Kind::Dir).map(|_| ())
    }

    /// Labels a tree. A file with several names has the label of the first one.
    pub(super) fn apply(&self, tree: &mut TreeBuilder) -> Result<()> {
        self.name_lost_and_found(tree)?;
        let mut labels = Vec::new();
        tree.each_path(&mut |id, path| {
            let kind = match tree.node(id).kind {
                Kind::File { .. } => b'-',
                Kind::Dir => b'd',
                Kind::Symlink(_) => b'l',
                Kind::Char(_) => b'c',
                Kind::Block(_) => b'b',
                Kind::Fifo => b'p',
                Kind::Socket => b's',
            };
            if let Some(Some(label)) = self.label(path, kind) {
                labels.push((id, label));
            }
        });
        // Few labels and sets stand for all files.
        let mut known: HashMap<(XattrSetId, &[u8]), XattrSetId> = HashMap::new();
        for (id, label) in labels {
            let before = tree.node(id).meta.xattrs;
            let after = match known.get(&(before, label)) {
                Some(after) => *after,
                None => {
                    let mut set: XattrSet = tree.xattr_set(before).clone();
                    set.retain(|(name, _)| **name != *NAME);
                    set.push((NAME.into(), label.into()));
                    let after = tree.xattrs(set)?;
                    known.insert((before, label), after);
                    after
                }
            };
            tree.meta_mut(id).xattrs = after;
        }
        Ok(())
    }
}

/// What a pattern begins with, and whether that is all of it.
fn literal(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut rest = pattern;
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'\\' => match tail.split_first() {
                Some((&escaped, tail)) if escaped.is_ascii_punctuation() => {
                    out.push(escaped);
                    rest = tail;
                }
                _ => return (out, false),
            },
            b'.' | b'^' | b'$' | b'[' | b'(' | b')' => return (out, false),
            b'|' => return (Vec::new(), false),
            // The character before is repeated, or not there.
            b'?' | b'*' | b'+' | b'{' => {
                out.pop();
                return (out, false);
            }
            byte => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    (out, true)
}

fn compiled(pattern: &[u8]) -> std::result::Result<Regex, String> {
    let wrong = |why: &str| format!("the pattern '{}' {why}", shown(pattern));
    let text = std::str::from_utf8(pattern).map_err(|_| wrong("is no text"))?;
    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|group| text.contains(group)) {
        return Err(wrong(
            "looks ahead or behind, which extol cannot: write it without (?= (?! (?<",
        ));
    }
    let whole = format!("^(?:{text})$");
    RegexBuilder::new(&whole)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(MAX_PROGRAM)
        .build()
        .map_err(|_| wrong("is no regular expression, or one that is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str, path: &str, kind: u8) -> Option<String> {
        let contexts = Contexts::parse("c", text.as_bytes()).expect("contexts");
        let label = contexts.label(path.as_bytes(), kind)??;
        Some(String::from_utf8(label.to_vec()).expect("text").trim_end_matches('\0').into())
    }

    #[test]
    fn the_last_one_counts_and_whole_paths_are_stronger() {
        let text = "/etc/passwd -- exact\n/etc(/.*)? all\n/etc/p.* -- p\n# /x y\n/none <<none>>\n\
                    /dev/[^/]* -c device\n/usr/lib\\.so dot\n/a|/b or\n/optional? o\n";
        for (path, kind, wanted) in [
            ("/etc/passwd", b'-', Some("exact")),
            ("/etc/passwd", b'd', Some("all")),
            ("/etc/ppp", b'-', Some("p")),
            ("/etc/ppp", b'd', Some("all")),
            ("/etc", b'd', Some("all")),
            ("/etcetera", b'-', None),
            ("/none", b'-', None),
            ("/dev/null", b'c', Some("device")),
            ("/dev/a/b", b'c', None),
            ("/usr/lib.so", b'-', Some("dot")),
            ("/usr/libxso", b'-', None),
            ("/b", b'-', Some("or")),
            ("/optiona", b'-', Some("o")),
            ("/x", b'-', None),
        ] {
            assert_eq!(label(text, path, kind).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn lines_that_are_none() {
        for (text, needle) in [
            ("/a", "line 1: is not PATTERN"),
            ("/a -x b", "the type '-x'"),
            ("\n/a( b", "line 2: the pattern '/a('"),
            ("/(a{1000}){1000} b", "too large"),
            ("/a b\n/b(?!c) d", "line 2: the pattern '/b(?!c)' looks ahead or behind"),
            ("# nothing\n", "has no labels"),
        ] {
            let error = Contexts::parse("file", text.as_bytes()).expect_err(text).to_string();
            assert!(error.starts_with("file: ") && error.contains(needle), "{error}");
        }
    }
}
