//! `extol ls` and `extol cat`.
//!
//! On a damaged volume `ls` lists what can be read, as ls(1) does: an entry without attributes has
//! question marks in their place, and the error is reported with its path.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::vec;

use extol_cli_common::{Result, warn, write};
use extol_vfs::{Attr, FileKind, FsError, is_active};

use super::objects::Objects;
use super::{InodeRef, Tree, WalkGuard, show};
use crate::args::{CatArgs, LsArgs};
use crate::calendar::date;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Lists.
pub fn ls(args: &LsArgs) -> Result<()> {
    let tree = Tree::open(&args.volume, false)?;
    let root = [OsString::from("/")];
    let paths = if args.paths.is_empty() { &root[..] } else { &args.paths };
    let mut listing = Listing {
        args,
        source: args.volume.source.as_os_str(),
        headed: paths.len() > 1 || args.recursive,
        plain: std::io::stdout().is_terminal(),
        text: Vec::new(),
        objects: args.json.then(Objects::default),
        failed: false,
    };
    let outcome = listing.begin().and_then(|()| {
        paths.iter().try_for_each(|path| listing.path(&tree, path))?;
        listing.end()
    });
    let failed = listing.failed;
    outcome.and(tree.close_with(failed))
}

/// A directory whose directories are being listed.
struct Level<'t> {
    inode: InodeRef<'t>,
    below: vec::IntoIter<Vec<u8>>,
}

/// A name, with its attributes if they are needed.
struct Item {
    name: Vec<u8>,
    attr: Option<extol_vfs::Result<Attr>>,
}

impl Item {
    /// What to sort by: the largest `value` first.
    fn key(&self, value: impl FnOnce(&Attr) -> i128) -> i128 {
        self.attr.as_ref().and_then(|attr| attr.as_ref().ok()).map_or(i128::MAX, |a| -value(a))
    }
}

/// A listing under way.
struct Listing<'a> {
    args: &'a LsArgs,
    /// The volume as it was named.
    source: &'a OsStr,
    headed: bool,
    /// For a terminal, which gets question marks for control characters.
    plain: bool,
    text: Vec<u8>,
    /// The list as JSON, in place of lines.
    objects: Option<Objects>,
    failed: bool,
}

