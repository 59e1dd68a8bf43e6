//! The files that are open for writing.
//!
//! The kernel counts them, but does not tell, so each open and each release of a writer is counted
//! here. Two things depend on it:
//!
//! - A file with a writer cannot become a file of fs-verity.
//! - Only a file with a writer can have dirty pages in the kernel's page cache. A shared mapping
//!   keeps its file open, and Linux writes the pages back when a file is closed or a mapping ends,
//!   before it sends the release. So these files, and no others, are written back before an answer
//!   that depends on their data ([`Context::write_back`](crate::ops::Context::write_back)).
//!
//! *Locking.* One lock, a leaf.

use std::collections::HashMap;

use extol_sync::plain::Mutex;

/// The writers of one file.
#[derive(Clone, Copy, Debug, Default)]
struct Writer {
    /// Opens for writing that are not released.
    opens: u32,
    /// The page cache has sent data of it since it was opened.
    is_cached: bool,
}

/// The files that are open for writing.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<u32, Writer>>);

impl Writers {
    /// A file is opened for writing.
    pub(crate) fn add(&self, ino: u32) {
        self.0.lock().entry(ino).or_default().opens += 1;
    }

    /// It is closed.
    pub(crate) fn remove(&self, ino: u32) {
        let mut all = self.0.lock();
        if let Some(writer) = all.get_mut(&ino) {
            writer.opens -= 1;
            if writer.opens == 0 {
                all.remove(&ino);
            }
        }
    }

    /// The page cache sends data of a file.
    pub(crate) fn note_write_back(&self, ino: u32) {
        if let Some(writer) = self.0.lock().get_mut(&ino) {
            writer.is_cached = true;
        }
    }

    /// True if the file is open for writing.
    pub(crate) fn has(&self, ino: u32) -> bool {
        self.0.lock().contains_key(&ino)
    }

    /// All files that are open for writing.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.0.lock().keys().copied().collect()
    }

    /// True if one of them is written through the page cache: by a shared mapping, or with a
    /// write-back cache.
    pub(crate) fn any_is_cached(&self) -> bool {
        self.0.lock().values().any(|writer| writer.is_cached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_close_counts() {
        let writers = Writers::default();
        writers.remove(12);
        writers.add(12);
        writers.add(12);
        writers.remove(12);
        assert!(writers.has(12) && !writers.has(13));
        assert_eq!(writers.all(), [12]);
        writers.remove(12);
        assert!(!writers.has(12));
        assert!(writers.0.lock().is_empty());
    }

    /// Data that the page cache sends of a closed file is of no writer.
    #[test]
    fn written_back_while_open() {
        let writers = Writers::default();
        writers.note_write_back(12);
        writers.add(12);
        assert!(!writers.any_is_cached());
        writers.note_write_back(12);
        assert!(writers.any_is_cached());
        writers.remove(12);
        writers.add(12);
        assert!(!writers.any_is_cached());
    }
}
