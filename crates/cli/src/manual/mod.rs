//! The manual pages and the completions of shells, made from the definition of the command line.

mod completions;
mod helper;
mod page;

use std::path::Path;

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

use crate::args::{self, ManArgs};

pub use completions::completions;
use page::page;

/// Writes all pages.
pub fn man(args: &ManArgs) -> Result<()> {
    let (users, administrators) = (args.dir.join("man1"), args.dir.join("man8"));
    for dir in [&users, &administrators] {
        std::fs::create_dir_all(dir).map_err(|error| about(dir, error))?;
    }
    for (name, page) in pages() {
        save(&users.join(name), &page)?;
    }
    save(&administrators.join("mount.extol.8"), &helper::page())?;
    save(&administrators.join("mount.fuse.extol.8"), ".so man8/mount.extol.8\n")?;
    Ok(())
}

fn save(path: &Path, page: &str) -> Result<()> {
    std::fs::write(path, page).map_err(|error| about(path, error))
}

fn about(path: &Path, error: std::io::Error) -> Failure {
    Failure::about(path.shown(), error)
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
            for line in unfilled(&page) {
                let line = line.replace("\\-", "-");
                assert!(line.len() <= 73, "{name} is wider than a terminal: {line}");
            }
            let example = page.contains("\n.SH EXAMPLES\n.nf\n");
            assert!(example || name == "extol.1", "{name}");
            assert_eq!(page.matches("\n.nf\n").count(), page.matches("\n.fi\n").count(), "{name}");
        }
    }

    /// The lines that a page shows as they are, seven columns from the left.
    fn unfilled(page: &str) -> Vec<&str> {
        let mut lines = Vec::new();
        for part in page.split("\n.nf\n").skip(1) {
            lines.extend(part.split("\n.fi\n").next().unwrap_or_default().lines());
        }
        lines
    }

    #[test]
    fn synopses_name_all_values() {
        let pages: std::collections::BTreeMap<_, _> = pages().into_iter().collect();
        for (name, words) in [
            ("extol-mount.1", &["-o OPTIONS", "--fd N", "SOURCE", "[DIR]"][..]),
            ("extol-umount.1", &["--timeout SECONDS", "DIR..."]),
            ("extol-stat.1", &["--watch [SECONDS]", " PATH"]),
            ("extol-mkfs.1", &["-b SIZE", "[SIZE]"]),
            ("extol-cp.1", &["--preserve[=LIST]", "PATH... DEST"]),
            ("extol.1", &["COMMAND"]),
        ] {
            let (_, synopsis) = pages[name].split_once(".SH SYNOPSIS\n").expect(name);
            let synopsis = synopsis.split(".SH").next().unwrap_or_default();
            let plain = synopsis.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "");
            let plain = plain.replace("\\-", "-");
            for word in words {
                assert!(plain.contains(word), "{name} has no {word:?}: {plain}");
            }
            assert!(!plain.contains("[-o ]"), "{name}: {plain}");
        }
    }

    #[test]
    fn lists_are_filled_anew() {
        let (_, page) = pages().into_iter().find(|page| page.0 == "extol-mount.1").expect("mount");
        let (_, list) = page.split_once(".SH \"OPTIONS OF").expect("a list");
        let list = list.split("\n.SH").next().unwrap_or_default();
        for line in list.lines().filter(|line| line.starts_with("\\fB")) {
            let plain = line.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
            assert!(plain.len() <= 73, "{plain}");
        }
        let (_, last) = list.rsplit_once(".PP\n").expect("a paragraph");
        assert!(last.starts_with("Options of libfuse"), "{last}");
    }

    #[test]
    fn the_page_of_the_helper_has_its_own_options() {
        let page = helper::page();
        assert!(page.contains("without mounting") && page.contains("unknown options"), "{page}");
        assert!(page.contains("extol\\-mount(1)"), "{page}");
    }

    #[test]
    fn hidden_parts_are_in_no_page_and_no_completion() {
        let mut all: String = pages().into_iter().map(|page| page.1).collect();
        for shell in
            [clap_complete::Shell::Bash, clap_complete::Shell::Fish, clap_complete::Shell::Zsh]
        {
            let script = completions::script(shell);
            assert!(script.contains("checkpoint") && script.contains("foreground"), "{script}");
            all += &script;
        }
        for hidden in
            ["mount-monitor", "mount-connector", "mount__monitor", "announce", "start-cleanup"]
        {
            let bare = all.replace("\\-", "-");
            assert!(!bare.contains(hidden), "{hidden}");
        }
    }
}
