//! Arguments of the commands for files of a volume that is not mounted: ls, cat, cp, tar, put, rm,
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
    /// A key of encrypted files: a file with its raw bytes, 16 to 64 (may be repeated).
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
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
        What cannot be read is reported, and the rest is copied; the exit code is 32 then. What \
        could not be kept (an ordinary user cannot make device nodes or give files away) is \
        counted by kind in the last line, and is no error."
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
    /// At the end, what was copied and what could not be kept, as JSON.
    #[arg(long)]
    pub json: bool,
    /// No effect: directories are always copied with all that is in them.
    #[arg(short, short_alias = 'R', long, overrides_with = "recursive")]
    pub recursive: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume, then where to put the copies.
    #[arg(required = true, value_name = "PATH... DEST")]
    pub paths: Vec<OsString>,
}

/// Write a tar archive of the files of a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol tar disk.img > root.tar",
        "extol tar -f home.tar.gz disk.img /home",
        "extol tar disk.img | zstd > root.tar.zst",
        "extol tar --exclude /lost+found disk.img | extol mkfs -d - new.img",
        "extol tar disk.img | tar -xp --xattrs --acls -C /srv/root"
    ),
    long_about = "Write a tar archive of the files of a volume that is not mounted.\n\n\
        The archive is in the pax format, which GNU tar and bsdtar read: with owners by number, \
        modes, times to the nanosecond, extended attributes, access lists, devices, hard links \
        and holes. Of a directory it has all that is in it, with names that begin with ./; of \
        another file that file. The same files give the same bytes, wherever they lie on the \
        volume: zeros of 64 KiB and more are holes. Sockets and inode flags (chattr) have no \
        place in an archive: they are counted in the last line.\n\n\
        What cannot be read is reported, and the rest is written; the exit code is 32 then."
)]
pub struct TarArgs {
    /// Where to write it [default: standard output]; through gzip if the name ends with .gz or
    /// .tgz. What is there is replaced when the archive is whole.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Leave out names or paths that match, with all that is below them; as with mkfs.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Also the times of last access, of the last change of the inode and of creation.
    #[arg(long)]
    pub keep_times: bool,
    /// Write holes as zeros, for programs that know no sparse files.
    #[arg(long)]
    pub no_sparse: bool,
    /// At the end, what was written, as JSON.
    #[arg(long, requires = "file")]
    pub json: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// A directory or another file on the volume [default: /].
    pub path: Option<OsString>,
}

/// Copy files into a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol put disk.img notes.txt /home/ada/",
        "extol put disk.img ./tree /srv",
        "extol put --owner 0:0 --mode u=rwX,go=rX disk.img ./tree /srv",
        "pg_dump shop | extol put disk.img - /backup/shop.sql"
    ),
    long_about = "Copy files into a volume that is not mounted.\n\n\
        Directories are copied with all that is in them; owners, modes, times, links, holes and \
        extended attributes are kept. If DEST is a directory on the volume, the copies are put \
        into it; dir/. is what is in a directory, as with cp(1). A file has its name when it is \
        whole; what fails leaves nothing half-written.\n\n\
        The path - is standard input, and DEST then the path of a file, with mode 644 and the \
        owner and group of the user that runs the command, unless an option says others. (Whether \
        the program before the pipe has failed cannot be told: set -o pipefail.)"
)]
pub struct PutArgs {
    /// This owner for all that is put, as with extol chown.
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    /// This mode for all that is put, directories too, as with extol chmod: u=rwX,go=rX.
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    pub mode: Option<String>,
    /// Lines that say how far it is, if standard error is no terminal, where a bar does.
    #[arg(long)]
    pub progress: bool,
    /// No effect: directories are always copied with all that is in them.
    #[arg(short, short_alias = 'R', long, overrides_with = "recursive")]
    pub recursive: bool,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files here (- is standard input), then where to put the copies on the volume.
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

/// Move files into fewer pieces, on a mount or on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol defrag disk.img                  # all files of the volume",
        "extol defrag -n -v disk.img /var       # only say how they lie",
        "extol defrag /mnt/var/lib/db.sqlite    # a file of a mount",
        "extol defrag -n --json disk.img | jq .total"
    ),
    long_about = "Move files into fewer pieces.\n\n\
        If the first operand lies on a mount of Extol, all operands are files of that mount, or \
        directories with all that is below them. Otherwise it is a volume that is not mounted, \
        and the others are paths on it (all of it without any).\n\n\
        A file is copied to a run of free blocks that holds all of it, or half a block group at \
        a time if it is longer; then its map is changed in a transaction, so a crash at any time \
        leaves the file as it was or moved in part. Where there is no such run the file stays as \
        it is, which is no error. Contents, times and holes do not change. On a mount the file \
        may be in use; each piece holds up its users for the time of its copy. That is for root \
        (with CAP_SYS_ADMIN) and the user of the mount.\n\n\
        The last line has the counts: files, how many of them were in more pieces than needed, \
        and extents of all files."
)]
pub struct DefragArgs {
    /// Move nothing; say how the files lie (as e4defrag -c).
    #[arg(short = 'n', long, short_alias = 'c')]
    pub dry_run: bool,
    /// Say something about each file.
    #[arg(short, long)]
    pub verbose: bool,
    /// As JSON: the files in pieces (with -v all files), and the counts.
    #[arg(long)]
    pub json: bool,
    /// Mount options for opening a volume that is not mounted.
    #[arg(short = 'o', value_name = "OPTIONS",
        value_parser = offer::text(offer::OPENING), hide_possible_values = true)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted; or a file or directory of a mount.
    #[arg(value_name = "IMAGE|FILE")]
    pub source: PathBuf,
    /// Paths on the volume, or more files of the mount.
    #[arg(value_name = "PATH")]
    pub more: Vec<OsString>,
}

impl DefragArgs {
    /// The volume, if it is one that is not mounted.
    pub fn volume(&self) -> VolumeArgs {
        let (options, source) = (self.options.clone(), self.source.clone());
        VolumeArgs { options, keys: Vec::new(), source }
    }

    /// What is named beside the first operand.
    pub fn paths(&self) -> &[OsString] {
        &self.more
    }
}

/// Make directories on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol mkdir -p disk.img /srv/data",
        "extol mkdir -m 700 --owner 1000:1000 disk.img /home/ada"
    ),
    long_about = "Make directories on a volume that is not mounted.\n\n\
        They belong to 0:0 unless --owner says otherwise, whichever user runs the command; in a \
        directory with the setgid bit to its group. With -p that is so for all that are made, but \
        -m is for the last one alone."
)]
pub struct MkdirArgs {
    /// Parents, too; what is there is no error.
    #[arg(short, long)]
    pub parents: bool,
    /// Mode, octal or as in u=rwx,go=rx [default: 755].
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    pub mode: Option<String>,
    /// Owner, as with extol chown [default: 0:0].
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Directories to make.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}
