//! `extol edit`: a script of commands in one transaction.
//!
//! ```text
//!   read ─ words ─ parse and check each line ─ open ─ begin the batch ─ line by line ─ commit
//!          └ a mistake: nothing was opened            └ a failure, a signal, no room:
//!                                                       given up, opened again, closed
//! ```
//!
//! The batch is the library's (`extol::Batch`). After one that was given up the volume is marked as
//! in use with an empty log; opening it again and closing it takes the mark off.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;

use extol_cli_common::{Failure, Result, print, warn};
use extol_proc::Shown as _;
use extol_vfs::bytes_text;

use super::Tree;
use super::change::{Change, recover};
use super::put::STDIN;
use crate::args::{EditArgs, Step, VolumeArgs};
use crate::interrupt;
use crate::options::Opening;
use crate::text_file;
use crate::volume::{self, Source};

/// Carries a script out.
pub fn edit(args: &EditArgs) -> Result<()> {
    let script = read(args)?;
    let steps = parse(&script, args)?;
    interrupt::catch()?;
    let tree = open(&args.volume)?;
    tree.kept.replace(Some(Vec::new()));
    match carry_out(&tree, &steps, args) {
        // It is committed, so an interrupt from here on undoes nothing, and is none.
        Ok(()) => {
            volume::close(&tree.volume).map_err(|error| Failure::about(tree.source.shown(), error))
        }
        Err(failure) => {
            give_up(tree, &args.volume);
            Err(failure)
        }
    }
}

fn read(args: &EditArgs) -> Result<Vec<u8>> {
    match &args.file {
        Some(path) => text_file::read(path),
        None => text_file::read_from(&mut io::stdin().lock(), "standard input"),
    }
}

/// The commands, each with the number of its line.
fn parse(script: &[u8], args: &EditArgs) -> Result<Vec<(usize, Step)>> {
    let source = args.volume.source.as_os_str();
    let mut steps = Vec::new();
    for (number, line) in lines(script) {
        let at = |why: &str| Failure::usage(format_args!("line {number}: {why}"));
        let mut words = words(line).map_err(&at)?;
        let Some(name) = words.first() else { continue };
        let name = bytes_text(name.as_encoded_bytes());
        if !Step::NAMES.split([' ', ',']).any(|known| known == name && known != "or") {
            let why = format!("a script has no command {name:?}: use {}", Step::NAMES);
            return Err(at(&why));
        }
        if words.iter().take_while(|word| *word != "--").any(|word| word == "--help") {
            return Err(at(&format!("a line has no --help: see extol {name} --help")));
        }
        words.insert(0, "extol".into());
        words.insert(2, source.to_owned());
        let step = Step::parse(&words).map_err(|failure| match failure.line.is_empty() {
            true => at("a command without its arguments"),
            false => at(&failure.line),
        })?;
        let VolumeArgs { options, keys, .. } = step.change().volume();
        if !options.is_empty() || !keys.is_empty() {
            return Err(at("-o and --key are given to extol edit, not to a line"));
        }
        if let Step::Put(put) = &step
            && put.paths.iter().rev().skip(1).any(|path| path == STDIN)
        {
            return Err(at("a script has no standard input for put: name a file (./- is one)"));
        }
        step.change().check().map_err(|failure| at(&failure.line))?;
        steps.push((number, step));
    }
    Ok(steps)
}

impl Step {
    fn change(&self) -> &dyn Change {
        match self {
            Self::Put(args) => args,
            Self::Rm(args) => args,
            Self::Mkdir(args) => args,
            Self::Mv(args) => args,
            Self::Ln(args) => args,
            Self::Chmod(args) => args,
            Self::Chown(args) => args,
            Self::Touch(args) => args,
            Self::Truncate(args) => args,
            Self::Mknod(args) => args,
            Self::Setxattr(args) => args,
        }
    }
}

/// Opens the volume. Inode tables are not zeroed meanwhile: that would take room of the batch.
fn open(args: &VolumeArgs) -> Result<Tree> {
    let Opening { volume: mut options, part } = super::opening(args)?;
    if options.access.read_only {
        return Err(Failure::usage(
            "-o ro and -o norecovery cannot be used with a command that changes the volume",
        ));
    }
    options.background.init_itable = None;
    options.access.unmarked_when_full = true;
    Tree::open_with(Source { path: &args.source, part }, options, true)
}

