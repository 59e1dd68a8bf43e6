//! Hashed directories: a tree of index blocks over the ordinary ones, which maps hashes to
//! leaves.
//!
//! ```text
//!  block 0: root ─┬─ [0, h1) ── leaf          every block but the root is named exactly once;
//!                 ├─ [h1, h2) ─ node ─┬─ leaf    all leaves at the same depth;
//!                 └─ [h2, ∞) ── …     └─ …       all names of a leaf hash into its range
//! ```
//!
//! e2fsck does not look at where the index says that a node's range ends: it ends where the names
//! below the next node begin. (Linux does not find the names that are behind the stated end.)
//!
//! A range's upper end may occur below it: names with the same hash can fill more than one leaf.
//! The hashes of encrypted case-insensitive directories need a key: they are taken as they stand
//! behind the names.

use std::collections::BTreeMap;

use extol_ondisk::htree::{self, DxKind, Hasher, SIP_HASH};
use extol_ondisk::{Compat, FileType, Incompat, InodeSeed};

use crate::bytes::{le8, le16, le32};
use crate::error::Result;
use crate::inode::Scanned;
use crate::inodes::Dir;
use crate::map::Mapped;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

const ROOT_INFO_AT: usize = 24;
const BLOCK_MASK: u32 = 0x0FFF_FFFF;
const HASH_END: u32 = 0xFFFF_FFFE;

fn max_levels(vol: &Vol) -> u8 {
    if vol.incompat(Incompat::LARGE_DIR) { 3 } else { 2 }
}

/// Pass 1: checks the root of a hashed directory. True if the tree can be followed.
pub(crate) fn root_ok(vol: &Vol, raw: Raw<'_>, mapped: &Mapped, to: &mut Scanned) -> Result<bool> {
    let ino = raw.ino;
    if !raw.is(FileType::Directory) {
        to.err(ino, Kind::HtreeRoot, "the flag of hashed directories is set, but this is none");
        return Ok(false);
    }
    if !vol.compat(Compat::DIR_INDEX) {
        to.err(ino, Kind::HtreeRoot, "the directory is hashed, but the feature is not set");
        return Ok(false);
    }
    let first = mapped.runs.first().filter(|run| run.lblk == 0);
    let Some(first) = first else {
        to.err(ino, Kind::HtreeRoot, "the hashed directory has no root block");
        return Ok(false);
    };
    let block = vol.block(first.pblk)?;
    let (reserved, info_len) = (le32(&block, ROOT_INFO_AT), le8(&block, ROOT_INFO_AT + 5));
    let (version, levels) = (le8(&block, ROOT_INFO_AT + 4), le8(&block, ROOT_INFO_AT + 6));
    let sip =
        raw.has(extol_ondisk::InodeFlags::ENCRYPT) && raw.has(extol_ondisk::InodeFlags::CASEFOLD);
    let what = if reserved != 0 || info_len < 8 {
        "the root of the hashed directory is bad".to_owned()
    } else if !matches!(version, 0..=2 | SIP_HASH) || sip != (version == SIP_HASH) {
        format!("the hashed directory has the unusable hash version {version}")
    } else if le8(&block, ROOT_INFO_AT + 7) & 1 != 0 {
        "the root of the hashed directory has unknown flags".to_owned()
    } else if levels >= max_levels(vol) {
        format!("the hashed directory is too deep ({levels})")
    } else {
        if raw.size() >= 1 << 31 {
            to.large_dir.get_or_insert(ino);
        }
        return Ok(true);
    };
    to.err(ino, Kind::HtreeRoot, what);
    Ok(false)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Shape {
    #[default]
    Unread,
    Root,
    Node,
    Leaf,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    shape: Shape,
    parent: u32,
    named: u8,
    /// Hashes that occur.
    low: u32,
    high: u32,
    /// Hashes that may occur.
    from: u32,
    to: u32,
    /// Of the entries that name blocks with this one, it is the first, or the last.
    first: bool,
    last: bool,
    /// The block that the entry before its own names; 0: none.
    previous: u32,
}

impl Block {
    /// True if there are hashes that the range does not have.
    fn leaves_range(&self) -> bool {
        self.low < self.from && !self.first || self.high > self.to
    }

    /// What is said of hashes that the range does not have.
    fn told(&self, place: &str) -> String {
        format!(
            "names {place} hash to {:#x}..={:#x}, the index says {:#x}..={:#x}",
            self.low, self.high, self.from, self.to
        )
    }
}

/// Pass 2: one hashed directory, block by block, then as a whole.
pub(crate) struct Tree<'a> {
    vol: &'a Vol,
    ino: u32,
    seed: InodeSeed,
    hasher: Option<Hasher>,
    stores_hashes: bool,
    folds: bool,
    depth: u32,
    blocks: Vec<Block>,
    /// Lowest and highest hashes, by block, of names that cannot be folded. Linux hashes their
    /// bytes; e2fsck does so with some only.
    unfolded: BTreeMap<u64, (u32, u32)>,
    /// The directory is being deleted, from its end on.
    shrinks: bool,
    incomplete: bool,
}

