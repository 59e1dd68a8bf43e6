//! The journal of a new volume: its size, its superblock, journal devices.
//!
//! A new journal is empty: `s_start` 0, `s_sequence` 1, no features (the first mount sets those it
//! wants). Its UUID is the volume's. With the fast_commit feature the log is followed by the
//! fast-commit area:
//!
//! ```text
//!  │ superblock │ log … │ unused │ fast-commit blocks … │         internal: blocks of its inode
//!  │ (boot) │ ext superblock, JOURNAL_DEV │ superblock │ log … │  a device of its own
//! ```
//!
//! # A log that is not zeroed
//!
//! With `lazy_journal_init` the log's blocks keep what an earlier use of the device left there.
//! That may be a log with the same transaction numbers at the same places, and even of the same
//! UUID (`-U`), and none of it may ever be replayed:
//!
//! - Log blocks, on a volume with metadata_csum: its log has checksums (v2 or v3, whatever mounts
//!   it), and they begin with the journal's UUID. That is a fresh random one here, not the volume's
//!   ([`LogStart::fresh`]); no program compares the two. Against chance, the first transaction has
//!   a random number, so that block, number and checksum would all have to fit.
//! - Log blocks, on a volume without metadata_csum: nothing would tell them apart, so the log is
//!   zeroed after all.
//! - Log blocks on a journal device: its volume is not known yet, so they are zeroed as well.
//! - Fast-commit blocks: their checksum has no UUID in it, so the whole area is always zeroed. It
//!   is small.
//!
//! On a device that reads zeros none of this is needed, and the journal is an ordinary new one.

use super::options::{JournalDevice, MkfsOptions};
use super::uuid::random_uuid;
use super::{MkfsError, Result, refuse};
use extol_block::{BlockDevice, BlockSize};
use extol_jbd2::Tid;
use extol_jbd2::format::{
    FAST_COMMIT_RATIO, Features, JournalSuperblock, LEAST_BLOCKS, MAX_LOG_BLOCKS, usual_log_blocks,
};
use extol_ondisk::{Compat, Geometry, Incompat, Superblock};

/// A log of fewer blocks is refused by Linux, e2fsck and Extol.
pub(crate) const MIN_BLOCKS: u32 = 1024;

/// How a log begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogStart {
    /// Its blocks are zero already.
    Zero,
    /// They have to be zeroed.
    ToZero,
    /// They stay as they are: nothing in them may look like a part of the new log.
    OverOld,
}

impl LogStart {
    /// `zeroed`: the device reads zeros. `lazy`: the user wants the log left alone. `checksums`:
    /// the log will be written with checksums.
    pub(crate) fn choose(zeroed: bool, lazy: bool, checksums: bool) -> Self {
        match (zeroed, lazy && checksums) {
            (true, _) => Self::Zero,
            (false, false) => Self::ToZero,
            (false, true) => Self::OverOld,
        }
    }

    /// The superblock with what tells the log from any earlier one, where that is needed.
    pub(crate) fn fresh(self, mut superblock: JournalSuperblock) -> JournalSuperblock {
        if self == Self::OverOld {
            superblock.uuid = random_uuid();
            superblock.sequence = Tid((extol_proc::random_number() as u32).max(1));
        }
        superblock
    }
}

/// The line for a user that asks for a lazy journal and does not get one.
pub(crate) const NOT_LAZY: &str = "the journal is zeroed in spite of lazy_journal_init: without \
    metadata_csum old log blocks could be replayed";

/// Blocks of the log and of the fast-commit area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalSize {
    pub(crate) log: u32,
    pub(crate) fast_commit: u32,
}

impl JournalSize {
    pub(crate) fn total(self) -> u32 {
        self.log + self.fast_commit
    }
}

/// Size of the internal journal. `free`: blocks that are free before it is made. `None`: no room
/// for one.
pub(crate) fn size(
    options: &MkfsOptions,
    geo: &Geometry,
    free: u64,
) -> Result<Option<JournalSize>> {
    let bs = u64::from(geo.block_size.bytes());
    let Some(usual) = usual_log_blocks(geo.blocks()) else {
        if options.journal.size_mib.is_some() || options.journal.required {
            return refuse(format!(
                "the volume is too small for a journal: it must have at least {LEAST_BLOCKS} \
                 blocks of {bs} bytes"
            ));
        }
        return Ok(None);
    };
    let usual = usual.min(options.journal.most_blocks.unwrap_or(u32::MAX)).max(MIN_BLOCKS);
    let log = options.journal.size_mib.map_or(u64::from(usual), |mib| (u64::from(mib) << 20) / bs);
    let fast_commit = match options.journal.fast_commit_kib {
        _ if !geo.compat().contains(Compat::FAST_COMMIT) => 0,
        Some(kib) => ((u64::from(kib) << 10) / bs).max(1),
        None => u64::from(usual / FAST_COMMIT_RATIO),
    };
    let total = log + fast_commit;
    if log < u64::from(MIN_BLOCKS) || total > u64::from(MAX_LOG_BLOCKS) {
        return refuse(format!(
            "bad journal size of {log} blocks: it must be {MIN_BLOCKS} to {MAX_LOG_BLOCKS} blocks"
        ));
    }
    if total > free / 2 && options.journal.size_mib.or(options.journal.fast_commit_kib).is_some() {
        return refuse(format!("a journal of {total} blocks is too large for the volume"));
    }
    Ok(Some(JournalSize { log: log as u32, fast_commit: fast_commit as u32 }))
}

