//! The checker under test.

use std::sync::Arc;

use extol_block::{FileDevice, OpenOptions, SharedDevice};
use extol_check::{CheckError, CheckOptions, Recovery, Report, check};
use extol_testkit::Image;

/// The options that match `e2fsck -fn`: the volume as it is, without recovery.
pub fn as_e2fsck() -> CheckOptions {
    CheckOptions {
        recovery: Recovery::Ignore,
        threads: 1,
        max_findings: 50,
        paths: false,
        ..CheckOptions::default()
    }
}

/// The checker's report on a device with its external journal.
pub fn report_on(
    device: SharedDevice,
    journal: Option<SharedDevice>,
) -> Result<Report, CheckError> {
    check(device, &CheckOptions { journal, ..as_e2fsck() }, &mut |_| {})
}

/// Fails the test unless the checker finds nothing, on one thread and on three.
#[track_caller]
pub fn must_be_clean(image: &Image, what: &str) {
    let device: SharedDevice =
        Arc::new(FileDevice::open(&image.path, &OpenOptions::read_only()).expect("open image"));
    for threads in [1, 3] {
        let opts = CheckOptions { threads, ..CheckOptions::default() };
        let report = check(Arc::clone(&device), &opts, &mut |_| {})
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(report.is_clean() && report.notes == 0, "{what}: {report}");
    }
}
