//! `extol mkfs -d`: a volume with files in it.
//!
//! ```text
//!   list ─► measure (SIZE left out) ─► beside an old image, or in place ─► build ─► take its place
//! ```
//!
//! Everything that can be refused is refused before the target is touched. What is built in place
//! over something is built twice: first as a dry run, which reads all files and finds their places.

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extol::image::BuildError;
use extol::image::build::{self, BuildOptions, BuildProgress, Built, Free, Measured, SizeWish};
use extol::image::edits::{
    Contexts, Edits, MetaFile, ModeChange, Owner, Pattern, TimeEdit, parse_time,
};
use extol::image::source::{self, OciSource, Platform, Source, SourceOptions};
use extol::image::tree::{Tree, VerityTrees};
use extol_block::{FileDevice, OpenOptions};
use extol_cli_common::{Failure, Result, warn};
use extol_ondisk::Time;
use extol_proc::Shown as _;

use super::{Bars, confirm};
use crate::args::{FillArgs, FreeSpace, MkfsArgs};
use crate::staged::Staged;
use crate::text_file;
use crate::volume::{self, MkfsOptions, NoSource, Source as Target};
use crate::{files, interrupt};

/// The name that means standard input.
const STDIN: &str = "-";
/// What is left free where SIZE is left out.
const FREE: Free = Free::Percent(10.0);

/// Builds the volume. `epoch`: what the environment says of the time.
pub fn run(
    args: &MkfsArgs,
    mut mkfs: MkfsOptions,
    path: &Path,
    epoch: Option<u64>,
) -> Result<Built> {
    let there = std::fs::metadata(extol_proc::image_of(&args.target)).ok();
    volume::refuse_read_only_image(super::target(args)?)?;
    let edits = edits(&args.fill, epoch)?;
    if let Some(there) = &there {
        refuse_source(path, &args.target, there)?;
    }
    let mut source = open(path, args, &mut mkfs, &edits, there.as_ref())?;
    let free = args.fill.free.map(|free| match free {
        FreeSpace::Percent(percent) => Free::Percent(percent),
        FreeSpace::Bytes(bytes) => Free::Bytes(bytes),
    });
    let chosen = match &there {
        None => true,
        Some(file) => {
            file.is_file()
                && volume::is_own_file(super::target(args)?)
                && holds_something(&args.target)
        }
    };
    let needed = free.or((mkfs.size.is_none() && chosen).then_some(FREE));
    let mut options = BuildOptions { edits, source_date_epoch: epoch, ..BuildOptions::default() };
    options.mkfs = mkfs;
    options.size = needed.map_or(SizeWish::Given, SizeWish::AsNeeded);
    options.keep_times = args.fill.keep_times;
    options.threads = args.fill.threads.unwrap_or_default() as usize;
    for list in &args.fill.limits {
        options.limits.set(list).map_err(Failure::usage)?;
    }
    if let Some(path) = &options.mkfs.journal.device_path {
        options.mkfs.journal.device = Some(volume::journal_device(path, true)?);
    }
    let failed = |error| failed(path, &args.target, error);
    let tree = build::list(&mut *source, &options).map_err(failed)?;
    let measured = match options.size {
        SizeWish::AsNeeded(_) => {
            let mut bars = Bars::new(args);
            let told = &mut |progress| tell(&mut bars, progress);
            let measured = build::measure(&*source, &tree, &options, told).map_err(failed)?;
            options.mkfs.size = Some(measured.bytes);
            Some(measured)
        }
        _ => None,
    };
    let filling = Filling {
        args,
        target: super::target(args)?,
        path,
        source: &*source,
        tree: &tree,
        measured: measured.as_ref(),
        options,
        began: Cell::new(false),
    };
    let built = filling.run(there.as_ref())?;
    if let (Some(measured), true) =
        (&measured, volume::is_own_file(super::target(args)?) && !args.dry_run)
    {
        cut(&args.target, measured.bytes)?;
    }
    Ok(built)
}

