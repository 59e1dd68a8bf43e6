//! Quota files of the old kind, which are files of the tree: nothing updates them, and what they
//! say can be read.

use std::sync::Arc;

use extol_ondisk::OnDiskError;
use extol_ondisk::quota::{InMemory, Kind, QuotaFile};
use extol_vfs::{FileKind, FsError, Result};

use super::Ext4;
use crate::error;
use crate::quotas::Quota;

/// Where they are by custom: `usrjquota=` and `grpjquota=` name a file of the root directory.
const NAMES: [(Kind, &str); 2] = [(Kind::User, "aquota.user"), (Kind::Group, "aquota.group")];
/// Bytes of the largest file that is read: some hundred thousand owners.
const MOST: u64 = 64 << 20;

impl Ext4 {
    /// Usage and limits by the quota files of the old kind in the root directory (`aquota.user` and
    /// `aquota.group`, of vfsv0 and vfsv1), as the last system has left them that kept them. They
    /// mean nothing to Extol, which does not change them.
    ///
    /// # Errors
    /// One of them cannot be read or is damaged.
    pub fn old_quotas(self: &Arc<Self>) -> Result<Vec<Quota>> {
        let mut quotas = Vec::new();
        for (kind, name) in NAMES {
            let attr = match self.symlink_metadata(name) {
                Err(FsError::NotFound) => continue,
                attr => attr?,
            };
            if attr.kind != FileKind::Regular {
                continue;
            }
            if attr.size > MOST {
                return Err(
                    FsError::corrupt("quota file is too large").in_inode(attr.id.ino.into())
                );
            }
            let bytes = self.read_file(name)?;
            let quota = decoded(bytes, kind, name).map_err(error::ondisk);
            quotas.push(quota.map_err(|e| e.in_inode(attr.id.ino.into()))?);
        }
        Ok(quotas)
    }
}

fn decoded(
    bytes: Vec<u8>,
    kind: Kind,
    name: &'static str,
) -> std::result::Result<Quota, OnDiskError> {
    let mut file = QuotaFile::open(InMemory(bytes), kind)?;
    let (space_grace, inode_grace) = (file.info().space_grace, file.info().inode_grace);
    let entries = file.entries()?;
    Ok(Quota { kind, space_grace, inode_grace, entries, file: Some(name) })
}
