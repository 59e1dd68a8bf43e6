//! An initramfs: a cpio archive in the format "newc", which the kernel unpacks.
//!
//! All files are executable and belong to root. Directories are made as they are needed, as the
//! kernel makes none by itself. Of two entries with one name the later one wins.

use crate::Failed;
use std::collections::BTreeMap;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive in the making. Names are without a leading `/`.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    /// A directory sorts before what is in it.
    entries: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn file(&mut self, name: &str, contents: &[u8]) {
        self.add(name, FILE, contents.to_vec());
    }

    /// A copy of a file of the host.
    pub(crate) fn host_file(&mut self, name: &str, from: &Path) -> Result<(), Failed> {
        let contents = std::fs::read(from)
            .map_err(|e| Failed::new(format!("cannot have {}: {e}", from.display())))?;
        self.add(name, FILE, contents);
        Ok(())
    }

    pub(crate) fn link(&mut self, name: &str, target: &str) {
        self.add(name, LINK, target.as_bytes().to_vec());
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    fn add(&mut self, name: &str, mode: u32, contents: Vec<u8>) {
        for (at, _) in name.match_indices('/') {
            self.entries.entry(name[..at].to_owned()).or_insert((DIRECTORY, Vec::new()));
        }
        self.entries.insert(name.to_owned(), (mode, contents));
    }

    /// The bytes of the archive.
    pub(crate) fn end(self) -> Vec<u8> {
        let mut out = Vec::new();
        for (inode, (name, (mode, contents))) in (1..).zip(&self.entries) {
            entry(&mut out, inode, name, *mode, contents);
        }
        entry(&mut out, 0, "TRAILER!!!", 0, &[]);
        out
    }
}

/// One entry: a header of 13 numbers, the name, and the contents, each padded to four bytes.
fn entry(out: &mut Vec<u8>, inode: u32, name: &str, mode: u32, contents: &[u8]) {
    let size = u32::try_from(contents.len()).expect("a file below 4 GiB");
    let name_size = u32::try_from(name.len() + 1).expect("a short name");
    // Inode, mode, owner, group, links, time, size, device (2), special file (2), name, checksum.
    let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(contents);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_contents_are_aligned_and_directories_come_first() {
        let mut archive = Archive::new();
        archive.file("a/b/one", b"12345");
        archive.link("a/two", "b/one");
        archive.file("a/b/one", b"123");
        assert!(archive.has("a/b") && !archive.has("a/c"));
        let bytes = archive.end();
        assert_eq!(bytes.len() % 4, 0);
        let mut names = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |nr: usize| {
                let text = &bytes[at + 6 + nr * 8..at + 14 + nr * 8];
                usize::from_str_radix(std::str::from_utf8(text).unwrap(), 16).unwrap()
            };
            let (size, name) = (field(6), field(11));
            names.push(String::from_utf8(bytes[at + 110..at + 109 + name].to_vec()).unwrap());
            at = (at + 110 + name).next_multiple_of(4);
            at = (at + size).next_multiple_of(4);
            if at == bytes.len() {
                break;
            }
        }
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/two", "TRAILER!!!"]);
    }
}
