//! fs-verity: enable, measure, and what is behind the contents.

use extol_ondisk::{InodeFlags, RoCompat};
use extol_verity::{Algorithm, MAX_SIGNATURE, Params, Salt};
use extol_vfs::{EnableVerity, FsError, Result, VerityDigest, VerityPart};

use super::files::{check_key, check_regular};
use super::with_space;
use crate::data::verity;
pub(crate) use crate::data::verity::{Enabling, Stop};
use crate::inodes::InodeState;
use crate::mounted::MountedFs;

/// The smallest size of a page: a tree with longer blocks could not be read everywhere.
const PAGE: u32 = 4096;

/// Begins to make a regular file one of fs-verity.
pub(crate) fn begin(fs: &MountedFs, ino: u32, how: &EnableVerity) -> Result<Enabling> {
    fs.check_writable()?;
    let params = params(fs, how)?;
    let cell = fs.cell(ino)?;
    with_space(fs, || {
        let mut st = cell.write_behind_flush()?;
        check_enable(fs, &st)?;
        st.reserve = None;
        Enabling::begin(fs, &cell, &mut st, params.clone(), how.signature.clone())
    })
}

/// Ends what was begun, once the contents are hashed.
pub(crate) fn finish(fs: &MountedFs, file: &Enabling, stop: Stop<'_>) -> Result<()> {
    fs.check_writable()?;
    with_space(fs, || {
        let mut st = file.cell().write_behind_flush()?;
        check_enable(fs, &st)?;
        st.reserve = None;
        file.finish(fs, &mut st, stop)
    })
}

/// Err if the file cannot become one of fs-verity.
fn check_enable(fs: &MountedFs, st: &InodeState) -> Result<()> {
    check_regular(st)?;
    check_key(fs, st)?;
    let flags = st.node.raw.flags;
    if flags.intersects(InodeFlags::IMMUTABLE.union(InodeFlags::APPEND)) {
        return Err(FsError::NotPermitted);
    }
    if !fs.vol.geo.ro_compat.contains(RoCompat::VERITY) {
        return Err(FsError::NotSupported("the volume has no feature verity"));
    }
    if flags.contains(InodeFlags::VERITY) {
        return Err(FsError::Exists);
    }
    if flags.contains(InodeFlags::DAX) {
        return Err(FsError::Invalid("fs-verity beside DAX"));
    }
    Ok(())
}

fn params(fs: &MountedFs, how: &EnableVerity) -> Result<Params> {
    if how.block_size > PAGE.min(fs.vol.geo.block_size.bytes()) {
        return Err(FsError::Invalid("blocks of a tree longer than those of the volume, or 4096"));
    }
    if how.signature.len() > MAX_SIGNATURE {
        return Err(FsError::Invalid("the signature is too long"));
    }
    let algorithm =
        Algorithm::from_id(how.algorithm).ok_or(FsError::Invalid("unknown hash algorithm"))?;
    let salt = Salt::new(&how.salt).map_err(|_| FsError::Invalid("the salt is too long"))?;
    Params::new(algorithm, how.block_size, salt)
        .map_err(|_| FsError::Invalid("the block size is no power of two from 1024"))
}

fn check_verity(st: &InodeState) -> Result<()> {
    let is_verity = st.is_regular() && st.node.raw.flags.contains(InodeFlags::VERITY);
    if is_verity { Ok(()) } else { Err(FsError::NoAttribute) }
}

/// The digest of a file.
pub(crate) fn measure(fs: &MountedFs, ino: u32) -> Result<VerityDigest> {
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    check_verity(&st)?;
    let digest = verity::load(fs, &st)?.verifier.descriptor().digest();
    Ok(VerityDigest { algorithm: digest.algorithm().id(), bytes: digest.bytes().to_vec() })
}

/// Reads what is behind the contents.
pub(crate) fn part(
    fs: &MountedFs,
    ino: u32,
    part: VerityPart,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    check_verity(&st)?;
    verity::part(fs, &st, part, offset, buf)
}
