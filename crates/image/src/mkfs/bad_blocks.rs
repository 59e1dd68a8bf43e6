//! Blocks that a medium cannot hold (`-c`, `-l`): inode 1 takes them, so that nothing else does.
//!
//! What must lie where it lies decides: the first superblock with its descriptors has to be on good
//! blocks. A copy of them may be bad, and is not written then. Blocks that are reserved for more
//! descriptors belong to the resize inode, and e2fsck takes a bad one among them for damage.

use super::config::Config;
use super::options::MkfsOptions;
use super::space::Space;
use super::summary::Notes;
use super::{MkfsProgress, Result, Stage, refuse};
use extol_block::{BlockDevice, BlockNr, DeviceError, DeviceOp};
use extol_ondisk::{Geometry, RoCompat};
use std::io::{Error, ErrorKind};

/// Blocks that are read in one request.
const STEP: u64 = 64;
/// What a test that writes writes, as badblocks(8) does.
const PATTERNS: [u8; 4] = [0xAA, 0x55, 0xFF, 0x00];

/// How blocks are tested (`-c`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockTest {
    /// All are read.
    Read,
    /// Patterns are written to all of them, and read again (`-c -c`).
    ReadWrite,
}

/// Takes the bad blocks of a new volume, after superblocks and descriptors and before all else.
/// Gives those that inode 1 lists.
pub(super) fn take(
    space: &mut Space,
    geo: &Geometry,
    all: &[u64],
    notes: &mut Notes,
) -> Result<Vec<u64>> {
    let mut all = all.to_vec();
    all.sort_unstable();
    all.dedup();
    let volume = geo.first_data_block..geo.blocks();
    let before = all.len();
    all.retain(|block| volume.contains(block));
    if all.len() < before {
        let outside = before - all.len();
        notes.warnings.push(format!("{outside} bad blocks are outside of the volume: left out"));
    }
    if !all.is_empty() && geo.ro_compat.contains(RoCompat::BIGALLOC) {
        return refuse(
            "bad blocks and clusters (bigalloc) exclude each other: e2fsck knows no bad blocks \
             within clusters",
        );
    }
    if !all.is_empty() {
        notes.notes.push(format!("bad blocks that are left out: {}", all.len()));
    }
    for &block in &all {
        let group = geo.group_of_block(BlockNr(block));
        let first = geo.group_first_block(group).0;
        let behind = block - first;
        let copies = u64::from(geo.has_super(group)) + u64::from(geo.group_desc_blocks(group));
        if behind < copies && (group.0 == 0 || geo.desc_block(group).0 == BlockNr(block)) {
            return refuse(format!(
                "block {block} is bad: blocks {first} to {} must be good, since the superblock and \
                 the descriptors of groups lie there",
                first + copies - 1
            ));
        }
        if behind < copies {
            notes.warnings.push(format!(
                "block {block} is bad: the copy of the superblock in group {} is not written",
                group.0
            ));
        } else if behind < u64::from(geo.base_meta_blocks(group)) {
            return refuse(format!(
                "block {block} is bad and among those that are reserved for a growth of the \
                 volume: leave them out (-O ^resize_inode)"
            ));
        } else {
            space.take(block, 1);
        }
    }
    Ok(all)
}

/// Adds to the bad blocks in the options those that a test finds, if one is asked for.
pub(crate) fn tested(
    device: &dyn BlockDevice,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<MkfsOptions> {
    let mut options = options.clone();
    let Some(test) = options.block_test.take().filter(|_| !options.dry_run) else {
        return Ok(options);
    };
    let config = Config::new(&options, device.size())?;
    let found = test_all(device, test, config.block_size, config.blocks, progress)?;
    options.bad_blocks.extend(found);
    Ok(options)
}

fn test_all(
    device: &dyn BlockDevice,
    test: BlockTest,
    block_size: u32,
    blocks: u64,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<Vec<u64>> {
    let patterns: &[Option<u8>] = match test {
        BlockTest::Read => &[None],
        BlockTest::ReadWrite => &PATTERNS.map(Some),
    };
    let mut told = |done| {
        let total = blocks * patterns.len() as u64;
        progress(MkfsProgress { stage: Stage::BadBlocks, done, total });
    };
    let block = u64::from(block_size);
    let mut bad = Vec::new();
    for (pass, pattern) in (0..).zip(patterns) {
        if let Some(byte) = pattern {
            let bytes = vec![*byte; (STEP * block) as usize];
            in_pieces(blocks, |at, len| {
                for_each_bad(at, len, &mut bad, |at, len| {
                    device.write_at(&bytes[..(len * block) as usize], at * block)
                })
            })?;
            device.flush()?;
        }
        let mut bytes = vec![0; (STEP * block) as usize];
        in_pieces(blocks, |at, len| {
            told(pass * blocks + at);
            for_each_bad(at, len, &mut bad, |at, len| {
                let bytes = &mut bytes[..(len * block) as usize];
                device.read_at(bytes, at * block)?;
                match pattern {
                    Some(byte) if bytes.iter().any(|found| found != byte) => {
                        let why = Error::other("other bytes than written");
                        Err(DeviceError::new(DeviceOp::Read, at * block, len * block, why))
                    }
                    _ => Ok(()),
                }
            })
        })?;
    }
    told(blocks * patterns.len() as u64);
    bad.sort_unstable();
    bad.dedup();
    Ok(bad)
}

fn in_pieces(blocks: u64, mut f: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < blocks {
        let len = STEP.min(blocks - at);
        f(at, len)?;
        at += len;
    }
    Ok(())
}

/// Tries blocks together, and one by one if that fails. An interruption is none of theirs.
fn for_each_bad(
    at: u64,
    len: u64,
    bad: &mut Vec<u64>,
    mut f: impl FnMut(u64, u64) -> std::result::Result<(), DeviceError>,
) -> Result<()> {
    match f(at, len) {
        Ok(()) => return Ok(()),
        Err(error) if is_interruption(&error) => return Err(error.into()),
        Err(_) => {}
    }
    for block in at..at + len {
        match f(block, 1) {
            Ok(()) => {}
            Err(error) if is_interruption(&error) => return Err(error.into()),
            Err(_) => bad.push(block),
        }
    }
    Ok(())
}

fn is_interruption(error: &DeviceError) -> bool {
    error.source.kind() == ErrorKind::Interrupted
}

/// True if one of these blocks is bad.
pub(super) fn spoils(bad: &[u64], first: u64, len: u64) -> bool {
    bad.iter().any(|block| (first..first + len).contains(block))
}
