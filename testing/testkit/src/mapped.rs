//! Shared mappings of files, which no safe wrapper offers.

#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, OwnedFd};

/// Maps the pages of a byte range, lets go of the file, hands the bytes of the range to `work`, and
/// unmaps.
fn mapped<T>(
    file: impl AsFd,
    at: u64,
    len: usize,
    prot: ProtFlags,
    work: impl FnOnce(*mut u8) -> T,
) -> std::io::Result<T> {
    let page = rustix::param::page_size() as u64;
    let start = at / page * page;
    let skip = usize::try_from(at - start).map_err(std::io::Error::other)?;
    let size = skip + len;
    // SAFETY: a new mapping at an address that the kernel chooses; it is known here alone, and
    // unmapped below.
    let base = unsafe { mmap(std::ptr::null_mut(), size, prot, MapFlags::SHARED, &file, start) }?;
    drop(file);
    // SAFETY: `skip` lies inside the mapping.
    let result = work(unsafe { base.cast::<u8>().add(skip) });
    // SAFETY: the mapping made above; `work` kept no pointer.
    unsafe { munmap(base, size) }?;
    Ok(result)
}

/// Reads a byte range, which must lie inside the file, through a shared mapping.
pub fn map_read(file: &OwnedFd, at: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let into = bytes.as_mut_ptr();
    // SAFETY: both ranges have `len` bytes and do not overlap. The caller guarantees that
    // the file reaches that far.
    mapped(file, at, len, ProtFlags::READ, |from| unsafe {
        std::ptr::copy_nonoverlapping(from, into, len)
    })?;
    Ok(bytes)
}

/// Writes a byte range, which must lie inside the file, through a shared mapping, and works while
/// the mapping is there: the kernel holds the bytes in dirty pages, if nothing writes them back.
/// The file is closed before, because a close writes back, also that of a copy in a forked process.
pub fn while_mapped<T>(
    file: OwnedFd,
    at: u64,
    bytes: &[u8],
    work: impl FnOnce() -> T,
) -> std::io::Result<T> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let (from, len) = (bytes.as_ptr(), bytes.len());
    mapped(file, at, len, prot, |to| {
        // SAFETY: as in `map_read`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        work()
    })
}

/// Writes a byte range, which must lie inside the file, through a shared mapping.
pub fn map_write(file: &OwnedFd, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let (from, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: as in `map_read`.
    mapped(file, at, len, prot, |to| unsafe { std::ptr::copy_nonoverlapping(from, to, len) })
}
