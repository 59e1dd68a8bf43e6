//! Files of fs-verity: the descriptor, the tree, and every block of the contents.
//!
//! None of it is checked by e2fsck, and none of it is a fault of the volume's own structures: a
//! wrong block makes Linux refuse to read it.

use std::cell::RefCell;

use extol_ondisk::{FileType, InodeFlags};
use extol_verity::ext4::{self, LENGTH_LEN};
use extol_verity::{Descriptor, Failed, Recent, Verifier};

use super::{InodeCheck, Scanned};
use crate::error::{CheckError, Result};
use crate::map::{Mapped, Run};
use crate::raw::Raw;
use crate::report::{Finding, Kind};
use crate::vol::Vol;

/// Most pieces of a file of which the contents are verified: a bound on memory.
const MOST_RUNS: usize = 1 << 20;
/// Bytes of the contents that are read at once.
const STEP: usize = 1 << 20;
/// Blocks of the tree that are kept.
const KEPT: usize = 32;

/// True if the blocks of the file are to be kept for [`InodeCheck::verity`].
pub(super) fn is_verity(raw: Raw<'_>) -> bool {
    raw.is(FileType::Regular) && raw.has(InodeFlags::VERITY)
}

/// Why a file cannot be verified.
enum Bad {
    /// One line.
    What(String),
    Error(CheckError),
}

impl From<CheckError> for Bad {
    fn from(error: CheckError) -> Self {
        Self::Error(error)
    }
}

fn bad(what: impl ToString) -> Bad {
    Bad::What(what.to_string())
}

impl InodeCheck<'_> {
    /// Verifies a file with the flag.
    pub(super) fn verity(&self, raw: Raw<'_>, mapped: &Mapped, to: &mut Scanned) -> Result<()> {
        if mapped.runs.len() > MOST_RUNS {
            let what = "the contents are in too many pieces to be verified";
            to.out.push(Finding::note(Kind::Verity, what).inode(raw.ino));
            return Ok(());
        }
        if raw.has(InodeFlags::ENCRYPT) {
            let what = "the contents, tree and descriptor are encrypted, and cannot be verified";
            to.out.push(Finding::note(Kind::Verity, what).inode(raw.ino));
            return Ok(());
        }
        let file = Blocks { vol: self.vol, runs: &mapped.runs };
        let blocks = mapped.last.map_or(0, |last| last.saturating_add(1));
        match verified(&file, raw, blocks) {
            Ok(()) => Ok(()),
            Err(Bad::Error(error)) => Err(error),
            Err(Bad::What(what)) => {
                to.out.push(Finding::error(Kind::Verity, what).inode(raw.ino).beyond());
                Ok(())
            }
        }
    }
}

fn verified(file: &Blocks<'_>, raw: Raw<'_>, blocks: u64) -> std::result::Result<(), Bad> {
    if !raw.has(InodeFlags::EXTENTS) || raw.has(InodeFlags::INLINE_DATA) {
        return Err(bad("a file of fs-verity has no extents"));
    }
    let size = raw.size();
    let verifier = Verifier::new(descriptor(file, size, blocks)?).map_err(bad)?;
    let tree = ext4::tree_at(size).map_err(bad)?;
    let len = verifier.descriptor().params().block_len();
    if len > file.vol.geo.block_len() {
        return Err(bad("the blocks of the Merkle tree are longer than those of the volume"));
    }
    let known = RefCell::new(Recent::new(KEPT));
    let mut buf = vec![0; STEP.max(len)];
    let mut at = 0;
    while at < size {
        let there = usize::try_from(size - at).unwrap_or(usize::MAX).min(buf.len());
        let part = &mut buf[..there.next_multiple_of(len)];
        part[there..].fill(0);
        file.read(at, &mut part[..there])?;
        for (index, block) in (at / len as u64..).zip(part.chunks(len)) {
            let read = |place: u64, bytes: &mut [u8]| file.read(tree.saturating_add(place), bytes);
            // The first one ends it: what a wrong descriptor says takes no end to read.
            let begin = index * len as u64;
            verifier.verify(index, block, &known, read).map_err(|failed| match failed {
                Failed::Read(error) => Bad::Error(error),
                Failed::Tree(nr) => {
                    bad(format!("block {nr} of the Merkle tree is wrong, above byte {begin}"))
                }
                _ => bad(format!("the contents have changed, first at byte {begin}")),
            })?;
        }
        at += there as u64;
    }
    Ok(())
}

fn descriptor(file: &Blocks<'_>, size: u64, blocks: u64) -> std::result::Result<Descriptor, Bad> {
    let block_size = file.vol.geo.block_size.bytes();
    let end = blocks.saturating_mul(block_size.into());
    let mut length = [0; LENGTH_LEN as usize];
    if end > 0 {
        file.read(end - LENGTH_LEN, &mut length)?;
    }
    let (at, len) = ext4::locate(size, end, u32::from_le_bytes(length), block_size).map_err(bad)?;
    let mut bytes = vec![0; len];
    file.read(at, &mut bytes)?;
    Descriptor::parse(&bytes, size).map_err(bad)
}

/// The blocks of a file that are mapped and written; all others are zeros.
struct Blocks<'a> {
    vol: &'a Vol,
    /// In order.
    runs: &'a [Run],
}

impl Blocks<'_> {
    fn read(&self, mut at: u64, mut buf: &mut [u8]) -> Result<()> {
        let bs = self.vol.geo.block_len() as u64;
        while !buf.is_empty() {
            let lblk = at / bs;
            let next = self.runs.partition_point(|run| run.lblk + run.len <= lblk);
            let run = self.runs.get(next);
            let bytes = |blocks: u64| usize::try_from(blocks.saturating_mul(bs) - at % bs);
            let (len, place) = match run {
                Some(run) if run.lblk <= lblk => {
                    let inside = lblk - run.lblk;
                    (bytes(run.len - inside), Some((run.pblk + inside) * bs + at % bs))
                }
                Some(run) => (bytes(run.lblk - lblk), None),
                None => (Ok(usize::MAX), None),
            };
            let (part, rest) = buf.split_at_mut(len.unwrap_or(usize::MAX).min(buf.len()));
            match place {
                Some(place) => self.vol.dev.read_at(part, place)?,
                None => part.fill(0),
            }
            at += part.len() as u64;
            buf = rest;
        }
        Ok(())
    }
}
