//! Entries in hash order, one run of leaves at a time, for readdir.
//!
//! The position of an entry is its hash (31 bits, because the lowest one is always zero) followed
//! by its minor hash (32 bits). It does not depend on where in the directory the entry lies, so a
//! reader that comes back with a position finds its place after any splits, additions and removals.
//! A *run* must be read together: a leaf and the leaves behind it that continue the same hash.
//!
//! ```text
//!   index keys     0         h          h|1        h|1        k
//!                ┌──────┐  ┌───────┐  ┌───────┐  ┌───────┐  ┌──────
//!                │ run  │  │ run of three leaves: low = h, high = k
//! ```
//!
//! Odd cases:
//! * Two entries with the same position: they are ordered by name, and the later ones take the next
//!   free positions. The whole run is read each time, so they get the same positions each time.
//! * An entry whose hash does not belong in its run (a corrupt directory, or one written with the
//!   other signedness of `char`) is placed at the run's start, so that it is listed at all, and
//!   once.
//! * A run too long to hold (thousands of names with one hash): only the entries with the lowest
//!   positions are kept, and the reader continues inside the run.
//! * Positions 0 and 1 belong to `.` and `..`.

use extol_ondisk::htree::NameHash;
use extol_ondisk::{FileType, InodeNr};
use extol_vfs::{DirEntry, FileKind, FsError, Result};

use super::hashes::Hashes;
use super::shape::Shape;

/// Position of the first ordinary entry.
pub(super) const FIRST: u64 = 2;
/// Behind every position.
pub(super) const END: u64 = 1 << 63;
/// Most entries that a batch keeps.
const KEEP: usize = 16 * 1024;

/// Position that a hash and its minor hash give.
pub(super) fn position(hash: u32, minor: u32) -> u64 {
    u64::from(hash >> 1) << 32 | u64::from(minor)
}

/// The hash at which the search for a position begins.
pub(super) fn hash_at(position: u64) -> u32 {
    ((position >> 32) as u32) << 1
}

/// The kind of file that an entry records.
pub(crate) fn kind_of(file_type: Option<FileType>) -> Option<FileKind> {
    Some(match file_type? {
        FileType::Regular => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::CharDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::Symlink => FileKind::Symlink,
    })
}

#[derive(Debug)]
struct Item {
    pos: u64,
    name: std::ops::Range<usize>,
    ino: InodeNr,
    kind: Option<FileType>,
}

/// How a batch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Emitted {
    /// The reader wants no more.
    Stopped,
    /// The run is finished; the next one begins at this position.
    Finished(u64),
    /// The run was too long to hold; it must be loaded again from this position.
    Again(u64),
}

/// The entries of one run that a reader has not seen yet.
#[derive(Debug)]
pub(super) struct Batch {
    from: u64,
    low: u64,
    high: u64,
    keep: usize,
    items: Vec<Item>,
    names: Vec<u8>,
    /// Entries above this position were dropped.
    cut: Option<u64>,
}

impl Batch {
    /// A batch of entries from position `from` on, in a run that begins at `low`.
    pub fn new(from: u64, low: u64) -> Self {
        Self { from, low, high: END, keep: KEEP, items: Vec::new(), names: Vec::new(), cut: None }
    }

    /// Empties the batch for the next run.
    pub fn restart(&mut self, from: u64, low: u64) {
        self.from = from;
        self.low = low;
        self.high = END;
        self.items.clear();
        self.names.clear();
        self.cut = None;
    }

    /// The run ends below `high`. (Known only once the run is read.)
    pub fn end_at(&mut self, high: u64) {
        self.high = high;
    }

