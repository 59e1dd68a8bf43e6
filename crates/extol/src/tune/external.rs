//! A journal on a device of its own comes, goes, or learns the volume's new UUID.
//!
//! The superblock of the volume names the journal by its UUID, and that of the journal lists the
//! volume as its user. They lie on two devices, which cannot change together:
//!
//! ```text
//!   comes   journal: its user is the volume ─► volume: has_journal and the journal's UUID
//!   goes    log empty ─► volume: no journal ─► journal: no user
//!   UUID    journal: the new UUID behind that of its user ─► transaction in that log, home
//!                                                         ─► journal: its user is the new UUID
//! ```
//!
//! Each arrow is a flush, and each step on the volume but the transaction one write of its
//! superblock. A crash in between leaves a volume that is as before or as asked for, and a journal
//! that belongs to it still: the same request completes it.
//!
//! Invariants
//! - TX-1: the volume's superblock names only a journal that lists the volume, as its user or right
//!   behind it (`attach`, `Renamed::begin`; `find_journal` and Linux ask no more).
//! - TX-2: a journal with a log in it, or of another volume, is refused: its log would be replayed
//!   (`Log::take`).

use std::path::Path;
use std::sync::Arc;

use extol_block::{BlockDevice, BlockSize, FileDevice, OpenOptions, SharedDevice};
use extol_jbd2::format::JournalSuperblock;
use extol_jbd2::{LogMap, recovery};
use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Incompat, Superblock};
use extol_vfs::{FsError, bytes_text, plain};

use super::plan::Plan;
use super::refuse;
use super::{
    MountOptions, Request, Result, TuneError, Tuned, close, journal, known, open, recover,
};
use crate::error;
use crate::resize::update_copies;
use crate::superblock::{geometry, has_orphans, read_superblock, write_superblock};
use crate::sys;

const NO_USER: [u8; 16] = [0; 16];

/// True if the volume's journal is on another device.
pub(super) fn is(sb: &Superblock) -> bool {
    sb.feature_compat.contains(Compat::HAS_JOURNAL) && sb.journal_inum == 0
}

/// A journal's device.
struct Log {
    device: SharedDevice,
    map: LogMap,
    superblock: JournalSuperblock,
}

impl Log {
    fn open(device: SharedDevice, size: BlockSize) -> Result<Self> {
        let map = LogMap::of_device(size, device.size());
        let superblock = recovery::read_superblock(&*device, &map).map_err(error::journal)?;
        superblock.validate(size, u64::from(map.len())).map_err(error::journal)?;
        Ok(Self { device, map, superblock })
    }

    /// That of an open volume's options.
    fn of(sb: &Superblock, options: &MountOptions) -> Result<Self> {
        let Some(device) = &options.journal.device else {
            return refuse("the volume has an external journal: name it (journal_path=)");
        };
        Self::open(Arc::clone(device), block_size(sb)?)
    }

    /// A device that a volume is to have, with its UUID.
    fn take(device: SharedDevice, sb: &Superblock) -> Result<([u8; 16], Self)> {
        let head = read_superblock(&*device, None).ok();
        let head = head.filter(|head| head.feature_incompat.contains(Incompat::JOURNAL_DEV));
        let Some(head) = head else {
            return refuse("it is no journal device: make one (extol mkfs -O journal_dev)");
        };
        if head.block_bytes() != sb.block_bytes() {
            let (theirs, ours) = (head.block_bytes(), sb.block_bytes());
            return refuse(format!(
                "its blocks have {theirs} bytes, and those of the volume {ours}: make it anew \
                 (extol mkfs -O journal_dev -b {ours})"
            ));
        }
        let log = Self::open(device, block_size(sb)?)?;
        let user = log.superblock.users.first().copied().unwrap_or(NO_USER);
        if log.superblock.nr_users > 1
            || log.superblock.nr_users == 1 && ![NO_USER, sb.uuid].contains(&user)
        {
            return refuse("another volume uses it");
        }
        if log.superblock.start != 0 {
            return refuse("there is a log in it: make it anew (extol mkfs -O journal_dev)");
        }
        Ok((head.uuid, log))
    }

