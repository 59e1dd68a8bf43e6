//! What a page of the guide has: its commands, and what they print.
//!
//! Commands stand in blocks without a language, behind `$ ` or `# ` (of root); lines that follow
//! `\` belong to them. The lines below are what the command prints; a command with none below it
//! may print anything. Other blocks are no commands.
//!
//! The same in a page and in what was printed are: the directory, which pages call `/srv`; UUIDs;
//! dates and times; lengths of time. `…` stands for any text within a line, and for any lines if
//! it is alone.
//!
//! A page needs a mark where it is not the whole story. Marks are comments of their own on the
//! lines before a block, and readers do not see them:
//!
//! - `<!-- run: COMMAND -->` is run before the block: what the reader has already.
//! - `<!-- exit: CODE -->` is the exit code of the block's last command, instead of 0.
//! - `<!-- varies -->`: what the block's commands print is not compared.
//! - `<!-- skip: REASON -->`: the block is not run.

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Where it stands.
    pub(crate) line: usize,
    pub(crate) command: String,
    /// What it prints, if that is compared.
    pub(crate) shown: Option<Vec<String>>,
    pub(crate) code: i32,
}

/// Marks before a block.
#[derive(Default)]
struct Marks {
    exit: i32,
    varies: bool,
    skip: bool,
}

/// The commands of a page, in order.
pub(crate) fn steps(page: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut marks = Marks::default();
    let mut lines = page.lines().enumerate().map(|(nr, line)| (nr + 1, line));
    while let Some((nr, line)) = lines.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let mut block = Vec::new();
            loop {
                match lines.next() {
                    None => return Err(format!("line {nr}: the block has no end")),
                    Some((_, line)) if line.trim_start().starts_with("```") => break,
                    Some(line) => block.push(line),
                }
            }
            if language.is_empty() && !marks.skip {
                read(&block, &marks, &mut steps);
            }
            marks = Marks::default();
        } else if let Some(mark) = line.strip_prefix("<!-- ").and_then(|l| l.strip_suffix(" -->")) {
            match mark.split_once(": ").unwrap_or((mark, "")) {
                ("run", command) => steps.push(Step::new(nr, command, 0)),
                ("exit", code) => {
                    marks.exit = code.parse().map_err(|_| format!("line {nr}: {mark}"))?
                }
                ("varies", _) => marks.varies = true,
                ("skip", reason) if !reason.is_empty() => marks.skip = true,
                _ => return Err(format!("line {nr}: no such mark: {mark}")),
            }
        }
    }
    Ok(steps)
}

impl Step {
    fn new(line: usize, command: &str, code: i32) -> Self {
        Self { line, command: command.to_owned(), shown: None, code }
    }
}

/// The commands of one block.
fn read(block: &[(usize, &str)], marks: &Marks, steps: &mut Vec<Step>) {
    let first = steps.len();
    let mut goes_on = false;
    for (nr, line) in block {
        let command = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
        if goes_on {
            let step = steps.last_mut().expect("a command begins before it goes on");
            step.command.push('\n');
            step.command.push_str(line);
            goes_on = line.ends_with('\\');
        } else if let Some(command) = command {
            steps.push(Step::new(*nr, command, 0));
            goes_on = command.ends_with('\\');
        } else if let Some(step) = steps[first..].last_mut() {
            step.shown.get_or_insert_default().push((*line).to_owned());
        }
    }
    for step in &mut steps[first..] {
        if marks.varies {
            step.shown = None;
        }
    }
    if let Some(last) = steps[first..].last_mut() {
        last.code = marks.exit;
    }
}

/// True if what was printed is not what the page shows.
pub(crate) fn differs(shown: &[String], printed: &str) -> bool {
    let plain = |lines: &mut dyn Iterator<Item = &str>| -> Vec<String> {
        let mut lines: Vec<String> = lines.map(|line| plain(line.trim_end())).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    };
    let shown = plain(&mut shown.iter().map(String::as_str));
    let printed = plain(&mut printed.lines());
    !like(&shown, &printed, &|one| one == "…", &|one, other| {
        let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
        like(&one, &other, &|c| *c == '…', &|one, other| one == other)
    })
}

