//! The command line and its manual.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::error::{Failure, Result};

/// Exit codes, the same for every command.
const STATUS: &str = "\
EXIT STATUS:
  0   success
  1   wrong arguments, or not allowed
  2   the machine lacks something (FUSE, memory)
  4   internal error
  8   interrupted by the user
  32  the operation failed; the reason is one line on standard error";

macro_rules! manual {
    ($($example:literal),+ $(,)?) => {
        concat!(
            "EXAMPLES:\n", $("  ", $example, "\n",)+ "\n",
            "EXIT STATUS:\n  0 success, 1 wrong arguments or not allowed, 2 the machine lacks something, ",
            "4 internal error,\n  8 interrupted, 32 failed (the reason is one line on standard error)"
        )
    };
}

/// ext4 in user space: mounts, reads and writes real ext2, ext3 and ext4 volumes, journaled.
#[derive(Parser, Debug)]
#[command(name = "extol", version, after_long_help = STATUS, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Mount a volume on a directory.
    Mount(MountArgs),
    /// Unmount, and wait until everything is written.
    Umount(UmountArgs),
    /// Show the state and the counters of a live mount.
    Stat(StatArgs),
    /// Show what a volume is: size, features, state.
    Info(LookArgs),
    /// Show the journal of a volume, block by block, and what recovery would do.
    Log(LookArgs),
    /// Recover a volume that was not unmounted: replay its journal.
    Replay(ReplayArgs),
    /// Check a volume for damage, without changing it.
    Check(CheckArgs),
    /// Make a volume.
    Mkfs(Box<MkfsArgs>),
    /// List files of a volume that is not mounted.
    Ls(LsArgs),
    /// Print files of a volume that is not mounted.
    Cat(CatArgs),
    /// Copy files out of a volume that is not mounted.
    Cp(CpArgs),
    /// Copy files into a volume that is not mounted.
    Put(PutArgs),
    /// Remove files from a volume that is not mounted.
    Rm(RmArgs),
    /// Make directories on a volume that is not mounted.
    Mkdir(MkdirArgs),
    /// Measure Extol beside kernel ext4 and fuse2fs.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// `extol mount`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol mount disk.img /mnt",
        "extol mount -o ro,noload /dev/sdb1 /mnt",
        "extol mount -f -v -o commit=30,errors=remount-ro disk.img /mnt",
        "mount -t fuse.extol /dev/sdb1 /mnt",
        "/dev/sdb1  /mnt  fuse.extol  defaults,noatime  0  2        (in /etc/fstab)",
    ),
    long_about = "Mount a volume on a directory.\n\n\
        SOURCE is a disk image or a block device with an ext2, ext3 or ext4 file system. The command returns when \
        the mount answers; a process in the background serves it until it is unmounted (extol umount, umount, \
        fusermount3 -u) or gets SIGTERM or SIGINT.\n\n\
        Root's mounts are open to all users, and permissions are checked by the kernel. Ordinary users mount \
        through fusermount3, for themselves unless allow_other is given.\n\n\
        fsync(2) makes a file durable. sync(1) and syncfs(2) do not reach FUSE file systems: what they leave is durable \
        after the commit interval (commit=, 5 seconds), or at once after an fsync of the root directory."
)]
pub struct MountArgs {
    /// Mount options, separated by commas: those of mount(8) (ro, nosuid, noatime ...), of FUSE (allow_other,
    /// noallow_other, max_threads=N), and of ext4 (data=, commit=, errors=, barrier, norecovery, journal_path= ...).
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Stay in the foreground.
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Mount read-only; the same as -o ro.
    #[arg(short = 'r', long, conflicts_with = "read_write")]
    pub read_only: bool,
    /// Mount read-write (the default).
    #[arg(short = 'w', long)]
    pub read_write: bool,
    /// Say what happens.
    #[arg(short, long)]
    pub verbose: bool,
    /// Announce on standard output that the mount answers, then leave the terminal.
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Disk image or block device.
    pub source: PathBuf,
    /// Directory to mount on.
    pub dir: PathBuf,
}