impl Listing<'_> {
    fn begin(&self) -> Result<()> {
        if self.objects.is_some() { write(Objects::begin().as_bytes()) } else { Ok(()) }
    }

    fn end(&self) -> Result<()> {
        if self.objects.is_some() { write(Objects::END.as_bytes()) } else { Ok(()) }
    }

    fn report(&mut self, path: &[u8], error: &FsError) {
        // Without a path the volume was named.
        let typed = !(path == b"/" && self.args.paths.is_empty());
        let what = if typed { OsStr::from_bytes(path) } else { self.source };
        warn(format_args!("{}: {error}", show(what)));
        self.failed = true;
    }

    fn is_long(&self) -> bool {
        self.args.long || self.args.numeric_uid_gid
    }

    /// True if names alone are not enough.
    fn needs_attributes(&self) -> bool {
        let a = self.args;
        let sorted = a.by_size || a.by_time;
        let shown = self.is_long() || a.inodes || a.blocks || a.classify || a.json;
        shown || sorted || a.recursive
    }

    /// Names come sorted. What has no attributes is last.
    fn sort(&self, items: &mut [Item]) {
        if self.args.by_size {
            items.sort_by_cached_key(|item| item.key(|attr| attr.size.into()));
        } else if self.args.by_time {
            items.sort_by_cached_key(|item| {
                item.key(|attr| i128::from(attr.mtime.sec) << 32 | i128::from(attr.mtime.nsec))
            });
        }
        if self.args.reverse {
            items.reverse();
        }
    }

    fn print(&mut self) -> Result<()> {
        let printed = write(&self.text);
        self.text.clear();
        printed
    }

    /// Lists what a path names, with everything below it if that is wanted.
    fn path(&mut self, tree: &Tree, path: &OsStr) -> Result<()> {
        let mut path = path.as_bytes().to_vec();
        let mut guard = WalkGuard::default();
        let mut levels = match self.start(tree, &path, &mut guard) {
            Ok(level) => Vec::from_iter(level),
            Err(error) => {
                self.report(&path, &error);
                return Ok(());
            }
        };
        self.print()?;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.below.next() else {
                levels.pop();
                guard.leave();
                path.truncate(path.iter().rposition(|&byte| byte == b'/').unwrap_or(0));
                continue;
            };
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let entered =
                level.inode.child(&name).and_then(|inode| self.directory(inode, &path, &mut guard));
            match entered {
                Ok(below) => {
                    self.print()?;
                    levels.push(below);
                }
                Err(error) => {
                    self.report(&path, &error);
                    path.truncate(path.len() - name.len() - 1);
                }
            }
        }
        Ok(())
    }

    fn start<'t>(
        &mut self,
        tree: &'t Tree,
        path: &[u8],
        guard: &mut WalkGuard,
    ) -> extol_vfs::Result<Option<Level<'t>>> {
        let name = OsStr::from_bytes(path);
        let mut inode = tree.find(name, false)?;
        let a = self.args;
        if inode.kind()? == FileKind::Symlink && !(self.is_long() || a.directory || a.classify) {
            // As ls does: a link to a directory given by name shows the directory.
            inode = tree.find(name, true).unwrap_or(inode);
        }
        if inode.is_dir()? && !self.args.directory {
            return self.directory(inode, path, guard).map(Some);
        }
        let attr = inode.attr()?;
        let target = self.target(&attr, path, || inode.fs.readlink(inode.ino));
        self.item(&attr, target, path, path);
        Ok(None)
    }

    /// The lines for a directory, and the directories in it to go on with.
    fn directory<'t>(
        &mut self,
        inode: InodeRef<'t>,
        path: &[u8],
        guard: &mut WalkGuard,
    ) -> extol_vfs::Result<Level<'t>> {
        let name_len = path.rsplit(|&byte| byte == b'/').next().map_or(0, <[u8]>::len);
        guard.enter(inode.ino, name_len)?;
        if self.headed && self.objects.is_none() {
            if guard.open.len() > 1 {
                self.text.push(b'\n');
            }
            self.name(path);
            self.text.extend_from_slice(b":\n");
        }
        let mut below = Vec::new();
        let (entries, problem) = inode.entries();
        let needed = self.needs_attributes();
        let shown = |name: &[u8]| self.args.all || !name.starts_with(b".");
        let mut items: Vec<Item> = entries
            .into_iter()
            .map(|entry| entry.name.to_vec())
            .filter(|name| shown(name))
            .map(|name| Item {
                attr: needed.then(|| inode.child(&name).and_then(|child| child.attr())),
                name,
            })
            .collect();
        self.sort(&mut items);
        for Item { name, attr } in items {
            match attr {
                None => {
                    self.name(&name);
                    self.text.push(b'\n');
                }
                Some(Ok(attr)) => {
                    let full = join(path, &name);
                    let target = self.target(&attr, &full, || {
                        inode.child(&name).and_then(|link| link.fs.readlink(link.ino))
                    });
                    self.item(&attr, target, &name, &full);
                    if attr.kind == FileKind::Directory && self.args.recursive {
                        below.push(name);
                    }
                }
                Some(Err(error)) => {
                    let full = join(path, &name);
                    match &mut self.objects {
                        Some(objects) => self.text.extend(objects.unknown(&name, &full, &error)),
                        None => self.unknown(&name),
                    }
                    self.report(&full, &error);
                }
            }
        }
        if let Some(problem) = problem {
            self.report(path, &problem);
        }
        Ok(Level { inode, below: below.into_iter() })
    }

    /// Where a link leads, if that is shown.
    fn target(
        &mut self,
        attr: &Attr,
        path: &[u8],
        read: impl FnOnce() -> extol_vfs::Result<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let shown = attr.kind == FileKind::Symlink && (self.is_long() || self.args.json);
        shown.then(read)?.inspect_err(|error| self.report(path, error)).ok()
    }

    /// One line, or one object.
    fn item(&mut self, attr: &Attr, target: Option<Vec<u8>>, name: &[u8], path: &[u8]) {
        match &mut self.objects {
            Some(objects) => {
                self.text.extend(objects.file(attr, target.as_deref(), name, path));
            }
            None => self.line(attr, target, name),
        }
    }

    /// One line.
    fn line(&mut self, attr: &Attr, target: Option<Vec<u8>>, name: &[u8]) {
        let size = |bytes: u64| match self.args.human_readable {
            true => human(bytes),
            false => bytes.to_string(),
        };
        let mut fields = String::new();
        // Writing to a string cannot fail.
        if self.args.inodes {
            let _ = write!(fields, "{:>8} ", attr.id.ino);
        }
        if self.args.blocks {
            let used = match self.args.human_readable {
                true => human(attr.blocks.saturating_mul(512)),
                false => attr.blocks.div_ceil(2).to_string(),
            };
            let _ = write!(fields, "{used:>8} ");
        }
        if self.is_long() {
            let size = match attr.kind {
                FileKind::CharDevice | FileKind::BlockDevice => {
                    format!("{}, {}", attr.rdev.major, attr.rdev.minor)
                }
                _ => size(attr.size),
            };
            let (mode, time) = (mode_text(attr), time_text(attr.mtime.sec));
            let _ = write!(
                fields,
                "{mode} {:>3} {:>5} {:>5} {size:>10} {time} ",
                attr.nlink, attr.uid, attr.gid
            );
        }
        self.text.extend_from_slice(fields.as_bytes());
        self.name(name);
        if let Some(target) = target {
            self.text.extend_from_slice(b" -> ");
            self.name(&target);
        } else if self.args.classify {
            self.text.extend(class(attr));
        }
        self.text.push(b'\n');
    }

    /// The line for an entry whose inode cannot be read.
    fn unknown(&mut self, name: &[u8]) {
        let mut fields = String::new();
        for _ in 0..u8::from(self.args.inodes) + u8::from(self.args.blocks) {
            let _ = write!(fields, "{:>8} ", "?");
        }
        if self.is_long() {
            let _ = write!(
                fields,
                "?????????? {:>3} {:>5} {:>5} {:>10} {:>16} ",
                "?", "?", "?", "?", "?"
            );
        }
        self.text.extend_from_slice(fields.as_bytes());
        self.name(name);
        self.text.push(b'\n');
    }

    /// A name as it is; a terminal gets a question mark for each control character and each invalid
    /// byte.
    fn name(&mut self, name: &[u8]) {
        if !self.plain {
            self.text.extend_from_slice(name);
            return;
        }
        for chunk in name.utf8_chunks() {
            let shown = chunk.valid().chars().map(|c| if is_active(c) { '?' } else { c });
            let shown: String = shown.chain(chunk.invalid().iter().map(|_| '?')).collect();
            self.text.extend_from_slice(shown.as_bytes());
        }
    }
}

