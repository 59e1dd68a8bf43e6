//! The command line and its manual. Each file has the arguments of a few related commands.

mod edit;
mod encrypt;
mod export;
mod files;
mod groups;
mod inspect;
mod key;
mod maintenance;
mod mkfs;
mod mount;
mod mounted;
mod offer;
mod quota;
mod refused;
mod resize;
mod setup;
mod tune;
mod verity;

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser, Subcommand};
use extol_cli_common::{Failure, Result};
use extol_vfs::{NumberError, number};

pub use edit::{
    ChmodArgs, ChownArgs, EditArgs, GetxattrArgs, LnArgs, MknodArgs, MvArgs, SetxattrArgs, Step,
    TouchArgs, TruncateArgs,
};
pub use encrypt::EncryptArgs;
pub use export::ExportArgs;
pub use files::{
    CatArgs, CpArgs, DefragArgs, LsArgs, MkdirArgs, PutArgs, RmArgs, TarArgs, VolumeArgs,
};
pub use groups::{GROUPS, HELP};
pub use inspect::{CheckArgs, InfoArgs, InspectArgs, ReplayArgs};
pub use key::KeyArgs;
pub use maintenance::{CheckpointArgs, FreezeArgs, SyncArgs, ThawArgs};
pub use mkfs::{BlockSize, FillArgs, FreeSpace, MkfsArgs};
pub use mount::{ConnectorArgs, MonitorArgs, MountArgs, UmountArgs};
pub use mounted::{RemountArgs, StatArgs, TopArgs};
pub use quota::QuotaArgs;
pub use resize::ResizeArgs;
pub use setup::{CompletionsArgs, ManArgs, Shell};
pub use tune::TuneArgs;
pub use verity::VerityArgs;

