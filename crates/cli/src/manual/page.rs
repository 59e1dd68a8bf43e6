//! The page of a command. Troff fills paragraphs to the width of the terminal; what it does not
//! fill (examples, exit codes, terms) fits 80 columns.

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::args::{GROUPS, HELP};

/// Columns of a line that is not filled, beside the indent of seven.
const WIDTH: usize = 73;

/// The page of a command.
pub(super) fn page(command: &Command) -> String {
    let man = Man::new(command.clone().version(env!("CARGO_PKG_VERSION")))
        .source(concat!("extol ", env!("CARGO_PKG_VERSION")))
        .manual("Extol");
    let mut page = Vec::new();
    // (Writing to memory does not fail.)
    let _ = man.render_title(&mut page);
    let _ = man.render_name_section(&mut page);
    let mut rest = Roff::new();
    synopsis(&mut rest, command);
    let _ = rest.to_writer(&mut page);
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

/// How the command is called. (The generator leaves out the values of options.)
fn synopsis(roff: &mut Roff, command: &Command) {
    let mut words = vec![bold(command.get_bin_name().unwrap_or(command.get_name()))];
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional()) {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        let names: Vec<_> = short.into_iter().chain(long).collect();
        words.extend([roman(" ["), bold(names.join("|"))]);
        if arg.get_action().takes_values() {
            let optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
            let (before, after) = match (optional, arg.is_require_equals_set()) {
                (true, true) => ("[=", "]"),
                (true, false) => (" [", "]"),
                (false, true) => ("=", ""),
                (false, false) => (" ", ""),
            };
            words.extend([roman(before), italic(value_name(arg)), roman(after)]);
        }
        words.push(roman("]"));
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let several = matches!(arg.get_action(), ArgAction::Append);
        let name = value_name(arg);
        // (Some names have the dots in them.)
        let dots = if several && !name.contains("...") { "..." } else { "" };
        let (before, after) = if arg.is_required_set() { (" ", "") } else { (" [", "]") };
        words.extend([roman(before), italic(name), roman(dots), roman(after)]);
    }
    if command.has_subcommands() {
        words.extend([roman(" "), italic("COMMAND")]);
    }
    // (Words are not spread over the line.)
    roff.control("SH", ["SYNOPSIS"]).control("ad", ["l"]).text(words).control("ad", ["b"]);
}

fn value_name(arg: &Arg) -> String {
    match arg.get_value_names() {
        Some(names) => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "),
        None => arg.get_id().as_str().to_uppercase(),
    }
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

/// Terms, descriptions that are indented more, and paragraphs that are not indented: all are filled
/// anew.
fn list(roff: &mut Roff, lines: &[&str]) {
    let mut terms = String::new();
    let mut in_paragraph = false;
    for line in lines {
        let text = line.trim();
        if text.is_empty() {
            in_paragraph = false;
        } else if is_description(line) {
            put_terms(roff, &std::mem::take(&mut terms));
            roff.text([roman(text)]);
        } else if line.starts_with(' ') {
            if !terms.is_empty() {
                terms.push(' ');
            }
            terms.push_str(text);
        } else {
            if !in_paragraph {
                roff.control("PP", []);
            }
            in_paragraph = true;
            roff.text([roman(text)]);
        }
    }
}

/// The terms of one description, in lines that fit a terminal: troff breaks none of these.
fn put_terms(roff: &mut Roff, terms: &str) {
    let mut line = String::new();
    let mut macros = ["TP"].into_iter().chain(std::iter::repeat("TQ"));
    let mut put = |line: &str| {
        roff.control(macros.next().unwrap_or("TQ"), []).text([bold(line)]);
    };
    for term in terms.split(' ').filter(|term| !term.is_empty()) {
        if !line.is_empty() && line.len() + 1 + term.len() > WIDTH {
            put(&std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(term);
    }
    if !line.is_empty() {
        put(&line);
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
        "resize" => "extol(1), resize2fs(8)",
        "quota" => "extol(1), extol-tune(1), repquota(8), setquota(8), quotacheck(8)",
        "tune" => "extol(1), tune2fs(8), dumpe2fs(8)",
        "check" => "extol(1), e2fsck(8), fsck(8)",
        "info" | "log" => "extol(1), dumpe2fs(8), debugfs(8)",
        _ => "extol(1)",
    };
    roff.control("SH", ["SEE ALSO"]).text([roman(others)]);
}