impl<'a> Tree<'a> {
    /// For a directory of `blocks` blocks, all of them mapped.
    pub(crate) fn new(vol: &'a Vol, dir: &Dir, blocks: usize) -> Self {
        let block = Block {
            shape: Shape::Unread,
            parent: 0,
            named: 0,
            low: !0,
            high: 0,
            from: 0,
            to: HASH_END,
            first: false,
            last: false,
            previous: 0,
        };
        Self {
            vol,
            ino: dir.ino,
            seed: dir.seed,
            hasher: None,
            stores_hashes: dir.stores_hashes,
            folds: dir.folds,
            depth: 0,
            blocks: vec![block; blocks],
            unfolded: BTreeMap::new(),
            shrinks: dir.orphan,
            incomplete: false,
        }
    }

    fn hash_len(&self) -> usize {
        if self.stores_hashes { extol_ondisk::dirent::HASH_LEN } else { 0 }
    }

    fn error(&self, out: &mut Findings, kind: Kind, lblk: u64, what: &str) {
        out.push(Finding::error(kind, format!("directory block {lblk}: {what}")).inode(self.ino));
    }

    /// Classifies a block before its entries are read. True if it is an index block: it holds no
    /// names and has a checksum of its own.
    pub(crate) fn enter(&mut self, lblk: u64, bytes: &[u8], out: &mut Findings) -> bool {
        let shape = if lblk == 0 {
            Shape::Root
        } else {
            let whole = usize::from(le16(bytes, 4)) == bytes.len()
                || bytes.len() == 65536 && matches!(le16(bytes, 4), 0 | 65535);
            let limit = DxKind::Node.limit_with(&self.vol.geo, self.hash_len());
            let node =
                le32(bytes, 0) == 0 && whole && le8(bytes, 6) == 0 && le16(bytes, 8) == limit;
            if node { Shape::Node } else { Shape::Leaf }
        };
        if let Some(block) = usize::try_from(lblk).ok().and_then(|n| self.blocks.get_mut(n)) {
            block.shape = shape;
        }
        if shape == Shape::Root {
            let version = le8(bytes, ROOT_INFO_AT + 4);
            self.hasher = Hasher::new(&self.vol.geo, version).filter(|_| !self.stores_hashes);
            self.depth = u32::from(le8(bytes, ROOT_INFO_AT + 6)) + 1;
        }
        if shape == Shape::Leaf {
            return false;
        }
        let kind = if shape == Shape::Root { DxKind::Root } else { DxKind::Node };
        if self.vol.has_csum()
            && let Err(error) = htree::verify_csum(bytes, kind, self.seed)
        {
            self.error(out, Kind::HtreeChecksum, lblk, &error.to_string());
        } else if self.vol.has_csum() && shape == Shape::Node && le8(bytes, 7) != 0 {
            // (e2fsck does not find the checksum of such a node. Linux does.)
            self.error(out, Kind::HtreeNode, lblk, "an index node that has a file type");
        }
        true
    }

