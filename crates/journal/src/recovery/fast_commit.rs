//! Are there fast commits that count? Only looked at, not replayed.
//!
//! A fast commit counts on top of the last full commit: its HEAD and TAIL name the transaction behind it. Fast
//! commits of another transaction are leftovers. If the very first one is torn (a tag that makes no sense, a wrong
//! checksum, no TAIL), nobody was told that it is durable, and the log alone is the truth.

use extol_device::BlockDevice;

use super::walk::LogReader;
use crate::format::{FcReader, FcTag, JournalSuperblock};
use crate::log_map::LogMap;
use crate::{Result, Tid};

/// What is in the fast-commit area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastCommits {
    /// Nothing for this transaction.
    None,
    /// The first fast commit of this transaction is incomplete.
    Torn,
    /// At least one complete fast commit of this transaction.
    Complete,
    /// Fast commits with features that nobody knows.
    Unknown(u32),
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
    for n in area {
        let block = log.block(n)?;
        if n == first && !FcReader::begins_with_head(block) {
            return Ok(FastCommits::None);
        }
        let mut verdict = None;
        let readable = reader.block(block, |_, tag| {
            verdict = match tag {
                FcTag::Head { features, .. } if features != 0 => Some(FastCommits::Unknown(features)),
                FcTag::Head { tid, .. } if tid != expected => Some(FastCommits::None),
                FcTag::Tail { tid, stated, actual } => match tid == expected && stated == actual {
                    true => Some(FastCommits::Complete),
                    false => Some(FastCommits::Torn),
                },
                _ => None,
            };
            verdict.is_none()
        });
        match (verdict, readable) {
            (Some(verdict), _) => return Ok(verdict),
            (None, Err(_)) => return Ok(FastCommits::Torn),
            (None, Ok(())) => {}
        }
    }
    Ok(FastCommits::Torn)
}
