//! A look at a journal, block by block, and at what recovery would do with it. Reads only.
//!
//! The log is walked once around, from its tail (or its first block if it is empty). Blocks before
//! the end that recovery finds are *live*; those of the transaction at the end are *incomplete*;
//! everything else with a header is *stale*, a leftover of an older life. A copy has no header: it
//! is found through its descriptor, and a stale descriptor's copies end where a control block lies
//! (a copy never begins like one, it would be escaped).

mod fast_commits;

use extol_block::BlockDevice;
use serde::Serialize;

use crate::format::{
    BlockKind, CommitBlock, CommitTime, DescriptorReader, Format, Header, JournalSuperblock,
    RevokeReader, V1Sum,
};
use crate::log_map::LogMap;
use crate::recovery::{self, FastCommits, FsSize, LogReader, Scanner};
use crate::types::{Result, Tid};
use fast_commits::Chain;

pub use fast_commits::{FastCommitReport, FcOutcome};

/// Everything about a journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalReport {
    /// The superblock.
    pub superblock: SuperblockReport,
    /// The log and the fast-commit area.
    pub blocks: Vec<BlockReport>,
    /// The fast commits in the area, in order.
    pub fast_commits: Vec<FastCommitReport>,
    /// What recovery would do.
    pub recovery: RecoveryReport,
}

/// The journal superblock.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct SuperblockReport {
    pub version: u32,
    pub uuid: String,
    pub features: Vec<String>,
    /// `none`, `v1`, `v2`, `v3`.
    pub checksum: &'static str,
    pub block_size: u32,
    /// Blocks of the whole journal.
    pub blocks: u32,
    /// First block of the log.
    pub first: u32,
    /// Where the log wraps.
    pub log_end: u32,
    /// First fast-commit block and number of them, if the journal says that there may be fast
    /// commits.
    pub fast_commit: Option<(u32, u32)>,
    /// Tail; 0: the log is empty.
    pub start: u32,
    pub sequence: u32,
    /// Negative errno of an abort; 0: none.
    pub errno: i32,
    pub users: u32,
}

/// Whether recovery counts a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Part of a transaction that recovery would replay.
    Live,
    /// Part of a transaction that was interrupted: recovery ignores it.
    Incomplete,
    /// A leftover of an older life of the log.
    Stale,
}

/// What a checksum says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// This journal has none here.
    None,
    /// Right.
    Good,
    /// Wrong.
    Bad,
}

impl Outcome {
    fn of(exists: bool, good: bool) -> Self {
        match (exists, good) {
            (false, _) => Self::None,
            (true, true) => Self::Good,
            (true, false) => Self::Bad,
        }
    }
}

/// A tag of a descriptor.
#[derive(Clone, Debug, Serialize)]
pub struct TagReport {
    /// Block of the file system.
    pub home: u64,
    /// Log block of the copy; `None`: overwritten by something newer.
    pub copy: Option<u32>,
    /// Names of the flags.
    pub flags: Vec<&'static str>,
    /// Does the copy match the tag?
    pub checksum: Outcome,
}

/// A block of the log.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum BlockReport {
    /// A descriptor; its copies follow it.
    Descriptor { block: u32, tid: u32, state: State, checksum: Outcome, tags: Vec<TagReport> },
    /// A revoke block. `records` is `None` if its count makes no sense.
    Revoke { block: u32, tid: u32, state: State, checksum: Outcome, records: Option<Vec<u64>> },
    /// The end of a transaction.
    Commit { block: u32, tid: u32, state: State, checksum: Outcome, time: CommitTime },
    /// A block with the magic that belongs nowhere.
    Other { block: u32, tid: u32, what: String },
    /// Blocks without a header: never used, or copies whose descriptor is gone.
    Unused { block: u32, count: u32 },
    /// A block of the fast-commit area.
    FastCommit { block: u32, tags: Vec<FcTagReport>, problem: Option<String> },
    /// The device could not read it.
    Unreadable { block: u32, error: String },
}

/// A fast-commit tag.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "tag", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum FcTagReport {
    Head {
        tid: u32,
        features: u32,
    },
    AddRange {
        ino: u32,
        block: u32,
        len: u32,
        start: u64,
        unwritten: bool,
    },
    DelRange {
        ino: u32,
        block: u32,
        len: u32,
    },
    Creat {
        parent: u32,
        ino: u32,
        name: String,
    },
    Link {
        parent: u32,
        ino: u32,
        name: String,
    },
    Unlink {
        parent: u32,
        ino: u32,
        name: String,
    },
    /// An inode's image: `mode` is octal.
    Inode {
        ino: u32,
        bytes: usize,
        mode: String,
        links: u16,
        size: u64,
        flags: u32,
    },
    Pad,
    /// So many blocks of file data, the first of them this one, that recovery compares if nothing
    /// is behind this fast commit.
    DataChecksums {
        blocks: usize,
        first: u64,
    },
    Tail {
        tid: u32,
        checksum: Outcome,
    },
}

