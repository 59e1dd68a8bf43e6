//! Directory streams.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extol::path::{DirItem, ReadDir};
use extol::{Ext4, FsError};

use crate::failure::{Failure, Result, call, done};
use crate::given;
use crate::paths::{self, extol_stat};
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
    let open = |fs: &Arc<Ext4>, path: &Path| Ok(given::give(extol_dir(fs.read_dir(path)?)));
    // SAFETY: by the contract.
    call(std::ptr::null_mut(), || unsafe { paths::on(fs, path, open) })
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
        given::check_place(out)?;
        let Some(item) = dir.0.next().transpose()? else { return Ok(0) };
        let kind = match item.kind() {
            Ok(kind) => kind.mode_bits(),
            Err(FsError::NotFound) => 0,
            Err(error) => return Err(error.into()),
        };
        // SAFETY: by the contract.
        unsafe { given::put(out, entry(&item, kind)?) }?;
        Ok(1)
    })
}

/// The next entry whose name is still there, with the attributes of what it names: of a symbolic
/// link itself. That is faster than extol_readdir() and an extol_lstat() of each name. Returns as
/// extol_readdir(). A failure is that of one inode, or ends the list: the next call goes on behind
/// its name, or returns 0.
///
/// # Safety
/// As extol_readdir(); `attr` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_readdirplus(
    dir: *mut extol_dir,
    out: *mut extol_dirent,
    attr: *mut extol_stat,
) -> c_int {
    call(-1, || {
        // SAFETY: by the contract.
        let dir = unsafe { given::held_mut(dir, "the directory") }?;
        given::check_place(out).and(given::check_place(attr))?;
        while let Some(item) = dir.0.next().transpose()? {
            let found = match item.metadata() {
                Ok(found) => found,
                Err(FsError::NotFound) => continue,
                Err(error) => return Err(Failure::from(error).about(&[&item.path()])),
            };
            let entry = entry(&item, found.kind.mode_bits())?;
            // SAFETY: by the contract.
            unsafe { (given::put(out, entry)?, given::put(attr, extol_stat::of(&found))?) };
            return Ok(1);
        }
        Ok(0)
    })
}

fn entry(item: &DirItem, kind: u32) -> Result<extol_dirent> {
    let mut entry = extol_dirent { ino: item.ino(), kind, name: [0; EXTOL_NAME_SIZE] };
    let name = item.file_name();
    let bytes = name.as_bytes();
    if bytes.len() >= EXTOL_NAME_SIZE {
        return Err(Failure::from(FsError::NameTooLong));
    }
    for (to, from) in entry.name.iter_mut().zip(bytes) {
        *to = c_char::from_ne_bytes([*from]);
    }
    Ok(entry)
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
