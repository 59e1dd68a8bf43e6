//! Completions of shells.

use extol_cli_common::{Result, write};

use crate::args::{self, CompletionsArgs, Shell};

/// Prints completions.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Zsh => clap_complete::Shell::Zsh,
    };
    let script = script(shell);
    write(script.as_bytes())
}

pub(super) fn script(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::visible(), "extol", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        clap_complete::Shell::Bash => mended_for_bash(&script),
        clap_complete::Shell::Fish => mended_for_fish(&script),
        _ => script.replace(GENERATED_HELP, "Print help"),
    }
}

/// What the generator says of `help`, and of nothing else.
const GENERATED_HELP: &str = "Print this message or the help of the given subcommand(s)";

/// The generator's script for Bash offers the options of a command where an argument is to come,
/// and so never a file. Where a command has options alone (no commands or values of arguments)
/// these are offered behind a dash; else Bash completes files itself, as it does where the function
/// has no answer.
fn mended_for_bash(script: &str) -> String {
    let all = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    let mut mended = String::new();
    let mut only_options = false;
    for line in script.lines() {
        let text = line.trim_start();
        if let Some(words) = text.strip_prefix("opts=\"") {
            let mut words = words.trim_end_matches('"').split_whitespace();
            only_options = words.all(|word| word.starts_with('-'));
        }
        let is_condition = text.starts_with("if [[ ${cur} == -* || ${COMP_CWORD} -eq ");
        let indent = line.len() - text.len();
        match only_options {
            true if is_condition => {
                let space = " ".repeat(indent);
                mended.push_str(&format!("{space}if [[ ${{cur}} == -* ]] ; then"));
            }
            // (The one inside of the condition is indented more.)
            true if text == all && indent == 12 => continue,
            _ => mended.push_str(line),
        }
        mended.push('\n');
    }
    mended
}

/// The generator's script for fish offers no name behind `extol help`, as it takes the word `help`
/// itself for the name, and no values of arguments that have no option.
fn mended_for_fish(script: &str) -> String {
    let help = "__fish_extol_using_subcommand help; and not __fish_seen_subcommand_from ";
    let mut mended = String::new();
    for line in script.lines() {
        match line.contains(help) {
            true => mended.push_str(&line.replacen(" help\" -f -a", "\" -f -a", 1)),
            false => mended.push_str(line),
        }
        mended.push('\n');
    }
    let completions = "__fish_extol_using_subcommand completions";
    mended.push_str(&format!("complete -c extol -n \"{completions}\" -f -a \"bash fish zsh\"\n"));
    mended
}
