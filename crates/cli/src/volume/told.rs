//! Opens a device and tells what the open waits for.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use extol_block::OpenOptions;
use extol_block::open::{self, Claimed, OpenFailed, OpenName, Opened};
use extol_cli_common::{Failure, warn};
use extol_proc::{Process, Shown as _};

use crate::expanded::Room;

/// A wait for a volume that is in use is told when it is so long: two short commands may meet, and
/// a busy machine opens slowly.
const SILENT_WAIT: Duration = Duration::from_secs(1);

/// Opens what a name names. An open waits for a while where another process uses it: it may be
/// about to end. That wait is told.
pub fn open_told(name: &OpenName, how: &OpenOptions) -> std::result::Result<Opened, OpenFailed> {
    let claimed = claim_told(name, how)?;
    let room = Room::of(&claimed, name).map_err(|failure| told_failure(name, &failure))?;
    let claimed = match room {
        None => claimed,
        Some(room) => {
            let filled = room.fill(claimed, name);
            filled.map_err(|failure| told_failure(name, &failure))?
        }
    };
    claimed.decode()
}

/// A failure as one of opening.
fn told_failure(name: &OpenName, failure: &Failure) -> OpenFailed {
    let start = format!("{}: ", name.typed.shown());
    let why = failure.line.strip_prefix(&start).unwrap_or(&failure.line).to_owned();
    OpenFailed::Name { name: name.typed.clone(), kind: ErrorKind::InvalidData, why }
}

/// As [`open_told`]; nothing of the contents is looked at.
pub fn claim_told(name: &OpenName, how: &OpenOptions) -> std::result::Result<Claimed, OpenFailed> {
    told(&name.path, || open::claim(name, how))
}

fn told<T>(path: &Path, open: impl FnOnce() -> T) -> T {
    let (opened, is_open) = mpsc::channel::<()>();
    let shown = path.to_owned();
    let tell = move || {
        if is_open.recv_timeout(SILENT_WAIT) == Err(RecvTimeoutError::Timeout) {
            tell_wait(&shown);
        }
    };
    let teller = std::thread::Builder::new().spawn(tell);
    let device = open();
    drop(opened);
    // (Without a thread nothing is told.)
    let _ = teller.map(std::thread::JoinHandle::join);
    device
}

/// Says what an open waits for.
fn tell_wait(path: &Path) {
    let Ok(file) = std::fs::metadata(path) else { return };
    let holders = extol_proc::volume_holders(&file).into_iter();
    let mut holders = holders.filter(|process| *process != Process::own());
    let path = path.shown();
    match holders.next() {
        Some(holder) => {
            warn(format_args!("{path}: is in use by {holder}: waiting a few seconds for it"));
        }
        // It may be in another container; or the device is slow.
        None => warn(format_args!("{path}: waiting until it can be opened")),
    }
}
