//! Metadata files: what a source cannot say of its files, such as devices and owners in a directory
//! of an ordinary user. Three formats, told apart by the first line that is no comment.
//!
//! ```text
//!   #mtree                                     mtree(5): keywords behind names
//!   /dev/tty c 666 0 5 5 0 0 0 -               genext2fs: name type mode uid gid major minor
//!                                              start increment count
//!   nod /dev/tty 0666 0 5 c 5 0                gen_init_cpio: what first, then the name
//! ```
//!
//! A line changes the file of that name, or makes it if there is none. A regular file must be
//! there: contents come from the source. The file is read whole and checked before anything is
//! changed.

mod cpio;
mod devices;
mod mtree;
#[cfg(test)]
mod tests;

use extol_ondisk::Time;
use extol_vfs::Rdev;

use crate::error::{BuildError, Result, shown};
use crate::tree::{Kind, Meta, NodeId, TreeBuilder};

/// The longest metadata file, and the most files that one may name.
const MAX_BYTES: usize = 64 << 20;
const MAX_ITEMS: usize = 1 << 20;

/// What a metadata file says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetaFile {
    name: String,
    items: Vec<Item>,
}

/// What it says of one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Item {
    line: usize,
    path: Vec<u8>,
    what: What,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<Time>,
    /// It may be missing, and is not made then.
    optional: bool,
    /// It is only to be there.
    keep: bool,
}

/// What a file is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum What {
    /// Whatever is there.
    #[default]
    Any,
    File,
    Dir,
    Char(Rdev),
    Block(Rdev),
    Fifo,
    Socket,
    Symlink(Vec<u8>),
}

/// What is wrong with a line.
type Line<T> = std::result::Result<T, String>;

impl MetaFile {
    /// Reads one; `name` is for messages.
    ///
    /// # Errors
    /// What is in none of the formats, with the line.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        let refuse = |why: String| Err(BuildError::Refused(format!("{name}: {why}")));
        if bytes.len() > MAX_BYTES {
            return refuse(format!("is longer than {MAX_BYTES} bytes, which no metadata file is"));
        }
        let mut reader = match format(bytes) {
            Some(reader) => reader,
            None => {
                return refuse(
                    "is no metadata file: the first line must be #mtree, or a line of a device \
                     table (/dev/null c 666 0 0 1 3 0 0 -) or of gen_init_cpio (dir /dev 755 0 0)"
                        .into(),
                );
            }
        };
        let mut items = Vec::new();
        let mut lines = Lines { rest: bytes, number: 0, joins: matches!(reader, Reader::Mtree(_)) };
        while let Some((number, line)) = lines.next() {
            let before = items.len();
            let read = match &mut reader {
                Reader::Mtree(state) => state.line(&line, &mut items),
                Reader::Devices => devices::line(&line, &mut items),
                Reader::Cpio => cpio::line(&line, &mut items),
            };
            if let Err(why) = read {
                return refuse(format!("line {number}: {why}"));
            }
            items[before..].iter_mut().for_each(|item| item.line = number);
            if items.len() > MAX_ITEMS {
                return refuse(format!("line {number}: names more than {MAX_ITEMS} files"));
            }
        }
        Ok(Self { name: name.to_owned(), items })
    }

    /// Changes a tree.
    pub(super) fn apply(&self, tree: &mut TreeBuilder) -> Result<()> {
        self.items.iter().try_for_each(|item| {
            item.apply(tree).map_err(|error| match error {
                BuildError::Source { why, .. } => BuildError::Refused(format!(
                    "{} line {}: {}: {why}",
                    self.name,
                    item.line,
                    shown(&item.path)
                )),
                other => other,
            })
        })
    }
}

impl Item {
    /// The path below the root of the image: these files write it with a slash.
    fn place(&self) -> &[u8] {
        let slashes = self.path.iter().take_while(|byte| **byte == b'/').count();
        &self.path[slashes..]
    }

    fn apply(&self, tree: &mut TreeBuilder) -> Result<()> {
        let wrong = |why: &str| Err(BuildError::entry(&self.path, why));
        let there = tree.find_node(self.place())?;
        let Some(node) = there else {
            return match &self.what {
                _ if self.optional => Ok(()),
                What::Any => wrong("is not in the source, and the line does not say what it is"),
                What::File => wrong("is not in the source, from which contents come"),
                what => self.make(tree, what),
            };
        };
        let kind = tree.node(node).kind;
        let fits = match (&self.what, kind) {
            (What::Any, _)
            | (What::File, Kind::File { .. })
            | (What::Dir, Kind::Dir)
            | (What::Fifo, Kind::Fifo)
            | (What::Socket, Kind::Socket) => true,
            (What::Char(rdev), Kind::Char(there)) | (What::Block(rdev), Kind::Block(there)) => {
                *rdev == there
            }
            (What::Symlink(target), Kind::Symlink(there)) => target == tree.bytes(there),
            _ => false,
        };
        if !fits {
            return wrong("is something else in the source: take one of them away");
        }
        if self.keep { Ok(()) } else { self.change(tree, node) }
    }