    /// Start of the run.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// Adds an entry, which is listed as `shown` makes of its two hashes. Its name may have a hash
    /// behind it.
    pub fn push(
        &mut self,
        (hashes, shape): (&Hashes, &Shape<'_>),
        (ino, kind): (InodeNr, Option<FileType>),
        (name, stored): (&[u8], Option<NameHash>),
        shown: impl FnOnce([u32; 2]) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let hash = stored.unwrap_or_else(|| hashes.of(shape, name, None));
        let shown = shown([hash.hash, hash.minor])?;
        let place = hashes.place(name, hash);
        let at = position(place.hash, place.minor);
        self.push_at(at, ino, kind, shown.as_deref().unwrap_or(name));
        Ok(())
    }

    fn push_at(&mut self, pos: u64, ino: InodeNr, kind: Option<FileType>, name: &[u8]) {
        let pos = if pos < self.low { self.low } else { pos };
        if pos < self.from.saturating_sub(self.window()) || self.cut.is_some_and(|cut| pos > cut) {
            return;
        }
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.items.push(Item { pos, name: start..self.names.len(), ino, kind });
        if self.items.len() >= self.keep.saturating_mul(2) {
            self.shrink();
        }
    }

    /// How far below the wanted position entries are taken, because they may be moved up. It is
    /// less than the number of entries kept, so a batch that was cut has something to emit.
    fn window(&self) -> u64 {
        self.keep as u64 / 2
    }

    fn sort(&mut self) {
        let names = &self.names;
        self.items.sort_unstable_by(|a, b| {
            (a.pos, &names[a.name.clone()]).cmp(&(b.pos, &names[b.name.clone()]))
        });
    }

    /// Keeps the lowest `keep` entries.
    fn shrink(&mut self) {
        self.sort();
        self.items.truncate(self.keep);
        self.cut = self.items.last().map(|item| item.pos);
        let mut names = Vec::with_capacity(self.names.len() / 2);
        for item in &mut self.items {
            let start = names.len();
            names.extend_from_slice(&self.names[item.name.clone()]);
            item.name = start..names.len();
        }
        self.names = names;
    }

    /// Hands the entries out in order.
    pub fn emit(&mut self, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<Emitted> {
        for item in &mut self.items {
            if item.pos >= self.high {
                item.pos = self.low;
            }
        }
        self.sort();
        let mut last = FIRST - 1;
        let mut emitted = false;
        for item in &self.items {
            last = item.pos.max(last + 1);
            if last < self.from {
                continue;
            }
            let entry = DirEntry {
                ino: item.ino.0,
                cookie: last + 1,
                kind: kind_of(item.kind),
                name: self.names[item.name.clone()].to_vec(),
            };
            if !each(entry) {
                return Ok(Emitted::Stopped);
            }
            emitted = true;
        }
        match self.cut {
            None => Ok(Emitted::Finished(self.high.max(last + 1))),
            Some(_) if emitted => Ok(Emitted::Again(last + 1)),
            Some(_) => Err(FsError::corrupt("too many directory entries at one position")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(batch: &mut Batch, max: usize) -> (Vec<(Vec<u8>, u64)>, Emitted) {
        let mut seen = Vec::new();
        let end = batch
            .emit(&mut |e| {
                if seen.len() == max {
                    return false;
                }
                seen.push((e.name, e.cookie));
                true
            })
            .unwrap();
        (seen, end)
    }

    fn fill(batch: &mut Batch, entries: &[(u32, u32, &str)]) {
        for (hash, minor, name) in entries {
            batch.push_at(position(*hash, *minor), InodeNr(12), None, name.as_bytes());
        }
    }

    #[test]
    fn equal_positions_are_told_apart() {
        let entries =
            [(8, 5, "c"), (8, 5, "a"), (8, 5, "b"), (8, 6, "d"), (0, 0, "zero"), (0, 1, "one")];
        let mut cookie = 0;
        let mut names = Vec::new();
        loop {
            let mut batch = Batch::new(cookie, 0);
            fill(&mut batch, &entries);
            let (seen, end) = list(&mut batch, 1);
            names.extend(seen.iter().map(|(name, _)| String::from_utf8(name.clone()).unwrap()));
            match (seen.last(), end) {
                (Some((_, next)), _) => cookie = *next,
                (None, end) => {
                    assert_eq!(end, Emitted::Finished(END));
                    break;
                }
            }
        }
        assert_eq!(names, ["zero", "one", "a", "b", "c", "d"]);
    }

    #[test]
    fn misplaced_entries_are_listed_once() {
        let low = position(100, 0);
        let mut cookie = low;
        let mut names = Vec::new();
        for _ in 0..4 {
            let mut batch = Batch::new(cookie, low);
            fill(&mut batch, &[(100, 7, "in"), (2, 7, "below"), (900, 7, "above")]);
            batch.end_at(position(200, 0));
            let (seen, end) = list(&mut batch, 1);
            match seen.first() {
                Some((name, next)) => {
                    names.push(name.clone());
                    cookie = *next;
                }
                None => assert_eq!(end, Emitted::Finished(position(200, 0))),
            }
        }
        assert_eq!(names, [b"above".to_vec(), b"below".to_vec(), b"in".to_vec()]);
    }

    #[test]
    fn long_runs_come_in_parts() {
        let mut from = 0;
        let mut got = Vec::new();
        loop {
            let mut batch = Batch::new(from, 0);
            batch.keep = 10;
            for n in (0..95u32).rev() {
                batch.push_at(
                    position(40, n * 3),
                    InodeNr(n + 1),
                    None,
                    format!("n{n}").as_bytes(),
                );
            }
            let end = batch
                .emit(&mut |e| {
                    got.push(e.ino - 1);
                    true
                })
                .unwrap();
            assert!(batch.items.len() < 20);
            match end {
                Emitted::Again(next) => from = next,
                other => {
                    assert_eq!(other, Emitted::Finished(END));
                    break;
                }
            }
        }
        assert_eq!(got, (0..95).collect::<Vec<_>>());
    }
}
