//! What actors do to the file that all of them write.

use std::path::Path;

use extol::OpenOptions;

use super::{Actor, Done};
use crate::model::COMMON;

impl Actor {
    /// Writes random bytes at that place of its own ones in the common file, as many of them as
    /// stand in a row there, if there is such a file.
    pub fn write_common(&mut self, at: usize, len: usize) -> Done {
        let Some(common) = self.common.filter(|common| at < common.own()) else { return Ok(()) };
        let (place, row) = common.place(at);
        let bytes = self.fresh(len.min(row));
        let text = format!("write {COMMON}: {} bytes at {place}", bytes.len());
        let done = self.act(&text, |fs| {
            let file = fs.open_file(COMMON, OpenOptions::new().write(true))?;
            file.write_all_at(&bytes, place as u64)
        })?;
        self.history.quiet(text);
        if done.is_some() {
            self.history.common_contents(at, &bytes);
        } else {
            let found =
                self.fs.read_file(COMMON).map_err(|e| format!("reading {COMMON} back: {e}"))?;
            self.history.common_contents(0, &common.of_all(&found));
        }
        Ok(())
    }

    /// fsync or fdatasync of the common file.
    pub fn sync_common(&mut self, data_only: bool) -> Done {
        if self.sync_full(Path::new(COMMON), COMMON, data_only)?.is_some() {
            self.history.common_synced(data_only);
        }
        Ok(())
    }
}
