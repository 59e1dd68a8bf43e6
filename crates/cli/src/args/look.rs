//! Arguments of the commands that look for files and for space: find, du, df. Options are some of
//! those of findutils and coreutils, and mean the same.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use extol_cli_common::manual;

use super::files::VolumeArgs;
use super::{from_zero, offer};

/// Find files by name, kind, size, age or owner.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol find disk.img -name '*.conf'",
        "extol find disk.img /var -type f -size +10M",
        "extol find disk.img /home -mtime -7 -uid 1000",
        "extol find --json disk.img -perm /6000 | jq .entries",
        "extol find mnt /etc -iname readme"
    ),
    long_about = "Find files by name, kind, size, age or owner.\n\n\
        IMAGE is a volume that is not mounted, or a directory on a mount, at which paths begin. \
        A file is printed if it passes all tests; directories come before what is in them. Tests \
        have the names of find(1), and may be written with one dash as there. A number is exact, \
        +N is more, -N is less."
)]
pub struct FindArgs {
    /// The name matches: *, ?, [a-z].
    #[arg(long, value_name = "PATTERN")]
    pub name: Vec<OsString>,
    /// The same, in upper or lower case.
    #[arg(long, value_name = "PATTERN")]
    pub iname: Vec<OsString>,
    /// The kind is one of these: f, d, l, b, c, p, s, with commas between.
    #[arg(long = "type", value_name = "KINDS")]
    pub kinds: Option<String>,
    /// The size, rounded up to its unit: c bytes, k, M, G; without one 512 bytes.
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// Days since the last change of the contents.
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true)]
    pub mtime: Option<String>,
    /// The permissions, octal; -MODE all of these bits, /MODE one of them.
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    pub perm: Option<String>,
    /// The number of the owner.
    #[arg(long, value_name = "N", value_parser = from_zero, allow_negative_numbers = true)]
    pub uid: Option<u32>,
    /// The number of the group.
    #[arg(long, value_name = "N", value_parser = from_zero, allow_negative_numbers = true)]
    pub gid: Option<u32>,
    /// The inode number.
    #[arg(long, value_name = "N", value_parser = from_zero, allow_negative_numbers = true)]
    pub inum: Option<u32>,
    /// A file without contents, or a directory with nothing in it.
    #[arg(long)]
    pub empty: bool,
    /// Go down so many directories at most.
    #[arg(long, value_name = "N", value_parser = from_zero, allow_negative_numbers = true)]
    pub maxdepth: Option<u32>,
    /// Nothing that lies less deep.
    #[arg(long, value_name = "N", value_parser = from_zero, allow_negative_numbers = true)]
    pub mindepth: Option<u32>,
    /// A NUL behind each path, in place of the end of a line.
    #[arg(long, conflicts_with = "json")]
    pub print0: bool,
    /// As JSON, with everything about each file.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Where to begin [default: /].
    pub paths: Vec<OsString>,
}

/// What find(1) has with one dash.
const TESTS: [&str; 13] = [
    "name", "iname", "type", "size", "mtime", "perm", "uid", "gid", "inum", "empty", "maxdepth",
    "mindepth", "print0",
];

/// Puts a second dash before the names of tests, which clap wants.
pub(super) fn with_two_dashes(words: &mut [OsString]) {
    for word in words.iter_mut() {
        let name = word.as_encoded_bytes().strip_prefix(b"-").unwrap_or_default();
        if let Some(name) = TESTS.iter().find(|test| test.as_bytes() == name) {
            *word = format!("--{name}").into();
        }
    }
}

/// Show how much space files use.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol du -h -d 1 disk.img",
        "extol du -sh disk.img '/home/*'",
        "extol du --json disk.img /var | jq .total.used",
        "extol du -h mnt /var"
    ),
    long_about = "Show how much space files use: a line for each directory, with all that is below \
        it, in KiB.\n\n\
        IMAGE is a volume that is not mounted, or a directory on a mount, at which paths begin. A \
        file with several names counts once."
)]
pub struct DuArgs {
    /// A line for each file, too.
    #[arg(short, long)]
    pub all: bool,
    /// One line for each PATH.
    #[arg(short, long, conflicts_with = "max_depth")]
    pub summarize: bool,
    /// At the end, the sum of all.
    #[arg(short = 'c', long)]
    pub total: bool,
    /// Sizes as 1.5K, 20M, 3.0G, in powers of 1024.
    #[arg(short, long)]
    pub human_readable: bool,
    /// The lengths of files, not the space that they use.
    #[arg(long)]
    pub apparent_size: bool,
    /// The lengths of files in bytes.
    #[arg(short, long)]
    pub bytes: bool,
    /// The number of inodes.
    #[arg(long)]
    pub inodes: bool,
    /// Each name of a file counts.
    #[arg(short = 'l', long)]
    pub count_links: bool,
    /// Lines for so many directories below PATH at most.
    #[arg(short = 'd', long, value_name = "N", value_parser = from_zero,
        allow_negative_numbers = true)]
    pub max_depth: Option<u32>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// What to add up [default: /].
    pub paths: Vec<OsString>,
}

/// Show how full volumes are.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol df -h disk.img",
        "extol df -i disk.img /mnt",
        "extol df --json disk.img | jq '.volumes[0].bytes_available'"
    ),
    long_about = "Show how full volumes are, in KiB as df(1) does.\n\n\
        IMAGE is a volume that is not mounted, a directory on a mount, or what is mounted there. \
        Used and available are less than all: the rest is kept for root."
)]
pub struct DfArgs {
    /// Sizes as 1.5K, 20M, 3.0G, in powers of 1024.
    #[arg(short, long)]
    pub human_readable: bool,
    /// Inodes instead of bytes.
    #[arg(short, long)]
    pub inodes: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// Mount options for opening the volumes.
    #[arg(short = 'o', value_name = "OPTIONS",
        value_parser = offer::text(offer::OPENING), hide_possible_values = true)]
    pub options: Vec<String>,
    /// Keep all rights of the caller, for a debugger.
    #[arg(long)]
    pub no_sandbox: bool,
    /// Disk images or block devices, or directories of mounts.
    #[arg(required = true, value_name = "IMAGE")]
    pub sources: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, parse};
    use clap::CommandFactory as _;

    #[test]
    fn tests_of_find_have_one_dash_or_two() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["find a -name x -size -5k -type f", "find --name x --size -5k --type f a"] {
            let Ok(Command::Find(args)) = parse(&words(&format!("extol {line}"))) else {
                panic!("{line}");
            };
            assert_eq!((&*args.name, args.size.as_deref()), (&["x".into()][..], Some("-5k")));
            assert_eq!((args.kinds.as_deref(), args.volume.source), (Some("f"), "a".into()));
        }
        let command = Cli::command();
        let find = command.find_subcommand("find").expect("find");
        for name in TESTS {
            assert!(find.get_arguments().any(|arg| arg.get_long() == Some(name)), "{name}");
        }
    }
}
