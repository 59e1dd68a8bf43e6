//! Pass 2: the entries of all directories.
//!
//! Each directory is read once, block by block. A broken chain ends the check of its block. Names
//! are counted for the inodes that they lead to, and a directory's one name gives its parent.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, RandomState};
use std::sync::atomic::Ordering::Relaxed;

use extol_ondisk::{FileType, Incompat, InodeNr, dirent, encryption};

use crate::bytes::{le8, le16, le32, part};
use crate::error::Result;
use crate::htree::Tree;
use crate::inodes::{Dir, DirContent, Info, Inodes};
use crate::policies::Policies;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
const HEADER: usize = 8;
const SHORTEST: usize = 12;
/// Bytes of an inline directory that are in the inode's map.
const INLINE_FIRST: usize = 60;

/// What a directory gave.
#[derive(Debug)]
pub(crate) struct Read {
    pub ino: u32,
    /// Where `..` leads; 0 if there is none.
    pub dotdot: u32,
    pub names: u64,
    pub out: Findings,
}

/// A raw directory entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub ino: u32,
    pub kind: u8,
    pub name: &'a [u8],
    pub next: usize,
}

/// The entry at `at` of an area; `None` if the chain is broken there.
pub(crate) fn entry_at(area: &[u8], at: usize, block_len: usize) -> Option<Entry<'_>> {
    let left = area.len().checked_sub(at).filter(|&left| left >= HEADER)?;
    let raw = le16(area, at + 4);
    let len = match raw {
        0 | 65535 if block_len == 65536 => 65536,
        n if block_len == 65536 => usize::from(n & 65532) | usize::from(n & 3) << 16,
        n => usize::from(n),
    };
    let name_len = usize::from(le8(area, at + 6));
    if len > left || len < SHORTEST || len % 4 != 0 || name_len + HEADER > len {
        return None;
    }
    let name = part(area, at + HEADER, at + HEADER + name_len);
    Some(Entry { ino: le32(area, at), kind: le8(area, at + 7), name, next: at + len })
}

/// Reads and checks a directory.
pub(crate) fn read(
    vol: &Vol,
    inodes: &Inodes,
    policies: &Policies,
    dir: &Dir,
    max_findings: usize,
) -> Result<Read> {
    let to = Read { ino: dir.ino, dotdot: 0, names: 0, out: Findings::new(max_findings) };
    let mut reader = Reader {
        vol,
        inodes,
        policies,
        dir,
        to,
        seen: HashMap::default(),
        forms: HashMap::default(),
        key: RandomState::new(),
        tree: None,
        dots: 0,
    };
    match &dir.content {
        DirContent::Inline(bytes) => reader.inline(bytes),
        DirContent::Blocks { runs, blocks } => {
            let mapped: u64 = runs.iter().map(|run| run.len).sum();
            let holes = mapped != *blocks;
            let tree_size = usize::try_from(*blocks).unwrap_or(0);
            if dir.hashed && !holes {
                reader.tree = Some(Tree::new(vol, dir, tree_size));
            }
            let mut next = 0;
            let bs = vol.geo.block_len();
            let mut buf = Vec::new();
            for run in runs {
                if run.lblk > next && !vol.incompat(Incompat::LARGE_DIR) {
                    reader.hole(next);
                }
                next = run.lblk + run.len;
                let mut done = 0;
                while done < run.len {
                    let n = (run.len - done).min((CHUNK / bs).max(1) as u64);
                    buf.resize(n as usize * bs, 0);
                    vol.read(run.pblk + done, &mut buf)?;
                    for (i, block) in (0u64..).zip(buf.chunks_exact(bs)) {
                        reader.block(run.lblk + done + i, run.pblk + done + i, block);
                    }
                    done += n;
                }
            }
            if let Some(tree) = reader.tree.take() {
                tree.finish(&mut reader.to.out);
            }
        }
    }
    Ok(reader.to)
}

struct Reader<'a> {
    vol: &'a Vol,
    inodes: &'a Inodes,
    policies: &'a Policies,
    dir: &'a Dir,
    to: Read,
    /// Keyed hashes of the names so far, and their blocks: no volume can make two names collide.
    seen: HashMap<u64, u64, BuildHasherDefault<PreHashed>>,
    /// In a casefolded directory the same of folded names, with the names that they are of.
    forms: HashMap<u64, u64, BuildHasherDefault<PreHashed>>,
    key: RandomState,
    tree: Option<Tree<'a>>,
    /// How many of `.` and `..` were passed.
    dots: u8,
}

/// Where in the directory an entry is.
#[derive(Clone, Copy)]
struct Place {
    lblk: u64,
    block: Option<u64>,
    offset: usize,
}

