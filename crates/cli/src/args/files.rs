//! Arguments of the commands for files of a volume that is not mounted: ls, cat, cp, put, rm,
//! mkdir.
//!
//! `ls -h` means readable sizes, as ls(1) has it; `ls --help` is help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use extol_cli_common::manual;

use super::offer;

/// A volume that is not mounted.
#[derive(Args, Debug)]
pub struct VolumeArgs {
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS",
        value_parser = offer::text(offer::OPENING), hide_possible_values = true)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
}

/// List files of a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol ls disk.img",
        "extol ls -lR disk.img /home",
        "extol ls -lhtr disk.img /var/log",
        "extol ls --json -R disk.img | jq -r '.entries[].path'"
    )
)]
pub struct LsArgs {
    /// With mode, links, numbers of owner and group, size and time (UTC).
    #[arg(short)]
    pub long: bool,
    /// The same as -l: names of owners are not looked up.
    #[arg(short = 'n', long)]
    pub numeric_uid_gid: bool,
    /// Sizes as 1.5K, 20M, 3.0G, in powers of 1024.
    #[arg(short, long)]
    pub human_readable: bool,
    /// Directories with all that is in them.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Directories themselves, not what is in them.
    #[arg(short, long)]
    pub directory: bool,
    /// Also names that begin with a dot.
    #[arg(short, long, short_alias = 'A', alias = "almost-all")]
    pub all: bool,
    /// With inode numbers.
    #[arg(short, long = "inode")]
    pub inodes: bool,
    /// With the space that is used, in KiB.
    #[arg(short = 's', long = "size")]
    pub blocks: bool,
    /// Behind names: / directory, * program, @ link, | pipe, = socket.
    #[arg(short = 'F', long)]
    pub classify: bool,
    /// The largest first.
    #[arg(short = 'S', overrides_with = "by_time")]
    pub by_size: bool,
    /// The newest first.
    #[arg(short = 't', overrides_with = "by_size")]
    pub by_time: bool,
    /// In reverse order.
    #[arg(short, long)]
    pub reverse: bool,
    /// As JSON, with everything about each file.
    #[arg(long)]
    pub json: bool,
    /// One name in a line, as always.
    #[arg(short = '1')]
    pub one_column: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// What to list [default: /].
    pub paths: Vec<OsString>,
}

/// Print files of a volume that is not mounted.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol cat disk.img /etc/fstab"))]
pub struct CatArgs {
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Copy files out of a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol cp disk.img /etc/fstab .",
        "extol cp disk.img /home /tmp/home",
        "extol cp -a disk.img / /srv/root"
    ),
    long_about = "Copy files out of a volume that is not mounted.\n\n\
        Directories are copied with all that is in them; times, links, holes, attributes of users \
        and permissions (but for those that the umask takes) are kept. Set-id bits, capabilities, \
        owners, access lists and device nodes are not, and a directory that is there stays as it \
        is, unless an option asks for that: by default the volume is not trusted. If DEST is a \
        directory, the copies are put into it. What is there is replaced, never written through, \
        and no link below DEST is followed.\n\n\
        What cannot be read is reported, and the rest is copied; the exit code is 32 then."
)]
pub struct CpArgs {
    /// Everything as it is on the volume, device nodes too; for a volume that is trusted.
    #[arg(short, long)]
    pub archive: bool,
    /// The same as --preserve=mode,ownership,timestamps.
    #[arg(short = 'p')]
    pub preserve_usual: bool,
    /// Keep these: mode, ownership, timestamps, xattr, links, all.
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mode,ownership,timestamps"
    )]
    pub preserve: Vec<String>,
    /// Do not keep these.
    #[arg(long, value_name = "LIST", require_equals = true)]
    pub no_preserve: Vec<String>,
    /// No effect: directories are always copied with all that is in them.
    #[arg(short, short_alias = 'R', long, overrides_with = "recursive")]
    pub recursive: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume, then where to put the copies.
    #[arg(required = true, value_name = "PATH... DEST")]
    pub paths: Vec<OsString>,
}

/// Copy files into a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol put disk.img notes.txt /home/ada/",
        "extol put disk.img ./tree /srv"
    ),
    long_about = "Copy files into a volume that is not mounted.\n\n\
        Directories are copied with all that is in them; owners, modes, times, links, holes and \
        extended attributes are kept. If DEST is a directory on the volume, the copies are put \
        into it."
)]
pub struct PutArgs {
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files here, then where to put the copies on the volume.
    #[arg(required = true, value_name = "PATH... DEST")]
    pub paths: Vec<OsString>,
}

/// Remove files from a volume that is not mounted.
#[derive(Args, Debug)]
#[command(after_long_help = manual!(
    "extol rm disk.img /tmp/junk",
    "extol rm -r disk.img /var/cache"
))]
pub struct RmArgs {
    /// Directories with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// What is not there is no error.
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// What to remove.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Make directories on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol mkdir -p disk.img /srv/data"))]
pub struct MkdirArgs {
    /// Parents, too; what is there is no error.
    #[arg(short, long)]
    pub parents: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Directories to make.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}
