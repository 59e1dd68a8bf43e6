//! `extol defrag`: moves files into fewer pieces.
//!
//! What the first operand names decides: a file or directory of a mount of Extol, and then all
//! operands are such; or a volume that is not mounted, and then the others are paths on it
//! (`files/defrag.rs`). A mount is asked by a control request for one file at a time.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extol_cli_common::{Failure, Result, counted, json_text, print, print_json, warn};
use extol_fuse::control;
use extol_proc::Shown as _;
use extol_vfs::{Defragmented, Fragments, Outcome, bytes_text};
use rustix::io::Errno;
use serde::Serialize;

use crate::args::DefragArgs;
use crate::mounted::MountedVolume;
use crate::{files, interrupt};

/// Defragments.
pub fn run(args: &DefragArgs) -> Result<()> {
    let mut reporter = Reporter::new(args);
    let done = match mount_of(&args.source) {
        Some(mounted) => on_mount(args, &mounted, &mut reporter),
        None => files::defrag(args, &mut reporter),
    };
    if done.as_ref().is_err_and(|failure| !failure.line.is_empty()) {
        return done;
    }
    reporter.end().and(done)
}

/// The mount of Extol that a path lies on.
fn mount_of(path: &Path) -> Option<MountedVolume> {
    let mounted = MountedVolume::of(path, "defrag").ok()?;
    mounted.json().is_ok().then_some(mounted)
}

/// The files of a mount.
fn on_mount(args: &DefragArgs, mounted: &MountedVolume, reporter: &mut Reporter<'_>) -> Result<()> {
    let stats = serde_json::from_str::<serde_json::Value>(&mounted.json()?).unwrap_or_default();
    if stats["frozen"] == true {
        let line = "the volume is frozen; extol thaw ends that";
        return Err(Failure::about(args.source.shown(), line));
    }
    if let Some(stopped) = mounted.stopped() {
        return Err(stopped);
    }
    interrupt::catch()?;
    let device = mounted.root.metadata().map(|about| about.dev()).unwrap_or_default();
    let typed = args.paths().iter().rev().map(PathBuf::from).chain([args.source.clone()]);
    let mut todo: Vec<(PathBuf, bool)> = typed.map(|path| (path, true)).collect();
    let mut seen = std::collections::HashSet::new();
    while let Some((path, typed)) = todo.pop() {
        if interrupt::came() {
            break;
        }
        match on_mount_one(mounted, device, &path, reporter, &mut seen, typed) {
            Ok(below) => todo.extend(below.into_iter().map(|path| (path, false))),
            Err(failure) if failure.line.is_empty() => return Err(failure),
            Err(failure) => {
                warn(failure.line);
                reporter.fail();
            }
        }
    }
    interrupt::check()?;
    if reporter.failed() { Err(Failure::silent(Failure::FAILED)) } else { Ok(()) }
}

/// Does a file; gives what is in a directory, the last name first.
fn on_mount_one(
    mounted: &MountedVolume,
    device: u64,
    path: &Path,
    reporter: &mut Reporter<'_>,
    seen: &mut std::collections::HashSet<u64>,
    follow: bool,
) -> Result<Vec<PathBuf>> {
    let fail = |error: std::io::Error| Failure::system_call(path.shown(), error);
    let about = if follow && path.is_symlink() { path.metadata() } else { path.symlink_metadata() };
    let about = about.map_err(fail)?;
    if about.dev() != device {
        if follow {
            return Err(Failure::about(path.shown(), "is not on the same mount as the first one"));
        }
        return Ok(Vec::new());
    }
    if about.is_dir() {
        let mut below = Vec::new();
        let entries = match path.read_dir() {
            // (As e4defrag: it is root's, and holds what e2fsck found.)
            Err(error) if is_denied(&error) && !follow && is_lost_and_found(path) => {
                return Ok(below);
            }
            entries => entries.map_err(|error| {
                reporter.unread();
                fail(error)
            })?,
        };
        for entry in entries {
            below.push(entry.map_err(fail)?.path());
        }
        below.sort_unstable_by(|a, b| b.cmp(a));
        return Ok(below);
    }
    if about.is_file() && (about.nlink() < 2 || seen.insert(about.ino())) {
        ask(mounted, path, &about, reporter)?;
    }
    Ok(Vec::new())
}

fn is_denied(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

/// True for the lost+found of a volume.
fn is_lost_and_found(path: &Path) -> bool {
    const ROOT: u64 = 2;
    let root = path.parent().and_then(|dir| dir.symlink_metadata().ok());
    path.file_name() == Some(OsStr::new("lost+found"))
        && root.is_some_and(|root| root.ino() == ROOT)
}

/// Asks the daemon about one file.
fn ask(
    mounted: &MountedVolume,
    path: &Path,
    about: &Metadata,
    reporter: &mut Reporter<'_>,
) -> Result<()> {
    let Ok(ino) = u32::try_from(about.ino()) else {
        return Err(Failure::about(path.shown(), "is no file of an ext4 volume"));
    };
    // What the kernel has not written back has no place yet. (Without the right to read the file
    // it goes without that.)
    if let Ok(file) = File::open(path) {
        let _ = file.sync_data();
    }
    let done = control::defragment(&mounted.root, ino, !reporter.is_dry()).map_err(|error| {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM) => Failure::usage(format_args!(
                "{}: only root (with CAP_SYS_ADMIN) and the user that mounted it may do this",
                path.shown()
            )),
            _ => Failure::system_call(path.shown(), error),
        }
    })?;
    reporter.file(path.as_os_str().as_bytes(), ino, done);
    reporter.flush()
}

