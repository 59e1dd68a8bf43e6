//! The limit of descriptors, and whether it is enough for a mount.
//!
//! The soft limit of a login (1024) is for programs that use select(2); a daemon takes what the
//! hard one allows. Less than [`NEEDED`] is refused before anything is opened: such a mount might
//! start, and then lack one at its end. What a mount needs and takes is listed in
//! `docs/design/descriptors.md`.

use extol_cli_common::{Failure, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a mount needs at least: what it has when it stands, rings for the volume, what starting an
/// unmount takes, and some to spare.
const NEEDED: u64 = 28;

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
