//! Recovery: brings the committed transactions of a dirty log home.
//!
//! ```text
//! scan ──► where does the log end, is it intact?          (reads everything, changes nothing)
//! plan ──► newest copy of each block that no revoke cancels
//! look ──► fast commits that count?
//! replay ► each block once ─► home, flush, superblock reset │ or memory, nothing changed
//! ```
//!
//! Nothing is written before the first three steps succeeded, so a refused or corrupt journal stays
//! as it was. The superblock is reset only after the home blocks are durable: a crash in between
//! repeats the recovery with the same result.
//!
//! With fast commits of transaction T on top of the log, the file system has to finish: it turns
//! their records into changes of blocks, as transaction T itself.
//!
//! ```text
//!   superblock:  (start, S) ──► (first, T), FAST_COMMIT bit still set ──► … ──► empty
//!   log:         S … T-1 home   all of it is free       T written by the file system: counts
//!   area:        T counts       T counts                void, its first block becomes zeros
//! ```
//!
//! A crash before T's commit record is durable finds the same fast commits on the same base; a
//! crash behind it finds T in the log. Between the two states in the middle nothing is written
//! home, so any later recovery (Linux, e2fsck, Extol) sees what the crash left
//! ([`recover_to_device`], `keep_fast_commits`).
//!
//! Differences to Linux, all towards caution: Linux replays what precedes a damaged transaction (or
//! all intact copies around a damaged one) and then refuses the mount; we refuse without a change.
//! With async commit Linux reports a v3 transaction with an incomplete copy as corrupt even if it
//! is the last one; we let it vanish, as it was never acknowledged.
//!
//! Numbering afterwards: `end` is the transaction that is not in the log. Parts of it may be there,
//! so its number is skipped: the superblock says "empty, last used `end + 1`", as e2fsck writes it,
//! and the next transaction is `end + 2`.

mod fast_commit;
mod replay;
mod scan;
mod sink;
#[cfg(test)]
mod tests;
mod walk;

use extol_block::{BlockDevice, BlockNr};

use crate::format::{CommitTime, Features, Header, JournalSuperblock};
use crate::log_map::LogMap;
use crate::types::{JournalError, Result, Tid};

pub(crate) use fast_commit::FastCommits;
pub use fast_commit::FastLog;
pub use replay::{FsSize, ReplaySink};
pub(crate) use replay::{Limits, Plan};
pub(crate) use scan::{Scanned, Scanner};
pub use sink::{HomeSink, Overlay, OverlayDevice, ScratchDevice};
pub(crate) use walk::LogReader;

/// What a recovery did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// Id of the next transaction.
    pub next_tid: Tid,
    /// First transaction that was not in the log.
    pub end_tid: Tid,
    /// Transactions replayed.
    pub replayed_transactions: u32,
    /// Blocks brought home (each once).
    pub replayed_blocks: u32,
    /// Copies that were not replayed because a revoke record says so.
    pub revoke_hits: u32,
    /// Time of the last transaction in the log.
    pub last_commit: Option<CommitTime>,
    /// The fast-commit area held nothing but an incomplete fast commit, which was dropped.
    pub torn_fast_commit: bool,
    /// Fast commits on top of the last transaction. Their records are still to be replayed, as
    /// transaction `next_tid`.
    pub fast_commits: Option<FastLog>,
    /// errno (negative) that an abort left in the superblock; 0: none. It stays there until the
    /// file system has noted it.
    pub errno: i32,
}

impl Recovered {
    fn nothing(sb: &JournalSuperblock) -> Self {
        Self {
            next_tid: sb.sequence.next(),
            end_tid: sb.sequence,
            replayed_transactions: 0,
            replayed_blocks: 0,
            revoke_hits: 0,
            last_commit: None,
            torn_fast_commit: false,
            fast_commits: None,
            errno: sb.errno,
        }
    }
}

/// What a recovery would do, as far as can be known without doing it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) scanned: Scanned,
    pub(crate) plan: Plan,
    pub(crate) fast_commits: FastCommits,
}

/// Scan and plan. The log is not empty.
pub(crate) fn prepare(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
    fs: impl Into<FsSize>,
) -> Result<Prepared> {
    let scanned = Scanner::new(log, map, sb)?.run()?;
    let limits = Limits { fs: fs.into(), log: map.is_internal().then_some(map) };
    let plan = Plan::make(log, map, sb, &scanned, limits)?;
    let fast_commits = fast_commit::look(log, map, sb, scanned.end)?;
    Ok(Prepared { scanned, plan, fast_commits })
}

/// Why fast commits refuse a recovery.
pub(crate) fn refusal(fast_commits: FastCommits) -> Option<JournalError> {
    let FastCommits::Unknown(features) = fast_commits else { return None };
    Some(JournalError::Unsupported(format!(
        "the journal holds fast-commit blocks of an unknown kind (features {features:#x}); run \
         e2fsck or mount it with Linux first"
    )))
}

