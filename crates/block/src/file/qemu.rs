//! The locks that QEMU and qemu-img keep on images: read locks on single bytes, which `flock` does
//! not show.
//!
//! Byte 100 + n: this process does n; byte 200 + n: no other may do n. 0 is reading, 1 writing, 3
//! changing the length. A process looks at 200 + n before it does n, and at 100 + n before it
//! forbids it.
//!
//! A user of a part leaves writing to the users of other parts: it forbids nothing, and does not
//! look for processes that write, but for those that forbid it.

use std::fs::File;

use crate::sys::{RangeLock, is_range_locked, lock_range};

const DOES: u64 = 100;
const FORBIDS: u64 = 200;
const READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

/// Takes QEMU's locks.
///
/// # Errors
/// The end of a sentence that begins with the image: a QEMU uses it.
pub(super) fn claim(file: &File, read_only: bool, is_part: bool) -> Result<(), String> {
    let mut looked_at = vec![FORBIDS + READ];
    if is_part {
        looked_at.push(FORBIDS + WRITE);
    } else {
        looked_at.extend([DOES + WRITE, DOES + RESIZE]);
    }
    if !read_only && !is_part {
        looked_at.extend([FORBIDS + WRITE, FORBIDS + RESIZE]);
    }
    // (A file system without such locks has none that are held.)
    let is_held = |byte: &u64| is_range_locked(file, &(*byte..byte + 1)).unwrap_or(false);
    let is_used = super::busy::patiently(|| looked_at.iter().any(is_held), |is_used| *is_used);
    if is_used {
        return Err("is in use by QEMU or qemu-img, which has locked it: shut that machine down \
                    first"
            .to_owned());
    }
    for byte in bytes(read_only, is_part) {
        let _ = lock_range(file, &(byte..byte + 1), RangeLock::Shared);
    }
    Ok(())
}

/// Gives QEMU's locks back.
pub(super) fn release(file: &File) {
    for byte in bytes(false, false) {
        let _ = lock_range(file, &(byte..byte + 1), RangeLock::Unlocked);
    }
}

/// The bytes that are locked.
fn bytes(read_only: bool, is_part: bool) -> Vec<u64> {
    let mut bytes = vec![DOES + READ];
    if !read_only {
        bytes.extend([DOES + WRITE, DOES + RESIZE]);
    }
    if !is_part {
        bytes.extend([FORBIDS + WRITE, FORBIDS + RESIZE]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (one, two) = (open(), open());
        // Readers beside each other, no writer beside them.
        claim(&one, true, false).unwrap();
        claim(&two, true, false).unwrap();
        release(&two);
        assert!(claim(&two, false, false).unwrap_err().contains("QEMU"));
        assert!(claim(&two, false, true).is_err());
        release(&one);
        // A writer alone.
        claim(&one, false, false).unwrap();
        assert!(claim(&two, false, false).is_err() && claim(&two, true, false).is_err());
        release(&one);
        // Users of parts beside each other, and beside no other.
        claim(&one, false, true).unwrap();
        claim(&two, false, true).unwrap();
        release(&two);
        assert!(claim(&two, false, false).is_err() && claim(&two, true, false).is_err());
    }
}
