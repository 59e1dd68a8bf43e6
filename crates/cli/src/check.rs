//! `extol check`: the volume is read, compared with itself, and not changed.
//!
//! A volume that is in use by a writer seems to be damaged where it is only half written. So a
//! writer, the kernel or another Extol, is a reason to refuse: the kernel's mounts are found in
//! mountinfo by device number, for a disk image those of the loop devices over it; another Extol
//! holds a lock.
//!
//! With `-p` the journal is replayed on the volume first (`extol replay`); that is the only change.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use extol::check::{CheckOptions, Pass, Progress, Recovery, Report};
use extol_block::open::{OpenName, Opened};
use extol_block::{OpenOptions, SharedDevice};
use extol_cli_common::{Failure, Result, json_text, print, print_json, progress};
use extol_proc::Shown as _;

use crate::args::CheckArgs;
use crate::interrupt;
use crate::options;
use crate::volume::{self, Source, VolumeOptions};

/// Where the passes begin in a bar of a thousand steps; the times of a volume with many small
/// files.
const STARTS: [(Pass, u64); 5] = [
    (Pass::Open, 0),
    (Pass::Inodes, 20),
    (Pass::Directories, 550),
    (Pass::Links, 900),
    (Pass::Bitmaps, 930),
];
const STEPS: u64 = 1000;

/// What else can be done about a volume that is mounted.
const OR_MOUNTED: &str = ", or use --mounted";

/// Checks a volume and prints what is wrong with it.
pub fn run(args: &CheckArgs) -> Result<()> {
    // (A reader of the output that has ended is told as by all commands.)
    let failed = |failure: Failure| match failure.code {
        Failure::CLOSED_PIPE => failure,
        _ => Failure { code: Failure::FSCK_FAILED, ..failure },
    };
    let usage = |failure| Failure { code: Failure::FSCK_USAGE, ..failure };
    args.refused.check(&args.source).map_err(usage)?;
    let source = source(args).map_err(usage)?;
    let lines = args.progress.filter(|fd| *fd != 0).map(ProgressLines::open);
    let mut lines = lines.transpose().map_err(usage)?;
    let begin = Instant::now();
    interrupt::exit_on_signals(|| {}).map_err(failed)?;
    if args.preen {
        replay(args, source).map_err(failed)?;
    }
    let report = check(args, source, lines.as_mut()).map_err(failed)?;
    show(args, &report, begin).map_err(failed)?;
    if report.is_clean() { Ok(()) } else { Err(Failure::silent(Failure::FSCK_DAMAGED)) }
}

fn show(args: &CheckArgs, report: &Report, begin: Instant) -> Result<()> {
    if args.json {
        return print_json(json_text(report)?);
    }
    if args.verbose {
        print(format!("{report}\n{}\n", details(report)))?;
    } else {
        print(format!("{report}\n"))?;
    }
    if args.time > 0 {
        print(format!("time: {:.2} s\n", begin.elapsed().as_secs_f64()))?;
    }
    Ok(())
}

/// What is checked. Of the options for opening a volume those count that say where it is.
fn source(args: &CheckArgs) -> Result<Source<'_>> {
    Ok(Source { path: &args.source, part: options::part_only(&args.options)? })
}

/// Replays the journal on the volume.
fn replay(args: &CheckArgs, source: Source<'_>) -> Result<()> {
    let mut options = VolumeOptions::default();
    options.journal.path = args.journal.clone();
    let replayed = volume::replay(source, &options, false)?;
    if replayed.was_needed && !args.json {
        print(format!("{}: journal replayed\n", args.source.shown()))?;
    }
    Ok(())
}

/// The progress as e2fsck writes it for a program that shows it.
struct ProgressLines(File);

impl ProgressLines {
    fn open(fd: u32) -> Result<Self> {
        let path = format!("/proc/self/fd/{fd}");
        // (Appending: a file keeps what is in it.)
        File::options().append(true).open(path).map(Self).map_err(|error| {
            Failure::usage(format_args!("-C {fd}: cannot write to that descriptor: {error}"))
        })
    }

