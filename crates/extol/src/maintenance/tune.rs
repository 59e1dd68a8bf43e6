//! Label and tunables: fields of the superblock, changed while the volume is in use.
//!
//! *Purpose.* `FS_IOC_SETFSLABEL` and `EXT4_IOC_SET_TUNE_SB_PARAM`, as e2label(8) and tune2fs(8)
//! send them for a mounted volume.
//!
//! *How.* In the superblock in memory and, by a transaction, in its block; then that transaction is
//! committed, so the change is durable when this returns. (The caller empties the log, so that
//! programs that read the device see the change.) As in Linux, the mount options in force stay
//! until the next mount; the blocks reserved for root change at once. The copies of the superblock
//! in other groups are not changed; e2fsck reads them only if the first one is lost.
//!
//! *Locking.* The superblock's lock, under a handle.

use extol_ondisk::Superblock;
use extol_ondisk::superblock::{DefaultMountOpts, State};
use extol_vfs::{FsError, Identity, Result, Tunables, Tune, TuneFields};

use crate::error;
use crate::mounted::MountedFs;

/// Largest number for an action on errors.
const ERRORS_PANIC: u16 = 3;
/// Largest number of a hash that a volume without encryption can have.
const LAST_HASH: u8 = 5;

/// Label and UUID.
pub(crate) fn identity(fs: &MountedFs) -> Identity {
    fs.want_look();
    let (name, uuid) = fs.sb.read(|sb| (sb.volume_name, sb.uuid));
    let label = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    Identity { label, uuid }
}

/// What can be changed.
pub(crate) fn tunables(fs: &MountedFs) -> Tunables {
    fs.want_look();
    fs.sb.read(tunables_of)
}

/// The same, as a superblock has it.
pub(crate) fn tunables_of(sb: &Superblock) -> Tunables {
    Tunables {
        errors: sb.errors,
        mounts: sb.mnt_count,
        most_mounts: sb.max_mnt_count,
        check_interval: sb.checkinterval,
        last_check: sb.lastcheck,
        reserved_blocks: sb.r_blocks_count,
        blocks: sb.blocks_count,
        reserved_uid: sb.def_resuid.into(),
        reserved_gid: sb.def_resgid.into(),
        default_options: sb.default_mount_opts.bits(),
        hash: sb.def_hash_version,
        raid_stride: sb.raid_stride,
        raid_stripe_width: sb.raid_stripe_width,
        mount_options: sb.mount_opts,
        features: [
            sb.feature_compat.bits(),
            sb.feature_incompat.bits(),
            sb.feature_ro_compat.bits(),
        ],
    }
}

/// Changes what `change` names.
pub(crate) fn tune(fs: &MountedFs, change: &Tune) -> Result<()> {
    fs.check_writable()?;
    check(fs, change)?;
    fs.transact(1, |h| fs.sb.update(h, |sb| apply(sb, change)))?;
    if change.fields.contains(TuneFields::RESERVED_BLOCKS) {
        fs.vol.alloc.keep_for_root(change.values.reserved_blocks);
    }
    fs.vol.journal.make_all_durable().map_err(error::journal)
}

fn check(fs: &MountedFs, change: &Tune) -> Result<()> {
    let Tune { label, fields, values } = change;
    let has = |field| fields.contains(field);
    if label.as_ref().is_some_and(|label| label.len() > 16) {
        return Err(FsError::Invalid("a label has at most 16 bytes"));
    }
    if has(TuneFields::ERRORS) && values.errors > ERRORS_PANIC {
        return Err(FsError::Invalid("no such action on errors"));
    }
    let half = fs.vol.geo.blocks() / 2;
    if has(TuneFields::RESERVED_BLOCKS) && values.reserved_blocks > half {
        return Err(FsError::Invalid("more than half of the blocks for root"));
    }
    if has(TuneFields::HASH) && values.hash > LAST_HASH {
        return Err(FsError::Invalid("no such hash"));
    }
    let large = |id| u16::try_from(id).is_err();
    if (has(TuneFields::RESERVED_UID) && large(values.reserved_uid))
        || (has(TuneFields::RESERVED_GID) && large(values.reserved_gid))
    {
        return Err(FsError::Invalid("the superblock has 16 bits for this id"));
    }
    if has(TuneFields::MOUNT_OPTIONS) && !values.mount_options.contains(&0) {
        return Err(FsError::TooBig);
    }
    Ok(())
}

fn apply(sb: &mut Superblock, change: &Tune) {
    let Tune { label, fields, values } = change;
    if let Some(label) = label {
        sb.volume_name = [0; 16];
        sb.volume_name.iter_mut().zip(label).for_each(|(to, from)| *to = *from);
    }
    let mut set = |field, set: &dyn Fn(&mut Superblock)| {
        if fields.contains(field) {
            set(sb);
        }
    };
    set(TuneFields::ERRORS, &|sb| sb.errors = values.errors);
    set(TuneFields::MOUNTS, &|sb| sb.mnt_count = values.mounts);
    set(TuneFields::MOST_MOUNTS, &|sb| sb.max_mnt_count = values.most_mounts);
    set(TuneFields::CHECK_INTERVAL, &|sb| sb.checkinterval = values.check_interval);
    set(TuneFields::LAST_CHECK, &|sb| sb.lastcheck = values.last_check);
    set(TuneFields::RESERVED_BLOCKS, &|sb| sb.r_blocks_count = values.reserved_blocks);
    set(TuneFields::RESERVED_UID, &|sb| sb.def_resuid = values.reserved_uid as u16);
    set(TuneFields::RESERVED_GID, &|sb| sb.def_resgid = values.reserved_gid as u16);
    set(TuneFields::DEFAULT_OPTIONS, &|sb| {
        sb.default_mount_opts = DefaultMountOpts::from_bits_retain(values.default_options);
    });
    set(TuneFields::HASH, &|sb| sb.def_hash_version = values.hash);
    set(TuneFields::RAID_STRIDE, &|sb| sb.raid_stride = values.raid_stride);
    set(TuneFields::RAID_STRIPE_WIDTH, &|sb| sb.raid_stripe_width = values.raid_stripe_width);
    set(TuneFields::MOUNT_OPTIONS, &|sb| sb.mount_opts = values.mount_options);
    set(TuneFields::FORCE_CHECK, &|sb| sb.state |= State::ERROR);
}
