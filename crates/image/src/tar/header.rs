//! A header of an entry, with an extended header in front of it where it needs one.

use extol_vfs::{Rdev, Timestamp};

use super::records::Records;

/// The size of a header and of everything in an archive.
pub(super) const BLOCK: usize = 512;

/// The longest name in a header, of a link and without the directory in front of it.
const NAME: usize = 100;
/// The longest directory in front of a name.
const PREFIX: usize = 155;
/// The largest numbers of 7 and 11 octal digits.
const SHORT: u64 = 0o777_7777;
const LONG: u64 = 0o777_7777_7777;

/// An entry.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub path: &'a [u8],
    /// The target of a link.
    pub link: &'a [u8],
    pub kind: u8,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Bytes behind the header.
    pub size: u64,
    pub mtime: Timestamp,
    pub rdev: Rdev,
    /// The size of a sparse file, whose contents begin with a map.
    pub real_size: Option<u64>,
    /// What else there is to say.
    pub records: Records,
}

impl Entry<'_> {
    /// The blocks in front of the contents.
    pub fn encode(mut self) -> Vec<u8> {
        let mut header = Header::new(self.kind);
        let records = &mut self.records;
        let mut binary = false;
        if let Some(size) = self.real_size {
            records.number("GNU.sparse.major", 1);
            records.number("GNU.sparse.minor", 0);
            records.add(b"GNU.sparse.name", self.path);
            records.number("GNU.sparse.realsize", size);
            // What programs without sparse files see is no file of that name.
            let (dir, base) = split(self.path);
            header.name(&[dir, b"GNUSparseFile.0/", base].concat());
            binary |= std::str::from_utf8(self.path).is_err();
        } else if !header.name(self.path) {
            records.add(b"path", self.path);
            binary |= std::str::from_utf8(self.path).is_err();
        }
        if !header.link(self.link) {
            records.add(b"linkpath", self.link);
            binary |= std::str::from_utf8(self.link).is_err();
        }
        header.octal(100, 8, u64::from(self.mode & 0o7777));
        for (at, keyword, id) in [(108, "uid", self.uid), (116, "gid", self.gid)] {
            if u64::from(id) > SHORT {
                records.number(keyword, id.into());
            }
            header.octal(at, 8, u64::from(id).min(SHORT));
        }
        if self.size > LONG {
            records.number("size", self.size);
        }
        header.octal(124, 12, self.size.min(LONG));
        let seconds = u64::try_from(self.mtime.sec).ok().filter(|sec| *sec <= LONG);
        if self.mtime.nsec != 0 || seconds.is_none() {
            records.time("mtime", self.mtime);
        }
        let nearest = if self.mtime.sec < 0 { 0 } else { LONG };
        header.octal(136, 12, seconds.unwrap_or(nearest));
        if matches!(self.kind, b'3' | b'4') {
            let Rdev { major, minor } = self.rdev;
            for (at, keyword, number) in
                [(329, "SCHILY.devmajor", major), (337, "SCHILY.devminor", minor)]
            {
                if u64::from(number) > SHORT {
                    records.number(keyword, number.into());
                }
                header.octal(at, 8, u64::from(number).min(SHORT));
            }
        }
        let mut out = Vec::new();
        if !records.0.is_empty() {
            let mut all = Records::default();
            if binary {
                // Names are bytes, not UTF-8.
                all.add(b"hdrcharset", b"BINARY");
            }
            all.0.append(&mut records.0);
            out = extended(self.path, &all.0);
        }
        out.extend_from_slice(&header.sealed());
        out
    }
}

/// An extended header for the entry behind it.
fn extended(path: &[u8], records: &[u8]) -> Vec<u8> {
    let mut header = Header::new(b'x');
    let (_, base) = split(path);
    header.name(&[b"PaxHeaders/", base].concat());
    header.octal(100, 8, 0o644);
    header.octal(108, 8, 0);
    header.octal(116, 8, 0);
    header.octal(124, 12, records.len() as u64);
    header.octal(136, 12, 0);
    let mut out = header.sealed().to_vec();
    out.extend_from_slice(records);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

/// The directory of a path with its slash, and the last name without one.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.split_at(path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1))
}

struct Header([u8; BLOCK]);

impl Header {
    fn new(kind: u8) -> Self {
        let mut header = Self([0; BLOCK]);
        header.0[156] = kind;
        header.0[257..265].copy_from_slice(b"ustar\x0000");
        header
    }

    /// Sets as much of a name as there is room for. False if that does not say it.
    fn name(&mut self, path: &[u8]) -> bool {
        let (prefix, name) = match path.len() {
            ..=NAME => (&b""[..], path),
            _ => {
                let last = path.len() - 1;
                let mut slashes = (1..=last.min(PREFIX)).rev().filter(|&at| path[at] == b'/');
                match slashes.find(|&at| at < last && path.len() - at - 1 <= NAME) {
                    Some(at) => (&path[..at], &path[at + 1..]),
                    None => (&b""[..], &path[..NAME]),
                }
            }
        };
        self.0[..name.len()].copy_from_slice(name);
        self.0[345..345 + prefix.len()].copy_from_slice(prefix);
        let whole = if prefix.is_empty() { name.len() } else { prefix.len() + 1 + name.len() };
        whole == path.len() && says(path)
    }

    fn link(&mut self, link: &[u8]) -> bool {
        let len = link.len().min(NAME);
        self.0[157..157 + len].copy_from_slice(&link[..len]);
        len == link.len() && says(link)
    }

    fn octal(&mut self, at: usize, len: usize, number: u64) {
        let text = format!("{number:0width$o}", width = len - 1);
        self.0[at..at + text.len()].copy_from_slice(text.as_bytes());
    }

    fn sealed(mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|&byte| u64::from(byte)).sum();
        self.octal(148, 7, sum);
        self.0[154..156].copy_from_slice(b"\0 ");
        self.0
    }
}

/// True if a header says a name to all programs: ASCII; or bytes that are no text at all, for which
/// an extended header has no better form.
fn says(name: &[u8]) -> bool {
    name.is_ascii() || std::str::from_utf8(name).is_err()
}
