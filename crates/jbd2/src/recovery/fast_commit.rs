//! Fast commits as recovery sees them: are there any that count, and what do they say.
//!
//! ```text
//!   area:   HEAD(T) records TAIL(T) │ records TAIL(T) │ records TAI…
//!           ╰────── counts ───────╯ ╰─── counts ────╯ ╰── torn ──
//!   T: the transaction behind the log's end
//! ```
//!
//! The area is read twice. [`look`] finds the end of what counts; it keeps nothing but numbers, so
//! a large area costs time and no memory. [`FastLog::each`] gives the records, as often as the file
//! system wants to see them. Replaying them is the file system's business: the journal does not
//! know what a record means.
//!
//! Invariants
//! - RF-1: a fast commit counts only if its TAIL names the transaction behind the last one in the
//!   log and its checksum is right (`look`).
//! - RF-2: what cannot be read before the first valid TAIL makes the fast commits *torn*: they were
//!   never acknowledged, and the log alone is the truth. What cannot be read behind a valid TAIL
//!   ends them there. Neither ever costs a transaction of the log (Linux and e2fsck give the log up
//!   in the first case).
//! - RF-3: the last one counts only if the file data is there that its [checksums](DataChecksum)
//!   name. Its flush was not over otherwise, so it was not acknowledged. (The flush of each is over
//!   before the next one is written.)
//! - RF-4: a HEAD of this transaction with unknown features refuses the recovery: what follows may
//!   mean anything.
//! - RF-5: no stated length is believed: [`FcReader`] finds every value inside its block, and the
//!   blocks are those of the area.

use extol_block::BlockDevice;

use extol_ondisk::fast_commit::{DataChecksum, FcReader, FcRecord, FcTag};

use super::walk::LogReader;
use crate::format::{JournalSuperblock, MOST_DATA_CHECKSUMS};
use crate::log_map::LogMap;
use crate::planted;
use crate::types::{JournalError, Result, Tid};

/// What is in the fast-commit area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastCommits {
    /// Nothing for this transaction.
    None,
    /// The first fast commit of this transaction is incomplete.
    Torn,
    /// The only fast commit of this transaction has checksums of file data that is not there.
    DataMissing,
    /// At least one complete fast commit of this transaction.
    Complete(FastLog),
    /// Fast commits with unknown features.
    Unknown(u32),
}

/// The fast commits of a volume that count: those of the transaction that comes after the last one
/// in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FastLog {
    /// That transaction.
    pub tid: Tid,
    /// Fast commits.
    pub commits: u32,
    /// Tags in them: records, and those that only give form.
    pub tags: u64,
    /// Records of directory entries, ranges and inodes.
    pub records: u64,
    /// Blocks of the area that they take.
    pub blocks: u32,
    /// Another one behind them does not count, because it has checksums of file data that is not
    /// there.
    pub data_missing: bool,
}

