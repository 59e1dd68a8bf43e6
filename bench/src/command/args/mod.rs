//! The command line and its manual. Each file has the arguments of a few related benchmarks.

mod loads;
mod operations;
mod published;
mod scale;
mod served;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use loads::{
    DbenchArgs, FsMarkArgs, FsyncLatencyArgs, LogsArgs, OutputArgs, PostMarkArgs, TargetArgs,
    VarMailArgs,
};
pub use operations::{MetadataArgs, RandArgs, SeqArgs, SpeedArgs, UntarArgs};
pub use published::{
    AsyncCheckpointArgs, CheckpointMergeArgs, FastCommitArgs, FsyncBatchingArgs, LazyInitArgs,
};
pub use scale::ScaleArgs;
pub use served::{MediumArgs, NoopArgs, UnmountArgs};

/// Measures Extol beside kernel ext4, fuse2fs and other builds of itself.
#[derive(Parser, Debug)]
#[command(
    name = "extol-bench",
    version,
    after_long_help = extol_cli_common::exit_status!(),
    disable_help_subcommand = true
)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The builds of the extol command that take part.
    #[command(flatten)]
    pub programs: ProgramArgs,
}

/// Which builds of the extol command take part.
#[derive(Args, Debug)]
pub struct ProgramArgs {
    /// The extol command, for mounts and checks [default: the one beside this program, else the
    /// one in PATH].
    #[arg(long, global = true, value_name = "PATH")]
    pub extol: Option<PathBuf>,
    /// Another build of the extol command: beside each target "mount" takes part "before", the
    /// same mounted by this build.
    #[arg(long, global = true, value_name = "PATH")]
    pub extol_before: Option<PathBuf>,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Single calls on names and inodes, phase by phase.
    Metadata(MetadataArgs),
    /// Bulk data: written, made durable, read with empty caches.
    Seq(SeqArgs),
    /// Small reads and writes at random places.
    Rand(RandArgs),
    /// A tree of source code, written as a tar extractor does.
    Untar(UntarArgs),
    /// All targets beside their peers on one device, and whether they are met.
    Speed(SpeedArgs),
    /// Serve an emulated medium (disk, array, network disk) as a file, for a loop device (needs
    /// FUSE).
    Medium(MediumArgs),
    /// Serve a file system that does nothing.
    #[command(hide = true)]
    Noop(NoopArgs),
    /// Unmount for a server.
    #[command(hide = true)]
    Unmount(UnmountArgs),
    /// Files of one size, as fs_mark makes them.
    Fsmark(FsMarkArgs),
    /// Clients of a file server, as dbench plays them.
    Dbench(DbenchArgs),
    /// Many small files, as PostMark makes them.
    Postmark(PostMarkArgs),
    /// A mail server that syncs, as filebench's varmail.
    Varmail(VarMailArgs),
    /// Logs that grow side by side by small synced pieces.
    Logs(LogsArgs),
    /// How long a small durable write takes, alone and beside a heavy writer.
    FsyncLatency(FsyncLatencyArgs),
    /// fsync batching: files per second by threads, policy and medium, beside the published table.
    FsyncBatching(FsyncBatchingArgs),
    /// Asynchronous checkpoint: a load that outruns the log, beside the published table.
    AsyncCheckpoint(AsyncCheckpointArgs),
    /// Merged checkpoints: syncs beside a throttled caller, beside the published figures.
    CheckpointMerge(CheckpointMergeArgs),
    /// Fast commits: with and without them beside the published table, and beside Linux.
    FastCommit(FastCommitArgs),
    /// Lazy inode tables: what zeroing them costs, beside the published table.
    LazyInit(LazyInitArgs),
    /// More and more files, a longer dirty log, a larger volume: what grows and what must not.
    Scale(ScaleArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    use clap::CommandFactory as _;
    use extol_cli_common::{Failure, parse};

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_benchmark_has_a_manual() {
        for command in CommandLine::command().get_subcommands_mut() {
            if command.get_name() == "unmount" {
                // A part of the servers.
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
    fn mistakes_are_one_line() {
        for line in ["extol-bench frob", "extol-bench fsmark -Z", "extol-bench medium /x"] {
            let failure = parse::<CommandLine>(&words(line)).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{line}");
            assert!(
                !failure.line.is_empty() && !failure.line.contains('\n'),
                "{line}: {}",
                failure.line
            );
        }
    }

    #[test]
    fn programs_are_named_anywhere() {
        for line in ["extol-bench --extol /a fsmark", "extol-bench fsmark -t 2 --extol /a"] {
            let parsed = parse::<CommandLine>(&words(line)).unwrap();
            assert_eq!(parsed.programs.extol.as_deref(), Some("/a".as_ref()), "{line}");
        }
    }
}
