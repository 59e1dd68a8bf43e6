//! Volumes as a whole, which are not open: what they are, their size and their properties.

use std::time::SystemTime;

use extol::MountOptions;
use extol::by_name;
use extol::mkfs::volume_uuid;
use extol::resize::{ResizeProgress, Target};
use extol::tune::Request;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::images::path;
use crate::{invalid, open_error, os_error_at};

/// What a volume is, by its superblock.
#[pyfunction]
pub(crate) fn info<'py>(py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let info = py.detach(|| by_name::info(path(name)));
    let info = info.map_err(|error| open_error(&error, name))?;
    let dict = PyDict::new(py);
    dict.set_item("label", info.label)?;
    dict.set_item("uuid", info.uuid)?;
    dict.set_item("features", info.features)?;
    dict.set_item("state", info.state)?;
    dict.set_item("needs_recovery", info.needs_recovery)?;
    dict.set_item("error_count", info.error_count)?;
    dict.set_item("block_size", info.block_size)?;
    dict.set_item("blocks", info.blocks)?;
    dict.set_item("free_blocks", info.free_blocks)?;
    dict.set_item("reserved_blocks", info.reserved_blocks)?;
    dict.set_item("inodes", info.inodes)?;
    dict.set_item("free_inodes", info.free_inodes)?;
    dict.set_item("inode_size", info.inode_size)?;
    dict.set_item("journal_blocks", info.journal_blocks)?;
    dict.set_item("last_mounted", info.last_mounted)?;
    dict.set_item("created", info.created)?;
    dict.set_item("mounted", info.mounted)?;
    dict.set_item("written", info.written)?;
    dict.set_item("checked", info.checked)?;
    Ok(dict)
}

/// Makes a volume larger or smaller; gives its size in bytes. Without a size it is as large as its
/// device, or with `minimum` as small as it can be.
#[pyfunction]
pub(crate) fn resize(
    py: Python<'_>,
    name: &[u8],
    bytes: Option<u64>,
    minimum: bool,
    options: &str,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<u64> {
    let options = MountOptions::parse(options).map_err(invalid)?;
    let target = match bytes {
        _ if minimum => Target::Minimum,
        None => Target::Device,
        Some(bytes) => Target::Bytes(bytes),
    };
    let mut raised = None;
    let resized = py.detach(|| {
        let told = &mut |at: ResizeProgress| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |told| told.call1(py, (at.done, at.all)).map(drop))
            });
            told.map_err(|error| raised = Some(error)).is_ok()
        };
        by_name::resize(path(name), &options, target, force, told)
    });
    match (resized, raised) {
        (_, Some(raised)) => Err(raised),
        (Ok(done), None) => Ok(done.blocks * u64::from(done.block_size)),
        (Err(error), None) => Err(os_error_at(error.errno(), &error, name)),
    }
}

/// What is to be changed.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Tuning {
    label: Option<Vec<u8>>,
    uuid: Option<String>,
    features: Option<String>,
    extended: Option<String>,
    journal: Option<String>,
}

impl Tuning {
    fn request(self) -> PyResult<Request> {
        let mut request = Request::default();
        request.label = self.label;
        if let Some(uuid) = self.uuid {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            request.uuid = Some(volume_uuid(Some(&uuid), now).map_err(invalid)?);
        }
        request.set_features(&self.features.unwrap_or_default()).map_err(invalid)?;
        request.set_extended(&self.extended.unwrap_or_default()).map_err(invalid)?;
        if let Some(journal) = self.journal {
            request.set_journal(&journal).map_err(invalid)?;
        }
        Ok(request)
    }
}

/// A property, its value before and now.
type Changed = (&'static str, String, String);

/// Changes properties of a volume. Returns what has changed (the property, its value before and
/// now), and notes.
#[pyfunction]
pub(crate) fn tune(
    py: Python<'_>,
    name: &[u8],
    how: Tuning,
    options: &str,
    force: bool,
) -> PyResult<(Vec<Changed>, Vec<String>)> {
    let options = MountOptions::parse(options).map_err(invalid)?;
    let mut request = how.request()?;
    let mut notes = request.cut();
    let tuned = py.detach(|| by_name::tune(path(name), &options, &request, force));
    let tuned = tuned.map_err(|error| os_error_at(error.errno(), &error, name))?;
    notes.extend(tuned.notes);
    let changes = tuned.changes.into_iter();
    Ok((changes.map(|change| (change.property, change.before, change.after)).collect(), notes))
}
