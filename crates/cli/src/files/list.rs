//! `extol ls` and `extol cat`.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol_vfs::{Attr, FileKind, FsError};

use super::{Held, Trail, Tree, show};
use crate::args::{CatArgs, LsArgs};
use crate::error::{Result, print};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Lists.
pub fn ls(args: &LsArgs) -> Result<()> {
    let mut tree = Tree::open(&args.source, &args.options, false)?;
    let root = [OsString::from("/")];
    let paths = if args.paths.is_empty() { &root[..] } else { &args.paths };
    let many = paths.len() > 1 || args.recursive;
    let outcome = paths.iter().try_for_each(|path| list(&mut tree, args, path, many, &mut Trail::default()));
    tree.close(outcome)
}

fn list(tree: &mut Tree, args: &LsArgs, path: &OsStr, headed: bool, trail: &mut Trail) -> Result<()> {
    let mut text = Vec::new();
    let below = match describe(tree, args, path, headed, trail, &mut text) {
        Ok(below) => below,
        Err(error) => {
            tree.report(show(path), error);
            return Ok(());
        }
    };
    print(&text)?;
    let Some(below) = below else { return Ok(()) };
    for name in below {
        list(tree, args, Path::new(path).join(name).as_os_str(), headed, trail)?;
    }
    trail.leave();
    Ok(())
}

/// Appends the lines for one path. The directories to go on with, if it is a directory that was entered.
fn describe(
    tree: &Tree,
    args: &LsArgs,
    path: &OsStr,
    headed: bool,
    trail: &mut Trail,
    text: &mut Vec<u8>,
) -> extol_vfs::Result<Option<Vec<OsString>>> {
    let mut held = tree.find(path, false)?;
    if held.kind()? == FileKind::Symlink && !args.long {
        // As ls does: a link to a directory given by name shows the directory.
        held = tree.find(path, true).unwrap_or(held);
    }
    if !held.is_dir()? {
        line(args, &held, path.as_bytes(), text)?;
        return Ok(None);
    }
    trail.enter(held.ino)?;
    if headed {
        if trail.0.len() > 1 {
            text.push(b'\n');
        }
        push_name(text, path.as_bytes());
        text.extend_from_slice(b":\n");
    }
    let mut below = Vec::new();
    for entry in held.entries()? {
        if !args.all && entry.name.starts_with(b".") {
            continue;
        }
        if !args.long && !args.inodes && !args.recursive {
            push_name(text, &entry.name);
            text.push(b'\n');
            continue;
        }
        let child = held.child(&entry.name)?;
        line(args, &child, &entry.name, text)?;
        if args.recursive && child.is_dir()? {
            below.push(OsStr::from_bytes(&entry.name).to_owned());
        }
    }
    Ok(Some(below))
}

fn line(args: &LsArgs, held: &Held<'_>, name: &[u8], text: &mut Vec<u8>) -> extol_vfs::Result<()> {
    let attr = held.attr()?;
    let mut fields = String::new();
    // Writing to a string cannot fail.
    if args.inodes {
        let _ = write!(fields, "{:>8} ", attr.id.ino);
    }
    if args.long {
        let size = match attr.kind {
            FileKind::CharDevice | FileKind::BlockDevice => {
                format!("{}, {}", attr.rdev.major, attr.rdev.minor)
            }
            _ => attr.size.to_string(),
        };
        let (mode, time) = (mode_text(&attr), time_text(attr.mtime.sec));
        let _ = write!(fields, "{mode} {:>3} {:>5} {:>5} {size:>10} {time} ", attr.nlink, attr.uid, attr.gid);
    }
    text.extend_from_slice(fields.as_bytes());
    push_name(text, name);
    if args.long && attr.kind == FileKind::Symlink {
        text.extend_from_slice(b" -> ");
        push_name(text, &held.fs.readlink(held.ino)?);
    }
    text.push(b'\n');
    Ok(())
}

/// A name as it is; a terminal gets no control characters.
fn push_name(text: &mut Vec<u8>, name: &[u8]) {
    if std::io::stdout().is_terminal() {
        text.extend(name.iter().map(|&byte| if byte < 32 || byte == 127 { b'?' } else { byte }));
    } else {
        text.extend_from_slice(name);
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
    for (shift, special, letters) in
        [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])]
    {
        let bits = attr.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.perm & special != 0, bits & 1 != 0) {
            (true, true) => letters[0],
            (true, false) => letters[1],
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
    let mut tree = Tree::open(&args.source, &args.options, false)?;
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
    let held = tree.find(path, true)?;
    match held.kind()? {
        FileKind::Regular => {}
        FileKind::Directory => return Err(FsError::IsADirectory),
        _ => return Err(FsError::Invalid("not a file with contents")),
    }
    let mut buffer = vec![0; CHUNK];
    let reader = held.reader();
    let mut offset = 0;
    loop {
        let count = reader.read(offset, &mut buffer)?;
        if count == 0 {
            return Ok(Ok(()));
        }
        if let Err(failure) = print(&buffer[..count]) {
            return Ok(Err(failure));
        }
        offset += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
