//! Makes the log shorter, and frees what is behind it in its file.

use extol_block::BlockNr;
use extol_jbd2::{LogMap, planted};

use super::blocks::damaged;
use super::{JournalFile, Result, not_fast};
use crate::alloc::Run;
use crate::error;
use crate::map::{self, Discard, Progress};

impl JournalFile<'_> {
    /// The log has its first `keep` blocks from now on, and the others are free.
    pub(super) fn shorten(&mut self, keep: u32) -> Result<()> {
        let journal = &self.fs.vol.journal;
        if self.has_extents() && self.nodes()?.len() > 1 {
            return Ok(());
        }
        let mut at = 0;
        let mut extents = Vec::new();
        for run in self.runs()? {
            let len = run.len.min(keep - at);
            extents.push((at, run.start.0, len));
            at += len;
        }
        let map = LogMap::from_extents(self.fs.vol.geo.block_size, extents);
        map.and_then(|map| journal.move_log(map, || Ok(()))).map_err(error::journal)?;
        self.cut(keep)
    }

    /// Frees what lies behind the first `keep` blocks, so that the map is whole at any time on the
    /// device (JM-3): of the map blocks that stay, one is changed at a time.
    pub(super) fn cut(&mut self, keep: u32) -> Result<()> {
        let vol = &self.fs.vol;
        if self.has_extents() {
            let leaf = self.nodes()?.first().copied().map(BlockNr);
            return self.cut_once(keep, leaf);
        }
        let per = vol.geo.block_len() as u64 / 4;
        let (mut first, mut levels) = (12, 1);
        while u64::from(keep) > first + per.pow(levels) && levels < 3 {
            first += per.pow(levels);
            levels += 1;
        }
        for level in (1..=levels).rev() {
            let rest = u64::from(keep).saturating_sub(first);
            let to = match rest {
                0 => u64::from(keep),
                rest => first + rest.next_multiple_of(per.pow(level - 1)),
            };
            let Ok(to) = u32::try_from(to) else { continue };
            let last = match rest {
                0 => None,
                _ => Some(self.node_above(u64::from(to) - 1 - first, levels, level)?),
            };
            self.cut_once(to, last)?;
        }
        Ok(())
    }

    /// The map block at this level above a block of the tree with so many.
    fn node_above(&self, at: u64, levels: u32, level: u32) -> Result<BlockNr> {
        let vol = &self.fs.vol;
        let per = vol.geo.block_len() as u64 / 4;
        let word = |bytes: &[u8], at: u64| {
            let words = bytes.as_chunks::<4>().0;
            let word = usize::try_from(at).ok().and_then(|at| words.get(at));
            BlockNr(word.map_or(0, |word| u32::from_le_bytes(*word)).into())
        };
        let mut nr = word(&self.node.raw.i_block, u64::from(11 + levels));
        for above in (level + 1..=levels).rev() {
            let bytes = vol.journal.read(nr).map_err(error::journal)?.data();
            nr = word(&bytes, at / per.pow(above - 1) % per);
        }
        if nr.0 == 0 { Err(damaged().into()) } else { Ok(nr) }
    }

    /// Frees what lies behind the first `keep` blocks. The block `last` goes home last.
    fn cut_once(&mut self, keep: u32, last: Option<BlockNr>) -> Result<()> {
        let journal = &self.fs.vol.journal;
        if self.blocks() <= keep {
            return Ok(());
        }
        if !planted::has(planted::Bug::JournalMapEarly) {
            journal.set_home_last(last);
        }
        let done = self.free_behind(keep);
        let home = journal.checkpoint_all(&[]).map_err(error::journal);
        journal.set_home_last(None);
        done.and(home.map_err(Into::into))
    }

    fn free_behind(&mut self, keep: u32) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let mut at = 0;
        for run in self.runs()? {
            let kept = keep.saturating_sub(at).min(run.len);
            if kept < run.len {
                let start = run.start.plus(u64::from(kept));
                vol.alloc.unprotect(Run { start, len: run.len - kept });
            }
            at = at.saturating_add(run.len);
        }
        let mut to = self.blocks();
        let step = map::credits_for_remove_step(&self.node) + 2;
        let mut h = fs.start(step)?;
        loop {
            not_fast(&mut h);
            let done = map::remove(vol, &mut h, &mut self.node, keep, to, Discard::Free);
            if let Ok(Progress::Restart { at }) = done {
                to = at;
                self.store(&mut h, at.max(keep))?;
                h.restart(step).map_err(error::journal)?;
                continue;
            }
            if let Err(e) = done {
                let _ = vol.journal.abort("the end of the journal could not be freed");
                return Err(e.into());
            }
            self.store(&mut h, keep)?;
            return Ok(h.stop().map_err(error::journal)?);
        }
    }
}
