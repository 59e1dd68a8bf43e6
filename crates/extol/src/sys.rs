//! What one system tells and another does not.

use std::path::Path;

/// The name of this host.
#[cfg(unix)]
pub(crate) fn node_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// The name of this host.
#[cfg(not(unix))]
pub(crate) fn node_name() -> Vec<u8> {
    std::env::var("COMPUTERNAME").unwrap_or_default().into_bytes()
}

/// The number of a block device, as a superblock has it; 0 for a file.
#[cfg(unix)]
pub(crate) fn device_number(path: &Path) -> u32 {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

    let metadata = std::fs::metadata(path).ok();
    let device = metadata.filter(|metadata| metadata.file_type().is_block_device());
    device.map_or(0, |device| device.rdev() as u32)
}

/// 0: nothing but files is opened.
#[cfg(not(unix))]
pub(crate) fn device_number(_path: &Path) -> u32 {
    0
}
