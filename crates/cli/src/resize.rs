//! `extol resize`: a volume that is not mounted becomes larger or smaller.
//! (`resize_mounted.rs`: one that is mounted becomes larger.)

use std::sync::Arc;

use extol_cli_common::{Failure, Result, progress};
use extol_proc::Shown as _;

use crate::args::ResizeArgs;
use crate::options::Opening;
use crate::resize_report::{Report, Smallest};
use crate::volume::{
    self, Minimum, ResizeError, ResizeProgress, Resized, Size, Source, Target, Volume,
    VolumeOptions,
};
use crate::{interrupt, options, resize_mounted};

/// Makes a volume larger or smaller.
pub fn run(args: &ResizeArgs) -> Result<()> {
    if let Some(dir) = resize_mounted::mount_of(&args.source) {
        return resize_mounted::run(args, &dir);
    }
    let Opening { volume: options, part } = options::opening(&args.options)?;
    if options.access.read_only {
        return Err(Failure::usage("-o ro and -o norecovery cannot be used with resize"));
    }
    interrupt::catch()?;
    let source = Source { path: &args.source, part };
    if args.print_minimum {
        let found = minimum(args, source, &options)?;
        interrupt::check()?;
        return Smallest::new(&args.source, &found).print(args);
    }
    if args.minimum && !could_be_smaller(args, source, &options)? {
        return interrupt::check();
    }
    let about = |why: &dyn std::fmt::Display| Failure::about(args.source.shown(), why);
    // (What --minimum found was checked just before.)
    let volume = volume::open_to_resize(source, &options, !args.force && !args.minimum)
        .map_err(|failure| resize_mounted::mention_mount(&args.source, failure))?;
    let resized = resize(args, &volume);
    let closed = volume::close(&volume).map_err(|error| about(&error));
    let resized = resized?;
    closed?;
    // (A device, and a member of an image, never change their size.)
    let keeps = (part.window.offset != 0 || part.window.limit.is_some()) && args.source.is_file();
    Report::of(&args.source, resized).of_part(keeps).print(args)?;
    interrupt::check()
}

/// Says so if a volume is as small as it can be: nothing is written then, not even that it was
/// opened.
fn could_be_smaller(
    args: &ResizeArgs,
    source: Source<'_>,
    options: &VolumeOptions,
) -> Result<bool> {
    let found = minimum(args, source, options)?;
    let smaller = found.minimum < found.blocks || found.is_unfinished;
    if !smaller {
        let (blocks, block_size) = (found.blocks, found.block_size);
        let (before, target, wished) = (blocks, blocks, blocks);
        let same = Resized { block_size, before, blocks, target, wished, ..Resized::default() };
        Report::of(&args.source, same).print(args)?;
    }
    Ok(smaller)
}

fn minimum(args: &ResizeArgs, source: Source<'_>, options: &VolumeOptions) -> Result<Minimum> {
    with_progress(args, |show| volume::minimum(source, options, !args.force, show))
        .map_err(|failure| resize_mounted::mention_mount(&args.source, failure))
}

fn resize(args: &ResizeArgs, volume: &Arc<Volume>) -> Result<Resized> {
    let about = |why: &dyn std::fmt::Display| Failure::about(args.source.shown(), why);
    let target = match args.size.map(|size| Size::bytes(size, volume.block_size().into())) {
        _ if args.minimum => Target::Minimum,
        Some(bytes) => bytes.map(Target::Bytes).map_err(|error| about(&error))?,
        None => Target::Device,
    };
    with_progress(args, |show| volume.resize(target, show))
        .map_err(|error| about(&format_args!("{error}{}", advice(args, &error))))
}

/// What to do about an error, behind its words.
fn advice(args: &ResizeArgs, error: &ResizeError) -> String {
    let name = args.source.shown();
    match error.cause() {
        ResizeError::TooSmall { .. } | ResizeError::NoRoom { .. } => {
            format!("; extol resize --print-minimum {name} says how small it can be")
        }
        // The volume was not checked before.
        ResizeError::Fs(_) if args.force => {
            format!("; run e2fsck -f {name}, then extol resize again")
        }
        _ => String::new(),
    }
}

/// Does what shows its progress.
fn with_progress<T>(
    args: &ResizeArgs,
    work: impl FnOnce(&mut dyn FnMut(ResizeProgress) -> bool) -> T,
) -> T {
    let mut bar = None;
    let done = work(&mut |at| {
        if !args.quiet && !args.json {
            let bar = bar.get_or_insert_with(|| progress::steps(at.all, "resizing".to_owned()));
            bar.set_length(at.all);
            bar.set_position(at.done);
        }
        !interrupt::came()
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    done
}
