//! How mounts begin and end: with which flags, what a failed start leaves, what signals do, what an
//! unmount tells, and how many descriptors it takes.

mod descriptors;
mod ends;
mod faults;
mod flags;
mod protected;
mod signals;

use extol_testkit::{Need, Rig, as_unprivileged, extol, extol_path, run_extol, text};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something holds.
#[track_caller]
fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