impl Reader<'_> {
    fn error(&mut self, kind: Kind, place: Place, what: &str) {
        let finding = self.finding(kind, place, what);
        self.to.out.push(finding);
    }

    /// An error that e2fsck passes over.
    fn error_beyond(&mut self, kind: Kind, place: Place, what: &str) {
        let finding = self.finding(kind, place, what).beyond();
        self.to.out.push(finding);
    }

    fn finding(&self, kind: Kind, place: Place, what: &str) -> Finding {
        let what = format!("directory block {}, offset {}: {what}", place.lblk, place.offset);
        let mut finding = Finding::error(kind, what).inode(self.dir.ino);
        finding.block = place.block;
        finding
    }

    fn hole(&mut self, lblk: u64) {
        // Holes of extent maps were reported where the extents were read.
        let what = format!("the directory has a hole at block {lblk}");
        self.to.out.push(Finding::error(Kind::DirHole, what).inode(self.dir.ino));
    }

    fn block(&mut self, lblk: u64, pblk: u64, block: &[u8]) {
        let place = Place { lblk, block: Some(pblk), offset: 0 };
        let mut index = false;
        if let Some(mut tree) = self.tree.take() {
            index = tree.enter(lblk, block, &mut self.to.out);
            self.tree = Some(tree);
        }
        let leaf_csum = self.vol.has_csum() && !index;
        if leaf_csum && let Err(error) = dirent::verify_csum(block, self.dir.seed) {
            self.error(Kind::DirChecksum, place, &error.to_string());
        }
        let tail = if leaf_csum && has_tail(block) { dirent::TAIL_LEN } else { 0 };
        let area = part(block, 0, block.len() - tail);
        self.dots = if lblk == 0 { 0 } else { 2 };
        self.entries(area, place);
        if index && let Some(mut tree) = self.tree.take() {
            tree.index(lblk, block, &mut self.to.out);
            self.tree = Some(tree);
        }
    }

    fn entries(&mut self, area: &[u8], mut place: Place) {
        let block_len = self.vol.geo.block_len();
        while place.offset < area.len() {
            let Some(entry) = entry_at(area, place.offset, block_len) else {
                self.error(Kind::DirCorrupt, place, "the chain of entries is broken");
                return;
            };
            let mut hash = None;
            if self.dir.stores_hashes && !is_dot_like(area, place.offset) {
                let at = place.offset + dirent::entry_len(entry.name.len().max(1));
                if at + dirent::HASH_LEN > entry.next {
                    self.error(Kind::DirCorrupt, place, "an entry without room for its hash");
                    return;
                }
                hash = Some(le32(area, at));
            }
            let terminated = |n: usize| le8(area, place.offset + HEADER + n) == 0;
            let ended = (terminated(1), terminated(2));
            self.entry(entry, hash, ended, place);
            place.offset = entry.next;
        }
    }

    /// `.` and `..` are implied in inline directories, and both parts are areas of their own.
    fn inline(&mut self, bytes: &[u8]) {
        let place = Place { lblk: 0, block: None, offset: 0 };
        let size = bytes.len();
        if size < INLINE_FIRST {
            // Already reported: the contents could not be read.
            return;
        }
        if !size.is_multiple_of(4) || size > INLINE_FIRST && size < INLINE_FIRST + SHORTEST {
            self.error(
                Kind::InlineData,
                place,
                &format!("an inline directory cannot have the size {size}"),
            );
        }
        let kind =
            if self.vol.incompat(Incompat::FILETYPE) { FileType::Directory as u8 } else { 0 };
        let own = Entry { ino: self.dir.ino, kind, name: b".", next: 0 };
        self.entry(own, None, (true, true), place);
        let up = Entry { ino: le32(bytes, 0), kind, name: b"..", next: 0 };
        self.entry(up, None, (true, true), place);
        self.entries(part(bytes, 0, INLINE_FIRST), Place { offset: 4, ..place });
        self.entries(part(bytes, INLINE_FIRST, size), Place { lblk: 1, ..place });
    }

    /// Checks an entry, behind whose name a hash may stand. `ended`: a zero byte follows a name of
    /// one or two characters.
    fn entry(&mut self, e: Entry<'_>, hash: Option<u32>, ended: (bool, bool), place: Place) {
        let dots = self.dots;
        self.dots = self.dots.saturating_add(1).min(2);
        self.dot_entries(e, ended, dots, place);
        // The parent of a directory that was removed while in use may be gone itself.
        if e.ino == 0 || dots == 1 && self.dir.orphan {
            return;
        }
        let named = dots >= 2;
        if !self.target(e, named, place) {
            return;
        }
        if !self.dir.encrypted && e.name.iter().any(|&c| c == 0 || c == b'/') {
            self.error(Kind::DirName, place, "a name with a zero byte or a slash");
        }
        if named && self.dir.encrypted {
            self.encrypted(e, place);
        } else if named && self.dir.folds {
            self.folded_name(e, place);
        }
        self.kind(e, place);
        if let Some(tree) = &mut self.tree {
            tree.name(place.lblk, e.name, hash);
        }
        // The name of an orphan is gone, and its parent no longer counts it.
        if !self.dir.orphan {
            self.count_name(e, named, place);
        }
    }

    /// Checks a name of a casefolded directory.
    fn folded_name(&mut self, e: Entry<'_>, place: Place) {
        if self.vol.geo.strict_encoding && !extol_casefold::is_valid(e.name) {
            self.error(Kind::DirName, place, "a name with illegal UTF-8 characters");
        }
        let Some(form) = extol_casefold::fold(e.name) else { return };
        let (form, name) = (self.key.hash_one(form), self.key.hash_one(e.name));
        // Names that are the same to the byte are found with those of all other directories.
        if self.forms.insert(form, name).is_some_and(|before| before != name) {
            let what = format!("the name '{}' is there in another spelling", text(e.name));
            self.error_beyond(Kind::DirDuplicate, place, &what);
        }
    }

    /// Checks `.` and `..`, which are the first two entries and no others.
    fn dot_entries(&mut self, e: Entry<'_>, ended: (bool, bool), dots: u8, place: Place) {
        let own = self.dir.ino;
        match dots {
            0 => {
                if e.ino == 0 {
                    self.error(Kind::DirDots, place, "'.' is missing");
                } else if e.name != b"." {
                    self.error(Kind::DirDots, place, "the first entry is not '.'");
                } else if !ended.0 {
                    self.error(Kind::DirDots, place, "'.' has no end");
                }
                if e.ino != own {
                    self.error(Kind::DirDots, place, &format!("'.' leads to inode {}", e.ino));
                }
            }
            1 => {
                if e.ino == 0 {
                    self.error(Kind::DirDots, place, "'..' is missing");
                } else if e.name != b".." {
                    self.error(Kind::DirDots, place, "the second entry is not '..'");
                } else if !ended.1 {
                    self.error(Kind::DirDots, place, "'..' has no end");
                } else {
                    self.to.dotdot = e.ino;
                }
            }
            _ if e.ino == own => {
                self.error(Kind::DirLinked, place, "an entry leads to its own directory")
            }
            _ => {}
        }
    }

    /// Counts a name for its inode; finds second names of directories and duplicates.
    fn count_name(&mut self, e: Entry<'_>, named: bool, place: Place) {
        let own = self.dir.ino;
        if named {
            self.to.names += 1;
        }
        if let Some(info) = self.inodes.get(e.ino) {
            if named && info.is_dir() {
                let first = info.parent.compare_exchange(0, own, Relaxed, Relaxed);
                if let Err(other) = first {
                    let what = format!(
                        "entry '{}' is a second name of directory {}, which is in {other}",
                        text(e.name),
                        e.ino
                    );
                    self.error(Kind::DirLinked, place, &what);
                }
            }
            info.count_name();
        }
        if let Some(before) = self.seen.insert(self.key.hash_one(e.name), place.lblk) {
            let what = format!("the name '{}' is there twice", text(e.name));
            let what = format!("directory block {}, offset {}: {what}", place.lblk, place.offset);
            let mut finding = Finding::error(Kind::DirDuplicate, what).inode(own);
            finding.block = place.block;
            // e2fsck compares the names of one block.
            self.to.out.push(if before == place.lblk { finding } else { finding.beyond() });
        }
    }

    /// Checks the inode that an entry leads to. False if there is no such inode.
    fn target(&mut self, e: Entry<'_>, named: bool, place: Place) -> bool {
        let (geo, root) = (&self.vol.geo, InodeNr::ROOT.0);
        let name = text(e.name);
        let sb = &self.vol.sb;
        let hidden = [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum, sb.orphan_file_inum];
        if e.ino != root && e.ino < geo.first_ino.0
            || e.ino > geo.inodes()
            || hidden.contains(&e.ino)
        {
            let what = format!("entry '{name}' leads to impossible inode {}", e.ino);
            self.error(Kind::DirBadInode, place, &what);
            return false;
        }
        if named {
            if e.name == b"." || e.name == b".." {
                self.error(Kind::DirDots, place, &format!("a second '{name}'"));
            } else if e.ino == root {
                self.error(Kind::DirLinked, place, &format!("entry '{name}' leads to the root"));
            } else if e.name.is_empty() {
                self.error(Kind::DirName, place, "an entry without a name");
            }
        }
        let (group, index) =
            ((e.ino - 1) / geo.inodes_per_group, (e.ino - 1) % geo.inodes_per_group);
        if self.vol.never_written(group, index) {
            let what = format!("entry '{name}' leads to inode {}, which was never written", e.ino);
            self.error(Kind::GroupUnused, place, &what);
        } else if self.inodes.get(e.ino).is_some_and(|info| info.has(Info::EA_INODE)) {
            // Linux refuses such an entry; e2fsck passes over it.
            let what = format!("entry '{name}' leads to inode {}, which is for attributes", e.ino);
            self.error_beyond(Kind::XattrInode, place, &what);
        } else if !self.inodes.get(e.ino).is_some_and(Info::is_used) {
            let what = format!("entry '{name}' leads to inode {}, which is not in use", e.ino);
            self.error(Kind::DirUnusedInode, place, &what);
        }
        true
    }

    /// An entry of an encrypted directory: the name, and the policy of its inode.
    fn encrypted(&mut self, e: Entry<'_>, place: Place) {
        if e.name.len() < encryption::MIN_NAME {
            let what = format!("an encrypted name has {} bytes", e.name.len());
            self.error(Kind::Encryption, place, &what);
        }
        let Some(own) = self.policies.of(self.dir.ino) else { return };
        let kind = self.inodes.get(e.ino).map_or(0, |info| info.kind);
        let encryptable = [FileType::Regular, FileType::Directory, FileType::Symlink];
        let what = match self.policies.of(e.ino) {
            Some(policy) if policy != own => "has another policy than its directory",
            None if encryptable.iter().any(|wanted| *wanted as u8 == kind) => "is not encrypted",
            _ => return,
        };
        self.error(Kind::Encryption, place, &format!("inode {} {what}", e.ino));
    }

    /// The type in an entry against that of its inode.
    fn kind(&mut self, e: Entry<'_>, place: Place) {
        let wanted = self.inodes.get(e.ino).map_or(0, |info| info.kind);
        if !self.vol.incompat(Incompat::FILETYPE) {
            if e.kind != 0 {
                self.error(Kind::DirType, place, "an entry with a type on a volume without types");
            }
        } else if e.kind != wanted && e.kind != 0 {
            let what = format!(
                "entry '{}' has type {}, inode {} has {wanted}",
                text(e.name),
                e.kind,
                e.ino
            );
            self.error(Kind::DirType, place, &what);
        }
    }
}

