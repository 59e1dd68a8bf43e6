//! Where a file's blocks are: extent trees and block maps, walked once, with all blocks claimed on
//! the way.
//!
//! ```text
//!  extents:   i_block ─► index ─► index ─► leaf   depth ≤ 5; every node claimed, ranges nested
//!  block map: 12 direct, then indirect, double and triple indirect blocks
//! ```
//!
//! A node below a bad entry is not read; the walk goes on behind it, as e2fsck's does, so that
//! one bad entry does not hide the others. Without claims (to find the journal before the check
//! begins) the walk stops when it has seen more blocks than the volume has.

mod extents;
mod indirect;

use extol_ondisk::{FileType, Incompat, InodeFlags};

use crate::claims::Claims;
use crate::error::Result;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

const MAX_DEPTH: u16 = 5;

/// Blocks of a file that follow each other in the file and on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub lblk: u64,
    pub pblk: u64,
    pub len: u64,
}

/// What a walk found out.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// Clusters in use, with those of the tree.
    pub clusters: u64,
    /// Last block of the file that is mapped.
    pub last: Option<u64>,
    /// Last one that is mapped and written.
    pub last_written: Option<u64>,
    /// The blocks, if they were asked for.
    pub runs: Vec<Run>,
}

/// A walk over one inode's map.
pub(crate) struct Walk<'a> {
    vol: &'a Vol,
    claims: Option<&'a Claims>,
    raw: Raw<'a>,
    out: &'a mut Findings,
    keep_runs: bool,
    /// A truncation is going on: blocks behind the end are expected.
    pub truncating: bool,
    is_dir: bool,
    next: u64,
    previous: u64,
    seen: u64,
    mapped: Mapped,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        vol: &'a Vol,
        claims: Option<&'a Claims>,
        raw: Raw<'a>,
        keep_runs: bool,
        out: &'a mut Findings,
    ) -> Self {
        Self {
            vol,
            claims,
            raw,
            out,
            keep_runs,
            truncating: false,
            is_dir: raw.is(FileType::Directory),
            next: 0,
            previous: 0,
            seen: 0,
            mapped: Mapped::default(),
        }
    }

    /// Walks the map of an inode that has one.
    pub(crate) fn run(mut self) -> Result<Mapped> {
        if self.vol.incompat(Incompat::EXTENTS) && self.raw.has(InodeFlags::EXTENTS) {
            self.extents()?;
        } else {
            self.block_map()?;
        }
        Ok(self.mapped)
    }

    fn error(&mut self, kind: Kind, block: Option<u64>, what: impl Into<String>) {
        let mut finding = Finding::error(kind, what).inode(self.raw.ino);
        finding.block = block;
        self.out.push(finding);
    }

    fn beyond(&mut self, kind: Kind, block: Option<u64>, what: &str) {
        let mut finding = Finding::error(kind, what).inode(self.raw.ino).beyond();
        finding.block = block;
        self.out.push(finding);
    }

    /// Claims blocks; true if they were free, or if they may be read all the same.
    fn claim(&mut self, pblk: u64, len: u64, what: &str) -> bool {
        self.seen = self.seen.saturating_add(len);
        match self.claims {
            Some(claims) => {
                claims.claim(pblk, len, self.raw.ino, what, self.out) || claims.may_descend_again()
            }
            None => self.seen <= self.vol.geo.blocks(),
        }
    }

    fn is_meta(&self, pblk: u64) -> bool {
        self.claims.is_some_and(|claims| claims.meta.get(pblk))
    }

    fn keep(&mut self, run: Run) {
        if !self.keep_runs {
            return;
        }
        if let Some(last) = self.mapped.runs.last_mut()
            && last.lblk + last.len == run.lblk
            && last.pblk + last.len == run.pblk
        {
            last.len += run.len;
            return;
        }
        self.mapped.runs.push(run);
    }

    fn log_bs(&self) -> u32 {
        self.vol.geo.block_size.bits() - 10
    }
}
