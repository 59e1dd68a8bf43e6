//! What all blocks of a directory have in common.

use extol_jbd2::Buf;
use extol_ondisk::htree::DxKind;
use extol_ondisk::{
    Compat, FileType, Geometry, Incompat, InodeFlags, InodeNr, InodeSeed, OnDiskError, dirent,
};
use extol_vfs::{FsError, Result};

use crate::encrypted;
use crate::error;
use crate::node::Node;
use crate::volume::Volume;

/// An index gives block numbers in 28 bits.
pub(super) const MAX_LARGE_BLOCKS: u64 = 1 << 28;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'v> {
    /// Geometry of the volume.
    pub geo: &'v Geometry,
    /// The directory.
    pub ino: InodeNr,
    /// Seed of the checksums, with metadata_csum.
    pub seed: Option<InodeSeed>,
    /// Entries record the file type.
    pub filetype: bool,
    /// The directory has index nodes among its blocks.
    pub indexed: bool,
    /// Names are encrypted.
    pub encrypted: bool,
    /// Names are listed as they are on disk, to be decrypted.
    pub decrypts: bool,
    /// Names that are equal but for case are one name (DR-7).
    pub folds: bool,
    /// Bytes of the hash behind each name: none, or those of a directory that is encrypted and
    /// casefolded. Its names are one if they are so decrypted.
    pub hash_len: usize,
    /// The volume indexes directories.
    pub dir_index: bool,
    /// Bytes that entries may use in a leaf before it is divided (DR-6).
    pub leaf_limit: usize,
    /// Blocks that the directory had when this was made.
    pub blocks: u32,
}

impl<'v> Shape<'v> {
    /// The shape of `dir`.
    pub fn of(vol: &'v Volume, dir: &Node) -> Self {
        let geo = &vol.geo;
        let dir_index = geo.compat().contains(Compat::DIR_INDEX);
        let indexed = dir_index && dir.raw.flags.contains(InodeFlags::INDEX);
        let area = dirent::area_len(geo);
        Self {
            geo,
            ino: dir.ino,
            seed: geo.has_metadata_csum().then(|| geo.fs_seed.inode(dir.ino, dir.raw.generation)),
            filetype: geo.incompat().contains(Incompat::FILETYPE),
            indexed,
            encrypted: encrypted::is_encrypted(dir),
            decrypts: false,
            folds: folds(vol, dir),
            hash_len: if has_hashes(vol, dir) { dirent::HASH_LEN } else { 0 },
            dir_index,
            leaf_limit: if geo.compat().contains(Compat::FAST_COMMIT) {
                area / 4 * 3
            } else {
                area
            },
            blocks: count(vol, dir),
        }
    }

    /// The part of a block that holds entries.
    pub fn area<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(..dirent::area_len(self.geo)).unwrap_or(bytes)
    }

    /// The part of a block that holds entries.
    pub fn area_mut<'b>(&self, bytes: &'b mut [u8]) -> &'b mut [u8] {
        let len = dirent::area_len(self.geo).min(bytes.len());
        bytes.split_at_mut(len).0
    }

    /// The part of a block of any kind that holds entries. (An index root has two entries that fill
    /// the block.)
    pub fn entries_mut<'b>(&self, kind: BlockKind, bytes: &'b mut [u8]) -> &'b mut [u8] {
        match kind {
            BlockKind::Leaf => self.area_mut(bytes),
            BlockKind::Index(_) => bytes,
        }
    }

    /// The block that a name must go to: 0 if any will do.
    pub fn leaf(&self, buf: &Buf) -> u64 {
        if self.indexed { buf.nr().0 } else { 0 }
    }

    /// Bytes that an entry with a name of this length needs.
    pub fn entry_len(&self, name_len: usize) -> usize {
        dirent::entry_len(name_len) + self.hash_len
    }

    /// Entries that a block of the index has room for.
    pub fn limit(&self, kind: DxKind) -> u16 {
        kind.limit_with(self.geo, self.hash_len)
    }

    /// True if an entry stands for more than one name.
    pub fn has_spellings(&self) -> bool {
        self.folds || self.hash_len > 0
    }

    /// The type to store in an entry.
    pub fn stored_type(&self, kind: FileType) -> Option<FileType> {
        self.filetype.then_some(kind)
    }

    /// A corruption of this directory.
    pub fn corrupt(&self, what: impl Into<String>) -> FsError {
        FsError::corrupt(what).in_inode(u64::from(self.ino.0))
    }

    /// Bytes of this directory that could not be decoded.
    pub fn bad(&self, e: OnDiskError) -> FsError {
        error::ondisk(e).in_inode(u64::from(self.ino.0))
    }

    /// An inode number that an entry holds, if it can be one.
    pub fn inode(&self, ino: InodeNr) -> Result<InodeNr> {
        if !self.geo.is_valid_inode(ino) {
            return Err(self.corrupt(format!("directory entry with inode number {ino}")));
        }
        Ok(ino)
    }
}

fn is_casefolded(vol: &Volume, dir: &Node) -> bool {
    dir.raw.flags.contains(InodeFlags::CASEFOLD) && vol.geo.incompat().contains(Incompat::CASEFOLD)
}

/// True if names of the directory that are equal but for case are one name. (Ciphertext has no
/// case.)
pub(crate) fn folds(vol: &Volume, dir: &Node) -> bool {
    is_casefolded(vol, dir) && !encrypted::is_encrypted(dir)
}

/// True if a hash stands behind each name.
pub(super) fn has_hashes(vol: &Volume, dir: &Node) -> bool {
    is_casefolded(vol, dir) && encrypted::is_encrypted(dir)
}

/// Number of whole blocks in a directory: as its size says, but no more than the volume has.
pub(super) fn count(vol: &Volume, dir: &Node) -> u32 {
    let blocks = dir.raw.size >> vol.geo.block_size.bits();
    u32::try_from(blocks.min(MAX_LARGE_BLOCKS).min(vol.geo.blocks())).unwrap_or(u32::MAX)
}

/// What a block of a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockKind {
    /// Entries.
    Leaf,
    /// Part of the index.
    Index(DxKind),
}
