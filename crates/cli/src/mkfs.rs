//! `extol mkfs`: mke2fs's options, turned into the library's options.

mod android;
mod fill;

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol::image::build::Built;
use extol_cli_common::progress::{self, ProgressBar};
use extol_cli_common::{Failure, Result, json_text, print, warn};
use extol_proc::Shown as _;
use extol_vfs::{bytes_text, number, plain};
use serde::Serialize;

use crate::args::{BlockSize, MkfsArgs};
use crate::options::part_only;
use crate::text_file;
use crate::volume::{
    self, BlockTest, CreatorOs, FsType, MkfsOptions, OnError, Size, Source, Summary,
};

/// Makes a volume.
pub fn run(mut args: MkfsArgs) -> Result<()> {
    args.refused.check()?;
    // (What is overwritten is said by its own name.)
    args.target = volume::untagged(&args.target)?;
    let args = &args;
    let mut options = options(args)?;
    let epoch = source_date_epoch()?;
    options.now = epoch;
    let raw = raw_note(&args.target);
    let (summary, built) = match options.extended.android_sparse && !args.dry_run {
        true => android::run(args, options, epoch)?,
        false => made(args, options, epoch)?,
    };
    let notes: Vec<String> =
        built.iter().flat_map(|built| built.notes.clone()).chain(raw).collect();
    tell(args, &summary, built.as_ref(), &notes)
}

/// Makes the volume, empty or with files.
fn made(
    args: &MkfsArgs,
    options: MkfsOptions,
    epoch: Option<u64>,
) -> Result<(Summary, Option<Built>)> {
    match &args.contents[..] {
        [] => Ok((make(args, options)?, None)),
        [first, second, ..] => Err(Failure::usage(format_args!(
            "-d {} and -d {}: files can come from one source only",
            first.shown(),
            second.shown()
        ))),
        [source] => {
            let built = fill::run(args, options, source, epoch)?;
            Ok((built.volume.clone(), Some(built)))
        }
    }
}

/// Says what was made.
fn tell(args: &MkfsArgs, summary: &Summary, built: Option<&Built>, notes: &[String]) -> Result<()> {
    for note in notes {
        warn(format_args!("note: {note}"));
    }
    let text = match (args.json, args.quiet) {
        (true, _) => json_text(&Made::new(&args.target, summary, built, notes))?,
        (_, true) => String::new(),
        _ => said(summary, args.verbose),
    };
    print(text)?;
    for warning in &summary.notes.warnings {
        warn(format_args!("warning: {warning}"));
    }
    Ok(())
}

fn said(summary: &Summary, verbose: bool) -> String {
    let mut text = format!("{}\n", summary.to_string().trim_end());
    if verbose {
        text += &summary.details();
    }
    for note in &summary.notes.notes {
        text += &format!("note: {note}\n");
    }
    text
}

/// What was made, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    target: String,
    uuid: String,
    label: String,
    features: Vec<&'static str>,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    reserved_blocks: u64,
    inodes: u32,
    inode_size: u16,
    groups: u32,
    journal_blocks: u32,
    journal_device: bool,
    /// What it was filled with.
    contents: Option<Contents>,
    notes: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Contents {
    files: u64,
    bytes: u64,
    data_bytes: u64,
}

impl Made {
    /// `more`: notes beside those of the volume.
    pub(crate) fn new(
        target: &Path,
        summary: &Summary,
        built: Option<&Built>,
        more: &[String],
    ) -> Self {
        let contents = |b: &Built| Contents { files: b.files, bytes: b.bytes, data_bytes: b.data };
        Self {
            target: bytes_text(target.as_os_str().as_bytes()),
            uuid: summary.uuid_text(),
            label: summary.label.clone(),
            features: summary.features.clone(),
            block_size: summary.block_size,
            blocks: summary.blocks,
            free_blocks: summary.free_blocks,
            reserved_blocks: summary.reserved_blocks,
            inodes: summary.inodes,
            inode_size: summary.inode_size,
            groups: summary.groups,
            journal_blocks: summary.journal_blocks,
            journal_device: summary.is_journal,
            contents: built.map(contents),
            notes: summary.notes.notes.iter().chain(more).cloned().collect(),
            warnings: summary.notes.warnings.clone(),
        }
    }
}

