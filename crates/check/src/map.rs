//! Where a file's blocks are: extent trees and block maps, walked once, with all blocks claimed on
//! the way.
//!
//! ```text
//!  extents:  i_block ─► index ─► index ─► leaf       depth ≤ 5; every node claimed, ranges nested, leaves ascending
//!  block map: 12 direct, then indirect, double and triple indirect blocks
//! ```
//!
//! A node below a bad entry is not looked at; the walk goes on behind it, as e2fsck's does, so that
//! one bad entry does not hide the others. Without claims (to find the journal before the check
//! begins) the walk stops when it has seen more blocks than the volume has.

use extol_ondisk::{FileType, Incompat, InodeFlags, extent};

use crate::bytes::{join, le16, le32};
use crate::claims::Claims;
use crate::error::Result;
use crate::raw::{Raw, extent_header_ok};
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

struct Entry {
    lblk: u64,
    pblk: u64,
    /// Blocks covered; for an index, up to where the next one begins.
    len: u32,
    unwritten: bool,
    /// Where the range of a node below ends.
    end: u64,
}

impl Entry {
    fn last(&self) -> u64 {
        self.lblk.wrapping_add(u64::from(self.len)).wrapping_sub(1)
    }
}

/// Bounds that a node must keep to.
#[derive(Clone, Copy)]
struct Bounds {
    level: u16,
    depth: u16,
    from: u64,
    /// Last block; 0 for none.
    last: u64,
    end: u64,
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

