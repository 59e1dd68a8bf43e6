//! The walk over an extent tree.

use extol_ondisk::{Incompat, InodeFlags, extent};

use super::{MAX_DEPTH, Run, Walk};
use crate::bytes::{join, le16, le32};
use crate::error::Result;
use crate::raw::extent_header_ok;
use crate::report::Kind;

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

impl Walk<'_> {
    pub(super) fn extents(&mut self) -> Result<()> {
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

    /// What is wrong with an entry by itself.
    fn entry_error(&self, e: &Entry, bounds: Bounds) -> Option<(Kind, String)> {
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
        } else if leaf && e.pblk + u64::from(e.len) > self.vol.geo.blocks() {
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

    fn node(&mut self, bytes: &[u8], at: Option<u64>, mut bounds: Bounds) -> Result<()> {
        let leaf = bounds.level == bounds.depth;
        for i in 0..usize::from(le16(bytes, 2)) {
            if self.claims.is_none() && self.seen > self.vol.geo.blocks() {
                return Ok(());
            }
            let e = Self::entry(bytes, i, bounds);
            if let Some((kind, what)) = self.entry_error(&e, bounds) {
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
        // (Contents that are verified are read as a process reads them: unwritten blocks as zeros.)
        let reads_zeros = e.unwritten && self.raw.has(InodeFlags::VERITY);
        if usable && !reads_zeros {
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
}