/// `extol umount`.
#[derive(Args, Debug)]
#[command(
    visible_alias = "unmount",
    after_long_help = manual!("extol umount /mnt", "extol umount /mnt && e2fsck -fn disk.img"),
    long_about = "Unmount, and wait until everything is written.\n\n\
        umount(8) and fusermount3 -u return before the daemon has closed the volume. This command returns when the \
        daemon has ended, so that the volume may be checked, copied or mounted elsewhere at once."
)]
pub struct UmountArgs {
    /// Take the mount out of sight now; it ends when the last file on it is closed. Does not wait.
    #[arg(short, long)]
    pub lazy: bool,
    /// Where it is mounted.
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
}

/// `extol stat`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol stat /mnt", "extol stat --json /mnt | jq .journal.transactions"))]
pub struct StatArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// A directory on the mount.
    pub dir: PathBuf,
}

/// `extol info` and `extol log`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol info disk.img", "extol log --json /dev/sdb1"))]
pub struct LookArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Options that say how to open the volume (journal_path=, sb=).
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device. It is only read.
    pub source: PathBuf,
}

/// `extol replay`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol replay disk.img", "extol replay -o journal_path=log.img disk.img"))]
pub struct ReplayArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Options that say how to open the volume (journal_path=, sb=).
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
}

/// `extol check`.
#[derive(Args, Debug)]
#[command(
    after_long_help = "EXAMPLES:\n  \
        extol check disk.img\n  \
        extol check --json /dev/sdb1 | jq '.findings[].what'\n  \
        extol check disk.img && extol mount disk.img /mnt\n\n\
        EXIT STATUS:\n  \
        (the codes of fsck(8))\n  \
        0   no damage\n  \
        4   the volume is damaged\n  \
        8   the check could not be made: the device cannot be read, holds no ext2, ext3 or ext4 file system, is\n      \
        mounted read-write, or uses features that cannot be judged\n  \
        16  wrong arguments",
    long_about = "Check a volume for damage, without changing it.\n\n\
        Inodes, block maps, attributes, directories, link counts, bitmaps, counts, checksums and the journal are \
        compared with each other; what is wrong is printed, one line each, with inode, block and path. The verdict \
        is that of `e2fsck -fn`.\n\n\
        A volume that was not unmounted is checked as it will be after recovery: its journal is replayed in memory. \
        Repairs are for e2fsck."
)]
pub struct CheckArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Also say what was looked at.
    #[arg(short, long)]
    pub verbose: bool,
    /// Check the volume as it lies, without replaying its journal.
    #[arg(long)]
    pub as_is: bool,
    /// Check it even if it is mounted read-write; what changes meanwhile looks like damage.
    #[arg(long)]
    pub force: bool,
    /// The external journal of the volume, if it has one.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Print at most so many findings.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub limit: usize,
    /// Disk image or block device. It is only read.
    pub source: PathBuf,
}

