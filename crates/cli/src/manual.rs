//! The manual pages and the completions of shells, made from the definition of the command line.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use extol_cli_common::{Failure, Result, write};
use extol_proc::Shown as _;

use crate::args::{self, CompletionsArgs, GROUPS, HELP, ManArgs, Shell};

/// Other names of pages, for those that look for a mount helper.
const HELPERS: [&str; 2] = ["mount.extol.8", "mount.fuse.extol.8"];

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

fn script(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::visible(), "extol", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        clap_complete::Shell::Fish => mended_for_fish(&script),
        _ => script.replace(GENERATED_HELP, "Print help"),
    }
}

/// What the generator says of `help`, and of nothing else.
const GENERATED_HELP: &str = "Print this message or the help of the given subcommand(s)";

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

/// Writes all pages.
pub fn man(args: &ManArgs) -> Result<()> {
    let (users, administrators) = (args.dir.join("man1"), args.dir.join("man8"));
    for dir in [&users, &administrators] {
        std::fs::create_dir_all(dir).map_err(|error| about(dir, error))?;
    }
    for (name, page) in pages() {
        save(&users.join(name), &page)?;
    }
    for name in HELPERS {
        save(&administrators.join(name), ".so man1/extol-mount.1\n")?;
    }
    Ok(())
}

fn save(path: &Path, page: &str) -> Result<()> {
    std::fs::write(path, page).map_err(|error| about(path, error))
}

fn about(path: &Path, error: std::io::Error) -> Failure {
    Failure::system_call(path.shown(), error)
}

/// Names of files, and what is in them.
fn pages() -> Vec<(String, String)> {
    let mut whole = args::visible().disable_help_subcommand(true);
    whole.build();
    let mut pages = vec![("extol.1".to_owned(), page(&whole))];
    for command in whole.get_subcommands() {
        pages.push((format!("extol-{}.1", command.get_name()), page(command)));
    }
    pages
}

/// The page of a command.
fn page(command: &Command) -> String {
    let man = Man::new(command.clone().version(env!("CARGO_PKG_VERSION")))
        .source(concat!("extol ", env!("CARGO_PKG_VERSION")))
        .manual("Extol");
    let mut page = Vec::new();
    // (Writing to memory does not fail.)
    let _ = man.render_title(&mut page);
    let _ = man.render_name_section(&mut page);
    let _ = man.render_synopsis_section(&mut page);
    let _ = man.render_description_section(&mut page);
    let mut rest = Roff::new();
    if command.has_subcommands() {
        commands(&mut rest, command);
    }
    let _ = rest.to_writer(&mut page);
    let _ = man.render_options_section(&mut page);
    let mut rest = Roff::new();
    sections(&mut rest, command);
    see_also(&mut rest, command);
    let _ = rest.to_writer(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}

/// The list of commands.
fn commands(roff: &mut Roff, command: &Command) {
    roff.control("SH", ["COMMANDS"]);
    for (heading, names) in GROUPS {
        roff.control("SS", [heading]);
        for name in names {
            let sub = command.find_subcommand(name);
            let page = sub.map_or_else(|| bold(*name), |_| bold(format!("extol-{name}(1)")));
            let line = sub.and_then(Command::get_about).map_or(HELP.into(), ToString::to_string);
            roff.control("TP", []).text([page]).text([roman(line)]);
        }
    }
}

/// What follows the options in the help: headings in capitals that end with a colon, each with its
/// lines.
fn sections(roff: &mut Roff, command: &Command) {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(heading) = heading_of(line) else { continue };
        let mut body = Vec::new();
        while let Some(line) = lines.next_if(|line| heading_of(line).is_none()) {
            body.push(line);
        }
        roff.control("SH", [heading]);
        if body.iter().any(|line| is_description(line)) {
            list(roff, &body);
        } else {
            roff.control("nf", []);
            for line in body {
                roff.text([roman(line)]);
            }
            roff.control("fi", []);
        }
    }
}

/// Terms, and descriptions that are indented more: both are filled anew.
fn list(roff: &mut Roff, lines: &[&str]) {
    let mut in_term = false;
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        let text = line.trim();
        if is_description(line) {
            roff.text([roman(text)]);
            in_term = false;
        } else if in_term {
            // A term has one line.
            roff.control("TQ", []).text([bold(text)]);
        } else {
            roff.control("TP", []).text([bold(text)]);
            in_term = true;
        }
    }
}

fn is_description(line: &str) -> bool {
    line.starts_with("        ")
}

fn heading_of(line: &str) -> Option<&str> {
    line.strip_suffix(':').filter(|_| line.starts_with(|c: char| c.is_uppercase()))
}

fn see_also(roff: &mut Roff, command: &Command) {
    let others = match command.get_name() {
        "extol" => "ext4(5), fuse(4), mke2fs(8), mount(8)",
        "mount" | "remount" => "extol(1), ext4(5), mount(8), fusermount3(1)",
        "umount" => "extol(1), umount(8), fusermount3(1)",
        "mkfs" => "extol(1), ext4(5), mke2fs(8)",
        "check" => "extol(1), e2fsck(8), fsck(8)",
        "info" | "log" => "extol(1), dumpe2fs(8), debugfs(8)",
        _ => "extol(1)",
    };
    roff.control("SH", ["SEE ALSO"]).text([roman(others)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_all_sections() {
        let pages = pages();
        assert_eq!(pages.len(), args::visible().get_subcommands().count() + 1);
        for (name, page) in pages {
            for section in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "\"SEE ALSO\""]
            {
                assert!(page.contains(&format!("\n.SH {section}\n")), "{name}: {section}\n{page}");
            }
            let example = page.contains("\n.SH EXAMPLES\n.nf\n");
            assert!(example || name == "extol.1", "{name}");
            assert_eq!(page.matches("\n.nf\n").count(), page.matches("\n.fi\n").count(), "{name}");
        }
    }

    #[test]
    fn hidden_parts_are_in_no_page_and_no_completion() {
        let mut all: String = pages().into_iter().map(|page| page.1).collect();
        for shell in
            [clap_complete::Shell::Bash, clap_complete::Shell::Fish, clap_complete::Shell::Zsh]
        {
            let script = script(shell);
            assert!(script.contains("checkpoint") && script.contains("foreground"), "{script}");
            all += &script;
        }
        for hidden in ["mount-monitor", "mount__monitor", "announce", "start-cleanup"] {
            let bare = all.replace("\\-", "-");
            assert!(!bare.contains(hidden), "{hidden}");
        }
    }
}