/// The superblock of a new journal.
pub(crate) fn new_superblock(
    bs: BlockSize,
    size: JournalSize,
    first: u32,
    uuid: [u8; 16],
) -> JournalSuperblock {
    let mut jsb = JournalSuperblock::new(bs, size.total(), first, Features::default(), uuid);
    jsb.num_fc_blocks = size.fast_commit;
    jsb
}

/// Block of a journal device that holds the journal's superblock.
pub(crate) fn superblock_of_device(bs: BlockSize) -> u32 {
    if bs.bytes() == 1024 { 2 } else { 1 }
}

fn no_journal(why: String) -> MkfsError {
    MkfsError::Refused(format!("the journal device cannot be used: {why}"))
}

/// Block size of a journal device; fails if it is none.
pub(crate) fn block_size_of_device(device: &dyn BlockDevice) -> Result<u32> {
    let head = read_superblock(device).map_err(|e| no_journal(e.to_string()))?;
    if !head.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(no_journal(
            "it holds a file system; make a journal there with -O journal_dev first".into(),
        ));
    }
    Ok(head.block_bytes())
}

/// Enters the volume in the journal device's list of users and the device in the volume's
/// superblock.
pub(crate) fn attach(
    journal: &JournalDevice,
    sb: &mut Superblock,
    bs: BlockSize,
    write: bool,
) -> Result<()> {
    let device = &journal.device;
    let theirs = block_size_of_device(&**device)?;
    if theirs != bs.bytes() {
        return Err(no_journal(format!("its blocks have {theirs} bytes, not {}", bs.bytes())));
    }
    let at = u64::from(superblock_of_device(bs)) * u64::from(bs.bytes());
    let mut bytes = [0; 1024];
    device.read_at(&mut bytes, at)?;
    let mut jsb = JournalSuperblock::decode(&bytes).map_err(|e| no_journal(e.to_string()))?;
    let real = device.size() / u64::from(bs.bytes());
    if jsb.nr_users != 0 && jsb.users.first() != Some(&sb.uuid) {
        return Err(no_journal("another volume uses it".into()));
    }
    jsb.nr_users = 1;
    if let Some(user) = jsb.users.first_mut() {
        *user = sb.uuid;
    }
    jsb.validate(bs, real).map_err(|e| no_journal(e.to_string()))?;
    if write {
        device.write_at(&jsb.encode(), at)?;
        device.flush()?;
    }
    sb.journal_inum = 0;
    sb.journal_dev = journal.rdev as u32;
    sb.journal_uuid = jsb.uuid;
    Ok(())
}

/// Reads the ext superblock of a device.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; 1024];
    if device.size() < 2048 {
        return refuse("it is too small to hold anything");
    }
    device.read_at(&mut bytes, 1024)?;
    Superblock::decode(&bytes).map_err(|e| MkfsError::Refused(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_left_alone_only_where_checksums_tell_old_from_new() {
        use LogStart::{OverOld, ToZero, Zero};
        let expected = [ToZero, ToZero, ToZero, OverOld, Zero, Zero, Zero, Zero];
        for (i, expected) in (0u8..).zip(expected) {
            assert_eq!(LogStart::choose(i & 4 != 0, i & 2 != 0, i & 1 != 0), expected, "{i}");
        }
        let bs = BlockSize::new(1024).expect("size");
        let plain = new_superblock(bs, JournalSize { log: 1024, fast_commit: 0 }, 1, [7; 16]);
        assert_eq!(ToZero.fresh(plain.clone()), plain);
        let (a, b) = (OverOld.fresh(plain.clone()), OverOld.fresh(plain.clone()));
        assert!(
            a.uuid != b.uuid && a.uuid != plain.uuid && a.sequence != b.sequence,
            "{a:?} {b:?}"
        );
    }

    #[test]
    fn usual_sizes() {
        let sizes = [
            (2047, None),
            (2048, Some(1024)),
            (32_767, Some(1024)),
            (32_768, Some(4096)),
            (262_143, Some(4096)),
            (262_144, Some(8192)),
            (524_288, Some(16_384)),
            (4_194_303, Some(16_384)),
            (4_194_304, Some(32_768)),
            (8_388_608, Some(65_536)),
            (16_777_216, Some(131_072)),
            (33_554_432, Some(262_144)),
            (u64::MAX, Some(262_144)),
        ];
        for (blocks, log) in sizes {
            assert_eq!(usual_log_blocks(blocks), log, "{blocks} blocks");
        }
    }
}
