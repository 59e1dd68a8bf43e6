//! mtree(5): names with keywords behind them, in directories that are entered and left, or with
//! whole paths. Sums and sizes are passed over: the source is what it is.

use std::collections::BTreeMap;

use extol_ondisk::Time;
use extol_vfs::Rdev;

use super::{Item, Line, What, id, mode, number, text, words};
use crate::edits::decimal;

/// The deepest directory.
const MAX_DEPTH: usize = 4096;

/// Where a specification is.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What `/set` has set.
    set: Keywords,
    /// The directories that were entered.
    dirs: Vec<Vec<u8>>,
}

type Keywords = BTreeMap<Vec<u8>, Vec<u8>>;

impl State {
    pub fn line(&mut self, line: &[u8], items: &mut Vec<Item>) -> Line<()> {
        let mut fields = words(line);
        let name = fields.next().unwrap_or_default();
        match name {
            b"/set" => {
                self.set.extend(fields.map(keyword));
                return Ok(());
            }
            b"/unset" => {
                for field in fields {
                    if field == b"all" {
                        self.set.clear();
                    }
                    self.set.remove(field);
                }
                return Ok(());
            }
            b".." => {
                return match self.dirs.pop() {
                    Some(_) => Ok(()),
                    None => Err("'..' leaves the directory with which it begins".into()),
                };
            }
            _ => {}
        }
        let name = unescaped(name)?;
        let mut keywords = self.set.clone();
        keywords.extend(fields.map(keyword));
        if keywords.contains_key(&b"ignore"[..]) && name.contains(&b'*') {
            return Ok(());
        }
        // A name with a slash is a path from the start, whatever was entered.
        let is_path = name.contains(&b'/');
        let path = match is_path {
            true => name.clone(),
            false => [&self.dirs.join(&b'/')[..], b"/", &name].concat(),
        };
        let item = item(path, &keywords)?;
        if item.what == What::Dir && !is_path {
            if self.dirs.len() == MAX_DEPTH {
                return Err(format!("is more than {MAX_DEPTH} directories deep"));
            }
            self.dirs.push(name);
        }
        items.push(item);
        Ok(())
    }
}

fn keyword(field: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match field.iter().position(|&byte| byte == b'=') {
        Some(at) => (field[..at].to_vec(), field[at + 1..].to_vec()),
        None => (field.to_vec(), Vec::new()),
    }
}

fn item(path: Vec<u8>, keywords: &Keywords) -> Line<Item> {
    let value = |name: &str| keywords.get(name.as_bytes()).map(Vec::as_slice);
    let owner = |what: &str, name: &str, number: &str| match (value(number), value(name)) {
        (Some(number), _) => id(what, number).map(Some),
        (None, Some(name)) => {
            Err(format!("{what} '{}' is a name: give its number ({number}=)", text(name)))
        }
        (None, None) => Ok(None),
    };
    let device = || value("device").map_or_else(|| Err("has no device=".into()), rdev);
    let what = match value("type") {
        None => What::Any,
        Some(b"file") => What::File,
        Some(b"dir") => What::Dir,
        Some(b"char") => What::Char(device()?),
        Some(b"block") => What::Block(device()?),
        Some(b"fifo") => What::Fifo,
        Some(b"socket") => What::Socket,
        Some(b"link") => {
            let target = value("link").ok_or("is a symbolic link without link=")?;
            What::Symlink(unescaped(target)?)
        }
        Some(other) => return Err(format!("the type '{}' is not known", text(other))),
    };
    Ok(Item {
        path,
        what,
        mode: value("mode").map(mode).transpose()?,
        uid: owner("the owner", "uname", "uid")?,
        gid: owner("the group", "gname", "gid")?,
        mtime: value("time").map(time).transpose()?,
        optional: value("optional").is_some(),
        keep: value("nochange").is_some(),
        ..Item::default()
    })
}

/// A time: seconds, and nanoseconds as a number of their own.
fn time(word: &[u8]) -> Line<Time> {
    let wrong = || format!("the time '{}' is not SECONDS or SECONDS.NANOSECONDS", text(word));
    let word = std::str::from_utf8(word).map_err(|_| wrong())?;
    let (seconds, nanoseconds) = word.split_once('.').unwrap_or((word, "0"));
    let Time { sec, .. } = decimal(seconds).ok_or_else(wrong)?;
    let nsec = number("", nanoseconds.as_bytes()).ok().filter(|nsec| *nsec < 1_000_000_000);
    Ok(Time { sec, nsec: nsec.ok_or_else(wrong)? })
}

/// A device: `linux,5,1`, `5,1`, or the number that is both.
fn rdev(word: &[u8]) -> Line<Rdev> {
    let parts: Vec<&[u8]> = word.split(|&byte| byte == b',').collect();
    match parts[..] {
        [b"linux" | b"native", major, minor] | [major, minor] => Ok(Rdev {
            major: number("the major number", major)?,
            minor: number("the minor number", minor)?,
        }),
        [both] => {
            let hex = both
                .strip_prefix(b"0x")
                .and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
            let both = hex.map_or_else(|| number("the device", both), Ok)?;
            // As Linux packs them.
            Ok(Rdev { major: both >> 8 & 0xfff, minor: both & 0xff | both >> 12 & 0xf_ff00 })
        }
        _ => Err(format!("the device '{}' is not linux,MAJOR,MINOR", text(word))),
    }
}

/// A name without the escapes of vis(3).
fn unescaped(word: &[u8]) -> Line<Vec<u8>> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let wrong = || format!("'{}' has an escape that is not known", text(word));
        let (&kind, tail) = rest.split_first().ok_or_else(wrong)?;
        if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
            continue;
        }
        // A byte above 127 by the one below, and control characters by others.
        match rest {
            [b'M', b'-', low, tail @ ..] if low.is_ascii() => {
                out.push(low | 0x80);
                rest = tail;
                continue;
            }
            [b'M', b'^', low @ b'?'..=b'_', tail @ ..] => {
                out.push((low ^ 0x40) | 0x80);
                rest = tail;
                continue;
            }
            [b'^', low @ b'?'..=b'_', tail @ ..] => {
                out.push(low ^ 0x40);
                rest = tail;
                continue;
            }
            _ => {}
        }
        out.push(match kind {
            b'\\' | b'#' | b'*' | b'?' | b'[' | b']' | b'=' => kind,
            b's' => b' ',
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'v' => 11,
            b'f' => 12,
            b'E' | b'e' => 27,
            _ => return Err(wrong()),
        });
        rest = tail;
    }
    if out.contains(&0) {
        return Err(format!("'{}' has a NUL byte in it", text(word)));
    }
    Ok(out)
}
