//! The blocks of a quota file on the volume, through the block cache.

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::OnDiskError;
use extol_ondisk::quota::{BLOCK_LEN, Block, Blocks};
use extol_vfs::FsError;

use crate::alloc::Run;
use crate::error;
use crate::map::{self, NewBlocks};
use crate::node::Node;
use crate::volume::Volume;

/// An error of the volume, or of the file's bytes.
#[derive(Debug)]
pub(super) struct Failed(pub FsError);

impl From<OnDiskError> for Failed {
    fn from(e: OnDiskError) -> Self {
        Self(error::ondisk(e))
    }
}

impl From<FsError> for Failed {
    fn from(e: FsError) -> Self {
        Self(e)
    }
}

impl From<extol_jbd2::JournalError> for Failed {
    fn from(e: extol_jbd2::JournalError) -> Self {
        Self(error::journal(e))
    }
}

/// Where a file's blocks are: block `n` of the file in units of the volume's blocks.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub places: Vec<BlockNr>,
    /// Bytes of the file.
    pub size: u64,
}

impl Layout {
    /// Reads the map of a file, which must have no holes.
    pub fn read(vol: &Volume, node: &Node) -> Result<Self, FsError> {
        let size = node.raw.size;
        let bad = |what| FsError::corrupt(what).in_inode(node.ino.0.into());
        let blocks = size.div_ceil(vol.geo.block_len() as u64);
        let blocks = u32::try_from(blocks).map_err(|_| bad("quota file is too large"))?;
        let mut places = Vec::new();
        map::iterate(vol, node, 0, blocks, &mut |run| {
            let whole = run.lblk as usize == places.len() && !run.unwritten;
            places.extend((0..u64::from(run.len)).map(|n| run.pblk.plus(n)));
            whole
        })?;
        if places.len() != blocks as usize {
            return Err(bad("quota file has holes"));
        }
        Ok(Self { places, size })
    }

    /// Whole blocks of a quota file.
    pub fn count(&self) -> u32 {
        u32::try_from(self.size / BLOCK_LEN as u64).unwrap_or(u32::MAX)
    }

    /// The block of the volume with a block of the file, and where it is in there.
    pub fn find(&self, vol: &Volume, nr: u32) -> Result<(BlockNr, usize), FsError> {
        let (index, at) = split(vol, nr);
        let place = self.places.get(index).copied();
        let place = place.ok_or_else(|| FsError::corrupt("quota block is outside the file"))?;
        Ok((place, at))
    }
}

fn split(vol: &Volume, nr: u32) -> (usize, usize) {
    let per_block = vol.geo.block_len() / BLOCK_LEN;
    (nr as usize / per_block, nr as usize % per_block * BLOCK_LEN)
}

/// Maps a block for the block of a file from which on it has none. The caller fills it.
pub(crate) fn add_block(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    lblk: u32,
) -> Result<BlockNr, FsError> {
    let (start, is_new) = match map::new_blocks(vol, node, lblk, 1)? {
        NewBlocks::Shared(run) => {
            vol.alloc.check_not_system(run)?;
            (run.start, false)
        }
        NewBlocks::Fresh(_) => {
            let goal = map::goal(vol, node, lblk)?;
            (vol.alloc.alloc_meta(h, goal)?, true)
        }
    };
    let run = Run { start, len: 1 };
    if let Err(e) = map::insert(vol, h, node, lblk, run, false) {
        if is_new {
            // The bits are set but nothing points at the block.
            let _ = vol.alloc.free(h, run);
        }
        return Err(e);
    }
    Ok(start)
}

/// A file to read.
pub(super) struct ToRead<'a> {
    pub vol: &'a Volume,
    pub layout: &'a Layout,
}

impl Blocks for ToRead<'_> {
    type Error = Failed;

    fn count(&mut self) -> Result<u32, Failed> {
        Ok(self.layout.count())
    }

    fn read(&mut self, nr: u32) -> Result<Block, Failed> {
        let (place, at) = self.layout.find(self.vol, nr)?;
        let data = self.vol.journal.read(place)?.data();
        let block = data.get(at..).and_then(|bytes| bytes.first_chunk());
        block.copied().ok_or_else(|| Failed(FsError::corrupt("quota block is outside the file")))
    }

    fn write(&mut self, _: u32, _: &Block) -> Result<(), Failed> {
        Err(Failed(FsError::ReadOnly))
    }
}

/// A file to change in a handle. Its inode is written by the caller.
pub(super) struct ToChange<'a> {
    pub vol: &'a Volume,
    pub h: &'a mut Handle,
    pub layout: &'a mut Layout,
    pub node: &'a mut Node,
}

impl ToChange<'_> {
    /// Gives the file another block of the volume, of zeros.
    fn grow(&mut self) -> Result<(), Failed> {
        let bad = || FsError::corrupt("quota file is too large");
        let lblk = u32::try_from(self.layout.places.len()).map_err(|_| bad())?;
        let nr = add_block(self.vol, self.h, self.node, lblk)?;
        self.h.create(nr)?;
        self.layout.places.push(nr);
        Ok(())
    }
}

impl Blocks for ToChange<'_> {
    type Error = Failed;

    fn count(&mut self) -> Result<u32, Failed> {
        Ok(self.layout.count())
    }

    fn read(&mut self, nr: u32) -> Result<Block, Failed> {
        ToRead { vol: self.vol, layout: self.layout }.read(nr)
    }

    fn write(&mut self, nr: u32, block: &Block) -> Result<(), Failed> {
        let (index, at) = split(self.vol, nr);
        if index == self.layout.places.len() {
            self.grow()?;
        }
        let (place, _) = self.layout.find(self.vol, nr)?;
        let end = (u64::from(nr) + 1) * BLOCK_LEN as u64;
        if end > self.layout.size {
            (self.layout.size, self.node.raw.size) = (end, end);
        }
        let buf = self.vol.journal.read(place)?;
        let put = |bytes: &mut [u8]| match bytes.get_mut(at..at + BLOCK_LEN) {
            Some(bytes) => bytes.copy_from_slice(block),
            None => debug_assert!(false, "quota block {nr} is outside its block"),
        };
        self.h.modify(&buf, put)?;
        Ok(())
    }
}