/// True if a file is an old image or the like. One that holds zeros was made for its size, as by
/// truncate(1); one that cannot be read is refused later.
fn holds_something(target: &Path) -> bool {
    FileDevice::open(target, &OpenOptions::read_only())
        .is_ok_and(|device| volume::holds_something(&device))
}

/// Everything that a volume is built from.
struct Filling<'a> {
    args: &'a MkfsArgs,
    target: Target<'a>,
    path: &'a Path,
    source: &'a dyn Source,
    tree: &'a Tree,
    measured: Option<&'a Measured>,
    options: BuildOptions,
    /// The target was opened to be overwritten.
    began: Cell<bool>,
}

impl Filling<'_> {
    /// Builds the volume. A file that is overwritten stays as it is until the new volume is whole.
    fn run(&self, there: Option<&Metadata>) -> Result<Built> {
        let target = &self.args.target;
        let staged = match there {
            Some(_) if !self.args.dry_run => {
                Staged::begin(self.target, &self.options.mkfs, confirm)?
            }
            _ => None,
        };
        let place = staged.as_ref().map_or(self.target, |staged| staged.path().into());
        let built = self.build(place, there.is_some() && staged.is_none());
        // What is there, after a failure.
        let state = |mut failure: Failure, state: &str| {
            if !failure.line.is_empty() && !self.args.dry_run {
                failure.line += &format!("; {} {state}", target.shown());
            }
            failure
        };
        match (built, staged) {
            (Ok(built), staged) => staged.map_or(Ok(()), Staged::finish).map(|()| built),
            (Err(failure), Some(staged)) => Err(state(staged.as_typed(failure), "stays as it was")),
            (Err(failure), None) if there.is_some() => {
                if failure.code != Failure::FAILED {
                    // What was refused has changed nothing.
                    return Err(failure);
                }
                if !self.began.get() {
                    return Err(state(failure, "stays as it was"));
                }
                warn(format_args!(
                    "{}: holds no file system, or only a part of {}, and what it held before is \
                     lost",
                    target.shown(),
                    self.path.shown()
                ));
                Err(failure)
            }
            (Err(failure), None) => Err(state(failure, "was not made")),
        }
    }

    /// `in_place`: what is there is overwritten.
    fn build(&self, place: Target<'_>, in_place: bool) -> Result<Built> {
        let mut bars = Bars::new(self.args);
        let mkfs = self.options.mkfs.clone();
        let direct = self.args.direct;
        let was_planned = Cell::new(false);
        volume::make_volume(place, mkfs, direct, confirm, &mut |device, mkfs| {
            let mut options = BuildOptions { mkfs: mkfs.clone(), ..self.options.clone() };
            let told = &mut |progress| tell(&mut bars, progress);
            let Self { source, tree, measured, .. } = *self;
            let mut build = |options: &BuildOptions| {
                build::build_tree(device, source, tree, measured, options, told)
                    .map_err(|error| failed(self.path, place.path, error))
            };
            // What would be lost is lost only to files that can be read and fit.
            // (A file that is lengthened has had its dry run.)
            let planned = was_planned.replace(mkfs.dry_run);
            if in_place && !planned && !mkfs.dry_run && volume::holds_something(device) {
                options.mkfs.dry_run = true;
                build(&options)?;
                options.mkfs.dry_run = false;
            }
            self.began.set(!mkfs.dry_run);
            build(&options)
        })
    }
}

/// Refuses a target that is the source itself, or a file of a container image.
fn refuse_source(source: &Path, target: &Path, there: &Metadata) -> Result<()> {
    let refuse = |why| Err(Failure { code: Failure::USAGE, ..Failure::about(target.shown(), why) });
    let is_it = |file: Metadata| (file.dev(), file.ino()) == (there.dev(), there.ino());
    let read = match source == Path::new(STDIN) {
        true => {
            std::io::stdin().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata())
        }
        false => std::fs::metadata(source),
    };
    if read.is_ok_and(|file| !file.is_dir() && is_it(file)) {
        return refuse("is what the files come from: name another file");
    }
    if OciSource::is_layout(source)
        && let (Ok(layout), Ok(file)) = (source.canonicalize(), target.canonicalize())
        && file.starts_with(layout)
    {
        return refuse(
            "is a file of the container image that the files come from: name another one",
        );
    }
    Ok(())
}

