//! `extol resize` of a volume in a partition: the end of the partition moves, too.
//!
//! The partition becomes longer before its volume does, and shorter only by itself
//! (`--partition-only`), when the volume is short already. So the volume fits its partition at
//! every moment, and after a crash the same command goes on. The volume is checked before anything
//! is written. The disk is open alone while its table changes: no other partition of it is in use.

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

use crate::args::ResizeArgs;
use crate::resize_mounted;
use crate::resize_report::PartitionReport;
use crate::volume::{self, PartitionResized, PartitionRoom, Source, VolumeOptions};

/// Bytes that a number without a unit counts, for a partition without a volume.
const SECTOR: u64 = 512;

/// Makes the partition of a volume longer, if the volume is to be longer than that. `None`: it is
/// long enough, or the volume is in none.
pub fn before(
    args: &ResizeArgs,
    source: Source<'_>,
    options: &VolumeOptions,
) -> Result<Option<PartitionResized>> {
    let about = |why: &dyn std::fmt::Display| Failure::about(args.source.shown(), why);
    let Some(size) = args.size else { return Ok(None) };
    let Some(part) = volume::name(source)?.part else { return Ok(None) };
    let (now, block) = volume::size_and_block(source)?;
    let bytes = size.bytes(now, block).map_err(|error| about(&error))?;
    let bytes = bytes - bytes % block;
    if bytes <= volume::place(&volume::name(source)?)?.limit.unwrap_or(u64::MAX) {
        return Ok(None);
    }
    if !args.force {
        volume::check_to_resize(source, options)
            .map_err(|failure| resize_mounted::mention_mount(&args.source, failure))?;
    }
    volume::resize_partition(source, &part, |_| Ok(bytes)).map(Some)
}

/// Changes a partition, and not its volume.
pub fn alone(args: &ResizeArgs, source: Source<'_>) -> Result<()> {
    let about = |why: &dyn std::fmt::Display| Failure::about(args.source.shown(), why);
    let Some(part) = volume::name(source)?.part else {
        return Err(Failure::usage(format_args!(
            "{0}: --partition-only is about a partition: say {0}:1",
            args.source.shown()
        )));
    };
    let done = volume::resize_partition(source, &part, |room| wanted(args, source, room))?;
    let report = PartitionReport::of(&args.source, done);
    report.print(args).map_err(|failure| about(&failure.line))
}

/// How many bytes the partition is to have.
fn wanted(args: &ResizeArgs, source: Source<'_>, room: &PartitionRoom) -> Result<u64> {
    let about = |why: &dyn std::fmt::Display| Failure::about(args.source.shown(), why);
    let len = room.partition.len;
    // (The disk is open alone, so this stays so.)
    let volume = room.holds_volume().then(|| volume::size_and_block(source)).transpose()?;
    let block = volume.map_or(SECTOR, |(_, block)| block);
    let bytes = match args.size {
        None => room.most.max(len),
        Some(size) => size.bytes(len, block).map_err(|error| about(&error))?,
    };
    if bytes >= len || args.force {
        return Ok(bytes);
    }
    match volume {
        Some((has, _)) if has <= bytes => Ok(bytes),
        Some((has, _)) => {
            let shown = source.path.shown();
            Err(about(&format_args!(
                "its volume has {has} bytes, which {bytes} would cut: extol resize {shown} \
                 {bytes}B makes it smaller first"
            )))
        }
        None => {
            let line = "holds no ext4 volume, whose size is known: -f cuts it all the same";
            Err(about(&line))
        }
    }
}
