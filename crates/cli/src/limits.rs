//! The limit of descriptors, and whether it is enough for a mount.
//!
//! The soft limit of a login (1024) is for programs that use select(2); a daemon takes what the
//! hard one allows. Less than [`NEEDED`] is refused before anything is opened: such a mount might
//! start, and then lack one at its end. What a mount needs and takes is listed in
//! `docs/design/descriptors.md`.

use extol_cli_common::{Failure, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A mount in a sandbox when it stands.
const STANDING: u64 = 15;
/// An external journal, a loop device over the image, counters with their connections.
const OPTIONAL: u64 = 1 + 1 + 5;
/// What starting an unmount takes, for a moment.
const UNMOUNT: u64 = 3;
/// Rings for the volume. With fewer than it would use, requests go one by one.
const RINGS: u64 = 2;
/// What a mount needs at least.
const NEEDED: u64 = STANDING + OPTIONAL + UNMOUNT + RINGS;

/// Takes all descriptors that this process may have.
pub fn take_descriptors() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Some(most) = maximum.filter(|most| *most < NEEDED) {
        let line = format!(
            "a mount needs {NEEDED} descriptors, and may have {most}: raise the limit (ulimit -n)"
        );
        return Err(Failure::system(line));
    }
    // Where even that is refused, the soft limit is what there is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let soft = getrlimit(Resource::Nofile).current;
    match soft.filter(|soft| *soft < NEEDED) {
        None => Ok(()),
        Some(soft) => Err(Failure::system(format_args!(
            "a mount needs {NEEDED} descriptors, and has {soft}: raise the limit (ulimit -n)"
        ))),
    }
}
