//! Tuning: properties of a volume that is not mounted change, as with tune2fs(8).
//!
//! ```text
//!   Request ─ plan.rs ─► new superblock, or why not       (pure)
//!                └─ needs.rs ─ no inode depends on what is switched off
//!   opened, recovered ─► one transaction: superblock, and what goes with it ─► log empty
//!       ─► copies of the superblock ─► closed ─► opened again, if an inode is to be freed
//! ```
//!
//! The superblock changes in one transaction with everything that must agree with it: the blocks
//! and the inode of an orphan file, descriptors whose checksums hold the UUID. On a volume without
//! a journal the superblock is one write, and what needs more than that is refused. A new journal
//! is in its own first transaction, with all the rest; one that goes does so behind all the rest
//! (`journal.rs`). One on a device of its own: `external.rs`.
//!
//! New quota files get the usage that the inodes have (`quota.rs`).
//!
//! An orphan file that goes becomes an orphan itself in that transaction, on the list in the
//! superblock: the next opening frees it, that of Linux and e2fsck as well.
//!
//! Odd cases: checksums of metadata come from the UUID. A new UUID keeps the old seed in the
//! superblock (`metadata_csum_seed`), so no other block changes. Descriptors of `uninit_bg` have no
//! seed apart: all of them are in the transaction, or the change is refused.
//!
//! Invariants
//! - TU-1: after a crash at any write the volume has, once recovered, all old values or all new
//!   ones, and e2fsck finds nothing. (Two stories tell what a crash leaves to e2fsck -p besides:
//!   `journal.rs`, `mmp.rs`.)
//! - TU-2: a request that is refused has changed nothing: everything that can be said against it is
//!   said before the first change.
//! - TU-3: the number of mounts and the time of the last one change only if that is asked for.
//!
//! Locking: nothing else uses the volume.
//!
//! A volume that becomes read-only is marked so in that transaction, and the mark goes alone
//! (`read_only.rs`).
//!
//! A mounted volume changes by `maintenance::tune`: its daemon gets the request as a text
//! (`text.rs`), and what needs an unmounted volume is refused.

mod changes;
mod checksums;
mod external;
mod features;
mod journal;
mod mmp;
mod needs;
mod orphan_file;
mod parts;
mod plan;
mod quota;
mod read_only;
mod request;
mod reserved;
mod text;
mod words;

use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr, SharedDevice};
use extol_jbd2::{Handle, recovery};
use extol_ondisk::{Compat, Geometry, GroupDesc, GroupNr, Incompat, Superblock};
use extol_vfs::FsError;

pub(crate) use text::live;

pub use request::{NewJournal, Request, ReservedBlocks};
pub use words::{DEFAULT_OPTIONS, EXTENDED, FEATURES, JOURNAL, QUOTAS};

use crate::error::{self, OpenError};
use crate::fast_commit::{self, Delta, Reason};
use crate::fast_commit_support::Obstacle;
use crate::find_journal;
use crate::mount::threads::Threads;
use crate::mount::{self, Purpose, close, dry_run, features as known};
use crate::mounted::MountedFs;
use crate::options::{DataMode, MountOptions};
use crate::resize::update_copies;
use crate::superblock::{geometry, has_orphans, read_superblock};
use parts::Parts;
use plan::Plan;

/// What was changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Tuned {
    /// Properties that have another value than before.
    pub changes: Vec<Change>,
    /// What the user should know of them.
    pub notes: Vec<String>,
}

/// A property that has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Change {
    /// Its name.
    pub property: &'static str,
    /// The value before, as text.
    pub before: String,
    /// The value now.
    pub after: String,
}

/// Why a volume was not tuned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// It cannot be, for the reason said in one line. Nothing has changed.
    #[error("{0}")]
    Refused(String),
    /// The volume cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A change failed on the way: old values or new ones hold after recovery.
    #[error("{0}")]
    Fs(#[from] FsError),
}

type Result<T> = std::result::Result<T, TuneError>;

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(TuneError::Refused(why.into()))
}

