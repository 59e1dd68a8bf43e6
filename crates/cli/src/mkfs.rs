//! `extol mkfs`: mke2fs's options, turned into the library's options.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use extol_cli_common::{Failure, Result, print, progress, warn};
use extol_proc::Shown as _;
use extol_vfs::plain;

use crate::args::{BlockSize, MkfsArgs};
use crate::files;
use crate::staged::Staged;
use crate::volume::{self, FsType, MkfsOptions, OnError, Size, Stage, Summary};

/// Largest blocks, and features, of volumes that Extol itself can write to.
const MOST_BLOCK_SIZE: u32 = 4096;
const READ_ONLY_FEATURES: [&str; 1] = ["ea_inode"];

/// Makes a volume.
pub fn run(args: &MkfsArgs) -> Result<()> {
    args.refused.check()?;
    let options = options(args)?;
    if let Some(dir) = &args.contents {
        can_be_filled(args, &options, dir)?;
    }
    let summary = match args.contents.as_deref().filter(|_| !args.dry_run) {
        None => make(&args.target, args, options)?,
        Some(dir) => make_filled(args, options, dir)?,
    };
    let mut text = String::new();
    if !args.quiet {
        text = format!("{}\n", summary.to_string().trim_end());
        if args.verbose {
            text += &summary.details();
        }
        for note in &summary.notes.notes {
            text += &format!("note: {note}\n");
        }
    }
    print(text)?;
    for warning in &summary.notes.warnings {
        warn(format_args!("warning: {warning}"));
    }
    Ok(())
}

/// Refuses what cannot be filled, before anything is written.
fn can_be_filled(args: &MkfsArgs, options: &MkfsOptions, dir: &Path) -> Result<()> {
    std::fs::read_dir(dir).map_err(|error| Failure::system_call(dir.shown(), error))?;
    let plan = MkfsOptions { dry_run: true, ..options.clone() };
    let plan = volume::mkfs(&args.target, plan, false, |_| Ok(()), &mut |_| {})?;
    let feature = READ_ONLY_FEATURES.iter().find(|feature| plan.features.contains(feature));
    let why = match feature {
        Some(feature) => format!("the feature {feature}"),
        None if plan.is_journal => "a journal device".to_owned(),
        None if plan.block_size > MOST_BLOCK_SIZE => format!("{} byte blocks", plan.block_size),
        None => return Ok(()),
    };
    Err(Failure::usage(format_args!(
        "-d is not supported with {why}: leave it out, and copy the files on a mount by Linux"
    )))
}

/// Makes a volume and puts a directory into it. A file that is overwritten stays as it is until the
/// new volume is whole.
fn make_filled(args: &MkfsArgs, options: MkfsOptions, dir: &Path) -> Result<Summary> {
    let existed = args.target.exists();
    let staged = match existed {
        true => Staged::begin(&args.target, &options, confirm)?,
        false => None,
    };
    let target = staged.as_ref().map_or(args.target.as_path(), Staged::path);
    let fill = files::Fill {
        journal: options.journal.device_path.clone(),
        xattrs: !options.extended.no_copy_xattrs,
        replaces: staged.is_some().then(|| args.target.clone()),
    };
    let as_typed = |failure| match &staged {
        Some(staged) => staged.as_typed(failure),
        None => failure,
    };
    let summary = make(target, args, options).map_err(as_typed)?;
    // What is there, after a failure.
    let state = |mut failure: Failure, state: &str| {
        if !failure.line.is_empty() {
            failure.line += &format!("; {} {state}", args.target.shown());
        }
        failure
    };
    match (files::fill(target, dir, &fill), &staged) {
        (Err(failure), Some(staged)) => {
            return Err(state(staged.as_typed(failure), "stays as it was"));
        }
        (Err(failure), None) if existed => {
            warn(format_args!(
                "{}: holds only a part of {}, and what it held before is lost",
                args.target.shown(),
                dir.shown()
            ));
            return Err(failure);
        }
        (Err(failure), None) => {
            volume::remove_made(&args.target);
            return Err(state(failure, "was not made"));
        }
        (Ok(()), _) => {}
    }
    staged.map_or(Ok(()), Staged::finish)?;
    Ok(summary)
}

fn make(target: &Path, args: &MkfsArgs, options: MkfsOptions) -> Result<Summary> {
    let mut bar = None;
    let mut shown: Option<Stage> = None;
    let summary = volume::mkfs(target, options, args.direct, confirm, &mut |progress| {
        if args.quiet {
            return;
        }
        if shown != Some(progress.stage) {
            shown = Some(progress.stage);
            bar = Some(progress::steps(progress.total, progress.stage.to_string()));
        }
        if let Some(bar) = &bar {
            bar.set_position(progress.done);
        }
    })?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(summary)
}

/// Asks on the terminal whether to overwrite something; without a terminal, refuses.
fn confirm(contents: &str) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(format_args!("{contents}; -F overwrites it")));
    }
    let mut answer = String::new();
    let _ = write!(std::io::stderr(), "{}. Overwrite it? (y/N) ", plain(contents));
    let _ = std::io::stdin().read_line(&mut answer);
    if answer.trim_start().starts_with(['y', 'Y']) {
        Ok(())
    } else {
        Err(Failure::silent(Failure::FAILED))
    }
}

