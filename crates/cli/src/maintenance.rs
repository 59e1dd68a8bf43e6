//! `extol sync`, `extol checkpoint`, `extol freeze`, `extol thaw`: maintenance of a mounted volume.
//!
//! First the kernel begins to write back its dirty pages (syncfs), many at a time; the daemon then
//! has it wait for each file ([`control`]). The kernel reports, once for the whole volume, that
//! data of a file could not be written since the last time, as on every file system; the file may
//! be deleted by now. That does not end the request, and the error is reported at its end
//! ([`WritebackError`]).

use std::fs::File;
use std::path::Path;

use extol_cli_common::{Failure, Result};
use extol_fuse::control;
use extol_proc::Shown as _;
use extol_vfs::RemountError;
use rustix::io::Errno;

use crate::args::{CheckpointArgs, FreezeArgs, SyncArgs, ThawArgs};
use crate::mounted::MountedVolume;

/// Makes everything durable.
pub fn sync(args: &SyncArgs) -> Result<()> {
    let mut outcome = Ok(());
    for dir in &args.dirs {
        let synced = request("sync", dir, |mounted, root| {
            let had_lost = mounted.stats()?.lost_changes;
            let done = write_back(mounted, dir, root).and_then(|writeback| {
                sync_volume(&mounted.root, dir)?;
                // Data that arrived meanwhile may have failed as well.
                writeback.and_then(|| write_back(mounted, dir, root))?.result()
            });
            let tells = had_lost && done.is_err() && mounted.stopped().is_none();
            if tells && !mounted.stats()?.lost_changes {
                Err(lost(&mounted.root, dir))
            } else {
                done
            }
        });
        if let Err(failure) = synced {
            failure.report();
            outcome = Err(Failure::silent(failure.code));
        }
    }
    outcome
}

/// Has the daemon make the volume durable.
fn sync_volume(root: &Path, dir: &Path) -> Result<()> {
    explain(control::sync(root), dir, |error| match error {
        Errno::OPNOTSUPP => Some(UNCERTAIN),
        _ => None,
    })
}

/// The refusal on Linux before 6.16.
const UNCERTAIN: &str = "this kernel (Linux before 6.16) does not tell when data of files that are \
    open and mapped, or gathered by writeback_cache, has arrived: close them or fsync each of \
    them, and try again";

/// The failure of the first sync after a remount has mended the volume. (Any later one succeeds.)
fn lost(root: &Path, dir: &Path) -> Failure {
    match control::sync(root) {
        Ok(()) => Failure::about(
            dir.shown(),
            "changes from before the error that had stopped the volume are lost: write those files \
             again; all changes since are durable (this is said once)",
        ),
        Err(error) => Failure::about(dir.shown(), error),
    }
}

/// Empties the log.
pub fn checkpoint(args: &CheckpointArgs) -> Result<()> {
    let flags =
        u32::from(args.discard) | u32::from(args.zeroout) << 1 | u32::from(args.dry_run) << 2;
    request("checkpoint", &args.dir, |mounted, root| {
        let writeback = match args.dry_run {
            true => WritebackError::default(),
            false => write_back(mounted, &args.dir, root)?,
        };
        let asked = control::checkpoint(&mounted.root, flags);
        let done = explain(asked, &args.dir, |error| match error {
            Errno::NODEV => Some("the volume has no journal"),
            Errno::OPNOTSUPP if args.discard => {
                Some("the journal's device cannot discard (use --zeroout)")
            }
            Errno::OPNOTSUPP => Some(UNCERTAIN),
            _ => None,
        });
        writeback.warn_unless(&done, mounted);
        done
    })
}

/// Stops changes.
pub fn freeze(args: &FreezeArgs) -> Result<()> {
    request("freeze", &args.dir, |mounted, root| {
        let writeback = write_back(mounted, &args.dir, root)?;
        let done = explain(control::freeze(&mounted.root), &args.dir, |error| match error {
            Errno::BUSY => Some("the volume is frozen; extol thaw ends that"),
            Errno::OPNOTSUPP => Some(UNCERTAIN),
            _ => None,
        });
        writeback.warn_unless(&done, mounted);
        done
    })
}

/// Lets changes go on. (A volume that was stopped while it was frozen is thawed as well.)
pub fn thaw(args: &ThawArgs) -> Result<()> {
    let mounted = MountedVolume::of(&args.dir, "thaw")?;
    mounted.json()?;
    explain(control::thaw(&mounted.root), &args.dir, |error| match error {
        Errno::INVAL => Some("the volume is not frozen"),
        _ => None,
    })
    .map_err(|failure| mounted.stopped().unwrap_or(failure))
}

/// Changes properties of a mounted volume; gives what the daemon says of each.
pub fn tune(dir: &Path, text: &str) -> Result<Vec<String>> {
    ask_in_words("tune", dir, |root| control::tune(root, text))
}

