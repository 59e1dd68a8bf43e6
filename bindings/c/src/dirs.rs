//! Directory streams.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;

use extol::FsError;
use extol::path::ReadDir;

use crate::failure::{Failure, call, done};
use crate::given;
use crate::volume::extol_fs;

/// Bytes of the longest name, with a zero behind it.
pub const EXTOL_NAME_SIZE: usize = 256;

/// An open directory.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct extol_dir(ReadDir);

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extol_dirent {
    /// Inode number.
    pub ino: u32,
    /// What it is, as in `mode` of extol_stat (S_IFREG and so on, without permission bits); 0 if
    /// the name is gone by now.
    pub kind: u32,
    /// The name, which ends with a zero.
    pub name: [c_char; EXTOL_NAME_SIZE],
}

/// Opens a directory. Close it with extol_closedir().
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_opendir(fs: *const extol_fs, path: *const c_char) -> *mut extol_dir {
    call(std::ptr::null_mut(), || {
        // SAFETY: by the contract.
        let (fs, path) = unsafe { (given::held(fs, "the volume")?, given::path(path)?) };
        Ok(given::give(extol_dir(fs.0.read_dir(path)?)))
    })
}

/// The next entry, without "." and "..". Returns 1, or 0 behind the last.
///
/// # Safety
/// `dir` is open, and used by this call alone; `out` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_readdir(dir: *mut extol_dir, out: *mut extol_dirent) -> c_int {
    call(-1, || {
        // SAFETY: by the contract.
        let dir = unsafe { given::held_mut(dir, "the directory") }?;
        let Some(item) = dir.0.next().transpose()? else { return Ok(0) };
        let mut entry = extol_dirent {
            ino: item.ino(),
            kind: match item.kind() {
                Ok(kind) => kind.mode_bits(),
                Err(FsError::NotFound) => 0,
                Err(error) => return Err(error.into()),
            },
            name: [0; EXTOL_NAME_SIZE],
        };
        let name = item.file_name();
        let bytes = name.as_bytes();
        if bytes.len() >= EXTOL_NAME_SIZE {
            return Err(Failure::from(FsError::NameTooLong));
        }
        for (to, from) in entry.name.iter_mut().zip(bytes) {
            *to = c_char::from_ne_bytes([*from]);
        }
        // SAFETY: by the contract.
        unsafe { given::put(out, entry) }?;
        Ok(1)
    })
}

/// Closes a directory; NULL is fine.
///
/// # Safety
/// `dir` is not used by another call now, or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_closedir(dir: *mut extol_dir) -> c_int {
    done(|| {
        // SAFETY: by the contract.
        drop(unsafe { given::take(dir) });
        Ok(())
    })
}