fn options(args: &MkfsArgs) -> Result<MkfsOptions> {
    let bad = Failure::usage;
    let usages = args.usage.iter().flat_map(|list| list.split(','));
    let by_usage = usages.clone().find(|usage| matches!(*usage, "ext2" | "ext3" | "ext4"));
    let kind = args.kind.as_deref().or(by_usage).unwrap_or("ext4");
    let mut fs_type = FsType::parse(kind).map_err(bad)?;
    if args.with_journal && fs_type == FsType::Ext2 {
        fs_type = FsType::Ext3;
    }
    let (block_size, least_block_size) = match args.block_size {
        Some(BlockSize::Exactly(bytes)) => (Some(bytes), None),
        Some(BlockSize::AtLeast(bytes)) => (None, Some(bytes)),
        None => (None, None),
    };
    let mut options = MkfsOptions {
        fs_type,
        usage: args.usage.clone(),
        features: args.features.clone(),
        size: args.size.map(|size| volume_bytes(size, block_size)).transpose()?,
        block_size,
        least_block_size,
        blocks_per_group: args.blocks_per_group,
        groups_per_flex: args.flex_groups,
        inode_size: args.inode_size,
        bytes_per_inode: args.bytes_per_inode,
        inodes: args.inodes.map(u64::from),
        label: args.label.clone(),
        reserved_percent: args.reserved,
        last_mounted: args.last_mounted.clone(),
        revision: args.revision,
        uuid: args.uuid.clone(),
        force: args.force,
        dry_run: args.dry_run,
        ..MkfsOptions::default()
    };
    if let Some(behaviour) = &args.errors {
        options.on_error = OnError::parse(behaviour).map_err(bad)?;
    }
    for text in &args.extended {
        options.set_extended(text).map_err(bad)?;
    }
    if args.refused.no_discard {
        options.extended.discard = Some(false);
    }
    for text in &args.journal {
        options.set_journal(text).map_err(bad)?;
    }
    Ok(options)
}

/// The size of the volume. A plain number counts blocks, or KiB if their size is not given.
fn volume_bytes(size: Size, block_size: Option<u32>) -> Result<u64> {
    match size.bytes(block_size.unwrap_or(1024).into()) {
        Ok(0) => {
            Err(Failure::usage("bad size 0: 0 bytes are too few for a volume: give a larger SIZE"))
        }
        bytes => bytes.map_err(Failure::usage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};
    use std::ffi::OsString;

    fn parsed(line: &str) -> Result<MkfsOptions> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&words)? {
            Command::Mkfs(args) => args.refused.check().and_then(|()| options(&args)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_those_of_mke2fs() {
        let options = parsed(
            "extol mkfs -t ext2 -j -b 1024 -I 256 -N 5000 -m 1.5 -O ^64bit,inline_data -O mmp \
             -J size=8 -L a -e panic -E stride=4,lazy_itable_init=0 -G 8 img 100",
        )
        .unwrap();
        assert_eq!(options.fs_type, FsType::Ext3);
        assert_eq!(options.size, Some(102_400));
        assert_eq!(options.features, ["^64bit,inline_data", "mmp"]);
        assert_eq!(options.journal.size_mib, Some(8));
        assert_eq!(options.extended.stride, 4);
        assert_eq!(options.groups_per_flex, Some(8));
        assert_eq!(options.on_error, OnError::Panic);
        for (line, words) in [
            ("extol mkfs -t xfs img", "'xfs'"),
            ("extol mkfs -J frob img", "'frob'"),
            ("extol mkfs -E frob img", "'frob'"),
            ("extol mkfs -b x img", "\"x\""),
            ("extol mkfs -b 8E img", "larger than 64K"),
            ("extol mkfs -N 0 img", "less than 1"),
            ("extol mkfs -m 51 img", "larger than 50"),
            ("extol mkfs -i -5 img", "negative"),
            ("extol mkfs -N x img", "whole number"),
            ("extol mkfs img 1X", "\"1X\""),
            ("extol mkfs img -5M", "negative"),
            ("extol mkfs img 0", "size 0"),
            ("extol mkfs img 99999999999T", "too large"),
            ("extol mkfs -Q img", "-Q"),
            ("extol mkfs img 1G -Q", "-Q"),
        ] {
            let failure = parsed(line).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{line}");
            assert!(failure.line.contains(words), "{line}: {}", failure.line);
            assert!(!failure.line.contains('\n'), "{line}: {}", failure.line);
        }
    }

    #[test]
    fn the_rest_of_mke2fs() {
        let options = parsed(
            "extol mkfs -b -2k -i 16K -T ext3,news -M /x -U time -F -F -v -v -o Linux -K \
             -R stride=2 img 1GiB -q",
        )
        .unwrap();
        assert_eq!((options.block_size, options.least_block_size), (None, Some(2048)));
        assert_eq!((options.fs_type, options.bytes_per_inode), (FsType::Ext3, Some(16384)));
        assert_eq!((options.extended.discard, options.extended.stride), (Some(false), 2));
        assert_eq!(options.size, Some(1 << 30));
        assert_eq!(parsed("extol mkfs -b -4096 img 10").unwrap().size, Some(10 << 10));
        assert_eq!(parsed("extol mkfs -b 4k img 10").unwrap().size, Some(40 << 10));
        assert_eq!(parsed("extol mkfs img 10MB").unwrap().size, Some(10_000_000));
        for (option, words) in [
            ("-c", "badblocks"),
            ("-c -c", "badblocks"),
            ("-l list", "badblocks"),
            ("-C 16384", "bigalloc"),
            ("-S", "mke2fs -S"),
            ("-z undo", "copy"),
            ("-o hurd", "Linux"),
            ("-E offset=1M", "losetup"),
            ("-E encoding=utf8", "casefold"),
        ] {
            let failure = parsed(&format!("extol mkfs {option} img")).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{option}");
            let name = option.split([' ', '=']).find(|word| *word != "-E").unwrap();
            assert!(failure.line.contains(name) && failure.line.contains(words), "{failure:?}");
        }
    }
}