/// Formats of disk images by the ends of names: the name of the format for qemu-img.
const FORMATS: [(&str, &str); 5] =
    [("qcow2", "qcow2"), ("vmdk", "vmdk"), ("vhdx", "vhdx"), ("vhd", "vpc"), ("vdi", "vdi")];

/// What is said of a new file whose name is that of another format than is made.
fn raw_note(target: &Path) -> Option<String> {
    let end = target.extension()?;
    let (name, format) = FORMATS.iter().find(|(name, _)| end.eq_ignore_ascii_case(name))?;
    if std::fs::symlink_metadata(extol_proc::image_of(target)).is_ok() {
        return None;
    }
    let raw = target.with_extension("img");
    Some(format!(
        "{0} is a raw image, in spite of its name: for a {name} image make {1}, then qemu-img \
         convert -f raw -O {format} {1} {0}",
        target.shown(),
        raw.shown()
    ))
}

/// The time of the making, if the environment says it: for builds that can be repeated.
fn source_date_epoch() -> Result<Option<u64>> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let Some(text) = std::env::var_os(NAME) else { return Ok(None) };
    let number = std::str::from_utf8(text.as_bytes()).ok().and_then(|text| text.parse().ok());
    match number {
        Some(seconds) => Ok(Some(seconds)),
        None => Err(Failure::usage(format_args!(
            "{NAME} is \"{}\": it must be a number of seconds since 1970",
            plain(&bytes_text(text.as_bytes()))
        ))),
    }
}

/// A bar for each stage, unless nothing is to be said.
pub(crate) struct Bars {
    quiet: bool,
    bar: Option<ProgressBar>,
    stage: String,
}

impl Bars {
    fn new(args: &MkfsArgs) -> Self {
        Self { quiet: args.quiet || args.json, bar: None, stage: String::new() }
    }

