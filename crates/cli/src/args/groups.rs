//! The list of commands in `extol help`, by what they are for.

use std::fmt::Write as _;

use clap::Command;

/// Headings, and the commands below each. (A test compares them with the definition.)
pub const GROUPS: [(&str, &[&str]); 10] = [
    ("Mounts", &["mount", "umount", "remount"]),
    ("Serve a volume to other machines", &["export"]),
    ("Watch a mount", &["stat", "top"]),
    ("Make a whole mount durable", &["sync", "checkpoint", "freeze", "thaw"]),
    (
        "Volumes that are not mounted",
        &["mkfs", "info", "check", "log", "replay", "resize", "tune", "quota"],
    ),
    (
        "Files on a volume that is not mounted",
        &["ls", "cat", "cp", "tar", "put", "rm", "mkdir", "mv", "ln", "edit"],
    ),
    (
        "Attributes of files on a volume that is not mounted",
        &["chmod", "chown", "touch", "truncate", "mknod", "setxattr", "getxattr", "verity"],
    ),
    ("Encrypted files", &["encrypt", "key"]),
    ("Where files lie", &["defrag"]),
    ("The command itself", &["help", "completions", "man"]),
];

/// What `help` does; clap adds that command by itself.
pub const HELP: &str = "Show this list, or the manual of a command: extol help COMMAND";

/// The definition, with its commands in groups in its help.
pub fn list_in_help(command: Command) -> Command {
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, "{heading}:");
        for name in names {
            let about = about(&command, name).unwrap_or_default();
            let _ = writeln!(list, "  {name:<11}  {about}");
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n\
         {{options}}{{after-help}}"
    ))
}

/// The line of a command in the list.
pub fn about(command: &Command, name: &str) -> Option<String> {
    match name {
        "help" => Some(HELP.to_owned()),
        _ => command.find_subcommand(name)?.get_about().map(ToString::to_string),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    #[test]
    fn each_command_is_in_one_group() {
        let visible = args::visible();
        let mut defined: Vec<_> = visible.get_subcommands().map(Command::get_name).collect();
        defined.push("help");
        let mut listed: Vec<_> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        defined.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, defined);
    }

    #[test]
    fn the_list_is_the_help() {
        let mut command = list_in_help(args::visible());
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            for (heading, names) in GROUPS {
                let (_, rest) = help.split_once(&format!("\n{heading}:\n")).expect(heading);
                for name in names {
                    assert!(rest.contains(&format!("\n  {name} ")) || rest.starts_with("  "));
                }
            }
            for line in help.lines() {
                assert!(line.len() <= 100, "{line}");
            }
            assert!(!help.contains("mount-monitor") && help.contains("--version"), "{help}");
        }
    }
}