/// What recovery would do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoveryReport {
    /// The log is not empty.
    pub needed: bool,
    /// Why recovery would refuse this journal.
    pub refused: Option<String>,
    /// First transaction to replay.
    pub first_tid: u32,
    /// First transaction that is not in the log.
    pub end_tid: u32,
    /// Transactions to replay.
    pub transactions: u32,
    /// Blocks to bring home, each once.
    pub blocks: u32,
    /// Copies that revoke records cancel.
    pub revoked_copies: u32,
    /// Revoke records.
    pub revoke_records: u64,
    /// `none`, `torn`, `complete` or `unknown`: the fast commits on top of the last transaction.
    pub fast_commits: &'static str,
    /// Complete fast commits to replay.
    pub fast_commit_count: u32,
    /// Records in them.
    pub fast_commit_records: u64,
    /// The last whole fast commit is not replayed: file data that its checksums name is not there.
    pub data_missing: bool,
}

fn summary(sb: &JournalSuperblock) -> SuperblockReport {
    let f = sb.features;
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let u = &sb.uuid;
    SuperblockReport {
        version: if sb.v2 { 2 } else { 1 },
        uuid: [&u[..4], &u[4..6], &u[6..8], &u[8..10], &u[10..]].map(hex).join("-"),
        features: f.names(),
        checksum: match (f.has_csum_v3(), f.has_csum_v2(), f.has_csum_v1()) {
            (true, _, _) => "v3",
            (_, true, _) => "v2",
            (_, _, true) => "v1",
            _ => "none",
        },
        block_size: sb.block_size,
        blocks: sb.maxlen,
        first: sb.first,
        log_end: sb.log_end(),
        fast_commit: sb.fc_range().map(|area| (area.start, area.end.saturating_sub(area.start))),
        start: sb.start,
        sequence: sb.sequence.0,
        errno: sb.errno,
        users: sb.nr_users,
    }
}

/// Looks at the journal that `map` finds on `log`. Fails only if there is no superblock to be read;
/// everything else that is wrong is part of the report.
pub fn inspect(
    log: &dyn BlockDevice,
    map: &LogMap,
    fs: impl Into<FsSize>,
) -> Result<JournalReport> {
    let sb = recovery::read_superblock(log, map)?;
    let mut report = JournalReport {
        superblock: summary(&sb),
        blocks: Vec::new(),
        fast_commits: Vec::new(),
        recovery: RecoveryReport {
            needed: sb.start != 0,
            first_tid: sb.sequence.0,
            end_tid: sb.sequence.0,
            fast_commits: "none",
            ..RecoveryReport::default()
        },
    };
    if let Err(error) = sb.validate(map.block_size(), u64::from(map.len())) {
        report.recovery.refused = Some(error.to_string());
        return Ok(report);
    }
    let mut live = 0;
    if sb.start != 0 {
        live = forecast(log, map, &sb, fs.into(), &mut report.recovery)?;
    }
    let mut walk = Walk {
        log: LogReader::new(log, map),
        format: sb.format()?,
        sb: &sb,
        live,
        end: (sb.start != 0).then_some(Tid(report.recovery.end_tid)),
        sum: (Tid(0), V1Sum::new()),
        out: &mut report.blocks,
    };
    walk.log();
    let chain = Chain::new(walk.end.map(|tid| tid.0));
    report.fast_commits = chain.walk(&mut walk.log, sb.fc_range().unwrap_or_default(), walk.out);
    let last = report.fast_commits.iter_mut().rfind(|fast| fast.outcome == FcOutcome::Valid);
    if let Some(last) = last.filter(|_| report.recovery.data_missing) {
        last.outcome = FcOutcome::Torn;
    }
    Ok(report)
}

/// Fills `report`; gives the number of live log blocks.
fn forecast(
    log: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
    fs: FsSize,
    report: &mut RecoveryReport,
) -> Result<u32> {
    match recovery::prepare(log, map, sb, fs) {
        Ok(prepared) => {
            report.blocks = prepared.plan.copies.len() as u32;
            report.revoked_copies = prepared.plan.revoked;
            report.revoke_records = prepared.plan.records;
            report.fast_commits = match prepared.fast_commits {
                FastCommits::None => "none",
                FastCommits::Torn | FastCommits::DataMissing => "torn",
                FastCommits::Complete(_) => "complete",
                FastCommits::Unknown(_) => "unknown",
            };
            if let FastCommits::Complete(fast) = prepared.fast_commits {
                (report.fast_commit_count, report.fast_commit_records) =
                    (fast.commits, fast.records);
            }
            report.data_missing = match prepared.fast_commits {
                FastCommits::Complete(fast) => fast.data_missing,
                other => other == FastCommits::DataMissing,
            };
            report.refused =
                recovery::refusal(prepared.fast_commits).map(|error| error.to_string());
        }
        Err(error) => report.refused = Some(error.to_string()),
    }
    let mut scanner = Scanner::new(log, map, sb)?;
    // Its error, if any, is the one that was just noted.
    let _ = scanner.run();
    let found = scanner.found();
    report.end_tid = found.end.0;
    report.transactions = found.end.0.wrapping_sub(sb.sequence.0);
    let (len, head) = (sb.log_end() - sb.first, found.head);
    Ok(match head.checked_sub(sb.start) {
        Some(0) if report.transactions > 0 => len,
        Some(distance) => distance,
        None => len - (sb.start - head),
    })
}