/// What a dry run says of a file.
pub fn looked_at(now: Fragments) -> Defragmented {
    let outcome = if now.extents > now.best { Outcome::NoRoom } else { Outcome::Whole };
    Defragmented { before: now, after: now, outcome }
}

/// What is printed as JSON.
#[derive(Serialize, Debug, Default)]
pub struct Report {
    dry_run: bool,
    files: Vec<Entry>,
    total: Total,
}

/// A file in pieces.
#[derive(Serialize, Debug)]
struct Entry {
    path: String,
    inode: u32,
    blocks: u64,
    extents_before: u64,
    extents_after: u64,
    extents_best: u64,
    /// `null` in a dry run.
    outcome: Option<&'static str>,
}

#[derive(Serialize, Debug, Default)]
struct Total {
    files: u64,
    unread_directories: u64,
    in_pieces: u64,
    moved: u64,
    extents_before: u64,
    extents_after: u64,
    extents_best: u64,
}

/// Collects and prints what was done.
#[derive(Debug)]
pub struct Reporter<'a> {
    args: &'a DefragArgs,
    report: Report,
    text: String,
    failed: bool,
}

impl<'a> Reporter<'a> {
    /// Nothing was done yet.
    pub fn new(args: &'a DefragArgs) -> Self {
        let report = Report { dry_run: args.dry_run, ..Report::default() };
        Self { args, report, text: String::new(), failed: false }
    }

    /// Nothing is to be moved.
    pub fn is_dry(&self) -> bool {
        self.args.dry_run
    }

    /// Something failed, and was said.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// A directory could not be read.
    pub fn unread(&mut self) {
        self.report.total.unread_directories += 1;
    }

    /// True if something failed.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// A file was done.
    pub fn file(&mut self, path: &[u8], inode: u32, done: Defragmented) {
        let Defragmented { before, after, outcome } = done;
        let total = &mut self.report.total;
        let in_pieces = before.extents > before.best;
        total.files += 1;
        total.in_pieces += u64::from(in_pieces);
        total.moved += u64::from(outcome == Outcome::Moved);
        total.extents_before += before.extents;
        total.extents_after += after.extents;
        total.extents_best += before.best;
        if self.args.json {
            if in_pieces || self.args.verbose {
                let dry = self.args.dry_run;
                self.report.files.push(Entry {
                    path: bytes_text(path),
                    inode,
                    blocks: before.blocks,
                    extents_before: before.extents,
                    extents_after: after.extents,
                    extents_best: before.best,
                    outcome: (!dry).then(|| outcome.name()),
                });
            }
        } else if self.args.verbose {
            let line = describe(self.args.dry_run, done);
            self.text += &format!("{}: {line}\n", OsStr::from_bytes(path).shown());
        }
    }

    /// Prints what there is.
    pub fn flush(&mut self) -> Result<()> {
        print(std::mem::take(&mut self.text))
    }

    fn end(mut self) -> Result<()> {
        self.flush()?;
        if self.args.json {
            return print_json(json_text(&self.report)?);
        }
        print(format!("{}\n", self.summary()))
    }

    fn summary(&self) -> String {
        let total = &self.report.total;
        let (files, before) =
            (counted(total.files, "file"), counted(total.extents_before, "extent"));
        let unread = match total.unread_directories {
            0 => String::new(),
            1 => "; 1 directory was not read".to_owned(),
            count => format!("; {count} directories were not read"),
        };
        if self.args.dry_run {
            return format!(
                "{files}, {} in pieces: {before}, {} would do{unread}",
                total.in_pieces, total.extents_best
            );
        }
        format!(
            "{files}, {} in pieces, {} moved: {before} before, {} after{unread}",
            total.in_pieces, total.moved, total.extents_after
        )
    }
}

/// One file, in words.
fn describe(dry: bool, done: Defragmented) -> String {
    let before = counted(done.before.extents, "extent");
    match done.outcome {
        Outcome::Whole => before,
        _ if dry => format!("{before}, {} would do", done.before.best),
        Outcome::Moved => format!("{before} before, {} after", done.after.extents),
        Outcome::NoRoom => format!("{before}: left, the free blocks have no run long enough"),
        Outcome::Immutable => format!("{before}: left, the file is immutable"),
    }
}

/// A report with every outcome, for the test of the schema.
#[cfg(test)]
pub fn example(dry_run: bool) -> Report {
    let args = DefragArgs {
        dry_run,
        verbose: true,
        json: true,
        options: Vec::new(),
        source: PathBuf::new(),
        more: Vec::new(),
    };
    let mut reporter = Reporter::new(&args);
    let before = Fragments { extents: 3, best: 1, blocks: 9 };
    for (outcome, _) in Outcome::ALL {
        reporter.file(b"/a\xff", 12, Defragmented { before, after: before, outcome });
    }
    reporter.report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_words() {
        let side = |extents| Fragments { extents, best: 1, blocks: 9 };
        let done = |outcome| Defragmented { before: side(7), after: side(2), outcome };
        assert_eq!(describe(false, done(Outcome::Moved)), "7 extents before, 2 after");
        assert_eq!(describe(true, looked_at(side(7))), "7 extents, 1 would do");
        assert_eq!(describe(true, looked_at(side(1))), "1 extent");
        assert!(describe(false, done(Outcome::NoRoom)).contains("no run long enough"));
        assert!(describe(false, done(Outcome::Immutable)).contains("immutable"));
    }
}
