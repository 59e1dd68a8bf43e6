//! Volumes as a whole, which are not open: what they are, their size and their properties.

use std::ffi::{c_char, c_int, c_void};
use std::time::SystemTime;

use extol::by_name;
use extol::mkfs::volume_uuid;
use extol::resize::{ResizeProgress, Target};
use extol::tune::Request;

use crate::failure::{Failure, Result, call, done};
use crate::given;
use crate::volume;

/// Bytes of the longest label, written out, with a zero behind it.
pub const EXTOL_LABEL_SIZE: usize = 97;
/// Bytes of a UUID as text, with a zero behind it.
pub const EXTOL_UUID_SIZE: usize = 37;
/// Bytes of a list of features, with a zero behind it.
pub const EXTOL_FEATURES_SIZE: usize = 1024;

/// What a volume is, by its superblock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extol_info {
    /// The label.
    pub label: [c_char; EXTOL_LABEL_SIZE],
    /// The UUID.
    pub uuid: [c_char; EXTOL_UUID_SIZE],
    /// All features, as mke2fs spells them, between commas.
    pub features: [c_char; EXTOL_FEATURES_SIZE],
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks kept for root.
    pub blocks_reserved: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub inodes_free: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Errors that are recorded.
    pub errors: u32,
    /// The journal has work in it.
    pub needs_recovery: bool,
    /// When it was made, in seconds since 1970, as are the others.
    pub created: u64,
    /// Last mount.
    pub mounted: u64,
    /// Last write.
    pub written: u64,
    /// Last check.
    pub checked: u64,
}

/// A text in a field, cut where it does not fit.
fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.bytes().take_while(|b| *b != 0)) {
        *to = c_char::from_ne_bytes([from]);
    }
    field
}

/// What a volume is. It may be in use.
///
/// # Safety
/// `name` ends with a zero; `out` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_info(name: *const c_char, out: *mut extol_info) -> c_int {
    done(|| {
        // SAFETY: by the contract.
        let name = unsafe { given::path(name) }?;
        given::check_place(out)?;
        let info = by_name::info(name)?;
        let result = extol_info {
            label: field(&info.label),
            uuid: field(&info.uuid),
            features: field(&info.features.join(",")),
            block_size: info.block_size,
            blocks: info.blocks,
            blocks_free: info.free_blocks,
            blocks_reserved: info.reserved_blocks,
            inodes: info.inodes,
            inodes_free: info.free_inodes,
            inode_size: info.inode_size.into(),
            errors: info.error_count,
            needs_recovery: info.needs_recovery,
            created: info.created,
            mounted: info.mounted,
            written: info.written,
            checked: info.checked,
        };
        // SAFETY: by the contract.
        unsafe { given::put(out, result) }
    })
}

/// For extol_resize(): as large as the device.
pub const EXTOL_RESIZE_DEVICE: u64 = 0;
/// For extol_resize(): as small as what is in use allows.
pub const EXTOL_RESIZE_MINIMUM: u64 = u64::MAX;

/// Makes a volume, which is not in use, larger or smaller. `bytes` is its new size, or one of those
/// above; a disk image becomes as long. A damaged volume is refused, unless `force`. `options` as
/// of extol_open(). `progress`, if it is not NULL, is called now and then; when it returns
/// something else than 0, the work stops, and the volume has a size in between. Returns the new
/// size in bytes.
///
/// # Safety
/// As extol_open(); `progress` takes `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_resize(
    name: *const c_char,
    options: *const c_char,
    bytes: u64,
    force: bool,
    progress: Option<unsafe extern "C" fn(data: *mut c_void, done: u64, total: u64) -> c_int>,
    data: *mut c_void,
) -> i64 {
    call(-1, || {
        // SAFETY: by the contract.
        let (name, options) = unsafe { (given::path(name)?, volume::options(options)?) };
        let target = match bytes {
            EXTOL_RESIZE_DEVICE => Target::Device,
            EXTOL_RESIZE_MINIMUM => Target::Minimum,
            bytes => Target::Bytes(bytes),
        };
        let told = &mut |at: ResizeProgress| {
            // SAFETY: by the contract.
            progress.is_none_or(|told| unsafe { told(data, at.done, at.all) } == 0)
        };
        let resized = by_name::resize(name, &options, target, force, told)?;
        let bytes = resized.blocks.saturating_mul(resized.block_size.into());
        i64::try_from(bytes).map_err(|_| Failure::invalid("the size is beyond 63 bits"))
    })
}

/// What is changed of a volume. Texts that are NULL leave it as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extol_tune_options {
    /// Bytes of this struct, sizeof(struct extol_tune_options).
    pub struct_size: usize,
    /// The label, as of -L.
    pub label: *const c_char,
    /// A UUID, or random, time or clear, as of -U.
    pub uuid: *const c_char,
    /// Features, as of -O.
    pub features: *const c_char,
    /// As of -E.
    pub extended: *const c_char,
    /// A journal that is made, as of -J: such as "size=16".
    pub journal: *const c_char,
    /// Go on though the volume is damaged.
    pub force: bool,
}

/// What is to be changed.
///
/// # Safety
/// The texts in `given` are NULL, or end with a zero.
unsafe fn request(given: &extol_tune_options) -> Result<Request> {
    let mut request = Request::default();
    // SAFETY: by the contract these are texts.
    let (label, uuid, features, extended, journal) = unsafe {
        (
            given::option(given.label, "the label")?,
            given::option(given.uuid, "the UUID")?,
            given::option(given.features, "the features")?,
            given::option(given.extended, "the extended options")?,
            given::option(given.journal, "the journal options")?,
        )
    };
    request.label = label.map(|label| label.as_bytes().to_vec());
    if let Some(uuid) = uuid {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        request.uuid = Some(volume_uuid(Some(uuid), now).map_err(Failure::invalid)?);
    }
    request.set_features(features.unwrap_or_default())?;
    request.set_extended(extended.unwrap_or_default())?;
    if let Some(journal) = journal {
        request.set_journal(journal)?;
    }
    request.cut();
    Ok(request)
}

/// Changes properties of a volume that is not in use. `mount_options` as of extol_open().
///
/// # Safety
/// As extol_open(); `options` has its `struct_size` and texts that end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_tune(
    name: *const c_char,
    mount_options: *const c_char,
    options: *const extol_tune_options,
) -> c_int {
    done(|| {
        // SAFETY: by the contract.
        let (name, mount_options) =
            unsafe { (given::path(name)?, volume::options(mount_options)?) };
        // SAFETY: by the contract.
        let options = unsafe { given::sized(options) }?;
        let options = options.ok_or_else(|| Failure::invalid("the options are NULL"))?;
        // SAFETY: by the contract.
        let request = unsafe { request(options) }?;
        Ok(by_name::tune(name, &mount_options, &request, options.force).map(drop)?)
    })
}
