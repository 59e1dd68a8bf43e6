//! `extol resize` of a volume that is mounted: its daemon makes it larger, while it is in use.
//!
//! The operand is a directory of the mount, or the image or device that is mounted. The daemon does
//! a part of the way for each request, so that there is progress to show, and Ctrl-C ends it at a
//! size in between.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use extol_cli_common::{Failure, Result, progress};
use extol_fuse::control;
use extol_proc::{MountTable, Shown as _};
use extol_vfs::Resized;

use crate::args::ResizeArgs;
use crate::maintenance::explain;
use crate::mounted::MountedVolume;
use crate::resize_report::Report;
use crate::{interrupt, mount_table};

/// The directory of the mount that the operand names; `None`: no mount.
pub fn mount_of(source: &Path) -> Option<PathBuf> {
    if source.is_dir() {
        return Some(source.to_owned());
    }
    let table = MountTable::own().ok()?;
    let mut mounts = table.iter().rev().filter(|mount| mount.is_extol());
    let is_it = |mounted: &Path| mounted == source || is_same(mounted, source);
    // (One that is covered by another mount cannot be asked.)
    let mount = mounts.find(|mount| {
        is_it(Path::new(&mount.source)) && mount_table::is_top(&mount.dir, mount.id)
    })?;
    Some(mount.dir.clone())
}

/// True if both name the same file or device.
fn is_same(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) else { return false };
    if a.file_type().is_block_device() {
        return b.file_type().is_block_device() && a.rdev() == b.rdev();
    }
    a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// The failure for a file that is no volume: one on a mount may stand for the mount.
pub fn mention_mount(source: &Path, failure: Failure) -> Failure {
    let parent = source.parent().map(|dir| if dir == Path::new("") { Path::new(".") } else { dir });
    let mounted = parent.filter(|_| source.is_file()).map(|dir| MountedVolume::of(dir, "resize"));
    match mounted {
        Some(Ok(mounted)) if mounted.stats().is_ok() => {
            let root = mounted.root.shown();
            let line = &failure.line;
            let line = format!("{line}; to resize the volume that the file is on, name {root}");
            Failure { line, ..failure }
        }
        _ => failure,
    }
}

/// Makes the volume mounted at `dir` larger.
pub fn run(args: &ResizeArgs, dir: &Path) -> Result<()> {
    let about = |line: &dyn std::fmt::Display| Failure::about(args.source.shown(), line);
    if args.minimum || args.print_minimum {
        let line = "is mounted, and can only become larger: unmount it first";
        return Err(about(&line));
    }
    if !args.options.is_empty() {
        let line = "is mounted: -o is for volumes that are not";
        return Err(Failure::usage(format_args!("{}: {line}", args.source.shown())));
    }
    let mounted = MountedVolume::of(dir, "resize")?;
    let stats = mounted.stats()?;
    if let Some(stopped) = mounted.stopped() {
        return Err(stopped);
    }
    if stats.frozen {
        return Err(about(&"the volume is frozen; extol thaw ends that"));
    }
    let bytes = args.size.map(|size| size.bytes(stats.block_size.into()));
    let bytes = bytes.transpose().map_err(|error| about(&error))?;
    interrupt::catch()?;
    let resized = repeat(args, dir, &mounted, bytes)
        .map_err(|failure| mounted.stopped().unwrap_or(failure))?;
    Report::of(&args.source, resized).print(args)?;
    interrupt::check()
}

/// Asks the daemon until the volume is as large as wanted, or a signal came.
fn repeat(
    args: &ResizeArgs,
    dir: &Path,
    mounted: &MountedVolume,
    bytes: Option<u64>,
) -> Result<Resized> {
    let mut bar = None;
    let mut first: Option<Resized> = None;
    loop {
        let asked = explain(control::grow(&mounted.root, bytes), dir, |_| None)?;
        let now = asked.map_err(|line| Failure::about(args.source.shown(), line));
        let now = match (now, first) {
            (Ok(now), _) => now,
            (Err(failure), None) => return Err(failure),
            (Err(failure), Some(so_far)) => {
                let (from, to) = (so_far.before, so_far.blocks);
                let line = format_args!("{}; it grew from {from} to {to} blocks", failure.line);
                return Err(Failure { line: line.to_string(), ..failure });
            }
        };
        let all = Resized {
            before: first.map_or(now.before, |first| first.before),
            went_to_meta_bg: now.went_to_meta_bg | first.is_some_and(|f| f.went_to_meta_bg),
            ..now
        };
        first = Some(all);
        // (A request that reaches nothing would be repeated for ever.)
        if now.blocks >= now.target || now.blocks == now.before || interrupt::came() {
            if let Some(bar) = bar {
                progress::ProgressBar::finish_and_clear(&bar);
            }
            return Ok(all);
        }
        if !args.quiet {
            let bar = bar.get_or_insert_with(|| progress::steps(now.target, "resizing".to_owned()));
            bar.set_position(now.blocks);
        }
    }
}
