//! In place of `verity` in a build without that feature: what Linux says without
//! `CONFIG_FS_VERITY`.

use extol_ondisk::{InodeFlags, RoCompat};
use extol_vfs::{EnableVerity, Result, VerityDigest, VerityPart};

use crate::mounted::MountedFs;

/// Refuses to open a file of fs-verity.
pub(crate) fn check_open(fs: &MountedFs, ino: u32) -> Result<()> {
    let may_be = fs.vol.geo.ro_compat.contains(RoCompat::VERITY);
    if may_be && fs.cell(ino)?.read_any()?.node.raw.flags.contains(InodeFlags::VERITY) {
        return Err(fs.verified.refusal());
    }
    Ok(())
}

/// A file that becomes one of fs-verity: there is none.
pub(crate) enum Enabling {}

/// True once the caller has given up.
pub(crate) type Stop<'a> = &'a dyn Fn() -> bool;

impl Enabling {
    pub(crate) fn hash(&mut self, _fs: &MountedFs, _stop: Stop<'_>) -> Result<bool> {
        match *self {}
    }
}

/// Makes no file one of fs-verity.
pub(crate) fn begin(fs: &MountedFs, _ino: u32, _how: &EnableVerity) -> Result<Enabling> {
    Err(fs.verified.refusal())
}

/// Ends nothing.
pub(crate) fn finish(_fs: &MountedFs, file: &Enabling, _stop: Stop<'_>) -> Result<()> {
    match *file {}
}

/// Knows no digest of a file.
pub(crate) fn measure(fs: &MountedFs, _ino: u32) -> Result<VerityDigest> {
    Err(fs.verified.refusal())
}

/// Reads nothing of what is behind the contents.
pub(crate) fn part(
    fs: &MountedFs,
    _ino: u32,
    _part: VerityPart,
    _offset: u64,
    _buf: &mut [u8],
) -> Result<usize> {
    Err(fs.verified.refusal())
}
