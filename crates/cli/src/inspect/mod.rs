//! `extol info`, `extol log` and `extol replay`.

mod disk;
mod header;
mod journal_device;
mod journal_text;

use std::fmt::Write as _;

use extol_cli_common::{Failure, Result, counted, json_text, print, print_json};
use extol_vfs::{NumberError, number};
use serde::Serialize;

use crate::args::{InfoArgs, InspectArgs, ReplayArgs};
use crate::options::Opening;
use crate::volume::{Info, Known, Replayed, Source, VolumeOptions};
use crate::{options, volume};
use disk::{Disk, Packed, Part};
pub use header::time;
use journal_device::JournalDevice;
use journal_text::JournalText;

/// Largest number of a block.
pub(crate) const MOST_BLOCK: u64 = (1 << 48) - 1;

/// Shows size, features and state of a volume.
pub fn info(args: &InfoArgs) -> Result<()> {
    args.refused.check()?;
    let (options, part) = opening_options(args)?;
    let source = Source { path: &args.source, part };
    let place = options.access.superblock;
    if !(args.header || args.groups) {
        return show_info(source, &options, args.json);
    }
    if options.journal.path.is_some() {
        return Err(Failure::usage("journal_path= has no effect with -h and -g: leave it out"));
    }
    let (header, descriptors) = volume::header(source, place, args.groups)?;
    let mut text = String::new();
    if args.header {
        text += &header::text(&header);
    }
    if args.groups {
        text += &header::groups(&header, &descriptors);
    }
    print(text)
}

/// Shows the superblock.
pub fn show_header(source: Source<'_>, place: Option<u64>) -> Result<()> {
    let (header, _) = volume::header(source, place, false)?;
    print(header::text(&header))
}

/// What a volume is, or which partitions a disk has.
fn show_info(source: Source<'_>, options: &VolumeOptions, json: bool) -> Result<()> {
    /// A volume, and which part of a disk it is.
    #[derive(Serialize)]
    struct Volume<'i> {
        #[serde(flatten)]
        info: &'i Info,
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<Part>,
        /// The block of the copy of the superblock that was read.
        #[serde(skip_serializing_if = "Option::is_none")]
        superblock_copy: Option<u64>,
        #[serde(flatten)]
        packed: Packed,
    }
    match volume::info(source, options) {
        Ok(Known { info, layers, copy }) => {
            let part = Part::of_layers(&layers);
            let mut line = part.as_ref().map(Part::line).unwrap_or_default();
            let packed = Packed::of_layers(&layers);
            if let Some(text) = packed.text() {
                let _ = writeln!(line, "{:<22} {text}", "Packed in");
            }
            let text = format!("{info}{line}");
            show(json, &Volume { info: &info, part, superblock_copy: copy, packed }, &text)
        }
        Err(failure) => {
            if let Some((table, bytes, layers)) = volume::partitions(source)? {
                let disk = Disk::new(&table, bytes, &layers);
                return show(json, &disk, &disk.text(source.path));
            }
            let Some(header) = volume::external_journal(source)? else { return Err(failure) };
            let journal = JournalDevice::new(&header);
            show(json, &journal, &journal.text())
        }
    }
}

/// The options that decide what is shown. Where the superblock is stands in those of dumpe2fs
/// (`superblock=`, `blocksize=`) or in `sb=`.
fn opening_options(args: &InfoArgs) -> Result<(VolumeOptions, options::Part)> {
    let mistake =
        |name: &str, error: NumberError| Failure::usage(format_args!("option \"{name}\": {error}"));
    let (mut block, mut size, mut rest) = (None, None, Vec::new());
    for word in args.options.iter().flat_map(options::words) {
        match options::text_of(&word).map(options::parts) {
            Some((name @ "superblock", Some(text))) => {
                let number = number::count(text, 0..=MOST_BLOCK);
                block = Some(number.map_err(|error| mistake(name, error))?);
            }
            Some((name @ "blocksize", Some(text))) => {
                let bytes = number::size(text, 1, 1024..=65_536);
                size = Some(bytes.map_err(|error| mistake(name, error))?);
            }
            _ => rest.push(options::quoted(&word)),
        }
    }
    let Opening { volume: mut options, part } = options::opening(&rest)?;
    let source = Source { path: &args.source, part };
    if let Some(block) = block {
        options.access.superblock = Some(match size {
            Some(size) => block.saturating_mul(size) / 1024,
            None => volume::find_superblock(source, block)?,
        });
    }
    Ok((options, part))
}

/// Recovers a volume.
pub fn replay(args: &ReplayArgs) -> Result<()> {
    let ReplayArgs { json, options, source, .. } = args;
    let Opening { volume, part } = options::opening(options)?;
    if volume.access.superblock.is_some() {
        return Err(Failure::usage(
            "-o sb= cannot be used with replay: a copy of the superblock does not say if there is \
             something to replay: let e2fsck -b repair the first one, which replays the journal",
        ));
    }
    let replayed = volume::replay(Source { path: source, part }, &volume, args.dry_run)?;
    let text = replay_text(&replayed, args.dry_run);
    show(*json, &replayed, &text)
}

fn replay_text(replayed: &Replayed, dry_run: bool) -> String {
    let mut text = match (replayed.was_needed, replayed.transactions) {
        (false, _) if replayed.orphans_left => "the journal is empty".to_owned(),
        (false, _) => "nothing to do: the volume was closed cleanly".to_owned(),
        (true, 0) if replayed.fast_commits == 0 && dry_run => "the journal is empty".to_owned(),
        (true, 0) if replayed.fast_commits == 0 => {
            "the journal was empty; the volume is marked clean".to_owned()
        }
        (true, transactions) => {
            let (done, would) = if dry_run {
                ("would replay", "to write in place")
            } else {
                ("replayed", "written in place")
            };
            let fast = match replayed.fast_commits {
                0 => String::new(),
                commits => {
                    format!(
                        ", and {} with {}",
                        counted(commits, "fast commit"),
                        counted(replayed.fast_commit_records, "record")
                    )
                }
            };
            format!(
                "{done} {}: {} {would}, {} revoked{fast}",
                counted(transactions, "transaction"),
                counted(replayed.blocks, "block"),
                replayed.revoked
            )
        }
    };
    if replayed.orphans > 0 {
        let files = counted(replayed.orphans, "deleted or truncated file");
        let _ = write!(text, "; {files} finished");
    }
    if replayed.orphans_left {
        text.push_str(
            "; deleted files are left that only Linux or e2fsck can finish on this volume",
        );
    }
    text
}

/// Shows a journal.
pub fn log(args: &InspectArgs) -> Result<()> {
    let Opening { volume, part } = options::opening(&args.options)?;
    let report = volume::journal(Source { path: &args.source, part }, &volume)?;
    show(args.json, &report, &JournalText(&report))
}

fn show(json: bool, value: &impl Serialize, text: &impl std::fmt::Display) -> Result<()> {
    if json {
        return print_json(json_text(value)?);
    }
    let mut out = text.to_string();
    if !out.ends_with('\n') {
        out.push('\n');
    }
    print(out)
}