/// ext4 in user space: mounts, reads and writes real ext2, ext3 and ext4 volumes, journaled.
#[derive(Parser, Debug)]
#[command(name = "extol", version, propagate_version = true, args_override_self = true)]
#[command(after_long_help = extol_cli_common::exit_status!())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands. Each has its summary and its manual at its arguments.
#[derive(Subcommand, Debug)]
pub enum Command {
    Mount(MountArgs),
    /// Unmount for a daemon, a part of mount.
    #[command(hide = true)]
    MountMonitor(MonitorArgs),
    /// Connect for a daemon, a part of mount.
    #[command(hide = true)]
    MountConnector(ConnectorArgs),
    Umount(UmountArgs),
    Export(ExportArgs),
    Remount(RemountArgs),
    Stat(StatArgs),
    Sync(SyncArgs),
    Checkpoint(CheckpointArgs),
    Freeze(FreezeArgs),
    Thaw(ThawArgs),
    Top(TopArgs),
    Info(InfoArgs),
    /// Show the journal of a volume, block by block, and what recovery would do.
    Log(InspectArgs),
    Replay(ReplayArgs),
    Check(CheckArgs),
    Mkfs(Box<MkfsArgs>),
    Ls(LsArgs),
    Cat(CatArgs),
    Cp(CpArgs),
    Tar(TarArgs),
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
    Getxattr(GetxattrArgs),
    Edit(EditArgs),
    Defrag(DefragArgs),
    Verity(VerityArgs),
    Encrypt(EncryptArgs),
    Key(KeyArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Resize(ResizeArgs),
    Tune(Box<TuneArgs>),
    Quota(QuotaArgs),
}

/// What is shown of the command line in completions and manual pages: without the parts of other
/// commands.
pub fn visible() -> clap::Command {
    let whole = Cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let mut visible = clap::Command::new("extol")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .subcommand_value_name("COMMAND")
        .args(whole.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(shown.cloned().map(without_hidden));
    if let Some(about) = whole.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(after) = whole.get_after_long_help() {
        visible = visible.after_long_help(after.clone());
    }
    visible
}

fn without_hidden(command: clap::Command) -> clap::Command {
    let mut shown = clap::Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .disable_help_flag(command.is_disable_help_flag_set())
        .visible_aliases(command.get_visible_aliases().map(str::to_owned).collect::<Vec<_>>());
    shown = shown.about(command.get_about().cloned().unwrap_or_default());
    if let Some(text) = command.get_long_about() {
        shown = shown.long_about(text.clone());
    }
    shown.after_long_help(command.get_after_long_help().cloned().unwrap_or_default())
}

/// Parses the command line. Help and version are printed here.
pub fn parse(words: &[OsString]) -> Result<Command> {
    let command = groups::list_in_help(Cli::command());
    let words = spelled_out(words);
    extol_cli_common::parse_with::<Cli>(command, &words).map(|cli| cli.command).map_err(|failure| {
        // check has the exit codes of fsck(8).
        let is_check = words.get(1).is_some_and(|word| word == "check");
        match failure.code {
            Failure::USAGE if is_check => Failure { code: Failure::FSCK_USAGE, ..failure },
            _ => failure,
        }
    })
}

/// The words in the form that clap takes: it has no options behind `help`, and takes the directory
/// of `stat --watch DIR` for the value of the option.
fn spelled_out(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    match words.get(1).map(|word| word.as_encoded_bytes()) {
        Some(b"help") => words.retain(|word| word != "--help" && word != "-h"),
        Some(b"stat") => mounted::separate_watch(&mut words),
        _ => {}
    }
    words
}

/// Counts from 1 to the most that 32 bits hold.
fn count(text: &str) -> std::result::Result<u32, NumberError> {
    number::count(text, 1..=u32::MAX)
}

/// Bytes of a block of a tree of fs-verity.
fn verity_block(text: &str) -> std::result::Result<u32, String> {
    let bytes = count(text).map_err(|error| error.to_string())?;
    match bytes.is_power_of_two() && bytes >= 1024 {
        true => Ok(bytes),
        false => Err("it is no power of two from 1024 on".into()),
    }
}

/// Numbers of descriptors.
fn descriptor(text: &str) -> std::result::Result<u32, NumberError> {
    number::count(text, 0..=i32::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            if command.is_hide_set() {
                // A part of another command.
                continue;
            }
            let help = command.render_long_help().to_string();
            assert!(
                help.contains("EXAMPLES:") && help.contains("EXIT STATUS:"),
                "{}",
                command.get_name()
            );
        }
    }

    #[test]
    fn long_help_has_the_description() {
        for name in [
            "mount",
            "umount",
            "remount",
            "export",
            "stat",
            "sync",
            "checkpoint",
            "freeze",
            "thaw",
            "top",
            "info",
            "replay",
            "check",
            "mkfs",
            "cp",
            "put",
            "mv",
            "ln",
            "chmod",
            "chown",
            "touch",
            "truncate",
            "mknod",
            "setxattr",
            "getxattr",
            "edit",
            "verity",
            "encrypt",
            "key",
            "quota",
        ] {
            let mut command = Cli::command().find_subcommand(name).expect(name).clone();
            let about = command.get_about().expect(name).to_string();
            let long = command.get_long_about().expect(name).to_string();
            assert!(long.len() > about.len(), "{name}: {long}");
            let first = long.lines().next().expect(name).to_owned();
            assert!(command.render_long_help().to_string().contains(&first), "{name}");
        }
    }

    #[test]
    fn help_takes_the_options_of_help() {
        for line in ["extol help --help", "extol help -h", "extol help mount -h"] {
            let failure = parse(&words(line)).unwrap_err();
            assert_eq!((failure.code, failure.line.as_str()), (0, ""), "{line}");
        }
        assert_eq!(parse(&words("extol help mont -h")).unwrap_err().code, Failure::USAGE);
    }

    #[test]
    fn mistakes_are_one_line() {
        for line in [
            "extol mount x",
            "extol frob",
            "extol mount -z a b",
            "extol mount -r -w a b",
            "extol cp img",
        ] {
            let failure = parse(&words(line)).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{line}");
            assert!(
                !failure.line.is_empty() && !failure.line.contains('\n'),
                "{line}: {}",
                failure.line
            );
        }
    }

    #[test]
    fn check_has_the_codes_of_fsck() {
        for line in ["extol check", "extol check a b", "extol check --frob a"] {
            assert_eq!(parse(&words(line)).unwrap_err().code, 16, "{line}");
        }
    }

    /// Every argument that is a number, and a command line in which `=` stands for its value.
    const NUMBERS: [(&str, &str, &str); 31] = [
        ("mount", "fd", "--fd = a"),
        ("umount", "timeout", "--timeout = a"),
        ("top", "interval", "--interval = a"),
        ("check", "progress", "-C = a"),
        ("check", "limit", "--limit = a"),
        ("check", "superblock", "-b = a"),
        ("check", "block_size", "-b 1 -B = a"),
        ("mkfs", "bytes_per_inode", "-i = a"),
        ("mkfs", "cluster_size", "-C = a"),
        ("mkfs", "inode_size", "-I = a"),
        ("mkfs", "inodes", "-N = a"),
        ("mkfs", "blocks_per_group", "-g = a"),
        ("mkfs", "flex_groups", "-G = a"),
        ("mkfs", "reserved", "-m = a"),
        ("mkfs", "revision", "-r = a"),
        ("mkfs", "block_size", "-b = a"),
        ("mkfs", "size", "a ="),
        ("mkfs", "free", "-d a --free = a"),
        ("mkfs", "verity_block_size", "-d a --verity b --verity-block-size = a"),
        ("mkfs", "threads", "-d a --threads = a"),
        ("resize", "size", "a ="),
        ("tune", "reserved_percent", "-m = a"),
        ("tune", "reserved_blocks", "-r = a"),
        ("tune", "mounts", "-C = a"),
        ("verity", "block_size", "enable --block-size = a b"),
        ("encrypt", "padding", "set-policy --padding = a b"),
        ("encrypt", "data_unit_size", "set-policy --data-unit-size = a b"),
        ("quota", "block_soft", "set --block-soft = a"),
        ("quota", "block_hard", "set --block-hard = a"),
        ("quota", "inode_soft", "set --inode-soft = a"),
        ("quota", "inode_hard", "set --inode-hard = a"),
    ];

    /// All numbers go through the same few parsers, so each mistake has the same words.
    #[test]
    fn numbers_have_the_same_mistakes() {
        for (command, name, pattern) in NUMBERS {
            for (value, expected) in
                [("-1", "must not be negative"), ("99999999999999999999", "larg"), ("x", "number")]
            {
                // (-b -1 means at least 1.)
                if (name, value) == ("block_size", "-1") && command != "check" {
                    continue;
                }
                let value_for = |word| if word == "=" { value } else { word };
                let line = ["extol", command].into_iter().chain(pattern.split(' ').map(value_for));
                let line: Vec<OsString> = line.map(OsString::from).collect();
                let failure = parse(&line).unwrap_err();
                let quoted = format!("\"{value}\"");
                assert!(
                    failure.line.contains(expected) && failure.line.contains(&quoted),
                    "{line:?}: {}",
                    failure.line
                );
            }
        }
    }

    /// No argument is a number that is not in the list above.
    #[test]
    fn all_numbers_are_known() {
        use std::any::TypeId;
        let numbers = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<i32>(),
            TypeId::of::<i64>(),
            TypeId::of::<f64>(),
            TypeId::of::<crate::volume::Size>(),
            TypeId::of::<BlockSize>(),
            TypeId::of::<FreeSpace>(),
        ];
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let kind = arg.get_value_parser().type_id();
                let takes_value = arg.get_action().takes_values();
                if takes_value && numbers.iter().any(|number| kind == *number) {
                    let place = (command.get_name(), arg.get_id().as_str());
                    assert!(NUMBERS.iter().any(|(of, name, _)| (*of, *name) == place), "{place:?}");
                }
            }
        }
    }

    #[test]
    fn mount_takes_options_anywhere() {
        let Command::Mount(args) =
            parse(&words("extol mount img -o ro /mnt -f -o commit=3")).unwrap()
        else {
            panic!("not mount");
        };
        assert!(args.foreground);
        assert_eq!(args.options, ["ro", "commit=3"]);
    }
}
