//! Moves all that files have at or behind a limit in front of it.
//!
//! ```text
//!   all is written and in place ─► limit ─► for each inode in use:
//!       attribute block, data, tree blocks     ─► commit, log empty
//! ```
//!
//! One pass over the inodes is enough: with the limit in force nothing is put behind it again. Each
//! step of an inode is a transaction or a part of one, so an interrupted run leaves a sound volume
//! that is emptied in part; the next run goes on from there.
//!
//! Not moved here, since they are no blocks of files: inode tables, bitmaps, descriptors, and the
//! reserved blocks of the resize inode; and the journal, whose map the log itself depends on. The
//! list of bad blocks stays as it is: those blocks hold nothing.
//!
//! The caller keeps all other users of the volume out.

use std::sync::Arc;

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::InodeNr;
use extol_vfs::{FsError, Result};

use super::super::{ResizeError, refuse};
use crate::alloc::Run;
use crate::error;
use crate::inodes::Cell;
use crate::mounted::MountedFs;
use crate::ops::{files, values};
use crate::xattr;

/// What was moved.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Vacated {
    /// Blocks of files, directories and symbolic links.
    pub blocks: u64,
    /// Nodes of extent trees, and indirect blocks.
    pub tree_blocks: u64,
    /// Inodes whose attribute block was moved.
    pub attribute_blocks: u64,
    /// Blocks of the volume's own: the orphan file's, the MMP block, those of quota files.
    pub others: u64,
}

impl Vacated {
    /// Everything.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.blocks + self.tree_blocks + self.attribute_blocks + self.others
    }
}

/// The work.
pub(super) struct Mover<'a> {
    pub fs: &'a MountedFs,
    /// Nothing is to be left here and behind.
    pub limit: BlockNr,
    pub shared: xattr::Moved,
    pub moved: Vacated,
    /// Is told how many were moved; false: no more is to be.
    pub progress: &'a mut dyn FnMut(u64) -> bool,
    pub stopped: bool,
}

/// Moves all that files have at or behind `limit`; the allocator keeps to it from then on, also
/// after an error ([`set_limit`](crate::alloc::Allocator::set_limit)).
///
/// `NoSpace`: what lies in front of the limit has no room for it. What was moved until then stays
/// where it is.
pub(crate) fn vacate(fs: &MountedFs, limit: BlockNr) -> Result<Vacated> {
    fs.check_writable()?;
    if !fs.vol.geo.is_valid_block(limit) {
        return Err(FsError::Invalid("the limit is not inside the volume"));
    }
    let limit = fs.vol.geo.cluster_start(limit);
    settle(fs)?;
    fs.vol.alloc.set_limit(Some(limit))?;
    let done = empty(fs, limit, &mut |_| true);
    settle(fs)?;
    done.map(|(moved, _)| moved)
}

/// As that, with the limit in force. False if `progress` has stopped it.
pub(super) fn empty(
    fs: &MountedFs,
    limit: BlockNr,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<(Vacated, bool)> {
    let (shared, moved) = (xattr::Moved::default(), Vacated::default());
    let mut mover = Mover { fs, limit, shared, moved, progress, stopped: false };
    mover.run()?;
    Ok((mover.moved, !mover.stopped))
}

/// Everything is durable and in place: no transaction holds a block, and no checksum is to come.
pub(in crate::resize) fn settle(fs: &MountedFs) -> Result<()> {
    files::sync_now(fs)??;
    fs.vol.journal.checkpoint_all(&[]).map_err(error::journal)
}

/// A handle of a volume that nothing else uses: one with more credits than a transaction has gets
/// the whole log. `what` takes them, in words.
pub(in crate::resize) fn handle(
    fs: &MountedFs,
    credits: u32,
    what: &str,
) -> std::result::Result<Handle, ResizeError> {
    let journal = &fs.vol.journal;
    let most = journal.max_credits_alone();
    if credits > most {
        return refuse(format!(
            "the journal is too small: {what} takes a transaction of {credits} blocks, and this \
             one holds {most}; {LARGER_LOG}"
        ));
    }
    fs.check_writable()?;
    if credits <= journal.max_credits() {
        return Ok(fs.start(credits)?);
    }
    journal.commit_all().and_then(|()| journal.checkpoint_all(&[])).map_err(error::journal)?;
    Ok(journal.start_alone(credits).map_err(error::journal)?)
}

/// How a volume gets a larger log. (An orphan file needs a journal.)
pub(in crate::resize) const LARGER_LOG: &str = "give the volume a larger one: extol tune -O \
    ^has_journal,^orphan_file, then extol tune -J size=64";

impl Mover<'_> {
    fn run(&mut self) -> Result<()> {
        let last = self.fs.vol.geo.inodes();
        for ino in (1..=last).map(InodeNr) {
            if self.fs.vol.alloc.is_inode_used(ino)? && !self.fs.is_internal(ino.0) {
                self.one(ino)?;
            }
            if self.stopped {
                return Ok(());
            }
        }
        self.move_orphan_file()?;
        self.move_quota_files()?;
        self.move_mmp_block()
    }

    fn one(&mut self, ino: InodeNr) -> Result<()> {
        if let Some(mut value) = values::state_of_value(self.fs, ino)? {
            let result = self.move_map(&mut value);
            return result.map_err(|e| e.in_inode(u64::from(ino.0)));
        }
        // What is not in memory is looked at once: most inodes have nothing to move.
        let cell = match self.fs.cell(ino.0) {
            Err(FsError::Stale) => return Ok(()),
            cell => cell?,
        };
        let result = self.inode(&cell);
        result.map_err(|e| e.in_inode(u64::from(ino.0)))
    }

    fn inode(&mut self, cell: &Arc<Cell>) -> Result<()> {
        let mut st = match cell.write() {
            Err(FsError::Stale) => return Ok(()),
            st => st?,
        };
        // A window would keep blocks behind the limit.
        st.window.empty();
        self.move_attributes(&mut st)?;
        self.move_map(&mut st)
    }

    /// Tells the progress. False: no more is to be moved.
    pub(super) fn go_on(&mut self) -> bool {
        self.stopped = self.stopped || !(self.progress)(self.moved.total());
        !self.stopped
    }

    /// A block in front of the limit, for metadata.
    pub(super) fn take_one(&self, goal: BlockNr) -> Result<Run> {
        super::map::take(self.fs, goal, 1, 1)
    }
}
