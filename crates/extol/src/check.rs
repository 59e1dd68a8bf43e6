//! Comparing a volume with itself, as `e2fsck -fn` does: nothing is changed.
//!
//! ```
//! use std::sync::Arc;
//!
//! use extol::check::{CheckOptions, check};
//! use extol::device::MemDevice;
//! use extol::mkfs::{MkfsOptions, mkfs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Arc::new(MemDevice::new(16 << 20));
//! mkfs(&*device, &MkfsOptions::default(), &mut |_| {})?;
//! let report = check(device, &CheckOptions::default(), &mut |_| {})?;
//! assert!(report.is_clean());
//! # Ok(())
//! # }
//! ```

use extol_block::SharedDevice;
pub use extol_check::{
    CheckError, CheckOptions, Counts, Finding, Kind, Pass, Progress, Recovery, Report, Severity,
};

use crate::info::recovered;
use crate::options::MountOptions;

/// Checks a volume. One that needs recovery is recovered in memory first, if the options do not say
/// otherwise. `progress` is called from this thread, now and then.
///
/// # Errors
/// The device cannot be read, holds no such file system, or one that cannot be checked. What is
/// wrong with a volume is no error but a finding.
pub fn check(
    device: SharedDevice,
    options: &CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, CheckError> {
    let mut options = options.clone();
    options.fast_commits.get_or_insert(extol_check::Recoverer(|device, journal| {
        let reading = MountOptions::default().read_only().with_journal(journal.cloned());
        recovered(device, &reading).map(|(device, _)| device).map_err(|error| error.to_string())
    }));
    extol_check::check(device, &options, progress)
}
