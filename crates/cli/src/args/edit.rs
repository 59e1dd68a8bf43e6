//! Arguments of the commands that change names and attributes of files on a volume that is not
//! mounted: mv, ln, chmod, chown, touch, truncate, mknod, setxattr, getxattr. Options are some of
//! those of the commands of coreutils and attr of the same name, and mean the same. And edit, with
//! the commands that its script may have.

use std::ffi::OsString;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand};
use extol_cli_common::{Result, manual};

use super::files::{MkdirArgs, PutArgs, RmArgs, VolumeArgs};
use super::offer;

/// Rename or move files on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol mv disk.img /etc/fstab /etc/fstab.old",
        "extol mv disk.img /a /b /srv"
    ),
    long_about = "Rename or move files on a volume that is not mounted.\n\n\
        If DEST is a directory, the files are moved into it. What has the new name is replaced, \
        but a directory only if it is empty."
)]
pub struct MvArgs {
    /// Leave what has the new name.
    #[arg(short, long, overrides_with = "force")]
    pub no_clobber: bool,
    /// Replace what has the new name, as always.
    #[arg(short, long, overrides_with = "no_clobber")]
    pub force: bool,
    /// DEST is the new name, also if it is a directory.
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Exchange the two files.
    #[arg(long, conflicts_with = "no_clobber")]
    pub exchange: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume, then where to.
    #[arg(required = true, value_name = "PATH... DEST")]
    pub paths: Vec<OsString>,
}

/// Give files on a volume that is not mounted more names, or make symbolic links.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol ln disk.img /bin/busybox /bin/ls",
        "extol ln -sf disk.img ../usr/share/zoneinfo/UTC /etc/localtime"
    ),
    long_about = "Give files on a volume that is not mounted more names, or make symbolic \
        links.\n\n\
        If LINK is a directory, the links are made in it, with the last name of each TARGET. The \
        target of a symbolic link is any text. A symbolic link belongs to 0:0 unless --owner says \
        otherwise, whichever user runs the command; in a directory with the setgid bit to its \
        group."
)]
pub struct LnArgs {
    /// Symbolic links.
    #[arg(short, long)]
    pub symbolic: bool,
    /// Replace what is there, unless it is a directory.
    #[arg(short, long)]
    pub force: bool,
    /// A link to a directory, as LINK, is no directory.
    #[arg(short, long)]
    pub no_dereference: bool,
    /// LINK is the name, also if it is a directory.
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Owner of symbolic links, as with extol chown [default: 0:0].
    #[arg(long, value_name = "USER[:GROUP]", requires = "symbolic")]
    pub owner: Option<String>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume, or texts of symbolic links, then the new name.
    #[arg(required = true, value_name = "TARGET... LINK")]
    pub paths: Vec<OsString>,
}

/// Change modes of files on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol chmod disk.img 4755 /bin/su",
        "extol chmod -R disk.img u=rwX,go=rX /srv"
    ),
    long_about = "Change modes of files on a volume that is not mounted.\n\n\
        MODE is that of chmod(1): octal, or as in u+x,go-w. Set-id bits of directories stay unless \
        MODE names them. Links below a directory are left alone."
)]
pub struct ChmodArgs {
    /// Directories with all that is in them.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Octal, or as in u+x,go-w.
    #[arg(allow_hyphen_values = true)]
    pub mode: String,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Change owners of files on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol chown disk.img 1000:1000 /home/ada",
        "extol chown -R disk.img www-data: /srv/www"
    ),
    long_about = "Change owners of files on a volume that is not mounted.\n\n\
        OWNER is USER, USER:GROUP, :GROUP, or USER: for that user's own group; numbers, or names \
        from /etc/passwd and /etc/group on the volume. Set-id bits and capabilities of files go, \
        as with chown(2)."
)]
pub struct ChownArgs {
    /// Directories with all that is in them; links themselves.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Links themselves, not what they name.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// As in 0:0, www-data, ada:users, :users, ada:
    pub owner: String,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Set times of files on a volume that is not mounted, and make empty files.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol touch disk.img /etc/machine-id",
        "extol touch -d '2024-01-31 12:00:00' disk.img /etc/motd",
        "extol touch -d @0 disk.img /etc/passwd"
    ),
    long_about = "Set times of files on a volume that is not mounted, and make empty files.\n\n\
        Without a time it is the present. DATE is @SECONDS, or a date of ISO 8601 as in \
        2024-01-31, 2024-01-31 12:00:00.5 or 2024-01-31T12:00Z; without a zone it is UTC.\n\n\
        A file that is made \
        belongs to 0:0 unless --owner says otherwise, whichever user runs the command; in a \
        directory with the setgid bit to its group."
)]
pub struct TouchArgs {
    /// Make no file.
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// The access time alone.
    #[arg(short = 'a')]
    pub access: bool,
    /// The modification time alone.
    #[arg(short = 'm')]
    pub modification: bool,
    /// Links themselves, not what they name.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// This time.
    #[arg(short, long, value_name = "DATE", conflicts_with_all = ["stamp", "reference"],
        allow_hyphen_values = true)]
    pub date: Option<String>,
    /// This time, as [[CC]YY]MMDDhhmm[.ss].
    #[arg(short = 't', value_name = "STAMP", conflicts_with = "reference")]
    pub stamp: Option<String>,
    /// The times of this file on the volume.
    #[arg(short, long, value_name = "PATH")]
    pub reference: Option<OsString>,
    /// Owner of what is made, as with extol chown [default: 0:0].
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Set sizes of files on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol truncate -s 0 disk.img /var/log/messages",
        "extol truncate -s +1G disk.img /srv/disk"
    ),
    long_about = "Set sizes of files on a volume that is not mounted.\n\n\
        A file that is not there is made. What is added is a hole. A number without a unit counts \
        bytes.\n\n\
        A file that is made \
        belongs to 0:0 unless --owner says otherwise, whichever user runs the command; in a \
        directory with the setgid bit to its group."
)]
pub struct TruncateArgs {
    /// The size; with + or - before it more or less by that, with < at most, with > at least, with
    /// / or % rounded down or up to a multiple.
    #[arg(short, long, value_name = "SIZE", required = true, allow_hyphen_values = true)]
    pub size: String,
    /// Make no file.
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Owner of what is made, as with extol chown [default: 0:0].
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Make a device node, pipe or socket on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol mknod -m 666 disk.img /dev/null c 1 3",
        "extol mknod disk.img /run/pipe p"
    ),
    long_about = "Make a device node, pipe or socket on a volume that is not mounted.\n\n\
        That needs no root: on the volume a device node is two numbers. It belongs to 0:0 unless \
        --owner says otherwise, whichever user runs the command; in a directory with the setgid \
        bit to its group."
)]
pub struct MknodArgs {
    /// Its mode [default: 644].
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    pub mode: Option<String>,
    /// Its owner, as with extol chown [default: 0:0].
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Its path on the volume.
    pub path: OsString,
    /// b (block device), c (character device), p (pipe) or s (socket).
    #[arg(value_name = "TYPE", value_parser = offer::text(offer::NODES),
        hide_possible_values = true)]
    pub kind: String,
    /// Numbers of a device: major, minor.
    #[arg(value_name = "MAJOR MINOR")]
    pub device: Vec<String>,
}