    /// Notes a name in a leaf, with the hash behind it.
    pub(crate) fn name(&mut self, lblk: u64, name: &[u8], stored: Option<u32>) {
        if self.stores_hashes {
            let block = usize::try_from(lblk).ok().and_then(|n| self.blocks.get_mut(n));
            if let (Some(block), Some(hash)) = (block, stored)
                && block.shape == Shape::Leaf
            {
                (block.low, block.high) = (block.low.min(hash), block.high.max(hash));
            }
            return;
        }
        let Some(hasher) = &self.hasher else { return };
        if let Some(block) = usize::try_from(lblk).ok().and_then(|n| self.blocks.get_mut(n))
            && block.shape == Shape::Leaf
        {
            let wanted = self.folds.then(|| extol_casefold::Wanted::new(name));
            let hash =
                hasher.hash(wanted.as_ref().map_or(name, extol_casefold::Wanted::hashed)).hash;
            if wanted.is_some_and(|wanted| !wanted.folds()) {
                let (low, high) = self.unfolded.entry(lblk).or_insert((hash, hash));
                (*low, *high) = ((*low).min(hash), (*high).max(hash));
                return;
            }
            block.low = block.low.min(hash);
            block.high = block.high.max(hash);
        }
    }

    /// Reads the index entries of a root or node.
    pub(crate) fn index(&mut self, lblk: u64, bytes: &[u8], out: &mut Findings) {
        let at = if lblk == 0 {
            ROOT_INFO_AT + usize::from(le8(bytes, ROOT_INFO_AT + 5))
        } else {
            DxKind::Node.count_at()
        };
        let tail = if self.vol.has_csum() { 8 } else { 0 };
        let hidden = if lblk == 0 { 0 } else { self.hash_len() };
        let wanted = bytes.len().saturating_sub(tail + at + hidden) / 8;
        let (limit, count) = (usize::from(le16(bytes, at)), usize::from(le16(bytes, at + 2)));
        if limit != wanted {
            self.error(
                out,
                Kind::HtreeNode,
                lblk,
                &format!("the limit of entries is {limit}, not {wanted}"),
            );
        }
        if count > wanted || count == 0 {
            let what = format!("{count} index entries where 1 to {wanted} can be");
            self.error(out, Kind::HtreeNode, lblk, &what);
        }
        let (mut before, mut previous, mut highest) = (0, 0, 0);
        let count = count.min(wanted);
        for i in 0..count {
            let entry = at + 8 * i;
            let hash = if i == 0 { 0 } else { le32(bytes, entry) & !1 };
            let next = if i + 1 < count { le32(bytes, entry + 8) & !1 } else { HASH_END };
            let child = le32(bytes, entry + 4) & BLOCK_MASK;
            highest = highest.max(hash);
            if hash < before {
                self.error(out, Kind::HtreeNode, lblk, "the hashes are out of order");
            }
            before = hash;
            let parent = u32::try_from(lblk).unwrap_or(u32::MAX);
            match self.blocks.get_mut(child as usize) {
                Some(block) => {
                    block.named = block.named.saturating_add(1);
                    if block.named == 1 {
                        block.parent = parent;
                    }
                    (block.from, block.to) = (hash, next);
                    block.previous = previous;
                    block.first |= i == 0;
                    block.last |= i + 1 == count;
                }
                None => {
                    if !self.shrinks {
                        let what =
                            format!("an index entry names block {child}, which does not exist");
                        self.error(out, Kind::HtreeReference, lblk, &what);
                    }
                    self.incomplete = true;
                }
            }
            previous = child;
        }
        // (Until its leaves are known: the first entry's hash is 0.)
        if let Some(own) = usize::try_from(lblk).ok().and_then(|n| self.blocks.get_mut(n)) {
            (own.low, own.high) = (0, highest);
        }
    }

