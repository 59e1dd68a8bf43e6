//! Makes a file one of fs-verity.
//!
//! ```text
//!   begin                    hash, piece by piece         finish
//!   lock: data is written,   shared lock: contents are    lock: tree and descriptor are written,
//!   contents are fixed  ───► read; the tree grows    ───► the flag is set
//!                            in memory
//!          ╰────────── an error, or the caller stops ───────────╯──► the file is what it was
//! ```
//!
//! The hashing takes long, so other threads can read the file and its attributes meanwhile, and
//! change its names; a write, a new size and a second enable are refused
//! ([`InodeState::enables_verity`]). A tree that is longer than `dirty_mb` is not kept in memory:
//! `finish` reads the contents itself then, with the lock of the inode held.

use std::sync::{Arc, OnceLock};

use extol_ondisk::InodeFlags;
use extol_verity::ext4::Layout;
use extol_verity::{Builder, Descriptor, MAX_HASH, Params, VerityError};
use extol_vfs::{FsError, Result};

use crate::data::{flush, read, truncate, write};
use crate::fast_commit::Reason;
use crate::fast_commit::eligibility;
use crate::inline;
use crate::inodes::{Cell, InodeState};
use crate::map;
use crate::mounted::MountedFs;
use crate::orphan;

/// Bytes of the contents, or of the tree, that are worked on at once.
const STEP: usize = 256 << 10;

/// True once the caller has given up.
pub(crate) type Stop<'a> = &'a dyn Fn() -> bool;

/// An error of building.
struct Failed(FsError);

impl From<VerityError> for Failed {
    fn from(error: VerityError) -> Self {
        Self(match error {
            VerityError::TooLarge => FsError::FileTooLarge,
            _ => FsError::Invalid("parameters of fs-verity"),
        })
    }
}

fn failed(error: VerityError) -> FsError {
    Failed::from(error).0
}

fn check(stop: Stop<'_>) -> Result<()> {
    if stop() { Err(FsError::Interrupted) } else { Ok(()) }
}

/// A file that becomes one of fs-verity. Its contents are fixed until this is dropped.
pub(crate) struct Enabling {
    cell: Arc<Cell>,
    params: Params,
    signature: Vec<u8>,
    size: u64,
    layout: Layout,
    /// The hasher of the contents, unless the tree is too long for the memory.
    builder: Option<Builder>,
    /// Bytes of the contents that are hashed.
    at: u64,
    tree: Vec<u8>,
    /// The root of a tree in memory, once all contents are hashed.
    root: Option<[u8; MAX_HASH]>,
}

impl Drop for Enabling {
    fn drop(&mut self) {
        if let Ok(mut st) = self.cell.write_any() {
            st.enables_verity = false;
        }
    }
}

