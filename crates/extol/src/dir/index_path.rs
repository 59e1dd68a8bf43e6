//! The path through the index to a leaf.

use std::sync::Arc;

use extol_jbd2::Buf;
use extol_ondisk::htree::{self, DxKind};
use extol_vfs::FsError;

use super::blocks::Blocks;
use super::hashes::Hashes;
use super::index;
use super::shape::Shape;

/// Why the index could not be used.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum IndexError {
    /// It makes no sense.
    Structure(&'static str),
    /// The hash of the name that is looked for takes a key that is not there.
    NoHash,
    /// Anything else.
    Other(FsError),
}

impl From<FsError> for IndexError {
    fn from(e: FsError) -> Self {
        Self::Other(e)
    }
}

impl IndexError {
    /// The error, for callers that cannot do without the index.
    pub fn into_fs(self, shape: &Shape<'_>) -> FsError {
        match self {
            Self::Structure(what) => shape.corrupt(what),
            Self::NoHash => FsError::NoKey,
            Self::Other(e) => e,
        }
    }
}

pub(super) type IndexResult<T> = std::result::Result<T, IndexError>;

/// A node on the path to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub buf: Arc<Buf>,
    pub kind: DxKind,
    /// Entries in use.
    count: usize,
    /// The entry taken.
    pub at: usize,
}

impl Frame {
    fn load(blocks: &mut Blocks<'_, '_>, lblk: u32, kind: DxKind) -> IndexResult<Self> {
        Self::load_with_bytes(blocks, lblk, kind).map(|(frame, _)| frame)
    }

    /// The node and its bytes, to be dropped before the next change.
    fn load_with_bytes(
        blocks: &mut Blocks<'_, '_>,
        lblk: u32,
        kind: DxKind,
    ) -> IndexResult<(Self, Arc<Vec<u8>>)> {
        let Some(buf) = blocks.node(lblk, kind)? else {
            return Err(IndexError::Structure("hole instead of a directory index node"));
        };
        let bytes = buf.data();
        let count = index::count(&bytes, kind, &blocks.shape).map_err(IndexError::Structure)?;
        Ok((Self { buf, kind, count, at: 0 }, bytes))
    }

    fn key(&self, i: usize) -> u32 {
        index::key(&self.buf.data(), self.kind, i)
    }

    fn child(&self, count: u32) -> IndexResult<u32> {
        self.child_in(&self.buf.data(), count)
    }

    fn child_in(&self, bytes: &[u8], count: u32) -> IndexResult<u32> {
        let lblk = index::block(bytes, self.kind, self.at);
        if lblk == 0 || lblk >= count {
            return Err(IndexError::Structure(
                "directory index names a block outside the directory",
            ));
        }
        Ok(lblk)
    }
}

/// The path from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub frames: Vec<Frame>,
    leaf: u32,
    /// Key of the leaf; 0 for the first.
    pub key: u32,
}

impl Path {
    /// The path to the first leaf that may hold names with the hash that `target` chooses.
    pub fn find(
        blocks: &mut Blocks<'_, '_>,
        target: impl FnOnce(&Hashes) -> Option<u32>,
    ) -> IndexResult<(Self, Hashes)> {
        let (mut frame, mut bytes) = Frame::load_with_bytes(blocks, 0, DxKind::Root)?;
        let geo = blocks.shape.geo;
        let Ok(info) = htree::decode_info(&bytes, geo) else {
            return Err(IndexError::Structure("root of a directory index makes no sense"));
        };
        let Some(hashes) = Hashes::new(&blocks.shape, info.hash_version) else {
            return Err(IndexError::Structure("unknown hash version in a directory index"));
        };
        let mut levels = usize::from(info.levels);
        let Some(hash) = target(&hashes) else { return Err(IndexError::NoHash) };
        let mut frames = Vec::with_capacity(levels + 1);
        let mut low = 0;
        loop {
            frame.at = index::search(&bytes, frame.kind, frame.count, hash);
            low = low.max(index::key(&bytes, frame.kind, frame.at));
            let lblk = frame.child_in(&bytes, blocks.shape.blocks)?;
            frames.push(frame);
            if levels == 0 {
                return Ok((Self { frames, leaf: lblk, key: low }, hashes));
            }
            levels -= 1;
            (frame, bytes) = Frame::load_with_bytes(blocks, lblk, DxKind::Node)?;
        }
    }

    /// The leaf.
    pub fn leaf(&self) -> u32 {
        self.leaf
    }

    /// Key of the next leaf, and the level at which its path branches off this one.
    pub fn next_key(&self) -> Option<(usize, u32)> {
        let (level, frame) =
            self.frames.iter().enumerate().rev().find(|(_, f)| f.at + 1 < f.count)?;
        Some((level, frame.key(frame.at + 1)))
    }

    /// Goes to the next leaf, whose key [`Self::next_key`] gave.
    pub fn advance(
        &mut self,
        blocks: &mut Blocks<'_, '_>,
        (level, key): (usize, u32),
    ) -> IndexResult<()> {
        let depth = self.frames.len();
        self.frames.truncate(level + 1);
        if let Some(last) = self.frames.last_mut() {
            last.at += 1;
        }
        loop {
            let Some(last) = self.frames.last() else {
                return Err(IndexError::Structure("directory index without a root"));
            };
            let lblk = last.child(blocks.shape.blocks)?;
            if self.frames.len() == depth {
                self.leaf = lblk;
                self.key = key;
                return Ok(());
            }
            self.frames.push(Frame::load(blocks, lblk, DxKind::Node)?);
        }
    }

    /// Goes to the next leaf if it continues `hash`.
    pub fn advance_within(
        &mut self,
        blocks: &mut Blocks<'_, '_>,
        hash: Option<u32>,
    ) -> IndexResult<bool> {
        match self.next_key() {
            Some((level, key)) if Some(key & !1) == hash => {
                self.advance(blocks, (level, key))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// New index nodes that are needed before a leaf can be added. `None` if the index cannot grow.
    pub fn nodes_to_split(&self, shape: &Shape<'_>) -> Option<usize> {
        let full = self
            .frames
            .iter()
            .rev()
            .take_while(|f| f.count >= usize::from(shape.limit(f.kind)))
            .count();
        let may_grow = self.frames.len() <= usize::from(htree::max_levels(shape.geo));
        (full < self.frames.len() || may_grow).then_some(full)
    }
}