/// The path of a name in a directory.
fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// The mark of `-F`.
fn class(attr: &Attr) -> Option<u8> {
    match attr.kind {
        FileKind::Directory => Some(b'/'),
        FileKind::Symlink => Some(b'@'),
        FileKind::Fifo => Some(b'|'),
        FileKind::Socket => Some(b'='),
        FileKind::Regular if attr.perm & 0o111 != 0 => Some(b'*'),
        _ => None,
    }
}

/// A size as ls(1) shows it with `-h`: rounded up, with one decimal below ten.
pub fn human(bytes: u64) -> String {
    let mut scale = 0;
    let mut value = u128::from(bytes) * 10;
    // In tenths; what would round up to 1024 takes the next unit.
    while value > 10_230 {
        value = value.div_ceil(1024);
        scale += 1;
    }
    let value = (u128::from(bytes) * 10).div_ceil(1024_u128.pow(scale));
    match b"KMGTPE".get(scale.wrapping_sub(1) as usize) {
        None => bytes.to_string(),
        Some(&unit) if value < 100 => format!("{}.{}{}", value / 10, value % 10, char::from(unit)),
        Some(&unit) => format!("{}{}", value.div_ceil(10), char::from(unit)),
    }
}

fn mode_text(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mut text = String::from(kind);
    for (shift, special, execute) in
        [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])]
    {
        let bits = attr.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.perm & special != 0, bits & 1 != 0) {
            (true, true) => execute[0],
            (true, false) => execute[1],
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Date and time (UTC) of seconds since 1970.
fn time_text(sec: i64) -> String {
    let d = date(sec);
    format!("{:04}-{:02}-{:02} {:02}:{:02}", d.year, d.month, d.day, d.hour, d.minute)
}

/// Prints files.
pub fn cat(args: &CatArgs) -> Result<()> {
    let tree = Tree::open(&args.volume, false)?;
    tree.refuse_as_output()?;
    let outcome = args.paths.iter().try_for_each(|path| match cat_one(&tree, path) {
        Ok(printed) => printed,
        Err(error) => {
            tree.report(show(path), error);
            Ok(())
        }
    });
    tree.close(outcome)
}

/// The inner result is about standard output, the outer one about the volume.
fn cat_one(tree: &Tree, path: &OsStr) -> extol_vfs::Result<Result<()>> {
    let inode = tree.find(path, true)?;
    match inode.kind()? {
        FileKind::Regular => {}
        FileKind::Directory => return Err(FsError::IsADirectory),
        _ => return Err(FsError::Invalid("not a file with contents")),
    }
    let mut buffer = vec![0; CHUNK];
    let reader = inode.reader();
    let mut offset = 0;
    loop {
        let count = reader.read(offset, &mut buffer)?;
        if count == 0 {
            return Ok(Ok(()));
        }
        if let Err(failure) = write(&buffer[..count]) {
            return Ok(Err(failure));
        }
        offset += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};

    #[test]
    fn no_control_characters_reach_a_terminal() {
        let words = ["extol", "ls", "image"].map(OsString::from);
        let Ok(Command::Ls(args)) = args::parse(&words) else { panic!("another command") };
        let show = |plain| {
            let mut listing = Listing {
                args: &args,
                source: OsStr::new("image"),
                headed: false,
                plain,
                text: Vec::new(),
                objects: None,
                failed: false,
            };
            listing.name(b"a\x1b[2Jb\xffc\xc2\x9bd\ne \xe2\x80\xae\xc3\xbc");
            listing.text
        };
        assert_eq!(show(false), b"a\x1b[2Jb\xffc\xc2\x9bd\ne \xe2\x80\xae\xc3\xbc");
        assert_eq!(String::from_utf8(show(true)).unwrap(), "a?[2Jb?c?d?e ?\u{fc}");
    }

    /// The values of GNU ls.
    #[test]
    fn readable_sizes() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (5 << 20, "5.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn dates() {
        for (sec, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (-1, "1969-12-31 23:59"),
            (4_107_542_399, "2100-02-28 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
            (15_032_385_535, "2446-05-10 22:38"),
        ] {
            assert_eq!(time_text(sec), text);
        }
    }
}