fn tell(bars: &mut Bars, progress: BuildProgress) -> ControlFlow<()> {
    bars.show(&progress.stage, progress.done, progress.total);
    if interrupt::came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Cuts a file behind the volume.
fn cut(target: &Path, bytes: u64) -> Result<()> {
    let is_longer = |file: &Metadata| file.is_file() && file.len() > bytes;
    if std::fs::metadata(target).is_ok_and(|file| is_longer(&file)) {
        let file = File::options().write(true).open(target);
        file.and_then(|file| file.set_len(bytes))
            .map_err(|error| Failure::system_call(target.shown(), error))?;
    }
    Ok(())
}

/// Refuses a file that is no archive, by what it is. (The zeros that most volumes and disks begin
/// with are the end of an archive.)
fn refuse_no_source(path: &Path) -> Result<()> {
    let device = FileDevice::open(path, &OpenOptions::read_only());
    let Some(what) = device.ok().and_then(|device| volume::no_source(&device)) else {
        return Ok(());
    };
    const NEITHER: &str = "neither a directory, a tar archive nor a container image";
    let why = match what {
        NoSource::Volume(what) => format!(
            "is {what}, and no directory or archive: `extol tar {} | extol mkfs -d - IMAGE` makes \
             a volume with its files",
            path.shown()
        ),
        NoSource::Known(what) => format!("is {what}, and {NEITHER}"),
        NoSource::Unknown => format!("is {NEITHER}"),
    };
    Err(Failure { code: Failure::USAGE, ..Failure::about(path.shown(), why) })
}

/// Opens what is typed behind `-d`.
fn open(
    path: &Path,
    args: &MkfsArgs,
    mkfs: &mut MkfsOptions,
    edits: &Edits,
    there: Option<&Metadata>,
) -> Result<Box<dyn Source>> {
    let failed = |error| failed(path, path, error);
    let mut how = SourceOptions { spool: spool(args), ..SourceOptions::default() };
    how.image.image.clone_from(&args.fill.image);
    if let Some(platform) = &args.fill.platform {
        how.image.platform = Some(Platform::parse(platform).map_err(Failure::usage)?);
    }
    if path == Path::new(STDIN) {
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|error| Failure::system_call("standard input", error))?;
        return source::open_stream(input.into(), "standard input", &how).map_err(failed);
    }
    let metadata = std::fs::metadata(path);
    let metadata = metadata.map_err(|error| Failure::system_call(path.shown(), error))?;
    if !metadata.is_dir() {
        refuse_no_source(path)?;
    }
    let is_plain = metadata.is_dir() && !OciSource::is_layout(path);
    let chooses = "chooses a container image";
    for (option, given, what) in [
        ("--platform", args.fill.platform.is_some(), chooses),
        ("--image", args.fill.image.is_some(), chooses),
        ("--spool", args.fill.spool.is_some(), "keeps the contents of an archive meanwhile"),
    ] {
        if is_plain && given {
            return Err(Failure::usage(format_args!(
                "{option} {what}, and {} is a directory of files",
                path.shown()
            )));
        }
    }
    let extended = &mut mkfs.extended;
    if is_plain {
        // As with mke2fs: owner and mode of a scratch directory are no matter of the image.
        extended.root_owner.get_or_insert((0, 0));
        extended.root_perms.get_or_insert(0o755);
    }
    how.dir.xattrs = !extended.no_copy_xattrs;
    how.dir.keep_times = args.fill.keep_times;
    how.dir.exclude = edits.exclude.clone();
    how.dir.skip = there.map(|file| (file.dev(), file.ino())).into_iter().collect();
    source::open(path, &how).map_err(failed)
}