impl Enabling {
    /// Writes the data of a regular file, and fixes its contents. The caller has checked flags and
    /// parameters.
    pub(crate) fn begin(
        fs: &MountedFs,
        cell: &Arc<Cell>,
        st: &mut InodeState,
        params: Params,
        signature: Vec<u8>,
    ) -> Result<Self> {
        if st.enables_verity {
            return Err(FsError::Busy);
        }
        let size = st.node.raw.size;
        if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
            let contents = inline::read(&st.node)?;
            write::move_out(fs, st, &contents)?;
        }
        if !st.node.raw.flags.contains(InodeFlags::EXTENTS) {
            return Err(FsError::NotSupported("fs-verity of a file without extents"));
        }
        let builder = Builder::new(&params, size).map_err(failed)?;
        let tree = builder.tree().size();
        let len = extol_verity::DESCRIPTOR_LEN + signature.len();
        let block_size = fs.vol.geo.block_size.bytes();
        let layout = Layout::new(size, tree, len, block_size).map_err(failed)?;
        if layout.end > map::max_file_size(&fs.vol.geo, st.node.raw.flags) {
            return Err(FsError::FileTooLarge);
        }
        flush::flush(fs, st)?;
        // Linux hashes the last block as it is on the device.
        write::zero_tail(fs, cell, st, size)?;
        flush::flush(fs, st)?;
        let tree = usize::try_from(tree).unwrap_or(usize::MAX);
        let in_memory = tree <= fs.runtime.dirty_bytes.load();
        let tree = vec![0; if in_memory { tree } else { 0 }];
        st.enables_verity = true;
        Ok(Self {
            cell: Arc::clone(cell),
            params,
            signature,
            size,
            layout,
            builder: in_memory.then_some(builder),
            at: 0,
            tree,
            root: None,
        })
    }

    /// Hashes the next bytes of the contents. True if there are no more.
    pub(crate) fn hash(&mut self, fs: &MountedFs, stop: Stop<'_>) -> Result<bool> {
        let Some(builder) = &mut self.builder else { return Ok(true) };
        check(stop)?;
        let tree = &mut self.tree;
        let mut keep = |place: u64, block: &[u8]| {
            let at = usize::try_from(place).unwrap_or(usize::MAX);
            let room = tree.get_mut(at..at.saturating_add(block.len()));
            room.map(|room| room.copy_from_slice(block)).ok_or(Failed(FsError::FileTooLarge))
        };
        if self.at < self.size {
            let mut buf = vec![0; STEP];
            let n = read_more(fs, &*self.cell.read()?, self.at, &mut buf)?;
            builder.push(&buf[..n], &mut keep).map_err(|e| e.0)?;
            self.at += n as u64;
        }
        if self.at < self.size {
            return Ok(false);
        }
        if let Some(builder) = self.builder.take() {
            self.root = Some(builder.finish(&mut keep).map_err(|e| e.0)?);
        }
        Ok(true)
    }

    /// The inode.
    pub(crate) fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// Writes tree and descriptor, and sets the flag. On an error the file is what it was.
    pub(crate) fn finish(&self, fs: &MountedFs, st: &mut InodeState, stop: Stop<'_>) -> Result<()> {
        if !st.enables_verity || st.node.raw.size != self.size {
            // The volume was opened again meanwhile.
            return Err(FsError::Stale);
        }
        // The last mapped block leads to the descriptor: nothing else may be behind the end.
        st.window.empty();
        truncate::unmap_behind(fs, st, self.size)?;
        let was_orphan = fs.orphans.contains(st.node.ino.0);
        if !was_orphan {
            make_orphan(fs, st)?;
        }
        let built = self.write(fs, st, stop);
        let done = built.and_then(|()| set_flag(fs, st, was_orphan));
        if done.is_err() {
            undo(fs, st, was_orphan);
        }
        done
    }

    /// Writes tree and descriptor.
    fn write(&self, fs: &MountedFs, st: &mut InodeState, stop: Stop<'_>) -> Result<()> {
        let (cell, layout) = (&self.cell, &self.layout);
        let root = match self.root {
            Some(root) => {
                for (at, piece) in (layout.tree..).step_by(STEP).zip(self.tree.chunks(STEP)) {
                    check(stop)?;
                    put(fs, cell, st, at, piece)?;
                }
                root
            }
            None => self.hash_and_write(fs, st, stop)?,
        };
        let descriptor =
            Descriptor::new(self.params.clone(), self.size, &root, self.signature.clone());
        let bytes = descriptor.map_err(failed)?.to_bytes();
        put(fs, cell, st, layout.descriptor, &bytes)?;
        let length = u32::try_from(bytes.len()).map_err(|_| FsError::FileTooLarge)?;
        put(fs, cell, st, layout.length, &length.to_le_bytes())?;
        flush::flush(fs, st)
    }

    /// Reads the contents and writes each block of the tree that fills up.
    fn hash_and_write(
        &self,
        fs: &MountedFs,
        st: &mut InodeState,
        stop: Stop<'_>,
    ) -> Result<[u8; MAX_HASH]> {
        let mut builder = Builder::new(&self.params, self.size).map_err(failed)?;
        let place = self.layout.tree;
        let (mut buf, mut at) = (vec![0; STEP], 0);
        while at < self.size {
            check(stop)?;
            let n = read_more(fs, st, at, &mut buf)?;
            let mut write = |to: u64, block: &[u8]| put(fs, &self.cell, st, place + to, block);
            builder.push(&buf[..n], &mut write)?;
            at += n as u64;
        }
        let mut write =
            |to: u64, block: &[u8]| put(fs, &self.cell, st, place + to, block).map_err(Failed);
        builder.finish(&mut write).map_err(|e| e.0)
    }
}

