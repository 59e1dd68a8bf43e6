//! What there is in place of the calls of Linux on Windows.

use std::io;

/// Fills a buffer with random bytes that are fit for keys.
pub(crate) fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}
