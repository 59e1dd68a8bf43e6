//! The fast-commit area in a report: its blocks with their tags, and for each fast commit whether
//! it counts.
//!
//! ```text
//!   HEAD(T) … TAIL | … TAIL | … TAIL(crc wrong) | … TAIL(T-3) | zeros
//!   counts           counts   torn                void
//! ```
//!
//! Outcomes follow from the rules of recovery. The area must begin with a HEAD of the transaction
//! behind the log's last one; every TAIL must name it and have the right checksum; behind the first
//! that does not, nothing counts. What is no longer (or was never) part of that chain is void: a
//! leftover. Torn is what would be next in the chain and is damaged.

use extol_ondisk::fast_commit::{DataChecksum, FcEntry, FcReader, FcRecord, FcTag};
use serde::Serialize;

use super::{BlockReport, FcTagReport, Outcome};
use crate::recovery::LogReader;

/// Does a fast commit count?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FcOutcome {
    /// Recovery applies it.
    Valid,
    /// A leftover: of another transaction, or behind one that is torn.
    Void,
    /// It would be next, but is damaged or incomplete, or file data that its checksums name is not
    /// there: the power went before it was durable.
    Torn,
}

/// A fast commit.
#[derive(Clone, Debug, Serialize)]
pub struct FastCommitReport {
    /// Its first block.
    pub block: u32,
    /// Blocks.
    pub blocks: u32,
    /// The transaction that it says it belongs to; `None`: it does not say.
    pub tid: Option<u32>,
    /// Records, without HEAD, TAIL and padding.
    pub records: u32,
    /// Does it count?
    pub outcome: FcOutcome,
}

impl From<FcTag<'_>> for FcTagReport {
    fn from(tag: FcTag<'_>) -> Self {
        match tag {
            FcTag::Head { features, tid } => Self::Head { tid, features },
            FcTag::Record(record) => record.into(),
            FcTag::Pad(value) => match DataChecksum::decode(value).next() {
                Some(first) => Self::DataChecksums {
                    blocks: DataChecksum::decode(value).count(),
                    first: first.block.0,
                },
                None => Self::Pad,
            },
            FcTag::Tail { tid, stated, actual } => {
                Self::Tail { tid, checksum: Outcome::of(true, stated == actual) }
            }
        }
    }
}

impl From<FcRecord<&[u8]>> for FcTagReport {
    fn from(record: FcRecord<&[u8]>) -> Self {
        let text = |e: &FcEntry<&[u8]>| String::from_utf8_lossy(e.name).into_owned();
        match record {
            FcRecord::AddRange { ino, block, len, start, unwritten } => {
                Self::AddRange { ino, block, len, start, unwritten }
            }
            FcRecord::DelRange { ino, block, len } => Self::DelRange { ino, block, len },
            FcRecord::Creat(e) => Self::Creat { parent: e.parent, ino: e.ino, name: text(&e) },
            FcRecord::Link(e) => Self::Link { parent: e.parent, ino: e.ino, name: text(&e) },
            FcRecord::Unlink(e) => Self::Unlink { parent: e.parent, ino: e.ino, name: text(&e) },
            FcRecord::Inode { ino, image } => inode(ino, image),
        }
    }
}

/// The main fields of an inode's image.
fn inode(ino: u32, image: &[u8]) -> FcTagReport {
    let half = |at: usize| {
        let bytes = image.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
    };
    let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
    FcTagReport::Inode {
        ino,
        bytes: image.len(),
        mode: format!("{:o}", half(0)),
        links: half(0x1A),
        size: u64::from(word(0x04)) | u64::from(word(0x6C)) << 32,
        flags: word(0x20),
    }
}

/// The chain of fast commits, fed block by block.
#[derive(Debug)]
pub(super) struct Chain {
    /// The transaction whose fast commits count; none if the log is empty.
    expected: Option<u32>,
    reader: FcReader,
    /// Nothing counts any more.
    ended: bool,
    open: Option<FastCommitReport>,
    done: Vec<FastCommitReport>,
}

impl Chain {
    pub fn new(expected: Option<u32>) -> Self {
        Self {
            expected,
            reader: FcReader::new(),
            ended: expected.is_none(),
            open: None,
            done: Vec::new(),
        }
    }

    /// Walks the area.
    pub fn walk(
        mut self,
        log: &mut LogReader<'_>,
        area: std::ops::Range<u32>,
        out: &mut Vec<BlockReport>,
    ) -> Vec<FastCommitReport> {
        for block in area {
            match log.block(block) {
                Ok(bytes) => self.block(block, bytes, out),
                Err(error) => {
                    self.close(FcOutcome::Torn);
                    out.push(BlockReport::Unreadable { block, error: error.to_string() });
                }
            }
        }
        self.close(FcOutcome::Torn);
        self.done
    }

    fn block(&mut self, block: u32, bytes: &[u8], out: &mut Vec<BlockReport>) {
        let first = self.done.is_empty() && self.open.is_none();
        let mut tags: Vec<FcTagReport> = Vec::new();
        let read = self.reader.block(bytes, |_, tag| {
            tags.push(tag.into());
            true
        });
        if read.is_err() {
            self.reader = FcReader::new();
        }
        let problem = read.err().map(|e| {
            format!("tag {} of {} bytes at offset {} makes no sense", e.tag, e.len, e.offset)
        });
        if tags.is_empty() {
            // Zeros, or something else that never was a fast commit: the chain ends here.
            self.close(FcOutcome::Torn);
            self.ended = true;
            match out.last_mut() {
                Some(BlockReport::Unused { block: at, count })
                    if at.checked_add(*count) == Some(block) =>
                {
                    *count += 1;
                }
                _ => out.push(BlockReport::Unused { block, count: 1 }),
            }
            return;
        }
        if first && !matches!(tags.first(), Some(FcTagReport::Head { .. })) {
            self.ended = true;
        }
        let open = self.open.get_or_insert(FastCommitReport {
            block,
            blocks: 0,
            tid: None,
            records: 0,
            outcome: FcOutcome::Void,
        });
        open.blocks += 1;
        let mut tail = None;
        for tag in &tags {
            match tag {
                FcTagReport::Head { tid, features } => {
                    open.tid = Some(*tid);
                    self.ended |= Some(*tid) != self.expected || *features != 0;
                }
                FcTagReport::Tail { tid, checksum } => {
                    open.tid = Some(*tid);
                    tail = Some((*tid, *checksum));
                }
                FcTagReport::Pad | FcTagReport::DataChecksums { .. } => {}
                _ => open.records += 1,
            }
        }
        match tail {
            Some((tid, _)) if Some(tid) != self.expected => self.close(FcOutcome::Void),
            Some((_, Outcome::Good)) => self.close(FcOutcome::Valid),
            Some(_) => self.close(FcOutcome::Torn),
            None if problem.is_some() => self.close(FcOutcome::Torn),
            None => {}
        }
        out.push(BlockReport::FastCommit { block, tags, problem });
    }

    /// The open fast commit ends with `outcome`, if the chain still holds.
    fn close(&mut self, outcome: FcOutcome) {
        let Some(mut open) = self.open.take() else { return };
        open.outcome = if self.ended { FcOutcome::Void } else { outcome };
        self.ended |= outcome != FcOutcome::Valid;
        self.done.push(open);
    }
}
