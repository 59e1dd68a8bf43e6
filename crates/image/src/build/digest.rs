//! The numbers that are random in other volumes, from what goes into this one.
//!
//! - IB-1: the same tree and the same options give the same bytes. No clock, random number, order
//!   of a host's directory, number of threads, hole or inode number of the host enters.
//!
//! The hash seed is needed before the first directory is laid out, so it comes from metadata. The
//! UUID comes from that and from a checksum of each run of data: checksums of metadata begin with
//! it, so metadata is written after the data.

use super::pipeline::DataRun;
use crate::tree::{Kind, NodeId, Tree, VerityTrees};
use extol_ondisk::{Superblock, Time};
use sha2::{Digest as _, Sha256};

/// What went in so far.
#[derive(Clone)]
pub(super) struct Content(Sha256);

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").finish_non_exhaustive()
    }
}

impl Content {
    /// The metadata of all files, and of the superblock what does not depend on the volume's size.
    pub(super) fn new(tree: &Tree, sb: &Superblock) -> Self {
        let mut all = Self(Sha256::new());
        all.bytes(b"extol image 1");
        all.number(sb.block_bytes().into());
        all.number(sb.inode_size.into());
        all.number(sb.mkfs_time);
        all.bytes(sb.label());
        let verity = tree.verity();
        if *verity != VerityTrees::default() {
            all.number(verity.algorithm.id().into());
            all.number(verity.block_size.unwrap_or_default().into());
            all.bytes(verity.salt.bytes());
        }
        for (id, node) in tree.nodes() {
            let meta = &node.meta;
            all.number(node.kind_number());
            let mode = u32::from(meta.mode) | u32::from(meta.verity) << 16;
            for number in [mode, meta.uid, meta.gid, node.nlink] {
                all.number(number.into());
            }
            all.time(Some(meta.mtime));
            let times = tree.times(meta.times);
            [times.atime, times.ctime, times.crtime].into_iter().for_each(|t| all.time(t));
            match node.kind {
                Kind::File { size, .. } => all.number(size),
                Kind::Symlink(target) => all.bytes(tree.bytes(target)),
                Kind::Char(rdev) | Kind::Block(rdev) => {
                    all.number(u64::from(rdev.major) << 32 | u64::from(rdev.minor));
                }
                Kind::Dir | Kind::Fifo | Kind::Socket => {}
            }
            let xattrs = tree.xattrs(meta.xattrs);
            all.number(xattrs.len() as u64);
            for (name, value) in xattrs {
                all.bytes(name);
                all.bytes(value);
            }
            let children = tree.children(id);
            all.number(children.len() as u64);
            for (name, child) in children {
                all.bytes(name);
                all.number(child.0.into());
            }
        }
        all
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn time(&mut self, time: Option<Time>) {
        self.number(u64::from(time.is_some()));
        let time = time.unwrap_or_default();
        self.number(time.sec as u64);
        self.number(time.nsec.into());
    }

    /// A run of data of a file.
    pub(super) fn data(&mut self, id: NodeId, run: DataRun) {
        self.number(u64::from(id.0) << 32 | u64::from(run.block));
        self.number(u64::from(run.len) << 32 | u64::from(run.crc));
    }

    /// The volume that it goes into: two of different sizes are two.
    pub(super) fn volume(&mut self, sb: &Superblock) {
        self.number(sb.blocks_count);
        self.number(sb.inodes_count.into());
        self.number(sb.feature_compat.bits().into());
        self.number(sb.feature_incompat.bits().into());
        self.number(sb.feature_ro_compat.bits().into());
    }

    /// A UUID of version 8: made from other things in a way of its own.
    pub(super) fn uuid(&self) -> [u8; 16] {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&digest[..16]);
        uuid[6] = uuid[6] & 0x0F | 0x80;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }
}

impl crate::tree::Node {
    fn kind_number(&self) -> u64 {
        super::needs::file_type(&self.kind).code().into()
    }
}