/// Changes properties of the volume on `device`, which is not in use. Durable when this returns.
///
/// # Errors
/// If the request is refused, the volume cannot be opened, or a write fails.
pub fn tune(device: &SharedDevice, options: &MountOptions, request: &Request) -> Result<Tuned> {
    // Said before the log is replayed: most refusals do not depend on what is in it.
    let sb = read_superblock(&**device, None)?;
    if request.clear_mmp {
        return mmp::clear(device, &sb, request);
    }
    let plan = Plan::of(&sb, request)?;
    if nothing_to_do(&sb, &plan) {
        return Ok(Tuned::default());
    }
    if read_only::is(&sb) {
        return read_only::end(device, options, request, &plan);
    }
    known::check(&sb, &geometry(&**device, &sb)?, false).map_err(|e| {
        let line = e.to_string().replace("cannot mount read-write", "cannot be tuned");
        TuneError::Refused(line.replace("mount with -o ro", "use tune2fs"))
    })?;
    if let Some(path) = &plan.journal_device {
        return external::attach(device, options, &plan, path);
    }
    let options = &find_journal::with_device(&sb, options)?;
    check_log(device, options, &sb, &plan.sb)?;
    rehearse(device, options, request, &plan)?;
    if plan.drops_journal {
        return without_journal(device, options, request);
    }
    in_one(device, options, request)
}

/// True if the volume is as asked for already; nothing but its superblock is read.
///
/// # Errors
/// What the superblock says against the request.
pub fn is_done(device: &SharedDevice, request: &Request) -> Result<bool> {
    if request.clear_mmp {
        return Ok(false);
    }
    let sb = read_superblock(&**device, None)?;
    Ok(nothing_to_do(&sb, &Plan::of(&sb, request)?))
}

fn nothing_to_do(sb: &Superblock, plan: &Plan) -> bool {
    !needs_recovery(sb) && plan.changes(sb).is_empty()
}

/// Finds what the volume itself has against the request, over a copy in memory: opening it to
/// change it writes, and so does recovery (TU-2).
fn rehearse(
    device: &SharedDevice,
    options: &MountOptions,
    request: &Request,
    plan: &Plan,
) -> Result<()> {
    let request = if plan.drops_journal { &but_the_journal(request) } else { request };
    let (fs, threads, _) = dry_run::open(Purpose::Recovery, device, &for_tuning(options))?;
    let considered = if request.is_empty() { Ok(()) } else { consider(&fs, request).map(drop) };
    close::crash(&fs, Some(threads));
    considered
}

/// Does what is asked for, in one transaction.
fn in_one(device: &SharedDevice, options: &MountOptions, request: &Request) -> Result<Tuned> {
    let renamed = external::Renamed::begin(device, options, request)?;
    let (fs, mut threads) = open(device, options)?;
    let done = change(&fs, request).and_then(|(tuned, left)| {
        if let Some(block) = left.mmp {
            // The block is another's as soon as it is free.
            if let Some(claim) = threads.mmp.take() {
                claim.forget();
            }
            mmp::free(&fs, block)?;
        }
        Ok((tuned, left))
    });
    let done = done.map_err(|error| match error {
        TuneError::Fs(error) => TuneError::Fs(fs.cause_of(error)),
        error => error,
    });
    // (What failed on the way left the journal as it must be for the next opening.)
    let closed = finish(&fs, &mut threads, &done);
    let (tuned, left) = done?;
    closed?;
    if let Some(renamed) = renamed {
        renamed.end(device, options)?;
    }
    if left.orphan {
        recover(device, options)?;
    }
    Ok(tuned)
}

/// Does the rest of what is asked for, and then lets the journal go.
fn without_journal(
    device: &SharedDevice,
    options: &MountOptions,
    request: &Request,
) -> Result<Tuned> {
    recover(device, options)?;
    let before = read_superblock(&**device, None)?;
    let plan = Plan::of(&before, request)?;
    let rest = but_the_journal(request);
    if !rest.is_empty() {
        in_one(device, options, &rest)?;
    }
    match external::is(&before) {
        true => external::detach(device, options)?,
        false => journal::remove(device, options)?,
    }
    Ok(Tuned { changes: plan.changes(&before), notes: plan.notes })
}