    /// Writes the users, durably; the first of them counts.
    fn set_users(&mut self, first: [u8; 16], second: [u8; 16]) -> Result<()> {
        self.superblock.nr_users = u32::from(first != NO_USER);
        let places = self.superblock.users.iter_mut();
        places.zip([first, second]).for_each(|(place, user)| *place = user);
        let at = self.map.superblock_offset().unwrap_or_default();
        self.device.write_fua(&self.superblock.encode(), at).map_err(error::device)?;
        Ok(())
    }
}

fn block_size(sb: &Superblock) -> Result<BlockSize> {
    BlockSize::new(sb.block_bytes())
        .ok_or_else(|| FsError::corrupt("superblock with an impossible block size").into())
}

/// Gives a volume without a journal the one at `path`.
pub(super) fn attach(
    device: &SharedDevice,
    options: &MountOptions,
    plan: &Plan,
    path: &Path,
) -> Result<Tuned> {
    let before = read_superblock(&**device, None)?;
    if !before.state.contains(State::VALID) || before.state.contains(State::ERROR) {
        return refuse("the volume was not left clean: run e2fsck first");
    }
    if has_orphans(&before) {
        return refuse("files were deleted while the volume was in use last: mount it once first");
    }
    let shown = plain(&bytes_text(path.as_os_str().as_encoded_bytes())).to_string();
    let about = |error| TuneError::Refused(format!("the journal device {shown}: {error}"));
    let log = FileDevice::open(path, &OpenOptions::read_write());
    let log = log.map_err(|error| about(TuneError::Open(error.into())))?;
    let (uuid, mut log) = Log::take(Arc::new(log), &before).map_err(about)?;
    let mut sb = plan.sb.clone();
    (sb.journal_inum, sb.journal_uuid) = (0, uuid);
    sb.journal_dev = sys::device_number(path);
    known::check(&sb, &geometry(&**device, &sb)?, false)?;
    log.set_users(sb.uuid, NO_USER).map_err(about)?;
    write_superblock(&**device, &sb)?;
    let mut options = options.clone();
    options.journal.device = Some(log.device);
    copies(device, &options)?;
    Ok(Tuned { changes: plan.changes(&before), notes: plan.notes.clone() })
}

/// Takes the journal from a volume that was closed cleanly, and the feature of fast commits with
/// it.
pub(super) fn detach(device: &SharedDevice, options: &MountOptions) -> Result<()> {
    let mut sb = read_superblock(&**device, None)?;
    let mut log = Log::of(&sb, options)?;
    journal::forget(&mut sb);
    sb.feature_compat.remove(Compat::FAST_COMMIT);
    write_superblock(&**device, &sb)?;
    log.set_users(NO_USER, NO_USER)?;
    let mut options = options.clone();
    (options.journal.device, options.journal.path) = (None, None);
    copies(device, &options)
}

/// Brings the copies of the superblock up to date.
fn copies(device: &SharedDevice, options: &MountOptions) -> Result<()> {
    let (fs, mut threads) = open(device, options)?;
    let updated = update_copies(&fs, u32::MAX);
    close::close(&fs, &mut threads)?;
    Ok(updated?)
}

/// A journal whose volume gets a new UUID.
pub(super) struct Renamed(Log, [u8; 16]);

impl Renamed {
    /// Before the volume is opened: its journal lists the new UUID, too. `None`: the journal has
    /// nothing to learn.
    pub fn begin(
        device: &SharedDevice,
        options: &MountOptions,
        request: &Request,
    ) -> Result<Option<Self>> {
        let sb = read_superblock(&**device, None)?;
        let Some(uuid) = request.uuid.filter(|_| is(&sb)) else { return Ok(None) };
        if sb.uuid == uuid && Log::of(&sb, options)?.superblock.users.first() == Some(&uuid) {
            return Ok(None);
        }
        // (What is in the log may be the new UUID.)
        recover(device, options)?;
        let sb = read_superblock(&**device, None)?;
        let mut log = Log::of(&sb, options)?;
        log.set_users(sb.uuid, uuid)?;
        Ok(Some(Self(log, uuid)))
    }

    /// Behind its closing.
    pub fn end(mut self, device: &SharedDevice, options: &MountOptions) -> Result<()> {
        let sb = read_superblock(&**device, None)?;
        self.0 = Log::of(&sb, options)?;
        self.0.set_users(self.1, NO_USER)
    }
}