fn carry_out(tree: &Tree, steps: &[(usize, Step)], args: &EditArgs) -> Result<()> {
    let about = |error: &dyn std::fmt::Display| Failure::about(tree.source.shown(), error);
    let batch = tree.volume.begin_batch().map_err(|error| match error {
        extol_vfs::FsError::NoJournal => about(
            &"the volume has no journal, so a script cannot be done all or none: use the commands \
              one by one",
        ),
        error => about(&error),
    })?;
    let most = batch.most();
    let too_much = |number: usize| {
        Failure::new(format_args!(
            "line {number}: the script changes more than {most} blocks of metadata, which is what \
             fits into the journal and the cache: divide it. Nothing was changed"
        ))
    };
    for (number, step) in steps {
        step.change().apply(tree)?;
        interrupt::check()?;
        if batch.is_full() {
            return Err(too_much(*number));
        }
        let reported = tree.kept.replace(Some(Vec::new())).unwrap_or_default();
        if let Some(last) = reported.len().checked_sub(1) {
            for line in &reported[..last] {
                warn(format_args!("line {number}: {line}"));
            }
            let line = &reported[last];
            return Err(Failure::new(format_args!("line {number}: {line}. Nothing was changed")));
        }
    }
    let changed = batch.changed();
    batch.commit().map_err(|error| match (error, steps.last()) {
        (extol_vfs::FsError::ReadOnly, Some((number, _))) => too_much(*number),
        (error, _) => about(&format_args!("{error}. Nothing was changed")),
    })?;
    if args.verbose {
        print(format!("{changed} of at most {most} blocks changed\n"))?;
    }
    Ok(())
}

/// Closes a volume whose batch was given up, and takes the mark off that it is in use. What fails
/// here, the next opening does.
fn give_up(tree: Tree, args: &VolumeArgs) {
    let _ = volume::close(&tree.volume);
    let full = tree.volume.is_stopped_by_full().then(|| tree.volume.data_written());
    drop(tree);
    if let Some(written) = full {
        let _ = recover(args, &written);
    } else if let Ok(again) = open(args) {
        let _ = volume::close(&again.volume);
    }
}

/// The lines of a script with their numbers; one that ends with a backslash has the next in it.
fn lines(script: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = Some(script);
    let mut number = 0;
    std::iter::from_fn(move || {
        let text = rest.filter(|text| !text.is_empty())?;
        let first = number + 1;
        let (mut escaped, mut end) = (false, text.len());
        for (at, byte) in text.iter().enumerate() {
            if *byte == b'\n' {
                number += 1;
                if !escaped {
                    end = at;
                    break;
                }
            }
            escaped = *byte == b'\\' && !escaped;
        }
        rest = text.get(end + 1..);
        Some((first, &text[..end]))
    })
}

const ACTS: &str = "a character that a shell would act on: put it in quotes";

/// The words of a line, as a shell divides it.
fn words(line: &[u8]) -> std::result::Result<Vec<OsString>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = line;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b' ' | b'\t' | b'\r' => words.extend(word.take()),
            b'#' if word.is_none() => break,
            b'\'' => {
                let end = rest.iter().position(|b| *b == b'\'').ok_or("a quote is not closed")?;
                word.get_or_insert_default().extend(&rest[..end]);
                rest = &rest[end + 1..];
            }
            b'"' => rest = double_quoted(rest, word.get_or_insert_default())?,
            b'$' if rest.first() == Some(&b'\'') => {
                rest = dollar_quoted(&rest[1..], word.get_or_insert_default())?;
            }
            b'\\' => match rest {
                [b'\n', tail @ ..] => rest = tail,
                [byte, tail @ ..] => {
                    word.get_or_insert_default().push(*byte);
                    rest = tail;
                }
                [] => {}
            },
            b'~' if word.is_none() => return Err(ACTS),
            b'|' | b'&' | b';' | b'<' | b'>' | b'(' | b')' | b'`' | b'$' | b'*' | b'?' => {
                return Err(ACTS);
            }
            byte => word.get_or_insert_default().push(*byte),
        }
    }
    words.extend(word);
    if words.iter().flatten().any(|byte: &u8| *byte == 0) {
        return Err("a word with a NUL byte");
    }
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

const NOT_CLOSED: &str = "a quote is not closed";

/// In double quotes a backslash is one, but before `"`, `\`, `$`, a backquote and the line's end.
fn double_quoted<'a>(
    mut rest: &'a [u8],
    word: &mut Vec<u8>,
) -> std::result::Result<&'a [u8], &'static str> {
    loop {
        match rest {
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'\n', tail @ ..] => rest = tail,
            [b'\\', byte @ (b'"' | b'\\' | b'$' | b'`'), tail @ ..] | [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
            [] => return Err(NOT_CLOSED),
        }
    }
}

