//! A thread that has no part in the files of its process.

use std::io;

/// Gives the calling thread a table of descriptors of its own, in which only the standard ones are open. For a thread that is about to
/// wait for a mount that its own process serves: should the process be killed meanwhile, it can end only when the mount is over, and
/// the mount is over only when all descriptors of its device are closed, which those of this thread must not stand in the way of.
///
/// The thread must not use any value with a descriptor that was opened before, nor drop one: the descriptor would stay open in the
/// table of the others.
///
/// # Errors
/// If the kernel does not know the call (before Linux 5.9), or is short of memory.
pub fn have_no_files() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: with CLOSE_RANGE_UNSHARE the table is copied first and descriptors are closed in the copy, which is this thread's alone.
    // Those of all other threads stay as they are; and what this thread does with descriptors can only fail afterwards.
    #[allow(unsafe_code)]
    let result = unsafe { libc::close_range(FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE as libc::c_int) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn others_keep_theirs() {
        let file = File::open("/dev/null").unwrap();
        let name = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
        assert!(std::fs::metadata(&name).is_ok());
        let its = name.clone();
        let seen = std::thread::spawn(move || {
            have_no_files().unwrap();
            std::fs::metadata(its).is_ok()
        });
        assert!(!seen.join().unwrap(), "its own table");
        assert!(std::fs::metadata(&name).is_ok());
        assert!(file.metadata().is_ok());
    }
}
