//! Recovery: brings the committed transactions of a dirty log home.
//!
//! ```text
//! scan ──► where does the log end, is it intact?          (reads everything, changes nothing)
//! plan ──► newest copy of each block that no revoke cancels
//! look ──► fast commits that count? refuse                 (a full recovery would have to replay them)
//! replay ► each block once ─► home, flush, superblock reset │ or memory, nothing changed
//! ```
//!
//! Nothing is written before the first three steps succeeded, so a refused or corrupt journal stays as it was. The
//! superblock is reset only after the home blocks are durable: a crash in between repeats the recovery with the
//! same result.
//!
//! Differences to Linux, all towards caution: Linux replays what precedes a damaged transaction (or all intact
//! copies around a damaged one) and then refuses the mount; we refuse without a change. With async commit Linux
//! reports a v3 transaction with an incomplete copy as corrupt even if it is the last one; we let it vanish, as it
//! was never acknowledged.
//!
//! Numbering afterwards: `end` is the transaction that is not in the log. Parts of it may be there, so its number
//! is skipped: the superblock says "empty, last used `end + 1`", as e2fsck writes it, and the next transaction is
//! `end + 2`.

mod fast_commit;
mod replay;
mod scan;
mod sink;
#[cfg(test)]
mod tests;
mod walk;

use extol_device::{BlockDevice, BlockNr};

use crate::format::{CommitTime, JournalSuperblock};
use crate::log_map::LogMap;
use crate::{JournalError, Result, Tid};

pub(crate) use fast_commit::FastCommits;
pub use replay::ReplaySink;
pub(crate) use replay::{Limits, Plan};
pub(crate) use scan::{Scanned, Scanner};
pub use sink::{HomeSink, Overlay, OverlayDevice};
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
    /// The fast-commit area held an incomplete fast commit, which was dropped.
    pub torn_fast_commit: bool,
    /// errno (negative) that an abort left in the superblock; 0: none. It stays there until the file system has
    /// noted it.
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
    fs_blocks: u64,
) -> Result<Prepared> {
    let scanned = Scanner::new(log, map, sb)?.run()?;
    let limits = Limits { fs_blocks, log: map.is_internal().then_some(map) };
    let plan = Plan::make(log, map, sb, &scanned, limits)?;
    let fast_commits = fast_commit::look(log, map, sb, scanned.end)?;
    Ok(Prepared { scanned, plan, fast_commits })
}

/// Why fast commits refuse a recovery.
pub(crate) fn refusal(fast_commits: FastCommits) -> Option<JournalError> {
    let what = match fast_commits {
        FastCommits::None | FastCommits::Torn => return None,
        FastCommits::Complete => "holds fast-commit blocks",
        FastCommits::Unknown(_) => "holds fast-commit blocks of an unknown kind",
    };
    Some(JournalError::Unsupported(format!(
        "the journal {what}, which are not replayed yet; run e2fsck or mount it with Linux first"
    )))
}

/// Gives the committed contents of all blocks of a log to `sink`. Changes neither log nor superblock.
///
/// `log` holds the log, `fs_blocks` is the size of the file system that it belongs to.
pub fn recover(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
    fs_blocks: u64,
    sink: &mut dyn ReplaySink,
) -> Result<Recovered> {
    sb.validate(map.block_size(), u64::from(map.len()))?;
    if sb.start == 0 {
        return Ok(Recovered::nothing(sb));
    }
    let Prepared { scanned, plan, fast_commits } = prepare(log, map, sb, fs_blocks)?;
    if let Some(refusal) = refusal(fast_commits) {
        return Err(refusal);
    }
    let replayed_blocks = plan.replay(log, map, sb, sink)?;
    Ok(Recovered {
        next_tid: scanned.end.next().next(),
        end_tid: scanned.end,
        replayed_transactions: scanned.end.0.wrapping_sub(sb.sequence.0),
        replayed_blocks,
        revoke_hits: plan.revoked,
        last_commit: scanned.last_commit,
        torn_fast_commit: fast_commits == FastCommits::Torn,
        errno: sb.errno,
    })
}

/// Recovery of a volume that is going to be mounted read-write: writes the blocks home and empties the log.
pub fn recover_to_device(
    log: &dyn BlockDevice,
    fs: &dyn BlockDevice,
    map: &LogMap,
    sb: &mut JournalSuperblock,
    fs_blocks: u64,
) -> Result<Recovered> {
    let mut sink = HomeSink::new(fs, map.block_size());
    let recovered = recover(log, map, sb, fs_blocks, &mut sink)?;
    if sb.start != 0 {
        empty(log, map, sb, recovered.end_tid.next())?;
    }
    Ok(recovered)
}

/// Recovery of a volume that must not be changed: what the log holds, in memory.
pub fn recover_to_memory(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
    fs_blocks: u64,
) -> Result<(Recovered, Overlay)> {
    let mut overlay = Overlay::default();
    let recovered = recover(log, map, sb, fs_blocks, &mut overlay)?;
    Ok((recovered, overlay))
}

/// Empties a log whose file system says that it needs no recovery: its contents are not looked at, except to find
/// a transaction id that no leftover carries.
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

fn empty(log: &dyn BlockDevice, map: &LogMap, sb: &mut JournalSuperblock, sequence: Tid) -> Result<()> {
    let mut clean = sb.clone();
    clean.mark_empty(sequence);
    let offset = map.superblock_offset().ok_or_else(|| JournalError::Corrupt {
        what: "no journal superblock in the log".to_owned(),
        block: u64::from(map.superblock_block()),
    })?;
    log.write_fua(&clean.encode(), offset)?;
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