/// Set or remove extended attributes of files on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol setxattr -n user.origin -v build-7 disk.img /etc/motd",
        "extol setxattr -x user.origin disk.img /etc/motd"
    ),
    long_about = "Set or remove extended attributes of files on a volume that is not mounted.\n\n\
        VALUE is text (in double quotes, \\ and three octal digits are a byte), hexadecimal behind \
        0x, or base64 behind 0s, as with setfattr(1)."
)]
pub struct SetxattrArgs {
    /// The attribute to set, as in user.origin.
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    pub name: Option<OsString>,
    /// Its value [default: empty].
    #[arg(short, long, value_name = "VALUE", requires = "name", allow_hyphen_values = true)]
    pub value: Option<OsString>,
    /// The attribute to remove.
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    pub remove: Option<OsString>,
    /// Links themselves, not what they name.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Print extended attributes of files on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol getxattr disk.img /bin/ping",
        "extol getxattr -n user.origin --only-values disk.img /etc/motd",
        "extol getxattr -R --json disk.img /"
    ),
    long_about = "Print extended attributes of files on a volume that is not mounted.\n\n\
        All of them with their values, in the format of getfattr(1): text in double quotes, \
        without the NUL that ends a label, other values in base64 behind 0s. (getfattr without -m \
        leaves those out that do not begin with user.)"
)]
pub struct GetxattrArgs {
    /// This attribute alone.
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<OsString>,
    /// How values are printed: text, hex or base64.
    #[arg(short, long, value_name = "CODING", value_parser = offer::text(offer::CODINGS),
        hide_possible_values = true)]
    pub encoding: Option<String>,
    /// The bytes of the values and nothing else.
    #[arg(long, conflicts_with_all = ["json", "encoding"])]
    pub only_values: bool,
    /// Directories with all that is in them; links themselves.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Links themselves, not what they name.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Carry out a script of commands on a volume that is not mounted, all or none.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol edit disk.img < setup.txt",
        "extol edit -v -f setup.txt disk.img"
    ),
    long_about = "Carry out a script of commands on a volume that is not mounted, all or none.\n\n\
        The script comes from standard input or a file, one command on a line: put, rm, mkdir, mv, \
        ln, chmod, chown, touch, truncate, mknod or setxattr with their options, but without the \
        image. Words are quoted as in a shell ('a b', \"a b\", a\\ b, $'a\\n'); # begins a \
        comment, and a line that ends with \\ goes on with the next.\n\n\
        The script is read whole before the volume is opened. All of it becomes one transaction of \
        the journal: after a failure, an interrupt or a power cut the volume is as it was. So the \
        blocks of metadata that it changes (directories, inodes, bitmaps; not the contents of \
        files) must fit into the journal and a quarter of the cache (-o cache_mb=); -v says how \
        many there are. A volume without a journal is refused."
)]
pub struct EditArgs {
    /// The script [default: standard input].
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print how many blocks the script has changed, and how many it can.
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
}

/// A line of a script.
#[derive(Parser, Debug)]
#[command(name = "extol", args_override_self = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    step: Step,
}

/// The commands of a script.
#[derive(Subcommand, Debug)]
pub enum Step {
    Put(PutArgs),
    Rm(RmArgs),
    Mkdir(MkdirArgs),
    Mv(MvArgs),
    Ln(LnArgs),
    Chmod(ChmodArgs),
    Chown(ChownArgs),
    Touch(TouchArgs),
    Truncate(TruncateArgs),
    Mknod(MknodArgs),
    Setxattr(SetxattrArgs),
}

impl Step {
    /// The names of all.
    pub const NAMES: &str =
        "put, rm, mkdir, mv, ln, chmod, chown, touch, truncate, mknod or setxattr";

    /// Parses a command with its image, as on a command line.
    pub fn parse(words: &[OsString]) -> Result<Self> {
        static COMMAND: LazyLock<clap::Command> = LazyLock::new(Line::command);
        extol_cli_common::parse_with::<Line>(COMMAND.clone(), words).map(|line| line.step)
    }
}