/// In `$'…'`, as messages write names that are no text: `\n`, `\t`, `\r`, `\xHH`, `\NNN`, and any
/// other character behind a backslash as itself.
fn dollar_quoted<'a>(
    mut rest: &'a [u8],
    word: &mut Vec<u8>,
) -> std::result::Result<&'a [u8], &'static str> {
    let digits = |text: &[u8], radix: u32, most: usize| {
        let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
        let len = text.iter().take(most).take_while(is_digit).count();
        let digits = std::str::from_utf8(&text[..len]).unwrap_or_default();
        u8::from_str_radix(digits, radix).ok().map(|byte| (byte, len))
    };
    loop {
        let (byte, tail) = match rest {
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'n', tail @ ..] => (b'\n', tail),
            [b'\\', b't', tail @ ..] => (b'\t', tail),
            [b'\\', b'r', tail @ ..] => (b'\r', tail),
            [b'\\', b'x', tail @ ..] => {
                let (byte, len) = digits(tail, 16, 2).ok_or("\\x without hexadecimal digits")?;
                (byte, &tail[len..])
            }
            [b'\\', b'0'..=b'7', ..] => {
                let tail = &rest[1..];
                let (byte, len) = digits(tail, 8, 3).ok_or("an octal number larger than \\377")?;
                (byte, &tail[len..])
            }
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => (*byte, tail),
            [] => return Err(NOT_CLOSED),
        };
        word.push(byte);
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn split(line: &str) -> Vec<Vec<u8>> {
        words(line.as_bytes()).unwrap().into_iter().map(OsString::into_vec).collect()
    }

    #[test]
    fn words_as_in_a_shell() {
        for (line, expected) in [
            ("", &[][..]),
            ("  # nothing", &[]),
            ("mv  a\tb # comment", &["mv", "a", "b"]),
            ("mv 'a b' \"c \\\"d\\\" \\e\"", &["mv", "a b", "c \"d\" \\e"]),
            ("ln a\\ b c\\#d e#f", &["ln", "a b", "c#d", "e#f"]),
            ("a'b'\"c\"d ''", &["abcd", ""]),
            ("touch $'a\\n\\tb\\x41\\101\\'\\\\'", &["touch", "a\n\tbAA'\\"]),
            ("a\\\n b", &["a", "b"]),
            ("chmod u=rwX,go=rX /a", &["chmod", "u=rwX,go=rX", "/a"]),
        ] {
            assert_eq!(split(line), expected.iter().map(|w| w.as_bytes()).collect::<Vec<_>>());
        }
        assert_eq!(split("$'\\376'"), [b"\xfe"]);
        for line in [
            "'a",
            "\"a",
            "$'a",
            "rm /*",
            "rm a; rm b",
            "rm $HOME",
            "a\0b",
            "$'\\400'",
            "a `b`",
            "put <x",
            "rm a?b",
            "~/x",
        ] {
            assert!(words(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn lines_have_numbers() {
        let script = b"one\n\ntwo \\\nthree\nfour\\\\\nfive";
        let found: Vec<_> = lines(script)
            .map(|(n, line)| (n, String::from_utf8_lossy(line).into_owned()))
            .collect();
        let expected = [(1, "one"), (2, ""), (3, "two \\\nthree"), (5, "four\\\\"), (6, "five")];
        assert_eq!(found, expected.map(|(n, line)| (n, line.to_owned())));
    }

    /// What messages print can be put into a script, and no input does harm.
    #[test]
    fn any_name_can_be_quoted() {
        use rand::{Rng as _, SeedableRng as _};
        let mut random = rand::rngs::SmallRng::seed_from_u64(1);
        for round in 0..20_000 {
            let len = random.random_range(1..20);
            let pool: &[u8] =
                if round % 2 == 0 { b"'\"\\$ \n#ax0178`;" } else { b"\xfe\x01\xc3\xa9'\\ a" };
            let name: Vec<u8> =
                (0..len).map(|_| pool[random.random_range(0..pool.len())]).collect();
            for (_, line) in lines(&name) {
                let _ = words(line);
            }
            let shown = OsStr::from_bytes(&name).shown().to_string();
            assert_eq!(
                words(shown.as_bytes()).as_deref(),
                Ok(&[OsString::from_vec(name)][..]),
                "{shown}"
            );
        }
    }
}
