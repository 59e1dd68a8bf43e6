//! The journal: where its log is, and whether inode and superblock fit together.

use std::sync::Arc;

use extol_block::SharedDevice;
use extol_jbd2::LogMap;
use extol_ondisk::checksum::crc32c;
use extol_ondisk::{Compat, FileType, Incompat, InodeFlags, Superblock};

use crate::bytes::{be32, le8, part};
use crate::error::{CheckError, Result};
use crate::map::{Run, Walk};
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

const LOG_MAGIC: u32 = 0xC03B_3998;
/// A log with fewer blocks is refused by Linux.
const LOG_MIN: u32 = 1024;

/// Where the log is.
pub(crate) enum Log {
    Found(SharedDevice, LogMap),
    Bad(Finding),
}

/// Finds the log of a volume that has to be recovered.
pub(crate) fn find_log(vol: &Vol, external: Option<&SharedDevice>) -> Result<Log> {
    if vol.sb.journal_inum != 0 {
        let runs = match journal_runs(vol)? {
            Ok(runs) => runs,
            Err(bad) => return Ok(Log::Bad(bad.finding(vol.sb.journal_inum))),
        };
        let extents: Option<Vec<(u32, u64, u32)>> = runs
            .iter()
            .map(|r| Some((u32::try_from(r.lblk).ok()?, r.pblk, u32::try_from(r.len).ok()?)))
            .collect();
        let map = LogMap::from_extents(vol.geo.block_size, extents.unwrap_or_default());
        return Ok(match map {
            Ok(map) if !map.is_empty() => Log::Found(Arc::clone(&vol.dev), map),
            Ok(_) => Log::Bad(Finding::error(Kind::JournalInode, "the journal is empty")),
            Err(error) => Log::Bad(Finding::error(Kind::JournalInode, error.to_string())),
        });
    }
    let Some(device) = external else {
        let what = "the volume needs recovery and its journal is on another device: name it with \
                    --journal FILE";
        return Err(CheckError::Unsupported(what.into()));
    };
    let mut bytes = [0; 1024];
    device.read_at(&mut bytes, 1024)?;
    let fits = Superblock::decode(&bytes).is_ok_and(|sb| {
        sb.feature_incompat.contains(Incompat::JOURNAL_DEV) && sb.uuid == vol.sb.journal_uuid
    });
    if !fits {
        let what = "the given journal does not belong to this volume";
        return Err(CheckError::Unsupported(what.into()));
    }
    let map = LogMap::of_device(vol.geo.block_size, device.size());
    Ok(Log::Found(Arc::clone(device), map))
}

/// What is wrong with a journal's inode, and whether e2fsck passes over it.
struct BadJournal {
    what: String,
    beyond: bool,
}

impl BadJournal {
    fn finding(self, ino: u32) -> Finding {
        let finding = Finding::error(Kind::JournalInode, self.what).inode(ino);
        if self.beyond { finding.beyond() } else { finding }
    }
}

/// The blocks of the journal's inode, or what is wrong with it.
fn journal_runs(vol: &Vol) -> Result<std::result::Result<Vec<Run>, BadJournal>> {
    let ino = vol.sb.journal_inum;
    // e2fsck takes the copy of the inode in the superblock where that is good enough.
    let beyond = vol.sb.jnl_backup_type == 1;
    let bad = |what: String| Ok(Err(BadJournal { what, beyond }));
    let Some(bytes) = vol.inode(ino)? else { return bad(format!("there is no inode {ino}")) };
    let raw = Raw { b: &bytes, ino };
    if !raw.is(FileType::Regular) || raw.links() == 0 || raw.has(InodeFlags::ENCRYPT) {
        return bad("the journal is not a file".into());
    }
    let mut scratch = Findings::new(1);
    let mapped = Walk::new(vol, None, raw, true, &mut scratch).run()?;
    let bs = vol.geo.block_len() as u64;
    let blocks = raw.size() / bs;
    let mut at = 0;
    let mut runs = Vec::new();
    for run in mapped.runs {
        if run.lblk != at {
            break;
        }
        runs.push(run);
        at += run.len;
    }
    // (Blocks of a block map go home one by one: behind the log a replay may complete it.)
    let is_damaged = scratch.errors() > 0 && (raw.has(InodeFlags::EXTENTS) || at < blocks);
    if is_damaged || blocks < u64::from(LOG_MIN) || at < u64::from(LOG_MIN) {
        return bad(format!("the journal's file of {blocks} blocks is damaged or too small"));
    }
    if raw.size() > at * bs {
        // e2fsck compares with the size as a signed number of 32 bits.
        let beyond = i64::from(raw.size() as u32 as i32) <= (at * bs) as i64;
        let what = format!("the journal's file of {blocks} blocks ends after {at}");
        return Ok(Err(BadJournal { what, beyond }));
    }
    let mut left = blocks;
    runs.retain_mut(|run| {
        run.len = run.len.min(left);
        left -= run.len;
        run.len > 0
    });
    Ok(Ok(runs))
}