    /// After the last block: references, depth and ranges.
    pub(crate) fn finish(&self, out: &mut Findings) {
        if self.incomplete {
            return;
        }
        let theirs = if self.knows_hashes() { self.as_e2fsck() } else { Vec::new() };
        for (lblk, block) in (0u64..).zip(&self.blocks) {
            let named = block.named.saturating_add(u8::from(lblk == 0));
            if named == 0 {
                self.error(out, Kind::HtreeReference, lblk, "the index does not name this block");
                continue;
            }
            if named > 1 {
                self.error(
                    out,
                    Kind::HtreeReference,
                    lblk,
                    "the index names this block more than once",
                );
            }
            match block.shape {
                Shape::Leaf => self.finish_leaf(lblk, *block, out),
                Shape::Node => {
                    let theirs = usize::try_from(lblk).ok().and_then(|n| theirs.get(n));
                    if let Some(node) = theirs.filter(|node| node.leaves_range()) {
                        self.error(out, Kind::HtreeHash, lblk, &node.told("below this node"));
                    }
                }
                Shape::Unread | Shape::Root => {}
            }
        }
    }

    /// True if the hashes of names are known.
    fn knows_hashes(&self) -> bool {
        self.hasher.is_some() || self.stores_hashes
    }

    /// The blocks as e2fsck compares them: a node has the lowest hash of its first leaf and the
    /// highest of its last one, and its range ends where the next node's lowest hash is.
    fn as_e2fsck(&self) -> Vec<Block> {
        let mut blocks = self.blocks.clone();
        for shape in [Shape::Leaf, Shape::Node] {
            for n in 0..blocks.len() {
                let Some(block) = blocks.get(n).copied().filter(|b| b.shape == shape) else {
                    continue;
                };
                let Some(parent) = blocks.get_mut(block.parent as usize) else { continue };
                if block.last {
                    parent.high = block.high;
                }
                if block.first {
                    parent.low = block.low;
                    let previous = parent.previous;
                    if let Some(before) = blocks.get_mut(previous as usize) {
                        // (The root has no range.)
                        before.to = if previous == 0 { before.to } else { block.low };
                    }
                }
            }
        }
        blocks
    }

    fn finish_leaf(&self, lblk: u64, block: Block, out: &mut Findings) {
        let depth = self.depth_of(block);
        if depth != self.depth {
            let what = format!("the leaf is {depth} levels below the root, not {}", self.depth);
            self.error(out, Kind::HtreeNode, lblk, &what);
        }
        if self.knows_hashes()
            && block.low <= block.high
            && let Some(finding) = self.misplaced(lblk, block, (block.low, block.high))
        {
            out.push(if block.leaves_range() { finding } else { finding.beyond() });
        }
        let unfolded = self.unfolded.get(&lblk);
        if let Some(finding) = unfolded.and_then(|all| self.misplaced(lblk, block, *all)) {
            out.push(finding.beyond());
        }
    }

    /// Says that a block has names, with hashes from the first to the second, that do not belong
    /// there.
    fn misplaced(&self, lblk: u64, block: Block, (low, high): (u32, u32)) -> Option<Finding> {
        let (from, to) = self.range_of(block);
        (low < from || high > to).then(|| {
            let block = Block { low, high, from, to, ..block };
            let what = format!("directory block {lblk}: {}", block.told("here"));
            Finding::error(Kind::HtreeHash, what).inode(self.ino)
        })
    }

    fn parent_of(&self, block: Block) -> Option<Block> {
        self.blocks.get(block.parent as usize).copied()
    }

    fn depth_of(&self, block: Block) -> u32 {
        let (mut at, mut depth) = (block, 0);
        while at.shape != Shape::Root && depth < 8 {
            depth += 1;
            match self.parent_of(at) {
                Some(parent) => at = parent,
                None => return u32::MAX,
            }
        }
        depth
    }

    /// The range of a block within the ranges of all above it.
    fn range_of(&self, block: Block) -> (u32, u32) {
        let (mut from, mut to) = (block.from, block.to);
        let mut at = block;
        for _ in 0..8 {
            let Some(parent) = self.parent_of(at).filter(|_| at.shape != Shape::Root) else {
                break;
            };
            if parent.shape == Shape::Root {
                break;
            }
            from = from.max(parent.from);
            to = to.min(parent.to);
            at = parent;
        }
        (from, to)
    }
}