/// Where the contents of a source that can be read only once are kept meanwhile: beside the image.
fn spool(args: &MkfsArgs) -> PathBuf {
    if let Some(dir) = &args.fill.spool {
        return dir.clone();
    }
    let is_device = |file: Metadata| !file.is_file();
    if std::fs::metadata(&args.target).is_ok_and(is_device) {
        return std::env::temp_dir();
    }
    match args.target.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The changes that options ask for.
fn edits(args: &FillArgs, epoch: Option<u64>) -> Result<Edits> {
    let bad = |error: BuildError| Failure::usage(error);
    let mut edits = Edits::default();
    for pattern in &args.exclude {
        edits.exclude.push(Pattern::parse("--exclude", pattern.as_bytes()).map_err(bad)?);
    }
    for pattern in &args.verity {
        edits.verity.push(Pattern::parse("--verity", pattern.as_bytes()).map_err(bad)?);
    }
    edits.verity_trees = VerityTrees {
        algorithm: files::hash_algorithm("--verity-hash-alg", args.verity_hash_alg.as_deref())?,
        block_size: args.verity_block_size,
        salt: files::salt("--verity-salt", args.verity_salt.as_deref())?,
    };
    for range in &args.map_users {
        edits.map_users.add("--map-users", range).map_err(bad)?;
    }
    for range in &args.map_groups {
        edits.map_groups.add("--map-groups", range).map_err(bad)?;
    }
    if let Some(owner) = &args.owner {
        edits.owner = Owner::parse("--owner", owner).map_err(bad)?;
    }
    if let Some(owner) = &args.root_owner {
        edits.root_owner = Owner::parse("--root-owner", owner).map_err(bad)?;
    }
    if let Some(change) = &args.chmod {
        edits.chmod = Some(ModeChange::parse(change).map_err(bad)?);
    }
    if let Some(path) = &args.metadata {
        let name = path.shown().to_string();
        edits.meta_file = Some(MetaFile::parse(&name, &text_file::read(path)?).map_err(bad)?);
    }
    if let Some(path) = &args.selinux_contexts {
        let name = path.shown().to_string();
        edits.selinux = Some(Contexts::parse(&name, &text_file::read(path)?).map_err(bad)?);
    }
    let given = args.mtime.as_ref().map(|text| parse_time("--mtime", text)).transpose();
    let given = given.map_err(bad)?;
    if let (Some(text), Some(time)) = (&args.mtime, given)
        && !(Time::MIN_SEC..=Time::MAX_SEC).contains(&time.sec)
    {
        return Err(Failure::usage(format_args!(
            "--mtime {text}: ext4 has times from 1901-12-13 to 2446-05-10 only"
        )));
    }
    let moment = given.or_else(|| {
        let sec = i64::try_from(epoch?).ok()?;
        args.clamp_mtime.then_some(Time { sec, nsec: 0 })
    });
    edits.mtime = match (moment, args.clamp_mtime) {
        (Some(moment), true) => Some(TimeEdit::Clamp(moment)),
        (Some(moment), false) => Some(TimeEdit::Set(moment)),
        (None, false) => None,
        (None, true) => {
            return Err(Failure::usage(
                "--clamp-mtime needs a time: give --mtime, or set SOURCE_DATE_EPOCH",
            ));
        }
    };
    Ok(edits)
}

/// The failure of building.
fn failed(source: &Path, target: &Path, error: BuildError) -> Failure {
    match error {
        BuildError::Refused(why) => Failure { code: Failure::USAGE, ..volume::about(target, why) },
        BuildError::TooSmall { needed, .. } => Failure::about(
            target.shown(),
            format_args!(
                "is too small for {}: give a larger SIZE, of at least {needed}B",
                source.shown()
            ),
        ),
        BuildError::Source { entry, why, .. } if why.contains("attribute") => {
            let more = "-E no_copy_xattrs leaves all attributes out";
            Failure::new(format_args!("{entry}: {why} ({more})"))
        }
        BuildError::Device(error) => volume::about(target, error),
        error => Failure::new(error),
    }
}