    fn make(&self, tree: &mut TreeBuilder, what: &What) -> Result<()> {
        let kind = match what {
            What::Dir => Kind::Dir,
            What::Char(rdev) => Kind::Char(*rdev),
            What::Block(rdev) => Kind::Block(*rdev),
            What::Socket => Kind::Socket,
            What::Symlink(target) => Kind::Symlink(tree.target(&self.path, target)?),
            _ => Kind::Fifo,
        };
        let mode = match kind {
            Kind::Dir => 0o755,
            Kind::Symlink(_) => 0o777,
            _ => 0o644,
        };
        // Of the same time as the root directory: the clock is no matter of an image.
        let mtime = tree.node(NodeId::ROOT).meta.mtime;
        let node = tree.add(self.place(), Meta { mode, mtime, ..Meta::default() }, kind)?;
        self.change(tree, node)
    }

    fn change(&self, tree: &mut TreeBuilder, node: NodeId) -> Result<()> {
        let is_link = matches!(tree.node(node).kind, Kind::Symlink(_));
        let mut meta = tree.node(node).meta;
        if let Some(mode) = self.mode.filter(|_| !is_link) {
            meta.mode = mode;
            meta.xattrs = super::with_mode(tree, meta)?;
        }
        meta.uid = self.uid.unwrap_or(meta.uid);
        meta.gid = self.gid.unwrap_or(meta.gid);
        meta.mtime = self.mtime.unwrap_or(meta.mtime);
        *tree.meta_mut(node) = meta;
        Ok(())
    }
}

/// A reader of lines.
enum Reader {
    Mtree(mtree::State),
    Devices,
    Cpio,
}

fn format(bytes: &[u8]) -> Option<Reader> {
    if bytes.starts_with(b"#mtree") {
        return Some(Reader::Mtree(mtree::State::default()));
    }
    let mut lines = Lines { rest: bytes, number: 0, joins: false };
    let (_, first) = lines.next()?;
    let word = words(&first).next()?;
    match word {
        // What mtree itself writes begins with comments of another kind.
        b"/set" | b"/unset" | b"." => Some(Reader::Mtree(mtree::State::default())),
        _ if word.starts_with(b"/") && words(&first).count() > 2 => Some(Reader::Devices),
        _ if cpio::WORDS.contains(&word) => Some(Reader::Cpio),
        _ => None,
    }
}

/// Lines without comments and empty ones, and where they begin.
struct Lines<'b> {
    rest: &'b [u8],
    number: usize,
    /// A backslash at its end joins a line with the next one.
    joins: bool,
}

impl Lines<'_> {
    fn next(&mut self) -> Option<(usize, Vec<u8>)> {
        loop {
            let mut line = Vec::new();
            let first = self.number + 1;
            loop {
                if self.rest.is_empty() && line.is_empty() {
                    return None;
                }
                let end = self.rest.iter().position(|&byte| byte == b'\n');
                let (part, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                self.rest = rest.get(1..).unwrap_or_default();
                self.number += 1;
                match part.strip_suffix(b"\\") {
                    Some(part) if self.joins && !self.rest.is_empty() => {
                        line.extend_from_slice(part);
                        line.push(b' ');
                    }
                    _ => {
                        line.extend_from_slice(part);
                        break;
                    }
                }
            }
            let text = line.trim_ascii();
            if !text.is_empty() && !text.starts_with(b"#") {
                return Some((first, text.to_vec()));
            }
        }
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn text(word: &[u8]) -> String {
    shown(word)
}

/// A decimal number.
fn number(what: &str, word: &[u8]) -> Line<u32> {
    let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    number
        .filter(|_| digits)
        .ok_or_else(|| format!("{what} '{}' is no number of 32 bits", text(word)))
}

/// A number of a user or a group.
fn id(what: &str, word: &[u8]) -> Line<u32> {
    number(what, word).and_then(|id| match id {
        u32::MAX => Err(format!("{what} {id} is none: Linux has no owner of that number")),
        id => Ok(id),
    })
}

/// An octal mode.
fn mode(word: &[u8]) -> Line<u16> {
    let digits = !word.is_empty() && word.iter().all(|byte| matches!(byte, b'0'..=b'7'));
    let number = std::str::from_utf8(word).ok().and_then(|w| u16::from_str_radix(w, 8).ok());
    number
        .filter(|mode| digits && *mode <= 0o7777)
        .ok_or_else(|| format!("the mode '{}' is no octal number up to 7777", text(word)))
}
