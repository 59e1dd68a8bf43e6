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
use extol::image::edits::{Owner, Pattern, TimeEdit, parse_time};
use extol::image::source::{self, SourceOptions};
use extol::image::{BuildError, build_file, mkfs_file};
use extol::mkfs::MkfsOptions;
use pyo3::prelude::*;

use crate::{invalid, open_error, os_error_at};

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// An error about what is made at a path.
fn build_error(error: &BuildError, name: &[u8]) -> PyErr {
    os_error_at(error.errno(), error, name)
}

/// How a volume is made.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Making {
    label: Option<String>,
    features: Option<String>,
    extended: Option<String>,
    uuid: Option<String>,
    size: Option<u64>,
    block_size: Option<u32>,
    inodes: Option<u64>,
    force: bool,
}

impl Making {
    fn options(self) -> PyResult<MkfsOptions> {
        let mut options = MkfsOptions::default();
        options.label = self.label.map(Into::into);
        options.features = self.features.into_iter().collect();
        options.uuid = self.uuid;
        options.size = self.size;
        options.block_size = self.block_size;
        options.inodes = self.inodes;
        options.force = self.force;
        options.set_extended(&self.extended.unwrap_or_default()).map_err(invalid)?;
        Ok(options)
    }
}

/// How it is filled.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Filling {
    free: u64,
    source_date_epoch: Option<u64>,
    owner: Option<String>,
    root_owner: Option<String>,
    mtime: Option<String>,
    exclude: Vec<Vec<u8>>,
}

impl Filling {
    fn options(self, mkfs: MkfsOptions) -> Result<BuildOptions, BuildError> {
        let mut options = BuildOptions::default();
        if mkfs.size.is_none() {
            options.size = SizeWish::AsNeeded(Free::Bytes(self.free));
        }
        options.mkfs = mkfs;
        options.source_date_epoch = self.source_date_epoch;
        let edits = &mut options.edits;
        if let Some(owner) = self.owner {
            edits.owner = Owner::parse("owner", &owner)?;
        }
        if let Some(owner) = self.root_owner {
            edits.root_owner = Owner::parse("root_owner", &owner)?;
        }
        if let Some(mtime) = self.mtime {
            edits.mtime = Some(TimeEdit::Set(parse_time("mtime", &mtime)?));
        }
        for pattern in self.exclude {
            edits.exclude.push(Pattern::parse("exclude", &pattern)?);
        }
        Ok(options)
    }
}

/// Makes an empty volume.
#[pyfunction]
pub(crate) fn mkfs(py: Python<'_>, name: &[u8], how: Making) -> PyResult<()> {
    let options = how.options()?;
    let made = py.detach(|| mkfs_file(path(name), &options, &mut |_| {}));
    made.map(drop).map_err(|error| build_error(&error, name))
}

/// Builds a volume from a directory, an archive or a container image. Returns notes. `progress`
/// takes what is done, and all; what it raises stops the work.
#[pyfunction]
pub(crate) fn build(
    py: Python<'_>,
    name: &[u8],
    from: &[u8],
    how: Making,
    filling: Filling,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<String>> {
    let options = filling.options(how.options()?).map_err(invalid)?;
    let target = path(name);
    // What cannot be read twice is kept beside the new volume.
    let mut reading = SourceOptions::default();
    reading.spool = target.parent().unwrap_or(Path::new("")).to_owned();
    reading.dir.exclude = options.edits.exclude.clone();
    let mut raised = None;
    let built = py.detach(|| {
        let opened = source::open(path(from), &reading);
        let mut source = opened.map_err(|error| build_error(&error, from))?;
        let told = &mut |at: BuildProgress| {
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
        };
        let built = build_file(target, &mut *source, &options, told);
        built.map_err(|error| build_error(&error, name))
    });
    match (built, raised) {
        (_, Some(raised)) => Err(raised),
        (built, None) => built.map(|built| built.notes),
    }
}

fn device_of(name: &[u8], how: &OpenOptions) -> PyResult<SharedDevice> {
    let named = OpenName::parse(path(name), Window::default());
    let opened = named.and_then(|named| open::open(&named, how));
    Ok(opened.map_err(|error| open_error(&error.into(), name))?.device)
}

/// Replays the journal of a volume on it. True if it was needed.
#[pyfunction]
pub(crate) fn replay(py: Python<'_>, name: &[u8], options: &str) -> PyResult<bool> {
    let options = MountOptions::parse(options).map_err(invalid)?;
    py.detach(|| {
        let device = device_of(name, &OpenOptions::read_write())?;
        let replayed = extol::replay(&device, &options);
        replayed.map(|done| done.was_needed).map_err(|error| open_error(&error, name))
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