    fn show(&mut self, at: Progress, source: &Path) {
        let pass = match at.pass {
            Pass::Inodes => 1,
            Pass::Directories => 2,
            Pass::Links => 4,
            Pass::Bitmaps => 5,
            _ => return,
        };
        let mut line = format!("{pass} {} {} ", at.done, at.total).into_bytes();
        line.extend(source.as_os_str().as_bytes());
        line.push(b'\n');
        // The reader may have ended.
        let _ = self.0.write_all(&line);
    }
}

fn check(
    args: &CheckArgs,
    source: Source<'_>,
    mut lines: Option<&mut ProgressLines>,
) -> Result<Report> {
    if !args.mounted
        && let Some(mut failure) = volume::written_by_others(source)
    {
        failure.line += OR_MOUNTED;
        return Err(failure);
    }
    let named = volume::name(source)?;
    let opened = open(&named, args.mounted)?;
    let opts = CheckOptions {
        superblock: superblock(args, source)?,
        recovery: if args.as_is { Recovery::Ignore } else { Recovery::InMemory },
        journal: args.journal.as_deref().map(|path| journal(path, args.mounted)).transpose()?,
        max_findings: usize::try_from(args.limit).unwrap_or(usize::MAX),
        ..CheckOptions::default()
    };
    let bar = progress::steps(STEPS, "checking".to_owned());
    let report = extol::check::check(opened.device.clone(), &opts, &mut |at| {
        bar.set_position(position(at));
        if let Some(lines) = &mut lines {
            lines.show(at, &args.source);
        }
    });
    bar.finish_and_clear();
    report.map_err(|error| volume::refused(&named, &opened, &VolumeOptions::default(), error))
}

/// Where the superblock to use begins, in bytes.
fn superblock(args: &CheckArgs, source: Source<'_>) -> Result<Option<u64>> {
    let Some(block) = args.superblock else { return Ok(None) };
    let at = match args.block_size {
        Some(size) => block.saturating_mul(size),
        None => volume::find_superblock(source, block)?.saturating_mul(1024),
    };
    Ok(Some(at))
}

fn position(at: Progress) -> u64 {
    let index = STARTS.iter().position(|(pass, _)| *pass == at.pass).unwrap_or(0);
    let start = STARTS.get(index).map_or(0, |(_, start)| *start);
    let end = STARTS.get(index + 1).map_or(STEPS, |(_, start)| *start);
    start + (end - start) * at.done.min(at.total) / at.total.max(1)
}

fn open(name: &OpenName, force: bool) -> Result<Opened> {
    volume::open_told(name, &OpenOptions::read_only().exclusive(!force)).map_err(|error| {
        let mut failure = volume::about(&name.typed, &error);
        if !force && error.kind() == ErrorKind::ResourceBusy {
            failure.line += OR_MOUNTED;
        }
        failure
    })
}

fn journal(path: &Path, force: bool) -> Result<SharedDevice> {
    Ok(open(&volume::name(path.into())?, force)?.device)
}

fn details(report: &Report) -> String {
    let c = &report.counts;
    let mut text = format!(
        "{} directories with {} names, {} files, {} symbolic links, {} special files",
        c.directories, c.names, c.files, c.symlinks, c.specials
    );
    if c.orphans > 0 {
        text += &format!(", {} orphans", c.orphans);
    }
    if let Some(replayed) = &report.replayed {
        text += &format!(
            "\njournal: {} transactions change {} blocks, {} copies are revoked",
            replayed.transactions, replayed.blocks, replayed.revoked
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_only_goes_on() {
        let mut last = 0;
        for (pass, _) in STARTS {
            for done in 0..=7 {
                let now = position(Progress::new(pass, done, 7));
                assert!(now >= last && now <= STEPS);
                last = now;
            }
        }
        assert_eq!(last, STEPS);
    }
}
