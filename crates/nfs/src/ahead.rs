//! Readers with read-ahead, kept from one READ to the next: the protocol has no open files.

use std::sync::Arc;

use extol_sync::plain::Mutex;
use extol_vfs::{Attr, FileId, Mountable, Reader};

/// Files that are read ahead at a time. Each has a window of a few MiB at most.
const FILES: usize = 8;

/// The readers of the files that were read last.
#[derive(Default)]
pub(crate) struct Readers {
    /// The one that was used last comes last.
    kept: Mutex<Vec<(FileId, Arc<dyn Reader>)>>,
}

impl Readers {
    /// Reads a file on which the caller holds a reference.
    pub(crate) fn read(
        &self,
        fs: &Arc<dyn Mountable>,
        file: &Attr,
        offset: u64,
        room: &mut [u8],
    ) -> extol_vfs::Result<usize> {
        // Nothing comes behind a file that is read at once.
        let is_whole = offset == 0 && room.len() as u64 >= file.size;
        match (!is_whole).then(|| self.of(fs, file.id)).flatten() {
            Some(reader) => reader.read(offset, room),
            None => fs.read(file.id.ino, offset, room),
        }
    }

    fn of(&self, fs: &Arc<dyn Mountable>, id: FileId) -> Option<Arc<dyn Reader>> {
        let mut kept = self.kept.lock();
        let found = match kept.iter().position(|(other, _)| *other == id) {
            Some(at) => kept.remove(at),
            None => (id, Arc::clone(fs).kept_reader(id.ino)?),
        };
        let reader = Arc::clone(&found.1);
        let oldest = (kept.len() >= FILES).then(|| kept.remove(0));
        kept.push(found);
        // The end of a reader waits for what it has asked for.
        drop(kept);
        drop(oldest);
        Some(reader)
    }
}
