//! Contents of files.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;

use extol::vfs::{Creds, Fallocate};
use extol::{Ext4, File, OpenOptions};

use crate::failure::{Failure, Result, call, done};
use crate::given;
use crate::paths::{self, extol_stat};
use crate::volume::extol_fs;

/// An open file.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct extol_file(File);

/// Open for reading.
pub const EXTOL_RDONLY: i32 = 0;
/// Open for writing.
pub const EXTOL_WRONLY: i32 = 1;
/// Open for both.
pub const EXTOL_RDWR: i32 = 2;
/// Make the file if it is not there.
pub const EXTOL_CREAT: i32 = 0o100;
/// With EXTOL_CREAT: fail if it is there.
pub const EXTOL_EXCL: i32 = 0o200;
/// Empty it.
pub const EXTOL_TRUNC: i32 = 0o1000;
/// Fail if the last name is a symbolic link.
pub const EXTOL_NOFOLLOW: i32 = 0o400_000;

const KNOWN: i32 =
    EXTOL_WRONLY | EXTOL_RDWR | EXTOL_CREAT | EXTOL_EXCL | EXTOL_TRUNC | EXTOL_NOFOLLOW;

/// What open(2) would make of these flags. (Their numbers are those of Linux on most processors.)
fn how(flags: i32, mode: u32) -> Result<OpenOptions> {
    let access = flags & 3;
    if flags & !KNOWN != 0 || access == 3 {
        return Err(Failure::invalid(format_args!("unknown flags: {flags:#o}")));
    }
    let has = |flag: i32| flags & flag != 0;
    let mut how = OpenOptions::new();
    how.read(access != EXTOL_WRONLY).write(access != EXTOL_RDONLY);
    how.create(has(EXTOL_CREAT)).create_new(has(EXTOL_CREAT) && has(EXTOL_EXCL));
    how.truncate(has(EXTOL_TRUNC)).follow(!has(EXTOL_NOFOLLOW));
    how.mode((mode & 0o7777) as u16);
    Ok(how)
}

/// Opens a file, or a directory for reading (for extol_fsync()). `flags` are EXTOL_RDONLY and so
/// on; a file that is made gets the permission bits of `mode` and belongs to root. Close it with
/// extol_file_close().
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_file_open(
    fs: *const extol_fs,
    path: *const c_char,
    flags: i32,
    mode: u32,
) -> *mut extol_file {
    let open = |fs: &Arc<Ext4>, path: &Path| {
        Ok(given::give(extol_file(fs.open_file(path, &how(flags, mode)?)?)))
    };
    // SAFETY: by the contract.
    call(std::ptr::null_mut(), || unsafe { paths::on(fs, path, open) })
}

/// Makes a file without a name in a directory, open for both; it is deleted when it is closed,
/// unless extol_file_link() gives it a name.
///
/// # Safety
/// `fs` is open; `dir` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_tmpfile(
    fs: *const extol_fs,
    dir: *const c_char,
    mode: u32,
) -> *mut extol_file {
    let make = |fs: &Arc<Ext4>, dir: &Path| {
        let file = fs.create_unnamed_file(dir)?;
        paths::set_mode(fs, file.inode().ino(), mode)?;
        Ok(given::give(extol_file(file)))
    };
    // SAFETY: by the contract.
    call(std::ptr::null_mut(), || unsafe { paths::on(fs, dir, make) })
}

/// Gives an open file another name.
///
/// # Safety
/// `file` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_file_link(file: *const extol_file, path: *const c_char) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let (file, path) = unsafe { (given::held(file, "the file")?, given::path(path)?) };
        file.0.link_to(path).map_err(|error| Failure::from(error).about(&[path]))
    })
}

/// Closes a file; NULL is fine. What was written is durable only after extol_fsync().
///
/// # Safety
/// `file` is not used by another call now, or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_file_close(file: *mut extol_file) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        drop(unsafe { given::take(file) });
        Ok(())
    })
}

fn count(n: usize) -> Result<isize> {
    isize::try_from(n).map_err(|_| Failure::invalid("the buffer is too long"))
}

/// Reads up to `len` bytes from `offset`; fewer only at the end of the file, where it is 0.
///
/// # Safety
/// `file` is open; `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_pread(
    file: *const extol_file,
    buffer: *mut c_void,
    len: usize,
    offset: u64,
) -> isize {
    call(-1, || {
        // SAFETY: by the contract.
        let (file, buffer) =
            unsafe { (given::held(file, "the file")?, given::buffer_mut(buffer, len)?) };
        count(file.0.read_at(buffer, offset)?)
    })
}

/// Writes `len` bytes at `offset`; fewer only if the volume gets full.
///
/// # Safety
/// `file` is open; `buffer` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_pwrite(
    file: *const extol_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
) -> isize {
    call(-1, || {
        // SAFETY: by the contract.
        let (file, buffer) =
            unsafe { (given::held(file, "the file")?, given::buffer(buffer, len)?) };
        count(file.0.write_at(buffer, offset)?)
    })
}

/// Writes `len` bytes at the end of the file, wherever that is when they are written: no other
/// write comes between. Returns how many, as extol_pwrite(). `at`, if it is not NULL, gets the
/// offset.
///
/// # Safety
/// As extol_pwrite(); `at` is NULL or has room for the offset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_append(
    file: *const extol_file,
    buffer: *const c_void,
    len: usize,
    at: *mut u64,
) -> isize {
    call(-1, || {
        // SAFETY: by the contract.
        let (file, buffer) =
            unsafe { (given::held(file, "the file")?, given::buffer(buffer, len)?) };
        let (offset, written) = file.0.append(buffer)?;
        if !at.is_null() {
            // SAFETY: by the contract.
            unsafe { given::put(at, offset) }?;
        }
        count(written)
    })
}

/// Sets the size: cuts the end off, or adds a hole.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_ftruncate(file: *const extol_file, size: u64) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let file = unsafe { given::held(file, "the file") }?;
        Ok(file.0.set_len(size)?)
    })
}

/// Reserves blocks for a range; the file gets longer where the range does.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_fallocate(file: *const extol_file, offset: u64, len: u64) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let file = unsafe { given::held(file, "the file") }?;
        Ok(file.0.allocate(Fallocate::Allocate { keep_size: false }, offset, len)?)
    })
}

/// Attributes of an open file.
///
/// # Safety
/// `file` is open; `out` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_fstat(file: *const extol_file, out: *mut extol_stat) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let file = unsafe { given::held(file, "the file") }?;
        let attr = file.0.metadata()?;
        // SAFETY: by the contract.
        unsafe { given::put(out, extol_stat::of(&attr)) }
    })
}

/// Makes a file durable: contents, attributes, and the names that lead to it.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_fsync(file: *const extol_file) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let file = unsafe { given::held(file, "the file") }?;
        Ok(file.0.sync_all()?)
    })
}

/// Makes the contents durable, with those attributes that reading them needs.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_fdatasync(file: *const extol_file) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let file = unsafe { given::held(file, "the file") }?;
        Ok(file.0.sync_data()?)
    })
}

/// What a new file belongs to, unless extol_chown() says otherwise.
pub(crate) fn root() -> Creds {
    Creds::default()
}
