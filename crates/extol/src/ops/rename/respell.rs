//! A rename to another spelling of the same name.

use extol_ondisk::{FileType, InodeNr};
use extol_vfs::{FsError, Result};

use super::{BLOCKS, Dirs, Outcome, Rename, Reservation, check_entry, check_removable, entry_kind};
use crate::dir;
use crate::encrypted;
use crate::error;
use crate::fast_commit::{self, Delta, Reason};

impl Rename<'_> {
    /// Renames a file to a name that leads to it already: nothing is done, unless the name is
    /// another spelling of the old one.
    pub(super) fn respell(
        &self,
        dirs: &mut Dirs<'_>,
        source: InodeNr,
        to: &dir::Spot,
    ) -> Result<Outcome> {
        let fs = self.fs;
        let done = Ok(Outcome::Done(None));
        let is_plain = self.dir == self.new_dir && self.flags.is_empty();
        let (name, new) = (self.name, self.new_name);
        if !is_plain || name == new || !dir::is_spelling(&fs.vol, &dirs.from.node, name, new) {
            return done;
        }
        encrypted::check_add(&fs.vol, &dirs.from.node)?;
        check_entry(fs, InodeNr(self.dir), source)?;
        let cell = fs.cell(source.0)?;
        if cell.is_dir() && !self.has_lock {
            return Ok(Outcome::NeedsLock);
        }
        let mut st = cell.write()?;
        check_removable(&dirs.from, &st)?;
        let kind = entry_kind(&st)?;
        let reserved = Reservation::make(fs, BLOCKS)?;
        let credits = 2 * (dir::credits_add(&fs.vol, &dirs.from.node) + 3) + dir::REMOVE_CREDITS;
        let mut h = fs.start(credits + 3)?;
        let name = to.on_disk(new);
        if let Err(error) = dir::respell(&fs.vol, &mut h, &mut dirs.from.node, name, kind) {
            dirs.from.store(fs, &mut h, true)?;
            if !matches!(error, FsError::Io(_)) {
                // (After a failed read nothing is undone.)
                let _ = h.stop();
            }
            return Err(error);
        }
        if kind == FileType::Directory {
            // Everything below it has another path now.
            fast_commit::note(&mut h, Delta::AllIneligible { reason: Reason::DirRename });
            fs.dirs_moved.note(h.tid());
        }
        let now = self.change_time(dirs, &st, None);
        st.set_ctime(now);
        st.store(fs, &mut h, true)?;
        self.store_dirs(dirs, &mut h, now)?;
        let stopped = h.stop().map_err(error::journal);
        drop(reserved);
        stopped.and(done)
    }
}