/// `extol mkfs`: the option letters of mke2fs(8).
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol mkfs disk.img 1G",
        "extol mkfs -b 1024 -O ^64bit,inline_data -J size=16 -L data disk.img 200M",
        "extol mkfs -t ext3 -E stride=16 /dev/sdb1",
        "extol mkfs -O journal_dev log.img 64M",
    ),
    long_about = "Make a volume.\n\n\
        The options are those of mke2fs, and so are the defaults. SIZE is in KiB, or in blocks if -b is given, or has \
        a suffix s (512 bytes), K, M, G or T; without it the whole device or file is used. A file that does not \
        exist is made, one that is too short is extended."
)]
pub struct MkfsArgs {
    /// ext2, ext3 or ext4.
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    pub kind: String,
    /// What it will be used for (small, news, largefile ...), which decides about the number of inodes.
    #[arg(short = 'T', value_name = "USAGE")]
    pub usage: Option<String>,
    /// Block size in bytes.
    #[arg(short = 'b', value_name = "BYTES")]
    pub block_size: Option<u32>,
    /// Bytes for which there is one inode.
    #[arg(short = 'i', value_name = "BYTES")]
    pub bytes_per_inode: Option<u32>,
    /// Inode size in bytes.
    #[arg(short = 'I', value_name = "BYTES")]
    pub inode_size: Option<u32>,
    /// Number of inodes.
    #[arg(short = 'N', value_name = "COUNT")]
    pub inodes: Option<u64>,
    /// Blocks per group.
    #[arg(short = 'g', value_name = "BLOCKS")]
    pub blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together (flex_bg).
    #[arg(short = 'G', value_name = "GROUPS")]
    pub flex_groups: Option<u32>,
    /// Percentage of blocks kept for root.
    #[arg(short = 'm', value_name = "PERCENT")]
    pub reserved: Option<f64>,
    /// Features to add, or to leave out with a ^ before the name.
    #[arg(short = 'O', value_name = "FEATURES", action = ArgAction::Append)]
    pub features: Vec<String>,
    /// Extended options (stride=, stripe_width=, lazy_itable_init=, root_owner=, hash_seed= ...).
    #[arg(short = 'E', value_name = "OPTIONS", action = ArgAction::Append)]
    pub extended: Vec<String>,
    /// Journal options (size=, device=).
    #[arg(short = 'J', value_name = "OPTIONS", action = ArgAction::Append)]
    pub journal: Vec<String>,
    /// With a journal (ext3); ext4 has one anyway.
    #[arg(short = 'j')]
    pub with_journal: bool,
    /// Label.
    #[arg(short = 'L', value_name = "LABEL")]
    pub label: Option<String>,
    /// Directory where it was last mounted.
    #[arg(short = 'M', value_name = "DIR")]
    pub last_mounted: Option<String>,
    /// UUID, or random, time, clear.
    #[arg(short = 'U', value_name = "UUID")]
    pub uuid: Option<String>,
    /// Behaviour on errors: continue, remount-ro or panic.
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    pub errors: Option<String>,
    /// Revision, 0 or 1.
    #[arg(short = 'r', value_name = "REVISION")]
    pub revision: Option<u32>,
    /// Overwrite a file system that is there; allow odd parameters.
    #[arg(short = 'F')]
    pub force: bool,
    /// Say nothing.
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Only say what would be made.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Disk image or block device.
    pub target: PathBuf,
    /// Size of the file system.
    pub size: Option<String>,
}

/// `extol ls`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol ls disk.img", "extol ls -lR disk.img /home"))]
pub struct LsArgs {
    /// With mode, links, owner, size and time.
    #[arg(short)]
    pub long: bool,
    /// Directories with all that is in them.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Also names that begin with a dot.
    #[arg(short = 'a')]
    pub all: bool,
    /// With inode numbers.
    #[arg(short = 'i')]
    pub inodes: bool,
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
    /// What to list [default: /].
    pub paths: Vec<OsString>,
}

/// `extol cat`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol cat disk.img /etc/fstab"))]
pub struct CatArgs {
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `extol cp`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!("extol cp disk.img /etc/fstab .", "extol cp disk.img /home /tmp/home"),
    long_about = "Copy files out of a volume that is not mounted.\n\n\
        Directories are copied with all that is in them; modes, times, links, holes and extended attributes are kept, \
        owners and device files if root copies. If DEST is a directory, the copies are put into it."
)]
pub struct CpArgs {
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
    /// Files on the volume, then where to put the copies.
    #[arg(required = true, num_args = 2.., value_name = "PATH... DEST")]
    pub paths: Vec<OsString>,
}

