//! What the caller gives: strings, buffers, handles. All pointers are checked for NULL; that they
//! point to what the header says is the caller's duty.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::failure::{Failure, Result};

/// A text that ends with a zero.
///
/// # Safety
/// `text` is NULL or such a text, which stays as it is during the call.
pub(crate) unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(Failure::invalid(format_args!("{what} is NULL")));
    }
    // SAFETY: by the contract.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A path.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    // SAFETY: by the contract.
    let bytes = unsafe { bytes(text, "the path") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// A text in UTF-8, or none for NULL.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn option<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract.
    let bytes = unsafe { bytes(text, what) }?;
    let text = std::str::from_utf8(bytes);
    text.map(Some).map_err(|_| Failure::invalid(format_args!("{what}: is not UTF-8")))
}

/// A buffer of the caller to be read. NULL is fine for one of no bytes.
///
/// # Safety
/// `at` points to `len` bytes that nothing changes during the call, or `len` is 0.
pub(crate) unsafe fn buffer<'a>(at: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    check_buffer(at.is_null(), len)?;
    // SAFETY: by the contract.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), len) })
}

/// A buffer of the caller to be filled. NULL is fine for one of no bytes.
///
/// # Safety
/// `at` points to `len` bytes that are the function's alone during the call, or `len` is 0. (Bytes
/// that were never set are only written.)
pub(crate) unsafe fn buffer_mut<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check_buffer(at.is_null(), len)?;
    // SAFETY: by the contract.
    Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len) })
}

fn check_buffer(is_null: bool, len: usize) -> Result<()> {
    match is_null || isize::try_from(len).is_err() {
        true => Err(Failure::invalid("the buffer is NULL, or too long")),
        false => Ok(()),
    }
}

/// What a handle holds.
///
/// # Safety
/// `handle` is NULL or one of [`give`], not taken back yet.
pub(crate) unsafe fn held<'a, T>(handle: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: by the contract.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid(format_args!("{what} is NULL")))
}

/// The same, for one thread at a time.
///
/// # Safety
/// As [`held`], and no other thread uses it during the call.
pub(crate) unsafe fn held_mut<'a, T>(handle: *mut T, what: &str) -> Result<&'a mut T> {
    // SAFETY: by the contract.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::invalid(format_args!("{what} is NULL")))
}

/// Gives the caller a handle (CB-2).
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes a handle back; none for NULL.
///
/// # Safety
/// As [`held`], and nothing uses it during the call or afterwards.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: by the contract it is one of `give`, and taken back once.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Fails if there is no place for a result. For a function that must not begin then.
pub(crate) fn check_place<T>(place: *mut T) -> Result<()> {
    match place.is_null() {
        true => Err(Failure::invalid("the place for the result is NULL")),
        false => Ok(()),
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `place` is NULL or points to a `T`, set or not, that is the function's alone.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    check_place(place)?;
    // SAFETY: by the contract.
    unsafe { place.write(value) };
    Ok(())
}

/// Copies bytes for the caller, as getxattr(2) does: a buffer of no bytes asks for the length, and
/// ERANGE says that it is too short.
///
/// # Safety
/// As [`buffer_mut`].
pub(crate) unsafe fn copy(bytes: &[u8], at: *mut c_void, len: usize) -> Result<isize> {
    if len > 0 {
        // SAFETY: by the contract.
        let buffer = unsafe { buffer_mut(at, len) }?;
        let target = buffer.get_mut(..bytes.len()).ok_or(extol::FsError::Range)?;
        target.copy_from_slice(bytes);
    }
    isize::try_from(bytes.len()).map_err(|_| extol::FsError::TooBig.into())
}