/// What is left of a request that lets the journal go.
fn but_the_journal(request: &Request) -> Request {
    let mut rest = request.clone();
    rest.features.retain(|(feature, _)| *feature != plan::JOURNAL);
    rest
}

/// Opens the volume, and closes it.
fn recover(device: &SharedDevice, options: &MountOptions) -> Result<()> {
    let (fs, mut threads) = open(device, options)?;
    Ok(close::close(&fs, &mut threads)?)
}

/// True if what is on the device may not be the last word.
fn needs_recovery(sb: &Superblock) -> bool {
    sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) || has_orphans(sb)
}

fn open(device: &SharedDevice, options: &MountOptions) -> Result<(Arc<MountedFs>, Threads)> {
    let opened = mount::open(Purpose::Recovery, SharedDevice::clone(device), &for_tuning(options))?;
    Ok((opened.0, opened.1))
}

fn for_tuning(options: &MountOptions) -> MountOptions {
    let mut options = options.clone().without_threads();
    options.access.read_only = false;
    options.background.init_itable = None;
    options
}

/// Closes the volume. After a write that failed half-way, as a power cut would.
fn finish<T>(fs: &Arc<MountedFs>, threads: &mut Threads, done: &Result<T>) -> Result<()> {
    match done {
        Err(TuneError::Fs(_)) => {
            close::abandon(fs, threads);
            Ok(())
        }
        _ => Ok(close::close(fs, threads)?),
    }
}

/// What is left to be done behind the transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// The next opening frees an inode.
    orphan: bool,
    /// This block held the multi-mount protection.
    mmp: Option<BlockNr>,
}

/// What a request makes of an open volume.
struct Considered {
    before: Superblock,
    plan: Plan,
    tuned: Tuned,
    /// `None`: there is nothing to do.
    parts: Option<Parts>,
}

/// Finds out what a request makes of the volume, and whether it can be. The log goes home; nothing
/// else is written.
fn consider(fs: &MountedFs, request: &Request) -> Result<Considered> {
    fs.check_writable()?;
    let before = fs.sb.read(Superblock::clone);
    let plan = Plan::of(&before, request)?;
    let tuned = Tuned { changes: plan.changes(&before), notes: plan.notes.clone() };
    let dev: &dyn BlockDevice = &*fs.vol.dev;
    let unmarked = read_only::without(&plan.sb);
    known::check(&unmarked, &geometry(dev, &unmarked)?, false)?;
    needs::check(fs, &plan.unneeded)?;
    if tuned.changes.is_empty() {
        return Ok(Considered { before, plan, tuned, parts: None });
    }
    // Nothing of what was before may be replayed over the change.
    fs.vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
    let parts = Parts::plan(fs, &plan)?;
    Ok(Considered { before, plan, tuned, parts: Some(parts) })
}

