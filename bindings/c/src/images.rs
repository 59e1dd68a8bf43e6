//! Making, recovering and checking volumes.

use std::ffi::{c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use extol::check::{CheckOptions, Severity, check};
use extol::device::open::{self, OpenName, Window};
use extol::device::{OpenOptions, SharedDevice};
use extol::image::build::{BuildOptions, BuildProgress, Free, SizeWish};
use extol::image::source::{self, SourceOptions};
use extol::image::{build_file, mkfs_file};
use extol::mkfs::MkfsOptions;

use crate::failure::{Failure, Result, call, done};
use crate::given;
use crate::volume;

/// How a volume is made; all zeros is what mkfs does without options. Texts may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extol_mkfs_options {
    /// Bytes of this struct, sizeof(struct extol_mkfs_options): a later library knows by it which
    /// fields there are.
    pub struct_size: usize,
    /// Bytes of the volume. 0: of extol_mkfs() the size of what is there, of extol_build() what the
    /// files need.
    pub size: u64,
    /// The label, as of -L.
    pub label: *const c_char,
    /// Features, as of -O: names, with ^ for one that is taken away, between commas.
    pub features: *const c_char,
    /// As of -E.
    pub extended: *const c_char,
    /// A UUID, as of -U.
    pub uuid: *const c_char,
    /// Bytes of a block, as of -b; 0 lets the size decide.
    pub block_size: u32,
    /// Inodes, as of -N; 0 lets the size decide.
    pub inodes: u32,
    /// Of extol_build() with a size of 0: bytes that are free afterwards.
    pub free: u64,
    /// Of extol_build(): the time of the making, in seconds since 1970, as SOURCE_DATE_EPOCH; 0:
    /// that of the newest file.
    pub time: u64,
}

/// What the options say.
///
/// # Safety
/// `options` is NULL, or as the header demands.
unsafe fn read(options: *const extol_mkfs_options) -> Result<(MkfsOptions, u64, u64)> {
    let mut made = MkfsOptions::default();
    if options.is_null() {
        return Ok((made, 0, 0));
    }
    // SAFETY: by the contract it is at least a `struct_size`, which is its first field.
    let size = unsafe { *options.cast::<usize>() };
    if size < size_of::<extol_mkfs_options>() {
        return Err(Failure::invalid("struct_size is too small: use sizeof"));
    }
    // SAFETY: by the contract, as the size says.
    let given = unsafe { given::held(options, "the options") }?;
    // SAFETY: by the contract these are texts.
    let (label, features, extended, uuid) = unsafe {
        (
            given::option(given.label, "the label")?,
            given::option(given.features, "the features")?,
            given::option(given.extended, "the extended options")?,
            given::option(given.uuid, "the UUID")?,
        )
    };
    made.label = label.map(Into::into);
    made.features = features.map(str::to_owned).into_iter().collect();
    made.uuid = uuid.map(str::to_owned);
    made.block_size = (given.block_size != 0).then_some(given.block_size);
    made.inodes = (given.inodes != 0).then_some(given.inodes.into());
    made.size = (given.size != 0).then_some(given.size);
    made.set_extended(extended.unwrap_or_default()).map_err(Failure::invalid)?;
    Ok((made, given.free, given.time))
}

/// Makes an empty volume in a file or on a block device, whose contents are lost. A file that is
/// not there is made, if `options` have a size.
///
/// # Safety
/// `path` ends with a zero; `options` is NULL, or has its `struct_size` and texts that end with a
/// zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_mkfs(
    path: *const c_char,
    options: *const extol_mkfs_options,
) -> c_int {
    done(|| {
        // SAFETY: by the contract.
        let (path, (options, _, _)) = unsafe { (given::path(path)?, read(options)?) };
        Ok(mkfs_file(path, &options, &mut |_| {}).map(drop)?)
    })
}

/// Builds a volume with the files of `source`: a directory, an archive (tar, also compressed) or
/// the layout of a container image. What `path` held is lost; a file there that has no size given
/// is as long as the volume afterwards. `progress`, if it is not NULL, is called now and then with
/// bytes or files that are done, and all of them; when it returns something else than 0, the work
/// stops, with ECANCELED.
///
/// # Safety
/// As extol_mkfs(); `progress` takes `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_build(
    path: *const c_char,
    source: *const c_char,
    options: *const extol_mkfs_options,
    progress: Option<unsafe extern "C" fn(data: *mut c_void, done: u64, total: u64) -> c_int>,
    data: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: by the contract.
        let (path, from, (mkfs, free, time)) =
            unsafe { (given::path(path)?, given::path(source)?, read(options)?) };
        let mut options = BuildOptions { mkfs, ..BuildOptions::default() };
        options.source_date_epoch = (time != 0).then_some(time);
        if options.mkfs.size.is_none() {
            options.size = SizeWish::AsNeeded(Free::Bytes(free));
        }
        // What cannot be read twice is kept beside the new volume.
        let spool = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut from = source::open(from, &SourceOptions { spool, ..SourceOptions::default() })?;
        let told = &mut |at: BuildProgress| {
            // SAFETY: by the contract.
            let stop = progress.is_some_and(|told| unsafe { told(data, at.done, at.total) } != 0);
            if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        Ok(build_file(path, &mut *from, &options, told).map(drop)?)
    })
}

/// Opens a device by a name.
fn device_of(name: &Path, how: &OpenOptions) -> Result<SharedDevice> {
    let name = OpenName::parse(name, Window::default())?;
    Ok(open::open(&name, how)?.device)
}

/// Replays the journal of a volume on it, and finishes what was being deleted. Returns 1 if it was
/// needed, and 0 if nothing was to do. `options` as of extol_open().
///
/// # Safety
/// As extol_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_replay(name: *const c_char, options: *const c_char) -> c_int {
    call(-1, || {
        // SAFETY: by the contract.
        let (name, options) = unsafe { (given::path(name)?, volume::options(options)?) };
        let device = device_of(name, &OpenOptions::read_write())?;
        let replayed = extol::replay(&device, &options)?;
        Ok(c_int::from(replayed.was_needed))
    })
}

/// Compares a volume with itself, as e2fsck -fn does; nothing is changed. A journal with work in it
/// is replayed in memory first. Returns 0 if the volume is clean and 1 if it is damaged; `found`,
/// if it is not NULL, gets a line for each finding, which ends with a zero and stays only during
/// the call.
///
/// # Safety
/// `name` ends with a zero; `found` takes `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_check(
    name: *const c_char,
    found: Option<unsafe extern "C" fn(data: *mut c_void, is_error: bool, line: *const c_char)>,
    data: *mut c_void,
) -> c_int {
    call(-1, || {
        // SAFETY: by the contract.
        let name = unsafe { given::path(name) }?;
        let device = device_of(name, &OpenOptions::read_only().exclusive(false))?;
        let report = check(Arc::clone(&device), &CheckOptions::default(), &mut |_| {});
        let report = report.map_err(Failure::invalid)?;
        for finding in &report.findings {
            let Some(found) = found else { break };
            let line: Vec<u8> = finding.to_string().into_bytes();
            let line = std::ffi::CString::new(line).unwrap_or_default();
            // SAFETY: by the contract.
            unsafe { found(data, finding.severity == Severity::Error, line.as_ptr()) };
        }
        Ok(c_int::from(!report.is_clean()))
    })
}