    fn show(&mut self, stage: &dyn std::fmt::Display, done: u64, total: u64) {
        if self.quiet {
            return;
        }
        let stage = stage.to_string();
        if self.stage != stage {
            self.stage.clone_from(&stage);
            if let Some(bar) = self.bar.replace(progress::steps(total, stage)) {
                bar.finish_and_clear();
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What the volume is made on: all of a file or device, a partition, or a part by its place.
fn target(args: &MkfsArgs) -> Result<Source<'_>> {
    let parts: Vec<_> = args.options.iter().filter(|list| list.contains('=')).collect();
    let mut part = part_only(&parts)?;
    if let Some(offset) = args.extended.iter().flat_map(|list| list.split(',')).find_map(offset) {
        part = part_only(&[offset])?;
    }
    Ok(Source { path: &args.target, part })
}

/// The word of an extended option that is about the target, as mke2fs has it.
fn offset(word: &str) -> Option<&str> {
    word.starts_with("offset=").then_some(word)
}

fn make(args: &MkfsArgs, options: MkfsOptions) -> Result<Summary> {
    let mut bars = Bars::new(args);
    volume::mkfs(target(args)?, options, args.direct, confirm, &mut |progress| {
        bars.show(&progress.stage, progress.done, progress.total);
    })
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
        features: default_features(args),
        size: args.size.map(|size| volume_bytes(size, block_size)).transpose()?,
        block_size,
        least_block_size,
        cluster_size: args.cluster_size,
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
        only_superblocks: args.only_superblocks,
        block_test: match args.test_blocks {
            0 => None,
            1 => Some(BlockTest::Read),
            _ => Some(BlockTest::ReadWrite),
        },
        ..MkfsOptions::default()
    };
    if let Some(path) = &args.bad_blocks {
        options.bad_blocks = block_list(path)?;
    }
    if let Some(system) = args.options.iter().rfind(|list| !list.contains('=')) {
        options.creator_os = CreatorOs::parse(system).map_err(bad)?;
    }
    if let Some(behaviour) = &args.errors {
        options.on_error = OnError::parse(behaviour).map_err(bad)?;
    }
    for text in &args.extended {
        let words: Vec<&str> = text.split(',').filter(|word| offset(word).is_none()).collect();
        if text.is_empty() || !words.is_empty() {
            options.set_extended(&words.join(",")).map_err(bad)?;
        }
    }
    if args.refused.no_discard {
        options.extended.discard = Some(false);
    }
    options.journal.required = args.with_journal && !args.contents.is_empty();
    for text in &args.journal {
        options.set_journal(text).map_err(bad)?;
    }
    Ok(options)
}

/// Numbers of blocks, with space between them.
fn block_list(path: &Path) -> Result<Vec<u64>> {
    let text = text_file::read(path)?;
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let number = |word| -> Result<u64> {
        let word = bytes_text(word);
        number::count(&word, 0..=u64::MAX).map_err(|error| {
            let why = format_args!("\"{}\" is no number of a block: {error}", plain(&word));
            Failure { code: Failure::USAGE, ..Failure::about(path.shown(), why) }
        })
    };
    words.map(number).collect()
}

/// The features that are asked for. Several hosts may reach a device of another host, and no lock
/// keeps them apart: multi-mount protection is on there before any word of the user.
fn default_features(args: &MkfsArgs) -> Vec<String> {
    let shared = extol_block::open::is_address(&args.target).then(|| "mmp".to_owned());
    shared.into_iter().chain(args.features.iter().cloned()).collect()
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

    /// All that mke2fs(8) has: what is not taken is refused by its name.
    #[test]
    fn every_option_of_mke2fs_has_an_answer() {
        for option in [
            "-b 1024",
            "-c",
            "-c -c",
            "-C 16384",
            "-d /",
            "-D",
            "-e panic",
            "-F",
            "-g 8192",
            "-G 16",
            "-i 8192",
            "-I 256",
            "-j",
            "-J size=4",
            "-K",
            "-l /dev/null",
            "-L label",
            "-m 1",
            "-M /dir",
            "-n",
            "-N 100",
            "-o linux",
            "-o hurd",
            "-O extent",
            "-q",
            "-r 1",
            "-R stride=4",
            "-S",
            "-t ext4",
            "-T small",
            "-U random",
            "-v",
        ] {
            let parsed = parsed(&format!("extol mkfs {option} img 20M"));
            assert!(parsed.is_ok(), "{option}: {parsed:?}");
        }
        for word in [
            "android_sparse",
            "assume_storage_prezeroed",
            "assume_storage_prezeroed=1",
            "desc_size=64",
            "discard",
            "encoding=utf8",
            "encoding_flags=strict",
            "hash_seed=11111111-2222-3333-4444-555555555555",
            "lazy_itable_init",
            "lazy_itable_init=0",
            "lazy_journal_init",
            "lazy_journal_init=1",
            "mmp_update_interval=9",
            "no_copy_xattrs",
            "nodiscard",
            "num_backup_sb=1",
            "offset=1048576",
            "orphan_file_size=32",
            "packed_meta_blocks",
            "packed_meta_blocks=1",
            "quotatype=usrquota:grpquota:prjquota",
            "resize=1G",
            "revision=1",
            "root_owner",
            "root_owner=1:2",
            "root_perms=700",
            "root_selinux=label",
            "stride=4",
            "stripe_width=8",
            "stripe-width=8",
            "test_fs",
        ] {
            let parsed = parsed(&format!("extol mkfs -E {word} img 20M"));
            assert!(parsed.is_ok(), "{word}: {parsed:?}");
        }
        for word in ["size=4", "fast_commit_size=256", "location=9", "device=/dev/sdb"] {
            let parsed = parsed(&format!("extol mkfs -J {word} img 20M"));
            assert!(parsed.is_ok(), "{word}: {parsed:?}");
        }
        let refused = parsed("extol mkfs -z undo img 20M").unwrap_err();
        assert!(refused.line.starts_with("-z is not supported: "), "{refused:?}");
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
        let options = parsed("extol mkfs -O bigalloc -C 64K img 1G").unwrap();
        assert_eq!(options.cluster_size, Some(65536));
        for (option, words) in
            [("-z undo", "copy"), ("-o masix", "hurd"), ("-E encoding=latin1", "utf8")]
        {
            let failure = parsed(&format!("extol mkfs {option} img")).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{option}");
            let name = option.split([' ', '=']).find(|word| *word != "-E").unwrap();
            assert!(failure.line.contains(name) && failure.line.contains(words), "{failure:?}");
        }
    }
}
