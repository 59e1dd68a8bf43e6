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

use super::{InodeRef, Tree, WalkGuard, show};
use crate::args::{CatArgs, LsArgs};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Lists.
pub fn ls(args: &LsArgs) -> Result<()> {
    let tree = Tree::open(&args.volume, false)?;
    let root = [OsString::from("/")];
    let paths = if args.paths.is_empty() { &root[..] } else { &args.paths };
    let mut listing = Listing {
        args,
        headed: paths.len() > 1 || args.recursive,
        plain: std::io::stdout().is_terminal(),
        text: Vec::new(),
        failed: false,
    };
    let outcome = paths.iter().try_for_each(|path| listing.path(&tree, path));
    let failed = listing.failed;
    outcome.and(tree.close_with(failed))
}

/// A directory whose directories are being listed.
struct Level<'t> {
    inode: InodeRef<'t>,
    below: vec::IntoIter<Vec<u8>>,
}

/// A listing under way.
struct Listing<'a> {
    args: &'a LsArgs,
    headed: bool,
    /// For a terminal, which gets question marks for control characters.
    plain: bool,
    text: Vec<u8>,
    failed: bool,
}

impl Listing<'_> {
    fn report(&mut self, path: &[u8], error: &FsError) {
        warn(format_args!("{}: {error}", show(OsStr::from_bytes(path))));
        self.failed = true;
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
        if inode.kind()? == FileKind::Symlink && !self.args.long {
            // As ls does: a link to a directory given by name shows the directory.
            inode = tree.find(name, true).unwrap_or(inode);
        }
        if inode.is_dir()? {
            return self.directory(inode, path, guard).map(Some);
        }
        self.line(&inode, b"", path)?;
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
        if self.headed {
            if guard.open.len() > 1 {
                self.text.push(b'\n');
            }
            self.name(path);
            self.text.extend_from_slice(b":\n");
        }
        let mut below = Vec::new();
        let (entries, problem) = inode.entries();
        for entry in entries {
            if !self.args.all && entry.name.starts_with(b".") {
                continue;
            }
            if !self.args.long && !self.args.inodes && !self.args.recursive {
                self.name(&entry.name);
                self.text.push(b'\n');
                continue;
            }
            let listed = inode.child(&entry.name).and_then(|child| {
                self.line(&child, path, &entry.name)?;
                child.is_dir()
            });
            match listed {
                Ok(is_dir) if is_dir && self.args.recursive => below.push(entry.name),
                Ok(_) => {}
                Err(error) => {
                    self.unknown(&entry.name);
                    self.report(&join(path, &entry.name), &error);
                }
            }
        }
        if let Some(problem) = problem {
            self.report(path, &problem);
        }
        Ok(Level { inode, below: below.into_iter() })
    }

    /// One line, for a name in `dir`. Nothing is added if there are no attributes.
    fn line(&mut self, inode: &InodeRef<'_>, dir: &[u8], name: &[u8]) -> extol_vfs::Result<()> {
        let attr = inode.attr()?;
        let target = match attr.kind {
            FileKind::Symlink if self.args.long => inode
                .fs
                .readlink(inode.ino)
                .inspect_err(|error| self.report(&join(dir, name), error))
                .ok(),
            _ => None,
        };
        let mut fields = String::new();
        // Writing to a string cannot fail.
        if self.args.inodes {
            let _ = write!(fields, "{:>8} ", attr.id.ino);
        }
        if self.args.long {
            let size = match attr.kind {
                FileKind::CharDevice | FileKind::BlockDevice => {
                    format!("{}, {}", attr.rdev.major, attr.rdev.minor)
                }
                _ => attr.size.to_string(),
            };
            let (mode, time) = (mode_text(&attr), time_text(attr.mtime.sec));
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
        }
        self.text.push(b'\n');
        Ok(())
    }

    /// The line for an entry whose inode cannot be read.
    fn unknown(&mut self, name: &[u8]) {
        let mut fields = String::new();
        if self.args.inodes {
            let _ = write!(fields, "{:>8} ", "?");
        }
        if self.args.long {
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
    let (days, second) = (sec.div_euclid(86400), sec.rem_euclid(86400));
    // The calendar repeats every 400 years of 146097 days; count from 1 March of year 0.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// Prints files.
pub fn cat(args: &CatArgs) -> Result<()> {
    let mut tree = Tree::open(&args.volume, false)?;
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
            let mut listing =
                Listing { args: &args, headed: false, plain, text: Vec::new(), failed: false };
            listing.name(b"a\x1b[2Jb\xffc\xc2\x9bd\ne \xe2\x80\xae\xc3\xbc");
            listing.text
        };
        assert_eq!(show(false), b"a\x1b[2Jb\xffc\xc2\x9bd\ne \xe2\x80\xae\xc3\xbc");
        assert_eq!(String::from_utf8(show(true)).unwrap(), "a?[2Jb?c?d?e ?\u{fc}");
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