/// True if `all` is as `pattern` says, which has places for anything.
fn like<T>(
    pattern: &[T],
    all: &[T],
    any: &dyn Fn(&T) -> bool,
    same: &dyn Fn(&T, &T) -> bool,
) -> bool {
    match (pattern.split_first(), all.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if any(first) => {
            (0..=all.len()).any(|skipped| like(rest, &all[skipped..], any, same))
        }
        (Some((first, rest)), Some((next, others))) => {
            same(first, next) && like(rest, others, any, same)
        }
        _ => false,
    }
}

/// A line with a mark for each UUID, date, time and length of time.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in line.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() || "-:.µ".contains(c) {
            word.push(c);
        } else {
            out.push_str(kind(&word).unwrap_or(&word));
            word.clear();
            out.push(c);
        }
    }
    out.pop();
    out
}

/// What a word is, if it is one of those that are never the same.
fn kind(word: &str) -> Option<&'static str> {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let parts: Vec<usize> = word.split('-').map(str::len).collect();
    if parts == [8, 4, 4, 4, 12] && word.chars().all(|c| c == '-' || c.is_ascii_hexdigit()) {
        return Some("<uuid>");
    }
    if ["0000-00-00", "00:00", "00:00:00"].contains(&shape.as_str()) {
        return Some("<time>");
    }
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
    let unit = &word[number.len()..];
    let is_number =
        number.parse::<f64>().is_ok() && number.starts_with(|c: char| c.is_ascii_digit());
    (is_number && ["ns", "µs", "us", "ms", "s"].contains(&unit)).then_some("<span>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_what_they_print() {
        let page = "# Title\n\n<!-- run: touch a -->\n<!-- exit: 3 -->\n```\n$ ls\na\n\
            # cp \\\n  a b\n```\n\n```rust\n$ no\n```\n<!-- skip: hardware -->\n```\n$ no\n\
            ```\n<!-- varies -->\n```\n$ date\nx\n```\n";
        let found = steps(page).unwrap();
        let step = |line, command: &str, shown: Option<&str>, code| Step {
            line,
            command: command.to_owned(),
            shown: shown.map(|line| vec![line.to_owned()]),
            code,
        };
        let expected = [
            step(3, "touch a", None, 0),
            step(6, "ls", Some("a"), 0),
            step(8, "cp \\\n  a b", None, 3),
            step(21, "date", None, 0),
        ];
        assert_eq!(found, expected);
        assert!(steps("<!-- skip -->\n```\n```\n").is_err());
        assert!(steps("<!-- sikp: it -->\n").is_err());
    }

    #[test]
    fn what_may_differ() {
        let differs = |shown: &str, printed: &str| {
            differs(&shown.lines().map(str::to_owned).collect::<Vec<_>>(), printed)
        };
        let uuid = ["9d3d5809-6a91-455a-8895-79f9f0ec4780", "00000000-6a91-455a-8895-79f9f0ec4780"];
        assert!(!differs(&format!("UUID: {}", uuid[0]), &format!("UUID: {}\n", uuid[1])));
        assert!(!differs("at 2026-11-26 14:26 x", "at 2025-01-01 00:00 x\n"));
        assert!(!differs("2 for 2 (1.75ms each)", "2 for 2 (900µs each)"));
        assert!(differs("2 for 2 (1.75ms each)", "2 for 3 (1.75ms each)"));
        assert!(!differs("a … d", "a b c d"));
        assert!(differs("a … d", "a b c"));
        assert!(!differs("a\n…\nd", "a\nb\nc\nd\n\n"));
        assert!(!differs("a\n…", "a\n"));
        assert!(differs("a\n…\nd", "a\nb\n"));
        assert!(differs("128 blocks", "129 blocks"));
    }
}