/// Looks at the area for fast commits of transaction `expected`.
pub(crate) fn look(
    device: &dyn BlockDevice,
    map: &LogMap,
    sb: &JournalSuperblock,
    expected: Tid,
) -> Result<FastCommits> {
    let Some(area) = sb.fc_range() else { return Ok(FastCommits::None) };
    let first = area.start;
    let mut log = LogReader::new(device, map);
    let mut reader = FcReader::new();
    let mut valid =
        FastLog { tid: expected, commits: 0, tags: 0, records: 0, blocks: 0, data_missing: false };
    let (mut tags, mut records) = (0, 0);
    let mut data = Data::default();
    // What remains if the data of the last one is not there.
    let mut before = valid;
    let complete = |valid: FastLog, before: FastLog, data: &Data| match before.commits {
        _ if data.is_there(device, map) => FastCommits::Complete(valid),
        0 => FastCommits::DataMissing,
        _ => FastCommits::Complete(FastLog { data_missing: true, ..before }),
    };
    for n in area {
        let block = log.block(n)?;
        if n == first && !FcReader::begins_with_head(block) {
            return Ok(FastCommits::None);
        }
        let mut end = None;
        let readable = reader.block(block, |_, tag| {
            tags += 1;
            records += u64::from(matches!(tag, FcTag::Record(_)));
            match tag {
                FcTag::Head { tid, .. } if Tid(tid) != expected => end = Some(FastCommits::None),
                FcTag::Head { features, .. } if features != 0 => {
                    end = Some(FastCommits::Unknown(features))
                }
                FcTag::Tail { tid, stated, actual } if Tid(tid) == expected && stated == actual => {
                    before = valid;
                    valid.commits += 1;
                    data.ends();
                    (valid.tags, valid.records, valid.blocks) = (tags, records, n - first + 1);
                }
                FcTag::Tail { .. } => end = Some(FastCommits::Torn),
                FcTag::Pad(value) => data.add(value),
                _ => {}
            }
            end.is_none()
        });
        match (end, readable) {
            (Some(unknown @ FastCommits::Unknown(_)), _) => return Ok(unknown),
            (Some(_), _) | (None, Err(_)) if valid.commits > 0 => {
                return Ok(complete(valid, before, &data));
            }
            (Some(end), _) => return Ok(end),
            (None, Err(_)) => return Ok(FastCommits::Torn),
            (None, Ok(())) => {}
        }
    }
    // Torn, or full to its last block.
    Ok(if valid.commits > 0 { complete(valid, before, &data) } else { FastCommits::Torn })
}

/// What fast commits say of file data.
#[derive(Debug, Default)]
struct Data {
    /// The one that is being read.
    here: Vec<DataChecksum>,
    /// The last whole one.
    last: Vec<DataChecksum>,
}

impl Data {
    fn add(&mut self, value: &[u8]) {
        // More are in none that Extol wrote.
        let room = MOST_DATA_CHECKSUMS - self.here.len();
        self.here.extend(DataChecksum::decode(value).take(room));
    }

    fn ends(&mut self) {
        self.last = std::mem::take(&mut self.here);
    }

    /// The data of the last one is on the medium. A block that cannot be read may have been there.
    fn is_there(&self, device: &dyn BlockDevice, map: &LogMap) -> bool {
        if planted::has(planted::Bug::DataChecksumIgnored) {
            return true;
        }
        if !map.is_internal() {
            return true;
        }
        let mut block = vec![0; map.block_size().len()];
        self.last.iter().all(|checksum| {
            let Some(bytes) = block.get_mut(..checksum.len as usize) else { return true };
            let Some(at) = checksum.block.0.checked_mul(u64::from(map.block_size().bytes())) else {
                return true;
            };
            device.read_at(bytes, at).is_err() || checksum.matches(bytes)
        })
    }
}

impl FastLog {
    /// Gives all records to `record`, in order, until it fails. `log`, `map` and `sb` are those
    /// that were recovered.
    ///
    /// # Errors
    /// What `record` says; or if the area cannot be read, or reads differently than before.
    pub fn each<E: From<JournalError>>(
        &self,
        log: &dyn BlockDevice,
        map: &LogMap,
        sb: &JournalSuperblock,
        mut record: impl FnMut(FcRecord<&[u8]>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let area = sb.fc_range().unwrap_or_default();
        let mut reader = FcReader::new();
        let mut blocks = LogReader::new(log, map);
        let mut left = self.tags;
        for n in area.take(self.blocks as usize) {
            let mut result = Ok(());
            let mut same = true;
            let readable = reader.block(blocks.block(n)?, |_, tag| {
                left -= 1;
                match tag {
                    FcTag::Tail { tid, stated, actual } => {
                        same = Tid(tid) == self.tid && stated == actual
                    }
                    FcTag::Head { features, tid } => same = Tid(tid) == self.tid && features == 0,
                    FcTag::Pad(_) => {}
                    FcTag::Record(it) => result = record(it),
                }
                left > 0 && same && result.is_ok()
            });
            result?;
            if !same || readable.is_err() {
                return Err(changed(n).into());
            }
            if left == 0 {
                return Ok(());
            }
        }
        Err(changed(0).into())
    }
}

fn changed(at: u32) -> JournalError {
    let what = "the fast commits read differently a second time".to_owned();
    JournalError::corrupt(what, at)
}
