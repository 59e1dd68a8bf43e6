//! `extol mkfs`: mke2fs's options, turned into the library's options.

use std::io::{IsTerminal as _, Write as _};

use extol_cli_common::{Failure, Result, print, progress};
use extol_vfs::plain;

use crate::args::MkfsArgs;
use crate::volume::{self, FsType, MkfsOptions, OnError, Stage};

/// Makes a volume.
pub fn run(args: &MkfsArgs) -> Result<()> {
    let options = options(args)?;
    let mut bar = None;
    let mut shown: Option<Stage> = None;
    let summary = volume::mkfs(&args.target, options, confirm, &mut |progress| {
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
    if args.quiet { Ok(()) } else { print(format!("{}\n", summary.to_string().trim_end())) }
}

/// Asks on the terminal whether to overwrite something; without a terminal, refuses.
fn confirm(contents: &str) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format_args!("{contents}; -F overwrites it")));
    }
    let mut answer = String::new();
    let _ = write!(std::io::stderr(), "{}. Overwrite it? (y/N) ", plain(contents));
    let _ = std::io::stdin().read_line(&mut answer);
    if answer.trim_start().starts_with(['y', 'Y']) {
        Ok(())
    } else {
        Err(Failure::silent(Failure::USAGE))
    }
}

fn options(args: &MkfsArgs) -> Result<MkfsOptions> {
    let bad = Failure::usage;
    let mut fs_type = FsType::parse(&args.kind).map_err(bad)?;
    if args.with_journal && fs_type == FsType::Ext2 {
        fs_type = FsType::Ext3;
    }
    let mut options = MkfsOptions {
        fs_type,
        usage: args.usage.clone(),
        features: args.features.clone(),
        size: args
            .size
            .as_deref()
            .map(|text| volume::parse_size(text, args.block_size))
            .transpose()
            .map_err(bad)?,
        block_size: args.block_size,
        blocks_per_group: args.blocks_per_group,
        groups_per_flex: args.flex_groups,
        inode_size: args.inode_size,
        bytes_per_inode: args.bytes_per_inode,
        inodes: args.inodes,
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
    for text in &args.journal {
        options.set_journal(text).map_err(bad)?;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};
    use std::ffi::OsString;

    fn parsed(line: &str) -> Result<MkfsOptions> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&words)? {
            Command::Mkfs(args) => options(&args),
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
        for line in [
            "extol mkfs -t xfs img",
            "extol mkfs -J frob img",
            "extol mkfs -E frob img",
            "extol mkfs -b x img",
            "extol mkfs img 1X",
        ] {
            assert_eq!(parsed(line).unwrap_err().code, Failure::USAGE, "{line}");
        }
    }
}