/// Reads contents before the end of the file.
fn read_more(fs: &MountedFs, st: &InodeState, at: u64, buf: &mut [u8]) -> Result<usize> {
    match read::read(fs, st, at, buf)? {
        0 => Err(FsError::Io("the file ends before its size".into())),
        n => Ok(n),
    }
}

/// From here on a crash takes away all behind the end.
fn make_orphan(fs: &MountedFs, st: &mut InodeState) -> Result<()> {
    fs.transact(orphan::CREDITS + 1, |h| {
        fs.orphans.add(&fs.vol, &fs.sb, h, st.node.ino.0)?;
        eligibility::note_ineligible(h, st.node.ino, Reason::Attributes);
        st.store(fs, h, true)
    })
}

/// Writes bytes behind the end of the file, into pages.
fn put(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    at: u64,
    mut bytes: &[u8],
) -> Result<()> {
    let bs = fs.vol.geo.block_len();
    let mut at = at;
    while !bytes.is_empty() {
        let lblk = u32::try_from(at / bs as u64).map_err(|_| FsError::FileTooLarge)?;
        let inside = (at % bs as u64) as usize;
        let (part, rest) = bytes.split_at(bytes.len().min(bs - inside));
        write::put_behind(fs, cell, st, lblk, inside, part)?;
        bytes = rest;
        at += part.len() as u64;
    }
    if fs.dirty.bytes() > fs.runtime.dirty_bytes.load() {
        flush::flush(fs, st)?;
    }
    Ok(())
}

/// Sets the flag (VE-2): all else was written.
fn set_flag(fs: &MountedFs, st: &mut InodeState, was_orphan: bool) -> Result<()> {
    let done = fs.transact(orphan::CREDITS + 1, |h| {
        if !was_orphan {
            end_orphan(fs, st, h)?;
        }
        st.node.raw.flags |= InodeFlags::VERITY;
        st.store(fs, h, true)
    });
    st.verity = OnceLock::new();
    if done.is_err() {
        st.node.raw.flags -= InodeFlags::VERITY;
    }
    done
}

fn end_orphan(fs: &MountedFs, st: &mut InodeState, h: &mut extol_jbd2::Handle) -> Result<()> {
    fs.orphans.remove(&fs.vol, &fs.sb, h, st.node.ino.0)?;
    eligibility::note_ineligible(h, st.node.ino, Reason::Attributes);
    st.node.raw.dtime = 0;
    Ok(())
}

/// Takes away what was written. If that fails, too, the file stays an orphan, and the next mount
/// does it.
fn undo(fs: &MountedFs, st: &mut InodeState, was_orphan: bool) {
    let size = st.node.raw.size;
    let behind = size.div_ceil(fs.vol.geo.block_len() as u64);
    let behind = u32::try_from(behind).unwrap_or(u32::MAX);
    truncate::drop_pages(fs, st, behind, u32::MAX);
    let cut = truncate::unmap_behind(fs, st, size);
    if cut.is_ok() && !was_orphan && fs.orphans.contains(st.node.ino.0) {
        let _ = fs.transact(orphan::CREDITS + 1, |h| {
            end_orphan(fs, st, h)?;
            st.store(fs, h, true)
        });
    }
}
