//! Which files are open for writing: they cannot become files of fs-verity. The kernel counts them,
//! but does not tell, so each open and each release of a writer is counted here.
//!
//! *Locking.* One lock, a leaf.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The number of opens for writing of each file that has some.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<u32, u32>>);

impl Writers {
    /// A file is opened for writing.
    pub(crate) fn add(&self, ino: u32) {
        *self.0.lock().entry(ino).or_default() += 1;
    }

    /// It is closed.
    pub(crate) fn remove(&self, ino: u32) {
        let mut all = self.0.lock();
        if let Some(count) = all.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                all.remove(&ino);
            }
        }
    }

    /// True if the file is open for writing.
    pub(crate) fn has(&self, ino: u32) -> bool {
        self.0.lock().contains_key(&ino)
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
        writers.remove(12);
        assert!(!writers.has(12));
        assert!(writers.0.lock().is_empty());
    }
}