/// `extol put`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!("extol put disk.img notes.txt /home/ada/", "extol put disk.img ./tree /srv"),
    long_about = "Copy files into a volume that is not mounted.\n\n\
        Directories are copied with all that is in them; owners, modes, times, links, holes and extended attributes \
        are kept. If DEST is a directory on the volume, the copies are put into it."
)]
pub struct PutArgs {
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
    /// Files here, then where to put the copies on the volume.
    #[arg(required = true, num_args = 2.., value_name = "PATH... DEST")]
    pub paths: Vec<OsString>,
}

/// `extol rm`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol rm disk.img /tmp/junk", "extol rm -r disk.img /var/cache"))]
pub struct RmArgs {
    /// Directories with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// What is not there is no error.
    #[arg(short, long)]
    pub force: bool,
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
    /// What to remove.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `extol mkdir`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol mkdir -p disk.img /srv/data"))]
pub struct MkdirArgs {
    /// Parents, too; what is there is no error.
    #[arg(short, long)]
    pub parents: bool,
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Disk image or block device, not mounted.
    pub source: PathBuf,
    /// Directories to make.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `extol bench`.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Names, inodes and small files through a mount (needs root, a loop device, e2fsprogs and fuse2fs).
    Metadata(BenchMetadataArgs),
}

/// `extol bench metadata`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol bench metadata", "extol bench metadata --threads 8 --subjects extol,kernel"))]
pub struct BenchMetadataArgs {
    /// Files per thread.
    #[arg(long, default_value_t = 2000)]
    pub files: u32,
    /// Threads, each in a directory of its own.
    #[arg(long, default_value_t = 4)]
    pub threads: u32,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Size of the volume in MiB.
    #[arg(long, default_value_t = 1024)]
    pub megabytes: u64,
    /// Where to make the image.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Who takes part: extol, fuse2fs, kernel.
    #[arg(long, value_delimiter = ',', default_value = "extol,fuse2fs,kernel")]
    pub subjects: Vec<String>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Parses the command line. Help and version are printed here.
pub fn parse(words: &[OsString]) -> Result<Command> {
    use clap::error::ErrorKind;
    Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Failure::silent(0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Failure::silent(Failure::USAGE)
        }
        _ => {
            let failure = Failure::usage(first_paragraph(&error.to_string()));
            // The commands that act like fsck(8) have its exit codes.
            let is_check = words.get(1).is_some_and(|word| word == "check");
            if is_check { Failure { code: Failure::FSCK_USAGE, ..failure } } else { failure }
        }
    })
}

/// The message of a usage error without the usage that follows it, as one line.
fn first_paragraph(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{} (see extol --help)", line.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_manual() {
        let mut todo = vec![Cli::command()];
        while let Some(mut command) = todo.pop() {
            if command.has_subcommands() {
                todo.extend(command.get_subcommands().cloned());
                continue;
            }
            let help = command.render_long_help().to_string();
            assert!(help.contains("EXAMPLES:") && help.contains("EXIT STATUS:"), "{}", command.get_name());
        }
    }

    #[test]
    fn mistakes_are_one_line() {
        for line in
            ["extol mount x", "extol frob", "extol mount -z a b", "extol mount -r -w a b", "extol cp img /x"]
        {
            let failure = parse(&words(line)).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{line}");
            assert!(!failure.line.is_empty() && !failure.line.contains('\n'), "{line}: {}", failure.line);
        }
    }

    #[test]
    fn check_has_the_codes_of_fsck() {
        for line in ["extol check", "extol check a b", "extol check --frob a"] {
            assert_eq!(parse(&words(line)).unwrap_err().code, 16, "{line}");
        }
    }

    #[test]
    fn mount_takes_options_anywhere() {
        let Command::Mount(args) = parse(&words("extol mount img -o ro /mnt -f -o commit=3")).unwrap() else {
            panic!("not mount");
        };
        assert!(args.foreground);
        assert_eq!(args.options, ["ro", "commit=3"]);
    }
}