/// Does what is asked for.
fn change(fs: &MountedFs, request: &Request) -> Result<(Tuned, Left)> {
    let Considered { before, plan, tuned, parts } = consider(fs, request)?;
    let Some(mut parts) = parts else { return Ok((tuned, Left::default())) };
    let ready = parts.checksums.as_mut().map(|switch| switch.prepare(fs)).transpose()?;
    if ready.is_some() {
        // What is prepared is in place before the feature is: a recovery reads the inode of the
        // journal before it replays anything.
        fs.vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
        // (Directories may have become longer.)
        check_room(parts.credits(fs, &plan), fs.vol.journal.max_credits())?;
    }
    if let Some(made) = &parts.mmp {
        made.write(fs)?;
    }
    if let Some(made) = &parts.journal {
        made.begin(fs)?;
    }
    fs.transact(parts.credits(fs, &plan), |h| {
        fast_commit::note(h, Delta::AllIneligible { reason: Reason::Attributes });
        let mut sb = plan.sb.clone();
        if plan.drops_orphan_file {
            orphan_file::drop_it(fs, h, &before)?;
        }
        parts.change(fs, h, &mut sb)?;
        if plan.descriptors {
            let new = Geometry::new(&sb, None).map_err(error::ondisk)?;
            descriptors(fs, h, &new, &|_| Ok(()))?;
        }
        if let (Some(switch), Some(ready)) = (&parts.checksums, &ready) {
            switch.finish(fs, h, ready)?;
        }
        fs.sb.update(h, |now| plan::take_over(now, &before, &sb))
    })?;
    if let Some(made) = &parts.journal {
        made.enter(fs)?;
    }
    if before.r_blocks_count != plan.sb.r_blocks_count {
        fs.vol.alloc.keep_for_root(plan.sb.r_blocks_count);
    }
    fs.vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
    let all = plan.descriptors || parts.checksums.is_some();
    update_copies(fs, if all { 0 } else { u32::MAX })?;
    Ok((tuned, Left { orphan: plan.drops_orphan_file, mmp: plan.drops_mmp.map(BlockNr) }))
}

/// Refuses the feature `fast_commit` where the log has no room for the area: Linux mounts no such
/// volume.
fn check_log(
    device: &SharedDevice,
    options: &MountOptions,
    before: &Superblock,
    after: &Superblock,
) -> Result<()> {
    let new = after.feature_compat - before.feature_compat;
    if !new.contains(Compat::FAST_COMMIT) || new.contains(Compat::HAS_JOURNAL) {
        return Ok(());
    }
    let reading = options.clone().read_only();
    let found = find_journal::find(device, before, &geometry(&**device, before)?, &reading)?;
    let log = recovery::read_superblock(&*found.device, &found.map).map_err(error::journal)?;
    match Obstacle::find(true, Some(&log), DataMode::Ordered) {
        Some(Obstacle::Short(blocks)) => refuse(format!(
            "feature fast_commit needs a journal of {} blocks (version 2), and this one has \
             {blocks}: make a longer one (extol tune -O ^has_journal, then extol tune -J size=16 \
             -O fast_commit)",
            Obstacle::least_log(&log)
        )),
        _ => Ok(()),
    }
}

fn check_room(credits: u32, most: u32) -> Result<()> {
    if credits > most {
        return refuse(format!(
            "the journal is too small: this takes a transaction of {credits} blocks, and it holds \
             {most}; tune2fs can do it, but not safely if it is interrupted"
        ));
    }
    Ok(())
}

/// Changes all descriptors, and brings their checksums up to date with a new geometry.
fn descriptors(
    fs: &MountedFs,
    h: &mut Handle,
    new: &Geometry,
    change: &dyn Fn(&mut GroupDesc) -> std::result::Result<(), FsError>,
) -> std::result::Result<(), FsError> {
    let geo = &fs.vol.geo;
    let size = usize::from(geo.desc_size);
    for index in 0..geo.desc_blocks() {
        let first = index * geo.descs_per_block();
        let (block, _) = geo.desc_block(GroupNr(first));
        let buf = fs.vol.journal.read(block).map_err(error::journal)?;
        let groups = first..geo.groups().min(first + geo.descs_per_block());
        let bytes = buf.data();
        let mut descs = Vec::new();
        for nr in groups.map(GroupNr) {
            let (_, at) = geo.desc_block(nr);
            let Some(slot) = bytes.get(at..at + size) else { continue };
            let mut desc = GroupDesc::decode(slot, geo, nr).map_err(error::ondisk)?;
            change(&mut desc)?;
            descs.push((nr, at, desc));
        }
        drop(bytes);
        h.modify(&buf, |bytes| {
            for (nr, at, desc) in descs {
                if let Some(slot) = bytes.get_mut(at..at + size) {
                    desc.encode_into(slot, new, nr);
                }
            }
        })
        .map_err(error::journal)?;
    }
    Ok(())
}
