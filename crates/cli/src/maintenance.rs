//! `extol sync`, `extol checkpoint`, `extol freeze`, `extol thaw`: maintenance of a mounted volume.
//!
//! First the kernel writes back its dirty pages (syncfs). It reports then, once for the whole
//! volume, that data of a file could not be written since the last time, as on every file system;
//! the file may be deleted by now. That does not end the request, and the error is reported at its
//! end ([`WritebackError`]).

use std::fs::File;
use std::path::Path;

use extol_cli_common::{Failure, Result};
use extol_fuse::{DAEMON_XATTR, control};
use rustix::io::Errno;

use crate::args::{CheckpointArgs, FreezeArgs, SyncArgs, ThawArgs};
use crate::mounted::{MountedVolume, foreign, root_of};

/// Makes everything durable.
pub fn sync(args: &SyncArgs) -> Result<()> {
    let mut outcome = Ok(());
    for dir in &args.dirs {
        let synced = open(dir).and_then(|root| {
            let writeback = write_back(dir, &root)?;
            root.sync_all().map_err(|error| Failure::about(dir.display(), error))?;
            writeback.result()
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
    let flags =
        u32::from(args.discard) | u32::from(args.zeroout) << 1 | u32::from(args.dry_run) << 2;
    let root = open(&args.dir)?;
    let writeback =
        if args.dry_run { WritebackError::default() } else { write_back(&args.dir, &root)? };
    let asked = control::checkpoint(&root_of(&args.dir)?, flags);
    let done = explain(asked, &args.dir, |error| match error {
        Errno::NODEV => Some("the volume has no journal"),
        Errno::OPNOTSUPP => Some("the journal's device cannot discard (use --zeroout)"),
        _ => None,
    });
    writeback.warn();
    done
}

/// Stops changes.
pub fn freeze(args: &FreezeArgs) -> Result<()> {
    let root = open(&args.dir)?;
    let writeback = write_back(&args.dir, &root)?;
    let done = explain(control::freeze(&root_of(&args.dir)?), &args.dir, |error| match error {
        Errno::BUSY => Some("the volume is frozen; extol thaw ends that"),
        _ => None,
    });
    writeback.warn();
    done
}

/// Lets changes go on.
pub fn thaw(args: &ThawArgs) -> Result<()> {
    open(&args.dir)?;
    explain(control::thaw(&root_of(&args.dir)?), &args.dir, |error| match error {
        Errno::INVAL => Some("the volume is not frozen"),
        _ => None,
    })
}

/// The root of the mount that holds `dir`, which must be one of extol's.
fn open(dir: &Path) -> Result<File> {
    let root = root_of(dir)?;
    let mut text = [0; 32];
    if rustix::fs::getxattr(&root, DAEMON_XATTR, &mut text[..]).is_err() {
        return Err(foreign(dir));
    }
    File::open(&root).map_err(|error| Failure::about(dir.display(), error))
}

/// Data of a file could not be written before this request, or at its beginning.
#[derive(Debug, Default)]
struct WritebackError(Option<Failure>);

impl WritebackError {
    /// The error, for a request whose success means that everything is written.
    fn result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }

    /// Prints a line, for a request that has another purpose.
    fn warn(self) {
        if let Some(failure) = self.0 {
            failure.report();
        }
    }
}

/// Writes back the kernel's dirty pages. Refuses a frozen volume, where that would wait for the
/// thaw.
fn write_back(dir: &Path, root: &File) -> Result<WritebackError> {
    let stats = MountedVolume::of(dir)?.json()?;
    let frozen = serde_json::from_str::<serde_json::Value>(&stats)
        .is_ok_and(|stats| stats["frozen"] == true);
    if frozen {
        return Err(Failure::about(dir.display(), "the volume is frozen; extol thaw ends that"));
    }
    let error = rustix::fs::syncfs(root).err().map(|error| {
        let line = format_args!(
            "data of a file (perhaps one deleted since) could not be written: {error}; \
             all else was written"
        );
        Failure::about(dir.display(), line)
    });
    Ok(WritebackError(error))
}

/// The daemon's answer in words.
fn explain(
    answer: std::io::Result<()>,
    dir: &Path,
    meaning: impl Fn(Errno) -> Option<&'static str>,
) -> Result<()> {
    answer.map_err(|error| {
        let number = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        if number == Errno::PERM {
            let line = format_args!(
                "{}: only root (with CAP_SYS_ADMIN) and the user that mounted it may do this",
                dir.display()
            );
            return Failure::usage(line);
        }
        match meaning(number) {
            Some(line) => Failure::about(dir.display(), line),
            None => Failure::about(dir.display(), error),
        }
    })
}
