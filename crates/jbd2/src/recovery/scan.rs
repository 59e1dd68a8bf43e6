//! First pass: where the log ends, and whether everything before the end is intact. Changes
//! nothing.
//!
//! | found | then |
//! | --- | --- |
//! | no control block of the expected transaction | the log ends before this transaction |
//! | descriptor or revoke block with a wrong checksum | the transaction is *suspicious*; its commit decides |
//! | commit, transaction intact | accepted; the next one is expected |
//! | commit older than the last accepted one, not intact | leftover of an older life of the log: the log ends |
//! | commit not older, not intact | corruption: nothing is replayed. With async commit the last transaction may be incomplete: the log ends before it, unless an intact one follows |
//!
//! "Intact" is what the journal's checksums can tell: v2 and v3 check each control block; v1 one
//! sum over the transaction; without checksums everything is. With v2 and v3 the copies are
//! compared with their tags here, too. A wrong copy is remembered: it is corruption only if no
//! revoke record makes it worthless ([`super::replay`]). With async commit a wrong copy makes its
//! transaction incomplete, since nothing ordered the copies before the commit block.

use extol_block::BlockDevice;

use super::walk::Walk;
use crate::format::{
    BlockKind, CommitBlock, CommitTime, DescriptorReader, JournalSuperblock, V1Sum,
};
use crate::log_map::LogMap;
use crate::types::{JournalError, Result, Tid};

/// A copy in an accepted transaction that is not what was written.
#[derive(Clone, Debug)]
pub(crate) struct BadCopy {
    pub(crate) home: u64,
    pub(crate) tid: Tid,
    pub(crate) error: JournalError,
}

/// What the first pass found.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    /// The transaction that is not in the log any more.
    pub(crate) end: Tid,
    /// Log block behind the last accepted commit.
    pub(crate) head: u32,
    /// Time of the last accepted commit.
    pub(crate) last_commit: Option<CommitTime>,
    pub(crate) bad_copies: Vec<BadCopy>,
}

/// One transaction while it is read.
#[derive(Default)]
struct Open {
    /// First control block with a wrong checksum.
    suspicious: Option<u32>,
    sum: V1Sum,
    bad: Vec<BadCopy>,
}

/// The pass; its expected tid can be asked for even after it failed.
pub(crate) struct Scanner<'a> {
    walk: Walk<'a>,
    open: Open,
    result: Scanned,
    /// The first incomplete transaction (async commit only).
    incomplete: Option<Tid>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(
        device: &'a dyn BlockDevice,
        map: &'a LogMap,
        sb: &JournalSuperblock,
    ) -> Result<Self> {
        let walk = Walk::new(device, map, sb)?;
        let result =
            Scanned { end: walk.tid, head: sb.start, last_commit: None, bad_copies: Vec::new() };
        Ok(Self { walk, open: Open::default(), result, incomplete: None })
    }

    /// The transaction that was expected last.
    pub(crate) fn tid(&self) -> Tid {
        self.walk.tid
    }

    /// What was found so far.
    pub(crate) fn found(&self) -> &Scanned {
        &self.result
    }

    /// Runs the pass.
    pub(crate) fn run(&mut self) -> Result<Scanned> {
        let mut block = Vec::new();
        while let Some((at, kind)) = self.walk.control(&mut block)? {
            let go_on = match kind {
                BlockKind::Descriptor => self.descriptor(at, &block),
                BlockKind::Revoke => {
                    if !self.walk.format.verify_tail(&block) {
                        self.open.suspicious.get_or_insert(at);
                    }
                    true
                }
                _ => self.commit(at, &block)?,
            };
            if !go_on {
                break;
            }
        }
        Ok(self.result.clone())
    }

    /// False: its copies would go beyond the log, so this is no transaction.
    fn descriptor(&mut self, at: u32, block: &[u8]) -> bool {
        let format = self.walk.format;
        if !format.verify_tail(block) {
            self.open.suspicious.get_or_insert(at);
        }
        let is_v1 = format.features.has_csum_v1();
        let look = (is_v1 || format.features.has_csum_v2_or_v3()) && self.open.suspicious.is_none();
        if is_v1 {
            self.open.sum.update(block);
        }
        for tag in DescriptorReader::new(&format, block) {
            let Some(copy_at) = self.walk.pass() else { return false };
            if !look {
                continue;
            }
            let tid = self.walk.tid;
            let error = match self.walk.read(copy_at) {
                Ok(copy) => {
                    if is_v1 {
                        self.open.sum.update(copy);
                    }
                    if tag.verify(&format, tid, copy) {
                        continue;
                    }
                    let what = format!(
                        "wrong checksum of the copy of block {} in transaction {tid}",
                        tag.block
                    );
                    JournalError::corrupt(what, copy_at)
                }
                Err(error) => error,
            };
            self.open.bad.push(BadCopy { home: tag.block.0, tid, error });
        }
        true
    }

    /// False: the log ends here.
    fn commit(&mut self, at: u32, block: &[u8]) -> Result<bool> {
        let format = self.walk.format;
        let tid = self.walk.tid;
        let open = std::mem::take(&mut self.open);
        let Some(commit) = CommitBlock::decode(block) else { return Ok(false) };
        let is_async = format.features.has_async_commit();
        let problem = if let Some(at) = open.suspicious {
            Some((at, "a control block"))
        } else if !commit.verify(&format, block, open.sum) {
            Some((at, "the commit block"))
        } else if is_async && !open.bad.is_empty() {
            Some((at, "a copy"))
        } else {
            None
        };
        let older = self.result.last_commit.is_some_and(|last| commit.time < last);
        if let Some((at, which)) = problem {
            if older || self.incomplete.is_some() {
                return Ok(false);
            }
            if !is_async {
                let what = format!("wrong checksum of {which} of transaction {}", tid.0);
                return Err(JournalError::corrupt(what, at));
            }
            self.incomplete = Some(tid);
            self.walk.tid = tid.next();
            return Ok(true);
        }
        if let Some(incomplete) = self.incomplete {
            if older {
                return Ok(false);
            }
            let what = format!(
                "transaction {} is damaged but the later transaction {} is not",
                incomplete.0, tid.0
            );
            return Err(JournalError::corrupt(what, at));
        }
        self.walk.tid = tid.next();
        self.result.end = self.walk.tid;
        self.result.head = self.walk.position();
        self.result.last_commit = Some(commit.time);
        self.result.bad_copies.extend(open.bad);
        Ok(true)
    }
}
