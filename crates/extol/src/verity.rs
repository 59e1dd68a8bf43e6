//! What is in memory of files of fs-verity: their descriptors, and blocks of their trees that are
//! verified.
//!
//! All files share the latter ([`VerifiedBlocks`]), so that many files do not take more memory than
//! one. Each descriptor that was read has a number that no other one gets, so blocks of a file that
//! is gone are never taken for those of another.
//!
//! Locking: the lock of the blocks is held over no other one, and over no I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_sync::plain::Mutex;
use extol_verity::{Known, Recent, Verifier};

/// Blocks of all trees that stay in memory.
const ROOM: usize = 256;

/// A block of a tree: number of its descriptor, number of the block.
type Key = (u64, u64);

/// Blocks of trees that are verified.
#[derive(Debug)]
pub(crate) struct VerifiedBlocks {
    recent: Mutex<Recent<Key>>,
    next: AtomicU64,
}

impl Default for VerifiedBlocks {
    fn default() -> Self {
        Self { recent: Mutex::new(Recent::new(ROOM)), next: AtomicU64::new(0) }
    }
}

/// What verifies the contents of one file.
#[derive(Debug)]
pub(crate) struct FileVerity {
    pub verifier: Verifier,
    number: u64,
}

impl VerifiedBlocks {
    /// A file whose descriptor was read.
    pub fn file(&self, verifier: Verifier) -> Arc<FileVerity> {
        Arc::new(FileVerity { verifier, number: self.next.fetch_add(1, Ordering::Relaxed) })
    }

    /// Those of one file.
    pub fn of<'a>(&'a self, file: &FileVerity) -> OfFile<'a> {
        OfFile { all: self, number: file.number }
    }
}

/// The verified blocks of one tree.
pub(crate) struct OfFile<'a> {
    all: &'a VerifiedBlocks,
    number: u64,
}

impl Known for OfFile<'_> {
    fn get(&self, block: u64) -> Option<Arc<[u8]>> {
        self.all.recent.lock().get(&(self.number, block))
    }

    fn keep(&self, block: u64, bytes: Arc<[u8]>) {
        self.all.recent.lock().keep((self.number, block), bytes);
    }
}