struct Walk<'a> {
    log: LogReader<'a>,
    format: Format,
    sb: &'a JournalSuperblock,
    /// Live blocks from the tail on.
    live: u32,
    /// First transaction that is not in the log.
    end: Option<Tid>,
    /// The v1 sum of the transaction being passed.
    sum: (Tid, V1Sum),
    out: &'a mut Vec<BlockReport>,
}

impl Walk<'_> {
    fn len(&self) -> u32 {
        self.sb.log_end() - self.sb.first
    }

    /// Log block at a distance from the tail.
    fn at(&self, distance: u32) -> u32 {
        let from = if self.sb.start == 0 { self.sb.first } else { self.sb.start };
        let at = (u64::from(from - self.sb.first) + u64::from(distance)) % u64::from(self.len());
        self.sb.first + at as u32
    }

    fn state(&self, distance: u32, tid: Tid) -> State {
        if distance < self.live {
            State::Live
        } else if self.end == Some(tid) {
            State::Incomplete
        } else {
            State::Stale
        }
    }

    fn unused(&mut self, at: u32) {
        match self.out.last_mut() {
            Some(BlockReport::Unused { block, count }) if block.checked_add(*count) == Some(at) => {
                *count += 1
            }
            _ => self.out.push(BlockReport::Unused { block: at, count: 1 }),
        }
    }

    fn log(&mut self) {
        let mut distance = 0;
        while distance < self.len() {
            let block = self.at(distance);
            let here = distance;
            distance += 1;
            let bytes = match self.log.block(block) {
                Ok(bytes) => bytes.to_vec(),
                Err(error) => {
                    self.out.push(BlockReport::Unreadable { block, error: error.to_string() });
                    continue;
                }
            };
            let Some(Header { kind, tid }) = Header::decode(&bytes) else {
                self.unused(block);
                continue;
            };
            if self.sum.0 != tid {
                self.sum = (tid, V1Sum::new());
            }
            let state = self.state(here, tid);
            let strong = self.format.features.has_csum_v2_or_v3();
            let tail = Outcome::of(strong, self.format.verify_tail(&bytes));
            match kind {
                BlockKind::Descriptor => {
                    let tags = self.tags(&bytes, tid, &mut distance);
                    self.out.push(BlockReport::Descriptor {
                        block,
                        tid: tid.0,
                        state,
                        checksum: tail,
                        tags,
                    });
                }
                BlockKind::Revoke => {
                    let records =
                        RevokeReader::new(&self.format, &bytes).map(|r| r.map(|nr| nr.0).collect());
                    self.out.push(BlockReport::Revoke {
                        block,
                        tid: tid.0,
                        state,
                        checksum: tail,
                        records,
                    });
                }
                BlockKind::Commit => {
                    let Some(commit) = CommitBlock::decode(&bytes) else { continue };
                    let exists = strong || self.format.features.has_csum_v1();
                    let checksum =
                        Outcome::of(exists, commit.verify(&self.format, &bytes, self.sum.1));
                    self.sum.1 = V1Sum::new();
                    let time = commit.time;
                    self.out.push(BlockReport::Commit { block, tid: tid.0, state, checksum, time });
                }
                other => {
                    let what = format!("{other:?}");
                    self.out.push(BlockReport::Other { block, tid: tid.0, what });
                }
            }
        }
    }

    /// The tags of a descriptor; moves `distance` behind its copies.
    fn tags(&mut self, descriptor: &[u8], tid: Tid, distance: &mut u32) -> Vec<TagReport> {
        let f = self.format.features;
        if f.has_csum_v1() {
            self.sum.1.update(descriptor);
        }
        let mut overwritten = false;
        let mut reports = Vec::new();
        for tag in DescriptorReader::new(&self.format, descriptor) {
            let mut report = TagReport {
                home: tag.block.0,
                copy: None,
                flags: tag.flags.names(),
                checksum: Outcome::None,
            };
            overwritten |= *distance >= self.len();
            if !overwritten {
                let at = self.at(*distance);
                let copy = self.log.block(at).ok();
                overwritten = copy.is_some_and(|copy| Header::decode(copy).is_some());
                if !overwritten {
                    let good = copy.is_some_and(|copy| tag.verify(&self.format, tid, copy));
                    report.checksum = Outcome::of(f.has_csum_v2_or_v3(), good);
                    report.copy = Some(at);
                    *distance += 1;
                    if f.has_csum_v1() {
                        self.sum.1.update(copy.unwrap_or_default());
                    }
                }
            }
            reports.push(report);
        }
        reports
    }
}
