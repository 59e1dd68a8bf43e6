//! `extol find`: the files that pass all tests. Tests and what they mean are those of findutils.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use extol::image::edits::{Pattern, Patterns};
use extol_cli_common::{Failure, Result, write};
use extol_vfs::{Attr, FileKind};

use super::Reading;
use super::objects::Objects;
use super::text::put_name;
use super::visit::{Visited, Visitor, visit};
use crate::args::FindArgs;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Finds.
pub fn find(args: &FindArgs) -> Result<()> {
    let tests = Tests::of(args)?;
    let tree = Reading::open(&args.volume, "find")?;
    let root = [OsString::from("/")];
    let paths = tree.expanded(if args.paths.is_empty() { &root } else { &args.paths });
    let mut finder = Finder {
        args,
        tests,
        plain: std::io::stdout().is_terminal() && !args.print0,
        objects: args.json.then(Objects::default),
        text: Vec::new(),
    };
    let outcome = finder.begin().and_then(|()| {
        paths.iter().try_for_each(|path| visit(&tree, path, false, &mut finder))?;
        finder.end()
    });
    tree.close(outcome)
}

/// A comparison of a number, as `+N`, `-N` or `N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    More(i64),
    Less(i64),
    Just(i64),
}

impl Wanted {
    fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| {
            digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        match text.as_bytes().first()? {
            b'+' => number(&text[1..]).map(Self::More),
            b'-' => number(&text[1..]).map(Self::Less),
            _ => number(text).map(Self::Just),
        }
    }

    fn holds(self, value: i64) -> bool {
        match self {
            Self::More(than) => value > than,
            Self::Less(than) => value < than,
            Self::Just(number) => value == number,
        }
    }
}

/// A comparison of the size, in units, of which a part counts as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SizeWanted {
    unit: u64,
    wanted: Wanted,
}

impl SizeWanted {
    fn parse(text: &str) -> Option<Self> {
        let end = text.len() - usize::from(text.ends_with(|c: char| c.is_ascii_alphabetic()));
        let (number, unit) = text.split_at(end);
        let unit = match unit {
            "c" => 1,
            "w" => 2,
            "" | "b" => 512,
            "k" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            _ => return None,
        };
        Some(Self { unit, wanted: Wanted::parse(number)? })
    }

    fn holds(self, size: u64) -> bool {
        self.wanted.holds(i64::try_from(size.div_ceil(self.unit)).unwrap_or(i64::MAX))
    }
}

/// A comparison of the permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PermWanted {
    Just(u16),
    /// All of these bits.
    All(u16),
    /// One of these bits.
    Any(u16),
}

impl PermWanted {
    fn parse(text: &str) -> Option<Self> {
        let bits = |digits: &str| {
            let bits = u16::from_str_radix(digits, 8).ok().filter(|bits| *bits <= 0o7777);
            bits.filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        match text.as_bytes().first()? {
            b'-' => bits(&text[1..]).map(Self::All),
            b'/' => bits(&text[1..]).map(Self::Any),
            _ => bits(text).map(Self::Just),
        }
    }

    fn holds(self, perm: u16) -> bool {
        match self {
            Self::Just(bits) => perm == bits,
            Self::All(bits) => perm & bits == bits,
            // (As find(1): no bit at all is what every file has.)
            Self::Any(bits) => bits == 0 || perm & bits != 0,
        }
    }
}

/// The tests that a file must pass.
struct Tests {
    names: Vec<Patterns>,
    names_of_any_case: Vec<Patterns>,
    kinds: Option<Vec<FileKind>>,
    size: Option<SizeWanted>,
    perm: Option<PermWanted>,
    days: Option<Wanted>,
    now: i64,
}

impl Tests {
    fn of(args: &FindArgs) -> Result<Self> {
        fn each<T>(
            option: &str,
            text: Option<&String>,
            read: impl FnOnce(&str) -> Option<T>,
            such: &str,
        ) -> Result<Option<T>> {
            let Some(text) = text else { return Ok(None) };
            let bad = || Failure::usage(format_args!("{option}: bad value {text:?}: give {such}"));
            read(text).map(Some).ok_or_else(bad)
        }
        let pattern = |option: &str, text: &[u8]| {
            // (A name has no slash in it, so that such a pattern matches none.)
            let parsed = Pattern::parse(option, text).map_err(Failure::usage)?;
            let mut one = Patterns::default();
            one.push(parsed);
            Ok(one)
        };
        let names = args.name.iter().map(|text| pattern("-name", text.as_bytes()));
        let lower = args.iname.iter().map(|text| pattern("-iname", &lowered(text.as_bytes())));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        Ok(Self {
            names: names.collect::<Result<_>>()?,
            names_of_any_case: lower.collect::<Result<_>>()?,
            kinds: each("-type", args.kinds.as_ref(), kinds, "f, d, l, b, c, p or s")?,
            size: each("-size", args.size.as_ref(), SizeWanted::parse, "one as +10M, -4k or 0")?,
            perm: each("-perm", args.perm.as_ref(), PermWanted::parse, "one as 644, -200 or /111")?,
            days: each("-mtime", args.mtime.as_ref(), Wanted::parse, "days as 7, +7 or -7")?,
            now: i64::try_from(now).unwrap_or(i64::MAX),
        })
    }