    /// Claims blocks; true if nobody had them, or if they may be looked into all the same.
    fn claim(&mut self, pblk: u64, len: u64, what: &str) -> bool {
        self.seen = self.seen.saturating_add(len);
        match self.claims {
            Some(claims) => {
                claims.claim(pblk, len, self.raw.ino, what, self.out) || claims.second_look()
            }
            None => self.seen <= self.vol.geo.blocks,
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

    // ---- extents ----

    fn extents(&mut self) -> Result<()> {
        let root = self.raw.i_block();
        if !extent_header_ok(root) {
            self.error(Kind::ExtentNode, None, "the extent tree has a corrupt header");
            return Ok(());
        }
        let depth = le16(root, 6);
        if depth > MAX_DEPTH {
            self.beyond(
                Kind::ExtentNode,
                None,
                &format!("the extent tree has an impossible depth of {depth}"),
            );
            return Ok(());
        }
        if depth > 0 && le16(root, 2) == 0 {
            self.beyond(Kind::ExtentNode, None, "the root of the extent tree has no entries");
        }
        let end = self.raw.size().div_ceil(self.vol.geo.block_len() as u64);
        self.node(root, None, Bounds { level: 0, depth, from: 0, last: 0, end })
    }

    fn entry(bytes: &[u8], i: usize, bounds: Bounds) -> Entry {
        let at = 12 * (i + 1);
        let lblk = u64::from(le32(bytes, at));
        if bounds.level == bounds.depth {
            let raw_len = le16(bytes, at + 4);
            let unwritten = raw_len > extent::MAX_LEN;
            let len = u32::from(if unwritten { raw_len - extent::MAX_LEN } else { raw_len });
            let pblk = join(le32(bytes, at + 8), u32::from(le16(bytes, at + 6)));
            return Entry { lblk, pblk, len, unwritten, end: bounds.end };
        }
        let follows = i + 1 < usize::from(le16(bytes, 2));
        let end = if follows { u64::from(le32(bytes, at + 12)) } else { bounds.end };
        let pblk = join(le32(bytes, at + 4), u32::from(le16(bytes, at + 8)));
        Entry { lblk, pblk, len: end.wrapping_sub(lblk) as u32, unwritten: false, end }
    }

    /// What is wrong with an entry as such.
    fn judge(&self, e: &Entry, bounds: Bounds) -> Option<(Kind, String)> {
        let leaf = bounds.level == bounds.depth;
        let flexible = e.unwritten || self.raw.has(InodeFlags::VERITY) || self.truncating;
        // What e2fsck takes for the last block of the file; -1 for an empty one.
        let eof = self.raw.size().div_ceil(self.vol.geo.block_len() as u64).wrapping_sub(1);
        let name = if leaf { "extent" } else { "index" };
        if e.pblk == 0 || !self.vol.is_block(e.pblk) {
            let what = format!(
                "the {name} for file block {} points to impossible block {}",
                e.lblk, e.pblk
            );
            Some((Kind::ExtentRange, what))
        } else if e.lblk < bounds.from {
            Some((
                Kind::ExtentOrder,
                format!("the {name} for file block {} is out of order", e.lblk),
            ))
        } else if bounds.last != 0 && e.last() > bounds.last && !(e.last() > eof && flexible) {
            let what =
                format!("the {name} for file block {} goes beyond the range of its parent", e.lblk);
            Some((Kind::ExtentOrder, what))
        } else if leaf && e.len == 0 {
            Some((Kind::ExtentRange, format!("the extent for file block {} has no length", e.lblk)))
        } else if leaf && e.pblk + u64::from(e.len) > self.vol.geo.blocks {
            let what = format!("the extent for file block {} ends beyond the volume", e.lblk);
            Some((Kind::ExtentRange, what))
        } else if leaf
            && self.is_dir
            && self.raw.size_hi() == 0
            && !self.vol.incompat(Incompat::LARGE_DIR)
            && e.lblk + u64::from(e.len) > 1 << (21 - self.log_bs())
        {
            Some((Kind::ExtentRange, "the directory is too large".to_owned()))
        } else if leaf && e.lblk < self.next {
            Some((Kind::ExtentOrder, format!("file block {} is mapped twice", e.lblk)))
        } else {
            None
        }
    }

    fn log_bs(&self) -> u32 {
        self.vol.geo.block_size.bits() - 10
    }

    fn node(&mut self, bytes: &[u8], at: Option<u64>, mut bounds: Bounds) -> Result<()> {
        let leaf = bounds.level == bounds.depth;
        for i in 0..usize::from(le16(bytes, 2)) {
            if self.claims.is_none() && self.seen > self.vol.geo.blocks {
                return Ok(());
            }
            let e = Self::entry(bytes, i, bounds);
            if let Some((kind, what)) = self.judge(&e, bounds) {
                self.error(kind, at, what);
                // The blocks of a bad leaf entry count for the order of those behind it only if the
                // entry itself was good.
                continue;
            }
            if !leaf {
                self.down(&e, bounds)?;
                continue;
            }
            self.next = self.next.max(e.lblk + u64::from(e.len));
            if self.is_dir && e.unwritten {
                let what = format!("the directory has unwritten blocks from {} on", e.lblk);
                self.error(Kind::DirHole, at, what);
            }
            if self.is_dir && self.mapped.last.map_or(0, |last| last + 1) < e.lblk {
                let what = format!("the directory has a hole before block {}", e.lblk);
                self.error(Kind::DirHole, at, what);
            }
            self.take_extent(&e);
            bounds.from = e.last();
        }
        Ok(())
    }

    /// Claims the blocks of a good extent.
    fn take_extent(&mut self, e: &Entry) {
        let len = u64::from(e.len);
        let ratio = u64::from(self.vol.geo.cluster_ratio);
        if ratio > 1 && self.misaligned(e.pblk, e.lblk) {
            let what = format!("file block {} does not keep to the clusters", e.lblk);
            self.error(Kind::BlockShared, Some(e.pblk), what);
        }
        let same_cluster = self.previous != 0 && e.pblk / ratio == self.previous / ratio;
        let from = if ratio == 1 {
            e.pblk
        } else if same_cluster {
            (e.pblk / ratio + 1) * ratio
        } else {
            e.pblk / ratio * ratio
        };
        let end = e.pblk + len;
        let mut usable = true;
        if from < end {
            usable = self.claim(from, end - from, "an extent");
            self.mapped.clusters += (end - from).div_ceil(ratio);
        }
        if usable {
            self.keep(Run { lblk: e.lblk, pblk: e.pblk, len });
        }
        self.previous = end - 1;
        self.mapped.last = Some(e.last());
        if !e.unwritten {
            self.mapped.last_written = Some(e.last());
        }
    }

    /// Blocks of a file's cluster lie in one cluster of the volume, at the same places in it.
    fn misaligned(&self, pblk: u64, lblk: u64) -> bool {
        let ratio = u64::from(self.vol.geo.cluster_ratio);
        let last = self.mapped.last.unwrap_or(u64::MAX);
        let crosses = self.previous != 0
            && !lblk.is_multiple_of(ratio)
            && lblk / ratio == last / ratio
            && pblk / ratio != self.previous / ratio;
        lblk % ratio != pblk % ratio || crosses
    }

    /// Goes down to the node that an index names.
    fn down(&mut self, e: &Entry, bounds: Bounds) -> Result<()> {
        if self.is_meta(e.pblk) {
            let what = format!(
                "the extent node for file block {} lies on the volume's own metadata",
                e.lblk
            );
            self.error(Kind::BlockOnMetadata, Some(e.pblk), what);
            return Ok(());
        }
        self.mapped.clusters += 1;
        if !self.claim(e.pblk, 1, "an extent node") {
            return Ok(());
        }
        let bytes = self.vol.block(e.pblk)?;
        if !extent_header_ok(&bytes) || le16(&bytes, 2) == 0 {
            let what = format!("the extent node for file block {} is bad", e.lblk);
            self.error(Kind::ExtentNode, Some(e.pblk), what);
            return Ok(());
        }
        let level = bounds.level + 1;
        if le16(&bytes, 6) != bounds.depth - level {
            self.beyond(Kind::ExtentNode, Some(e.pblk), "the extent node states a wrong depth");
        }
        let first = u64::from(le32(&bytes, 12));
        if first != e.lblk {
            let what = format!(
                "the extent node begins with file block {first}, its index says {}",
                e.lblk
            );
            self.error(Kind::ExtentOrder, Some(e.pblk), what);
        }
        if self.vol.has_csum()
            && let Err(error) = extent::verify_csum(&bytes, self.raw.seed(&self.vol.geo))
        {
            self.error(Kind::ExtentChecksum, Some(e.pblk), error.to_string());
        }
        let below = Bounds { level, depth: bounds.depth, from: first, last: e.last(), end: e.end };
        self.node(&bytes, Some(e.pblk), below)
    }

    // ---- block maps ----

    fn block_map(&mut self) -> Result<()> {
        for i in 0..12 {
            self.data(self.raw.word(i), i as u64);
        }
        let per_block = self.vol.geo.block_len() as u64 / 4;
        let mut base = 12;
        let mut covers = 1;
        for level in 1..=3u8 {
            covers *= per_block;
            self.indirect(self.raw.word(11 + usize::from(level)), level, base)?;
            base += covers;
        }
        if self.claims.is_some() {
            // There are no unwritten blocks in block maps.
            self.mapped.last_written = self.mapped.last;
        }
        Ok(())
    }

    fn is_resize(&self) -> bool {
        self.raw.ino == extol_ondisk::InodeNr::RESIZE.0
    }

    /// True if there is room for one block more in a file of this type.
    fn too_many(&self) -> bool {
        let limit = 1u64 << (31 - self.log_bs());
        self.mapped.clusters + 1 >= limit && (self.is_dir || self.raw.is(FileType::Regular))
    }

    fn data(&mut self, pblk: u32, lblk: u64) {
        let pblk = u64::from(pblk);
        if pblk == 0 {
            return;
        }
        let too_big = self.is_dir
            && !self.vol.incompat(Incompat::LARGE_DIR)
            && self.raw.size_hi() == 0
            && lblk > 1 << (21 - self.log_bs());
        let other =
            !self.is_dir && !self.raw.is(FileType::Regular) && self.raw.mode() != 0 && lblk > 0;
        if !self.vol.is_block(pblk) {
            self.error(
                Kind::BlockMap,
                None,
                format!("file block {lblk} is at impossible block {pblk}"),
            );
            return;
        }
        if too_big || other || self.too_many() {
            self.error(Kind::BlockMap, None, format!("file block {lblk} makes the file too large"));
            return;
        }
        let mut usable = true;
        if self.is_resize() {
            self.seen = self.seen.saturating_add(1);
            self.mapped.clusters += 1;
        } else {
            usable = self.take_block(pblk, Some(lblk), "a block");
        }
        self.mapped.last = Some(lblk);
        self.previous = pblk;
        if usable {
            self.keep(Run { lblk, pblk, len: 1 });
        }
    }

    /// Claims one block, or finds it in the cluster that the block before lies in.
    fn take_block(&mut self, pblk: u64, lblk: Option<u64>, what: &str) -> bool {
        let ratio = u64::from(self.vol.geo.cluster_ratio);
        let same = ratio > 1
            && self.previous != 0
            && pblk / ratio == self.previous / ratio
            && lblk.is_some_and(|lblk| lblk % ratio == pblk % ratio);
        if same {
            return true;
        }
        self.mapped.clusters += 1;
        self.claim(pblk, 1, what)
    }

    fn indirect(&mut self, pblk: u32, level: u8, base: u64) -> Result<()> {
        let pblk = u64::from(pblk);
        let unclaimed = self.claims.is_none() || self.is_resize();
        if pblk == 0 || unclaimed && self.seen > self.vol.geo.blocks {
            return Ok(());
        }
        if !self.vol.is_block(pblk) {
            self.error(
                Kind::BlockMap,
                None,
                format!("an indirect block is at impossible block {pblk}"),
            );
            return Ok(());
        }
        if self.too_many() {
            self.error(Kind::BlockMap, Some(pblk), "an indirect block makes the file too large");
            return Ok(());
        }
        let usable = if self.is_resize() {
            self.mapped.clusters += 1;
            // Only the double indirect block is the inode's own; the others are reserved
            // descriptors.
            self.seen = self.seen.saturating_add(1);
            if level == 2 { self.claim(pblk, 1, "the indirect block") } else { true }
        } else if self.is_meta(pblk) {
            self.error(
                Kind::BlockOnMetadata,
                Some(pblk),
                "an indirect block lies on the volume's own metadata",
            );
            return Ok(());
        } else {
            self.take_block(pblk, None, "an indirect block")
        };
        self.previous = pblk;
        if !usable {
            return Ok(());
        }
        let bytes = self.vol.block(pblk)?;
        let covers = (bytes.len() as u64 / 4).pow(u32::from(level) - 1);
        for (i, word) in (0u64..).zip(bytes.as_chunks::<4>().0) {
            let below = u32::from_le_bytes(*word);
            if below == 0 {
                continue;
            }
            let lblk = base + i * covers;
            if level == 1 {
                self.data(below, lblk);
            } else {
                self.indirect(below, level - 1, lblk)?;
            }
        }
        Ok(())
    }
}