/// Gives the committed contents of all blocks of a log to `sink`. Changes neither log nor
/// superblock.
///
/// `log` holds the log, `fs` is the size of the file system that it belongs to.
///
/// # Errors
/// If the log is damaged, or of a kind that is not known. Then nothing was given.
pub fn recover(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
    fs: impl Into<FsSize>,
    sink: &mut dyn ReplaySink,
) -> Result<Recovered> {
    sb.validate(map.block_size(), u64::from(map.len()))?;
    if sb.start == 0 {
        return Ok(Recovered::nothing(sb));
    }
    let Prepared { scanned, plan, fast_commits } = prepare(log, map, sb, fs)?;
    if let Some(refusal) = refusal(fast_commits) {
        return Err(refusal);
    }
    let replayed_blocks = plan.replay(log, map, sb, sink)?;
    let fast = match fast_commits {
        FastCommits::Complete(fast) => Some(fast),
        _ => None,
    };
    Ok(Recovered {
        next_tid: if fast.is_some() { scanned.end } else { scanned.end.next().next() },
        end_tid: scanned.end,
        replayed_transactions: scanned.end.0.wrapping_sub(sb.sequence.0),
        replayed_blocks,
        revoke_hits: plan.revoked,
        last_commit: scanned.last_commit,
        torn_fast_commit: matches!(fast_commits, FastCommits::Torn | FastCommits::DataMissing),
        fast_commits: fast,
        errno: sb.errno,
    })
}

/// Recovery of a volume that is going to be mounted read-write: writes the blocks home and empties
/// the log, except for fast commits ([`Recovered::fast_commits`]), which the file system has to
/// replay.
///
/// # Errors
/// As [`recover`], and if a device fails.
pub fn recover_to_device(
    log: &dyn BlockDevice,
    fs: &dyn BlockDevice,
    map: &LogMap,
    sb: &mut JournalSuperblock,
    size: impl Into<FsSize>,
) -> Result<Recovered> {
    let mut sink = HomeSink::new(fs, map.block_size());
    let recovered = recover(log, map, sb, size, &mut sink)?;
    if recovered.fast_commits.is_some() {
        keep_fast_commits(log, map, sb, recovered.end_tid)?;
    } else if sb.start != 0 {
        empty(log, map, sb, recovered.end_tid.next())?;
    }
    Ok(recovered)
}

/// The log is home: its space is free, but the fast commits of `tid` go on counting.
fn keep_fast_commits(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &mut JournalSuperblock,
    tid: Tid,
) -> Result<()> {
    // A control block of `tid` in the first log block is part of a commit that was interrupted, or
    // older than the volume. The log may begin there from now on, and nothing in front of a new
    // transaction may look like a part of it.
    let mut block = vec![0; map.block_size().len()];
    map.read(log, sb.first, &mut block)?;
    if Header::decode(&block).is_some_and(|header| header.tid == tid) {
        block.fill(0);
        log.write_fua(&block, map.offset(sb.first)?)?;
    }
    let mut kept = sb.clone();
    kept.start = sb.first;
    kept.sequence = tid;
    kept.head = 0;
    kept.features.incompat |= Features::INCOMPAT_REVOKE;
    log.write_fua(&kept.encode(), map.offset(map.superblock_block())?)?;
    *sb = kept;
    Ok(())
}

/// Makes the fast commits of a transaction that is now in the log unreadable, durably: e2fsck would
/// give up the whole log for fast commits of a transaction that it does not expect.
///
/// # Errors
/// If the device fails.
pub fn clear_fast_commits(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
) -> Result<()> {
    let Some(first) = sb.fc_range().filter(|area| !area.is_empty()).map(|area| area.start) else {
        return Ok(());
    };
    Ok(log.write_fua(&vec![0; map.block_size().len()], map.offset(first)?)?)
}

/// Blocks that the one transaction may change that replays fast commits: the log holds nothing else
/// meanwhile. (Its descriptors take less than a thirty-second part.)
#[must_use]
pub fn replay_credits(sb: &JournalSuperblock) -> u32 {
    let len = sb.log_end().saturating_sub(sb.first);
    (len - len / 32).saturating_sub(64)
}

/// Recovery of a volume that must not be changed: what the log holds, in memory. Fast commits
/// ([`Recovered::fast_commits`]) are not in it; the file system can replay them over an
/// [`ScratchDevice`].
///
/// # Errors
/// As [`recover`].
pub fn recover_to_memory(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
    fs: impl Into<FsSize>,
) -> Result<(Recovered, Overlay)> {
    let mut overlay = Overlay::default();
    let recovered = recover(log, map, sb, fs, &mut overlay)?;
    Ok((recovered, overlay))
}

/// Empties a log whose file system says that it needs no recovery: its contents are not looked at,
/// except to find a transaction id that no leftover carries.
pub fn wipe(log: &dyn BlockDevice, map: &LogMap, sb: &mut JournalSuperblock) -> Result<Recovered> {
    sb.validate(map.block_size(), u64::from(map.len()))?;
    if sb.start == 0 {
        return Ok(Recovered::nothing(sb));
    }
    let mut scanner = Scanner::new(log, map, sb)?;
    let (end, last_commit) = match scanner.run() {
        Ok(scanned) => (scanned.end, scanned.last_commit),
        // The log goes on for an unknown number of transactions, each of at least one block.
        Err(_) => (Tid(scanner.tid().0.wrapping_add(sb.maxlen)), None),
    };
    empty(log, map, sb, end.next())?;
    Ok(Recovered { last_commit, ..Recovered::nothing(sb) })
}

fn empty(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &mut JournalSuperblock,
    sequence: Tid,
) -> Result<()> {
    let mut clean = sb.clone();
    clean.mark_empty(sequence);
    log.write_fua(&clean.encode(), map.offset(map.superblock_block())?)?;
    *sb = clean;
    Ok(())
}

/// Reads the journal superblock. It still has to be validated.
pub fn read_superblock(log: &dyn BlockDevice, map: &LogMap) -> Result<JournalSuperblock> {
    let mut bytes = [0; crate::format::SUPERBLOCK_SIZE];
    let offset = map.superblock_offset().unwrap_or(BlockNr(0).offset(map.block_size()));
    log.read_at(&mut bytes, offset)?;
    JournalSuperblock::decode(&bytes)
}