    fn hold(&self, name: &[u8], attr: &Attr) -> bool {
        let is_dir = attr.kind == FileKind::Directory;
        let matches = |all: &[Patterns], name: &[u8]| {
            all.iter().all(|one| one.matches(&one.start(), name, is_dir))
        };
        let days = |attr: &Attr| self.now.saturating_sub(attr.mtime.sec).div_euclid(DAY);
        matches(&self.names, name)
            && (self.names_of_any_case.is_empty()
                || matches(&self.names_of_any_case, &lowered(name)))
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&attr.kind))
            && self.size.is_none_or(|size| size.holds(attr.size))
            && self.perm.is_none_or(|perm| perm.holds(attr.perm))
            && self.days.is_none_or(|wanted| wanted.holds(days(attr)))
    }
}

/// Kinds, as `f` or `f,d`.
fn kinds(text: &str) -> Option<Vec<FileKind>> {
    text.split(',')
        .map(|kind| {
            Some(match kind {
                "f" => FileKind::Regular,
                "d" => FileKind::Directory,
                "l" => FileKind::Symlink,
                "b" => FileKind::BlockDevice,
                "c" => FileKind::CharDevice,
                "p" => FileKind::Fifo,
                "s" => FileKind::Socket,
                _ => return None,
            })
        })
        .collect()
}

/// A name in lower case, as far as it is text.
fn lowered(name: &[u8]) -> Vec<u8> {
    let lower = |chunk: std::str::Utf8Chunk<'_>| {
        [chunk.valid().to_lowercase().as_bytes(), chunk.invalid()].concat()
    };
    name.utf8_chunks().flat_map(lower).collect()
}

/// A search under way.
struct Finder<'a> {
    args: &'a FindArgs,
    tests: Tests,
    /// For a terminal.
    plain: bool,
    objects: Option<Objects>,
    text: Vec<u8>,
}

impl Finder<'_> {
    fn begin(&self) -> Result<()> {
        if self.objects.is_some() { write(Objects::begin().as_bytes()) } else { Ok(()) }
    }

    fn end(&self) -> Result<()> {
        if self.objects.is_some() { write(Objects::END.as_bytes()) } else { Ok(()) }
    }

    fn is_found(&self, name: &[u8], file: &Visited<'_, '_>) -> bool {
        let (a, attr) = (self.args, file.attr);
        let is = |wanted: Option<u32>, value| wanted.is_none_or(|wanted| wanted == value);
        file.depth >= a.mindepth.unwrap_or(0) as usize
            && is(a.uid, attr.uid)
            && is(a.gid, attr.gid)
            && is(a.inum, attr.id.ino)
            && self.tests.hold(name, attr)
            && (!a.empty || is_empty(file))
    }
}

fn is_empty(file: &Visited<'_, '_>) -> bool {
    match file.attr.kind {
        FileKind::Regular => file.attr.size == 0,
        FileKind::Directory => {
            matches!(file.inode.entries(), (entries, None) if entries.is_empty())
        }
        _ => false,
    }
}

impl Visitor for Finder<'_> {
    fn file(&mut self, file: &Visited<'_, '_>) -> Result<bool> {
        let trimmed = file.path.trim_suffix_slashes();
        let name = trimmed.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = if name.is_empty() { b"/" } else { name };
        if self.is_found(name, file) {
            self.text.clear();
            match &mut self.objects {
                Some(objects) => {
                    let is_link = file.attr.kind == FileKind::Symlink;
                    let target = is_link.then(|| file.inode.fs.readlink(file.inode.ino).ok());
                    let target = target.flatten();
                    self.text.extend(objects.file(file.attr, target.as_deref(), name, file.path));
                }
                None => {
                    put_name(&mut self.text, file.path, self.plain);
                    self.text.push(if self.args.print0 { 0 } else { b'\n' });
                }
            }
            write(&self.text)?;
        }
        Ok(self.args.maxdepth.is_none_or(|most| file.depth < most as usize))
    }
}

/// Without slashes at the end.
trait TrimSlashes {
    fn trim_suffix_slashes(&self) -> &[u8];
}

impl TrimSlashes for [u8] {
    fn trim_suffix_slashes(&self) -> &[u8] {
        let end = self.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        self.get(..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_those_of_find() {
        let size = |text: &str, bytes| SizeWanted::parse(text).expect(text).holds(bytes);
        // A part of a unit counts as one.
        assert!(size("1M", 1) && size("1M", 1 << 20) && !size("1M", (1 << 20) + 1));
        assert!(size("-1M", 0) && !size("-1M", 1) && size("+1k", 1025) && size("512c", 512));
        assert!(size("2", 513) && size("0", 0));
        for text in ["", "M", "1.5M", "+-1", "1X", "1MM"] {
            assert_eq!(SizeWanted::parse(text), None, "{text}");
        }
        let perm = |text: &str, bits| PermWanted::parse(text).expect(text).holds(bits);
        assert!(perm("644", 0o644) && !perm("644", 0o4644) && perm("-200", 0o644));
        assert!(perm("/222", 0o444 | 0o20) && !perm("/111", 0o644) && perm("/000", 0));
        for text in ["", "9", "-", "10000", "u+w"] {
            assert_eq!(PermWanted::parse(text), None, "{text}");
        }
        assert_eq!(kinds("f,l"), Some(vec![FileKind::Regular, FileKind::Symlink]));
        assert_eq!(kinds("f,"), None);
        assert_eq!(lowered(b"\xc3\x84b\xffC"), b"\xc3\xa4b\xffc");
    }
}
