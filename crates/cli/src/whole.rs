//! `extol sync`, `extol checkpoint`, `extol freeze`, `extol thaw`: requests about a whole mounted volume.

use std::fs::File;
use std::path::Path;

use extol_device::MountRequest;
use extol_fuse::DAEMON_XATTR;
use rustix::io::Errno;

use crate::args::{CheckpointArgs, FreezeArgs, SyncArgs, ThawArgs};
use crate::error::{Failure, Result};
use crate::live::{Live, root_of};

/// Makes everything durable.
pub fn sync(args: &SyncArgs) -> Result<()> {
    let mut outcome = Ok(());
    for dir in &args.dirs {
        let synced = open(dir).and_then(|root| {
            write_back(dir, &root)?;
            root.sync_all().map_err(|error| Failure::about(dir.display(), error))
        });
        if let Err(failure) = synced {
            failure.report();
            outcome = Err(Failure::silent(failure.code));
        }
    }
    outcome
}

/// Empties the log.
pub fn checkpoint(args: &CheckpointArgs) -> Result<()> {
    let flags = u32::from(args.discard) | u32::from(args.zeroout) << 1 | u32::from(args.dry_run) << 2;
    let root = open(&args.dir)?;
    if !args.dry_run {
        write_back(&args.dir, &root)?;
    }
    send(MountRequest::Checkpoint(flags), &args.dir, &root, |error| match error {
        Errno::NODEV => Some("the volume has no journal"),
        Errno::OPNOTSUPP => Some("the journal's device cannot discard (use --zeroout)"),
        _ => None,
    })
}

/// Stops changes.
pub fn freeze(args: &FreezeArgs) -> Result<()> {
    let root = open(&args.dir)?;
    write_back(&args.dir, &root)?;
    send(MountRequest::Freeze, &args.dir, &root, |error| match error {
        Errno::BUSY => Some("the volume is frozen; extol thaw ends that"),
        _ => None,
    })
}

/// Lets changes go on.
pub fn thaw(args: &ThawArgs) -> Result<()> {
    let root = open(&args.dir)?;
    send(MountRequest::Thaw, &args.dir, &root, |error| match error {
        Errno::INVAL => Some("the volume is not frozen"),
        _ => None,
    })
}

/// The root of the mount that holds `dir`, which must be one of ours.
fn open(dir: &Path) -> Result<File> {
    let root = root_of(dir)?;
    let mut text = [0; 32];
    if rustix::fs::getxattr(&root, DAEMON_XATTR, &mut text[..]).is_err() {
        return Err(Failure::new(format_args!(
            "{} is not on a volume that extol has mounted",
            dir.display()
        )));
    }
    File::open(&root).map_err(|error| Failure::about(dir.display(), error))
}

/// Has the kernel hand over what it holds back. It would wait for the thaw of a frozen volume.
fn write_back(dir: &Path, root: &File) -> Result<()> {
    let stats = Live::of(dir)?.json()?;
    let frozen = serde_json::from_str::<serde_json::Value>(&stats).is_ok_and(|stats| stats["frozen"] == true);
    if frozen {
        return Err(Failure::about(dir.display(), "the volume is frozen; extol thaw ends that"));
    }
    rustix::fs::syncfs(root).map_err(|error| Failure::about(dir.display(), error))
}

fn send(
    request: MountRequest,
    dir: &Path,
    root: &File,
    meaning: impl Fn(Errno) -> Option<&'static str>,
) -> Result<()> {
    request.send(root).map_err(|error| {
        let number = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        if number == Errno::PERM {
            let line = format_args!("{}: only root and the owner of the mount may do this", dir.display());
            return Failure::usage(line);
        }
        match meaning(number) {
            Some(line) => Failure::about(dir.display(), line),
            None => Failure::about(dir.display(), error),
        }
    })
}