/// Asks about quotas of a mounted volume, or sets some; gives the daemon's answer.
pub fn quota(dir: &Path, text: &str) -> Result<Vec<String>> {
    ask_in_words("quota", dir, |root| control::quota(root, text))
}

/// Asks how files of a mounted volume are encrypted, or makes that; gives the daemon's answer.
pub fn encryption(dir: &Path, text: &str) -> Result<Vec<String>> {
    ask_in_words("encrypt", dir, |root| control::encryption(root, text))
}

/// Asks about keys of a mounted volume, or adds one; gives the daemon's answer.
pub fn key(dir: &Path, text: &str) -> Result<Vec<String>> {
    ask_in_words("key", dir, |root| control::encryption(root, text))
}

/// Takes a key away from a mounted volume, to which the kernel has written back what it has before;
/// gives the daemon's answer.
pub fn remove_key(dir: &Path, text: &str) -> Result<Vec<String>> {
    let mut writeback = WritebackError::default();
    request("key", dir, |mounted, root| {
        writeback = write_back(mounted, dir, root)?;
        Ok(())
    })?;
    let lines = key(dir, text)?;
    writeback.result()?;
    Ok(lines)
}

/// The answer of a daemon, or its refusal.
type Answer = std::result::Result<Vec<String>, RemountError>;

fn ask_in_words(
    command: &'static str,
    dir: &Path,
    ask: impl FnOnce(&Path) -> std::io::Result<Answer>,
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    request(command, dir, |mounted, _| {
        let mut answer = Ok(Vec::new());
        let asked = ask(&mounted.root).map(|done| answer = done);
        explain(asked, dir, |error| {
            (error == Errno::NODATA).then_some("its daemon is of an older version of extol")
        })?;
        lines = answer.map_err(|refused| Failure::about(dir.shown(), refused))?;
        Ok(())
    })?;
    Ok(lines)
}

/// Makes a request to the mount that holds `dir`, which must be one of extol's. On a volume that an
/// error has stopped, before or meanwhile, no such request succeeds, and the failure is that error.
fn request(
    command: &'static str,
    dir: &Path,
    make: impl FnOnce(&MountedVolume, &File) -> Result<()>,
) -> Result<()> {
    let mounted = MountedVolume::of(dir, command)?;
    mounted.json()?;
    if let Some(stopped) = mounted.stopped() {
        return Err(stopped);
    }
    let root =
        File::open(&mounted.root).map_err(|error| Failure::system_call(dir.shown(), error))?;
    make(&mounted, &root).map_err(|failure| mounted.stopped().unwrap_or(failure))
}

/// Data of a file could not be written before this request, or at its beginning.
#[derive(Debug, Default)]
struct WritebackError(Option<Failure>);

impl WritebackError {
    /// This error, or that of what comes next.
    fn and_then(self, next: impl FnOnce() -> Result<Self>) -> Result<Self> {
        if self.0.is_some() { Ok(self) } else { next() }
    }

    /// The error, for a request whose success means that everything is written.
    fn result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }

    /// Prints a line, for a request that has another purpose, unless that has failed because the
    /// volume was stopped.
    fn warn_unless(self, done: &Result<()>, mounted: &MountedVolume) {
        if let Some(failure) = self.0
            && (done.is_ok() || mounted.stopped().is_none())
        {
            failure.report();
        }
    }
}

/// Has the kernel begin to write back its dirty pages. Refuses a frozen volume, where that would
/// wait for the thaw.
fn write_back(mounted: &MountedVolume, dir: &Path, root: &File) -> Result<WritebackError> {
    let stats = mounted.json()?;
    let frozen = serde_json::from_str::<serde_json::Value>(&stats)
        .is_ok_and(|stats| stats["frozen"] == true);
    if frozen {
        return Err(Failure::about(dir.shown(), "the volume is frozen; extol thaw ends that"));
    }
    let error = rustix::fs::syncfs(root).err().map(|error| {
        let line = format_args!(
            "data of a file (perhaps one deleted since) could not be written: {error}; \
             all else was written"
        );
        Failure::about(dir.shown(), line)
    });
    Ok(WritebackError(error))
}

/// The daemon's answer in words.
pub fn explain<T>(
    answer: std::io::Result<T>,
    dir: &Path,
    meaning: impl Fn(Errno) -> Option<&'static str>,
) -> Result<T> {
    answer.map_err(|error| {
        let number = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        if number == Errno::PERM {
            let line = format_args!(
                "{}: only root (with CAP_SYS_ADMIN) and the user that mounted it may do this",
                dir.shown()
            );
            return Failure::usage(line);
        }
        match meaning(number) {
            Some(line) => Failure::about(dir.shown(), line),
            None => Failure::system_call(dir.shown(), error),
        }
    })
}
