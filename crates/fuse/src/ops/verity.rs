//! The ioctls of fs-verity.
//!
//! The kernel passes the argument of FS_IOC_ENABLE_VERITY with the salt and the signature, to
//! which it has addresses, behind it, and makes room for the digest of FS_IOC_MEASURE_VERITY, whose
//! length the process says. For FS_IOC_READ_VERITY_METADATA, which has the address of a buffer, it
//! does neither: that one is refused.
//!
//! The kernel checks nothing: in ext4 a process that enables verity must have the right to write to
//! the file, which it may have opened for reading. Here it must have that right by the permission
//! bits, or CAP_DAC_OVERRIDE, in the user namespace of the mount. (Beside an access list the bits
//! of the group are a mask: then only the owner's count.)
//!
//! Hashing takes seconds for each gigabyte. So a signal ends it, with EINTR
//! ([`Interrupts`](crate::interrupts::Interrupts)), and no worker of the pool waits for it.

use extol_vfs::EnableVerity;

use super::Context;
use super::ioctl::Call;
use crate::errno::{Errno, Result};
use crate::wire::Reply;

/// Bytes of `struct fsverity_enable_arg`.
pub(super) const ENABLE_SIZE: u32 = 128;
/// Bytes of `struct fsverity_digest` without the digest.
pub(super) const DIGEST_SIZE: u32 = 4;
/// The version of the argument.
const VERSION: u32 = 1;
const MAX_SALT: usize = 32;
const MAX_SIGNATURE: usize = 16_128;

pub(super) fn enable(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let how = decode(call)?;
    if context.writers.has(call.ino) {
        return Err(Errno(libc::ETXTBSY));
    }
    context.server.about_to_wait();
    let running = context.interrupts.begin(call.request.unique);
    context.fs.enable_verity_unless(call.ino, &how, &|| running.is_interrupted())?;
    // Pages that were read before were not verified.
    context.server.invalidate(call.request.nodeid, 0);
    Ok(())
}

fn decode(call: &Call<'_, '_>) -> Result<EnableVerity> {
    let mut input = call.input();
    let (version, algorithm) = (input.u32()?, input.u32()?);
    let (block_size, salt) = (input.u32()?, input.u32()? as usize);
    input.skip(8)?;
    let (signature, reserved) = (input.u32()? as usize, input.u32()?);
    input.skip(8)?;
    let more = input.bytes(88)?;
    if version != VERSION || reserved != 0 || more.iter().any(|byte| *byte != 0) {
        return Err(Errno(libc::EINVAL));
    }
    if !block_size.is_power_of_two() {
        return Err(Errno(libc::EINVAL));
    }
    if salt > MAX_SALT || signature > MAX_SIGNATURE {
        return Err(Errno(libc::EMSGSIZE));
    }
    let salt = input.bytes(salt)?.to_vec();
    let signature = input.bytes(signature)?.to_vec();
    let algorithm = u8::try_from(algorithm).ok().filter(|id| matches!(id, 1 | 2));
    let algorithm = algorithm.ok_or(Errno(libc::EINVAL))?;
    Ok(EnableVerity { algorithm, block_size, salt, signature })
}

pub(super) fn measure(context: &Context<'_>, call: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    let mut input = call.input();
    input.skip(2)?;
    let room = input.u16()?;
    let digest = context.fs.measure_verity(call.ino)?;
    let len = u16::try_from(digest.bytes.len()).unwrap_or(u16::MAX);
    if room < len {
        return Err(Errno(libc::EOVERFLOW));
    }
    reply.u16(digest.algorithm.into()).u16(len).bytes(&digest.bytes);
    Ok(())
}
