//! The command line and its manual. Each file has the arguments of a few related benchmarks.

mod benchmarks;
mod loads;
mod place;
mod served;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use benchmarks::{BenchmarkArgs, BenchmarkCommand, ImageArgs, ScaleArgs};
pub use loads::LoadCommand;
pub use place::{OutputArgs, PlaceArgs};
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
    #[command(flatten)]
    Load(Box<LoadCommand>),
    #[command(flatten)]
    Benchmark(Box<BenchmarkCommand>),
    Medium(MediumArgs),
    #[command(hide = true)]
    Noop(NoopArgs),
    /// Unmount for a server.
    #[command(hide = true)]
    Unmount(UnmountArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    use clap::CommandFactory as _;
    use clap::builder::StyledStr;
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
            let name = command.get_name();
            assert!(help.contains("EXAMPLES:") && help.contains("EXIT STATUS:"), "{name}");
            let (about, long) = (command.get_about(), command.get_long_about());
            let length = |text: Option<&StyledStr>| text.expect(name).to_string().len();
            assert!(length(long) > length(about), "{name} has no description");
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