/// True for what Linux takes for `.` or `..`, which have no hash behind them.
fn is_dot_like(area: &[u8], at: usize) -> bool {
    let name = at + HEADER;
    matches!(le8(area, at + 6), 1 | 2)
        && le8(area, name) == b'.'
        && matches!(le8(area, name + 1), b'.' | 0)
}

/// True if a directory block ends with a tail for its checksum.
fn has_tail(block: &[u8]) -> bool {
    let at = block.len().saturating_sub(dirent::TAIL_LEN);
    le32(block, at) == 0
        && le16(block, at + 4) == dirent::TAIL_LEN as u16
        && le16(block, at + 6) == 0xDE00
}

/// A name for messages.
pub(crate) fn text(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

/// The hasher of a set of hashes.
#[derive(Debug, Default, Clone, Copy)]
struct PreHashed(u64);

impl std::hash::Hasher for PreHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, &b| h << 8 | u64::from(b));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains() {
        let mut area = vec![0u8; 64];
        area[..12].copy_from_slice(&[5, 0, 0, 0, 12, 0, 3, 1, b'a', b'b', b'c', 0]);
        area[16..18].copy_from_slice(&52u16.to_le_bytes());
        let first = entry_at(&area, 0, 1024).unwrap();
        assert_eq!((first.ino, first.kind, first.name, first.next), (5, 1, &b"abc"[..], 12));
        assert_eq!(entry_at(&area, 12, 1024).unwrap().next, 64);
        for (at, value) in [(16, 48u8), (16, 56), (16, 8), (16, 14), (18, 60)] {
            let mut bad = area.clone();
            bad[at] = value;
            let end = entry_at(&bad, 12, 1024).map_or(0, |e| e.next);
            assert!(end != 64, "{at} {value}");
        }
        assert!(entry_at(&area, 60, 1024).is_none() && entry_at(&area, 600, 1024).is_none());
        let mut whole = vec![0u8; 65536];
        whole[4..6].copy_from_slice(&65535u16.to_le_bytes());
        assert_eq!(entry_at(&whole, 0, 65536).unwrap().next, 65536);
    }
}
