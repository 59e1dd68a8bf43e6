//! Making, recovering and checking volumes.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol::MountOptions;
use extol::check::{CheckOptions, Severity, check as compare};
use extol::device::open::{self, OpenName, Window};
use extol::device::{OpenOptions, SharedDevice};
use extol::image::build::{BuildOptions, BuildProgress, Free, SizeWish};
use extol::image::source::{self, SourceOptions};
use extol::image::{BuildError, build_file, mkfs_file};
use extol::mkfs::MkfsOptions;
use pyo3::prelude::*;

use crate::{invalid, open_error, os_error};

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn build_error(error: BuildError) -> PyErr {
    os_error(error.errno(), error)
}

/// Label, features, -E, UUID.
type Texts = (Option<String>, Option<String>, Option<String>, Option<String>);
/// Size, bytes of a block, inodes.
type Sizes = (Option<u64>, Option<u32>, Option<u64>);

fn options(
    (label, features, extended, uuid): Texts,
    (size, block_size, inodes): Sizes,
) -> PyResult<MkfsOptions> {
    let mut options = MkfsOptions {
        label: label.map(Into::into),
        features: features.into_iter().collect(),
        uuid,
        size,
        block_size,
        inodes,
        ..MkfsOptions::default()
    };
    options.set_extended(&extended.unwrap_or_default()).map_err(invalid)?;
    Ok(options)
}

/// Makes an empty volume.
#[pyfunction]
pub(crate) fn mkfs(py: Python<'_>, name: &[u8], texts: Texts, sizes: Sizes) -> PyResult<()> {
    let options = options(texts, sizes)?;
    py.detach(|| mkfs_file(path(name), &options, &mut |_| {})).map(drop).map_err(build_error)
}

/// Builds a volume from a directory, an archive or a container image. Returns notes. `progress`
/// takes what is done, and all; what it raises stops the work.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn build(
    py: Python<'_>,
    name: &[u8],
    from: &[u8],
    texts: Texts,
    sizes: Sizes,
    free: u64,
    time: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<String>> {
    let mut options = BuildOptions { mkfs: options(texts, sizes)?, ..BuildOptions::default() };
    options.source_date_epoch = time;
    if options.mkfs.size.is_none() {
        options.size = SizeWish::AsNeeded(Free::Bytes(free));
    }
    let name = path(name);
    // What cannot be read twice is kept beside the new volume.
    let spool = name.parent().unwrap_or(Path::new("")).to_owned();
    let mut raised = None;
    let built = py.detach(|| {
        let mut from =
            source::open(path(from), &SourceOptions { spool, ..SourceOptions::default() })?;
        build_file(name, &mut *from, &options, &mut |at: BuildProgress| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                progress
                    .as_ref()
                    .map_or(Ok(()), |told| told.call1(py, (at.done, at.total)).map(drop))
            });
            match told {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    });
    match (built, raised) {
        (_, Some(raised)) => Err(raised),
        (built, None) => built.map(|built| built.notes).map_err(build_error),
    }
}

fn device_of(name: &[u8], how: &OpenOptions) -> PyResult<SharedDevice> {
    let name = OpenName::parse(path(name), Window::default());
    let opened = name.and_then(|name| open::open(&name, how));
    Ok(opened.map_err(|error| open_error(error.into()))?.device)
}

/// Replays the journal of a volume on it. True if it was needed.
#[pyfunction]
pub(crate) fn replay(py: Python<'_>, name: &[u8], options: &str) -> PyResult<bool> {
    let options = MountOptions::parse(options).map_err(invalid)?;
    py.detach(|| {
        let device = device_of(name, &OpenOptions::read_write())?;
        extol::replay(&device, &options).map(|done| done.was_needed).map_err(open_error)
    })
}

/// A finding: whether it is an error, its kind, what it is, inode, block, path.
type Found = (bool, &'static str, String, Option<u32>, Option<u64>, Option<String>);

/// Compares a volume with itself. True if it is clean, and what was found.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, name: &[u8]) -> PyResult<(bool, Vec<Found>)> {
    py.detach(|| {
        let device = device_of(name, &OpenOptions::read_only().exclusive(false))?;
        let report = compare(device, &CheckOptions::default(), &mut |_| {}).map_err(invalid)?;
        let found = report.findings.iter().map(|found| {
            let is_error = found.severity == Severity::Error;
            let (what, path) = (found.what.clone(), found.path.clone());
            (is_error, found.kind.name(), what, found.inode, found.block, path)
        });
        Ok((report.is_clean(), found.collect()))
    })
}