/// Inode and superblock of an internal journal.
pub(crate) fn check(vol: &Vol, out: &mut Findings) -> Result<()> {
    let ino = vol.sb.journal_inum;
    let has = vol.compat(Compat::HAS_JOURNAL);
    let external = vol.sb.journal_uuid != [0; 16];
    if !has && (ino != 0 || external) {
        out.push(Finding::note(
            Kind::JournalInode,
            "there is a journal, but the feature is not set",
        ));
    }
    if external && (ino != 0 || !has) {
        let what = "the superblock names an external journal that is not used";
        out.push(Finding::error(Kind::JournalInode, what));
    }
    if ino == 0 {
        if has && !external {
            out.push(Finding::error(Kind::JournalInode, "the superblock names no journal"));
        }
        return Ok(());
    }
    if vol.sb.journal_dev != 0 {
        let what = "the superblock names a device for the journal, which is a file";
        out.push(Finding::error(Kind::JournalInode, what).beyond());
    }
    let runs = match journal_runs(vol)? {
        Ok(runs) => runs,
        Err(bad) => {
            out.push(bad.finding(ino));
            return Ok(());
        }
    };
    let Some(first) = runs.first() else { return Ok(()) };
    let block = vol.block(first.pblk)?;
    let blocks: u64 = runs.iter().map(|r| r.len).sum();
    let mut note =
        |what: &str| out.push(Finding::note(Kind::JournalDirty, what).inode(ino).block(first.pblk));
    if be32(&block, 0x1C) != 0 && !vol.recovered && !vol.incompat(Incompat::NEEDS_RECOVERY) {
        note("the journal is not empty, but the volume does not need recovery");
    }
    if be32(&block, 0x20) != 0 {
        note("the journal was aborted");
    }
    for (what, beyond) in journal_superblock(vol, &block, blocks) {
        let finding = Finding::error(Kind::JournalSuperblock, what).inode(ino).block(first.pblk);
        out.push(if beyond { finding.beyond() } else { finding });
    }
    Ok(())
}

/// What is wrong with a journal superblock, and whether e2fsck passes over it.
fn journal_superblock(vol: &Vol, b: &[u8], blocks: u64) -> Vec<(String, bool)> {
    let mut bad = Vec::new();
    let kind = be32(b, 4);
    if be32(b, 0) != LOG_MAGIC || !matches!(kind, 3 | 4) {
        return vec![("the journal has no superblock".into(), false)];
    }
    let word = |at| if kind == 4 { be32(b, at) } else { 0 };
    let (compat, incompat, ro) = (word(0x24), word(0x28), word(0x2C));
    let csums = [compat & 1, incompat & 8, incompat & 16].iter().filter(|&&bit| bit != 0).count();
    if incompat & !0x3F != 0 || ro != 0 {
        bad.push(("the journal uses unknown features".to_owned(), false));
    }
    if csums > 1 {
        // e2fsck only minds the two newer kinds together.
        bad.push(("the journal uses several kinds of checksums".into(), incompat & 24 != 24));
    }
    if incompat & 24 != 0 {
        if le8(b, 0x50) != 4 {
            bad.push((format!("the journal uses unknown checksums ({})", le8(b, 0x50)), false));
        }
        let sum = crc32c(crc32c(crc32c(!0, part(b, 0, 0xFC)), &[0; 4]), part(b, 0x100, 1024));
        if sum != be32(b, 0xFC) {
            bad.push(("the checksum of the journal's superblock is wrong".into(), false));
        }
    }
    if be32(b, 0x0C) as usize != vol.geo.block_len() {
        bad.push((format!("the journal has blocks of {} bytes", be32(b, 0x0C)), false));
    }
    if kind == 4 && be32(b, 0x40) > 1 {
        bad.push((format!("the journal serves {} volumes", be32(b, 0x40)), false));
    }
    let (maxlen, first, start) = (be32(b, 0x10), be32(b, 0x14), be32(b, 0x1C));
    let fc =
        if incompat & 0x20 == 0 { 0 } else { Some(word(0x54)).filter(|&n| n != 0).unwrap_or(256) };
    if u64::from(maxlen) > blocks {
        bad.push((format!("the journal states {maxlen} blocks, its file has {blocks}"), false));
    } else if first == 0
        || first >= maxlen
        || maxlen.saturating_sub(fc) < LOG_MIN.saturating_add(first - 1)
    {
        bad.push((format!("the journal's log from {first} to {maxlen} is too short"), true));
    } else if start >= maxlen {
        bad.push((format!("the journal begins behind its end ({start})"), true));
    }
    bad
}
