//! What changes a volume as a whole, or asks for such a change: its size, its properties.

use std::path::Path;
use std::sync::Arc;

use extol::check::{CheckOptions, Kind, Recovery, Report, Severity};
use extol::resize::{Minimum, ResizeProgress};
use extol::tune::{Request, Tuned};
use extol_block::{OpenOptions, SharedDevice};
use extol_cli_common::{Failure, Result, counted};
use extol_proc::Shown as _;

use super::{
    Source, Volume, VolumeOptions, cannot_open, direct, name, open_journal, open_options,
    open_told, refuse_member, refused, with_wait_messages,
};

/// What a damaged volume is not.
const RESIZED: &str = "resized";
/// The inode of the journal.
const JOURNAL: u32 = 8;

/// Opens a volume that is to become larger or smaller; with `check` only if it has no damage.
pub fn open_to_resize(
    source: Source<'_>,
    options: &VolumeOptions,
    check: bool,
) -> Result<Arc<Volume>> {
    change(
        source,
        options,
        |_| Ok(check.then_some(RESIZED)),
        |device, options| Volume::open(device.clone(), options),
    )
}

/// Changes properties of a volume; with `check` only if it has no damage.
pub fn tune(
    source: Source<'_>,
    options: &VolumeOptions,
    check: bool,
    request: &Request,
) -> Result<Tuned> {
    let checked = |device: &SharedDevice| {
        Ok((!extol::tune::is_done(device, request)? && check).then_some("tuned"))
    };
    change(source, options, checked, |device, options| extol::tune::tune(device, options, request))
}

/// How small a volume can be. The device is only read.
pub fn minimum(
    source: Source<'_>,
    options: &VolumeOptions,
    check: bool,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Minimum> {
    let how = OpenOptions::read_only();
    let checked = |_: &SharedDevice| Ok(check.then_some(RESIZED));
    change_opened(source, options, how, checked, |device, options| {
        Volume::minimum(device, options, progress)
    })
}

/// Does something to a volume as a whole; if `checked` has a word for it (what a damaged volume is
/// not) only if it has no damage.
fn change<T, E: std::fmt::Display>(
    source: Source<'_>,
    options: &VolumeOptions,
    checked: impl FnOnce(&SharedDevice) -> std::result::Result<Option<&'static str>, E>,
    work: impl FnOnce(&SharedDevice, &VolumeOptions) -> std::result::Result<T, E>,
) -> Result<T> {
    change_opened(source, options, open_options(options), checked, work)
}

/// As that, with the device and an external journal opened so.
fn change_opened<T, E: std::fmt::Display>(
    source: Source<'_>,
    options: &VolumeOptions,
    how: OpenOptions,
    checked: impl FnOnce(&SharedDevice) -> std::result::Result<Option<&'static str>, E>,
    work: impl FnOnce(&SharedDevice, &VolumeOptions) -> std::result::Result<T, E>,
) -> Result<T> {
    let named = name(source)?;
    let opened = open_told(&named, &how.clone().direct(direct(options)))
        .map_err(|error| cannot_open(source.path, &error))?;
    if !how.read_only {
        refuse_member(&named, &opened)?;
    }
    let mut options = with_wait_messages(options).without_threads();
    open_journal(&mut options, &how)?;
    let refused = |error: &dyn std::fmt::Display| refused(&named, &opened, &options, error);
    if let Some(how) = checked(&opened.device).map_err(|error| refused(&error))? {
        let journal = options.journal.device.as_ref();
        require_clean(source.path, &opened.device, journal, how, &refused)?;
    }
    work(&opened.device, &options).map_err(|error| refused(&super::not_mounted(&error)))
}

/// Refuses a volume that is damaged; `how` says what it is not.
pub fn require_clean(
    source: &Path,
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
    how: &str,
    refused: &dyn Fn(&dyn std::fmt::Display) -> Failure,
) -> Result<()> {
    let opts = CheckOptions {
        recovery: Recovery::InMemory,
        journal: journal.cloned(),
        ..CheckOptions::default()
    };
    let about = |what: &dyn std::fmt::Display| Failure::about(source.shown(), what);
    let report =
        extol::check::check(device.clone(), &opts, &mut |_| {}).map_err(|error| refused(&error))?;
    if report.is_clean() || how == RESIZED && is_of_a_resize(&report) {
        return Ok(());
    }
    Err(about(&format_args!(
        "is damaged ({}) and not {how}: extol check lists the damage",
        counted(report.errors, "error")
    )))
}

/// True if all that is wrong is the inode of a journal that a resize was about to give or to take
/// away. The next one clears it.
fn is_of_a_resize(report: &Report) -> bool {
    let errors = || report.findings.iter().filter(|found| found.severity == Severity::Error);
    errors().count() as u64 == report.errors
        && errors().all(|found| found.inode == Some(JOURNAL))
        && errors().any(|found| found.kind == Kind::InodeReserved)
}
