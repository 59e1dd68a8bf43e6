//! Volumes.

use std::ffi::c_char;
use std::sync::Arc;

use extol::device::SharedDevice;
use extol::{Ext4, FileSystem as _, MountOptions};

use crate::device::{CallbackDevice, extol_device};
use crate::failure::{Failure, Result, call, done};
use crate::given;

/// An open volume.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct extol_fs(pub(crate) Arc<Ext4>);

/// Sizes of a volume, as of statvfs(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extol_statfs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Longest name.
    pub name_max: u32,
    /// Blocks for data.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for ordinary users.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Mount options from the caller.
///
/// # Safety
/// As [`given::bytes`].
pub(crate) unsafe fn options(text: *const c_char) -> Result<MountOptions> {
    // SAFETY: by the contract.
    let text = unsafe { given::option(text, "the options") }?;
    MountOptions::parse(text.unwrap_or_default()).map_err(Failure::invalid)
}

/// Opens a volume by the name that the commands take: a disk image, a block device, a partition of
/// one ("disk.img:2"), a tag ("LABEL=data"), an address ("nbd://host/export"). `options` are those
/// of mount -o, such as "ro"; NULL for none. A journal with work in it is replayed; with "ro" that
/// is done in memory, if the device is not to be written. Close it with extol_close().
///
/// # Safety
/// Both are texts that end with a zero, or `options` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_open(name: *const c_char, options: *const c_char) -> *mut extol_fs {
    call(std::ptr::null_mut(), || {
        // SAFETY: by the contract.
        let (path, options) = unsafe { (given::path(name)?, self::options(options)?) };
        Ok(given::give(extol_fs(Ext4::open_path(path, &options)?)))
    })
}

/// Opens a volume on a device that the program itself is: extol_open() for `device`, which is
/// copied. Its callbacks are called by many threads at once, and with `data` as their first
/// argument; they and `data` have to stay until the volume and all its files and directories are
/// closed.
///
/// # Safety
/// As the text above says; the callbacks do what their descriptions say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_open_device(
    device: *const extol_device,
    options: *const c_char,
) -> *mut extol_fs {
    call(std::ptr::null_mut(), || {
        // SAFETY: by the contract.
        let (device, options) =
            unsafe { (*given::held(device, "the device")?, self::options(options)?) };
        let device: SharedDevice = Arc::new(CallbackDevice::new(device)?);
        Ok(given::give(extol_fs(Ext4::open(device, &options)?)))
    })
}

/// Writes everything and closes a volume, also when it fails; NULL is fine. Files and directories
/// that are open have to be closed as well, before or afterwards: other calls with them fail.
///
/// # Safety
/// `fs` is not used by another call now, or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_close(fs: *mut extol_fs) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let fs = unsafe { given::take(fs) };
        fs.map_or(Ok(()), |fs| fs.0.unmount()).map_err(Failure::from)
    })
}

/// Makes everything durable.
///
/// # Safety
/// `fs` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_sync(fs: *const extol_fs) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let fs = unsafe { given::held(fs, "the volume") }?;
        Ok(fs.0.sync()?)
    })
}

/// Sizes of the volume.
///
/// # Safety
/// `fs` is open; `out` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_statfs(fs: *const extol_fs, out: *mut extol_statfs) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let fs = unsafe { given::held(fs, "the volume") }?;
        let s = fs.0.statfs()?;
        let result = extol_statfs {
            block_size: s.block_size,
            name_max: s.name_max,
            blocks: s.blocks,
            blocks_free: s.blocks_free,
            blocks_available: s.blocks_available,
            inodes: s.inodes,
            inodes_free: s.inodes_free,
        };
        // SAFETY: by the contract.
        unsafe { given::put(out, result) }
    })
}
