//! What the commands `extol` and `extol-bench` share: failures, output, manuals, progress bars.
//!
//! Each failure is one line on standard error, `PROGRAM: …`, and an exit code as mount(8) has them.

#![forbid(unsafe_code)]

mod failure;
mod json;
pub mod progress;

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

pub use failure::{
    Failure, Result, named, output_failed, print, print_json, warn, without_os_error, write,
};
pub use json::{FORMAT_VERSION, json_line, json_text};

/// Exit codes, the same for every command.
#[macro_export]
macro_rules! exit_status {
    () => {
        "EXIT STATUS:\n  \
         0    success\n  \
         1    wrong arguments, or not allowed\n  \
         2    the machine lacks something\n  \
         4    internal error\n  \
         32   failed; the reason is one line on standard error\n  \
         64   of several mounts some were unmounted (umount)\n  \
         129  ended by SIGHUP\n  \
         130  interrupted (Ctrl-C, SIGINT)\n  \
         131  ended by SIGQUIT\n  \
         141  standard output is a pipe whose reader has ended (SIGPIPE)\n  \
         143  ended by SIGTERM"
    };
}

/// The end of every manual: examples, then the exit codes.
#[macro_export]
macro_rules! manual {
    ($($example:literal),+ $(,)?) => {
        concat!("EXAMPLES:\n", $("  ", $example, "\n",)+ "\n", $crate::exit_status!())
    };
}

/// The name in front of each message.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Runs a command with its words, and reports its failure.
pub fn main(program: &'static str, run: impl FnOnce(&[OsString]) -> Result<()>) -> ExitCode {
    PROGRAM.get_or_init(|| program);
    let words: Vec<OsString> = std::env::args_os().collect();
    // A panic has printed its message already.
    match std::panic::catch_unwind(AssertUnwindSafe(|| run(&words))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            failure.report();
            ExitCode::from(failure.code)
        }
        Err(_) => ExitCode::from(Failure::INTERNAL),
    }
}

/// A number with its noun, for messages: `1 block`, `2 blocks`.
#[must_use]
pub fn counted(number: impl Into<u64>, noun: &str) -> String {
    match (number.into(), noun) {
        (1, noun) => format!("1 {noun}"),
        (number, "batch" | "flush") => format!("{number} {noun}es"),
        (number, noun) => format!("{number} {noun}s"),
    }
}

/// Parses the command line. Help and version are printed here.
///
/// # Errors
/// Help and version with code 0, and mistakes as one line.
pub fn parse<T: Parser>(words: &[OsString]) -> Result<T> {
    parse_with(T::command(), words)
}

/// The same by a definition that was added to.
///
/// # Errors
/// As [`parse`].
pub fn parse_with<T: Parser>(mut command: clap::Command, words: &[OsString]) -> Result<T> {
    let parsed = command
        .try_get_matches_from_mut(words)
        .and_then(|mut matches| T::from_arg_matches_mut(&mut matches))
        .map_err(|error| error.format(&mut command));
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print().map_or_else(|e| output_failed(&e), |()| Failure::silent(0))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Failure::silent(Failure::USAGE)
        }
        _ => {
            let mut name = command.get_name().to_owned();
            let is_meant = |sub: &&clap::Command| words.get(1).is_some_and(|w| w == sub.get_name());
            if let Some(sub) = command.get_subcommands().find(is_meant)
                && sub.get_name() != "help"
            {
                name = format!("{name} {}", sub.get_name());
            }
            let line = mistake(&error);
            let meant = match words.get(1..3) {
                Some([help, word]) if help == "help" => meant(&command, word),
                _ => None,
            };
            let meant = meant.map(|meant| format!("; did you mean '{meant}'?"));
            Failure::usage(format_args!("{line}{} (see {name} --help)", meant.unwrap_or_default()))
        }
    })
}

/// The command that a word after `help` is nearly. (clap names none there.)
fn meant(command: &clap::Command, word: &OsString) -> Option<String> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let names: Vec<_> = shown.flat_map(clap::Command::get_name_and_visible_aliases).collect();
    extol_vfs::nearest(&extol_vfs::bytes_text(word.as_encoded_bytes()), names).map(str::to_owned)
}

/// A mistake on the command line in one line, with what was perhaps meant.
fn mistake(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::ValueValidation
        && let Some(why) = std::error::Error::source(error)
        && let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
    {
        let why = why.to_string();
        // Some parsers quote the value themselves.
        return match why.contains(&format!("\"{value}\"")) || value.is_empty() {
            true => format!("{argument}: {why}"),
            false => format!("{argument}: bad value \"{value}\": {why}"),
        };
    }
    let text = error.to_string();
    // Without the usage that follows it.
    let paragraph = text.split("\n\n").next().unwrap_or(&text);
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_start_matches("error: ").to_owned();
    let suggestion =
        // (A value stands in a list of all values, of which the nearest may be far.)
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg]
            .into_iter()
            .find_map(|kind| match error.get(kind)? {
                ContextValue::String(text) => Some(text.clone()),
                // The most similar one is the last.
                ContextValue::Strings(all) => all.last().cloned(),
                _ => None,
            });
    match suggestion {
        Some(meant) => format!("{line}; did you mean '{meant}'?"),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(0_u32, "request"), "0 requests");
        assert_eq!(counted(1_u64, "request"), "1 request");
        assert_eq!(counted(2_u64, "fast commit"), "2 fast commits");
        assert_eq!([1_u64, 2].map(|n| counted(n, "batch")), ["1 batch", "2 batches"]);
    }
}
