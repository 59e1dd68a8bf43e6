//! `extol tune`: tune2fs's options, turned into the library's request.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use extol::mkfs::volume_uuid;
use extol::options::ErrorPolicy;
use extol_cli_common::{Failure, Result, json_text, print, warn};
use extol_proc::{Mount, MountTable, Shown as _};
use extol_vfs::{NumberError, bytes_text, number};
use nix::unistd::{Group, User};
use serde::Serialize;

use crate::args::TuneArgs;
use crate::files::when;
use crate::inspect;
use crate::options::Opening;
use crate::volume::{self, Request, ReservedBlocks, Source, TuneError};
use crate::{interrupt, maintenance, options};

/// Changes properties of a volume.
pub fn run(args: &TuneArgs) -> Result<()> {
    args.refused.check()?;
    let mut request = request(args)?;
    for line in request.cut() {
        warn(format_args!("warning: {line}"));
    }
    let Opening { volume: options, part } = options::opening(&args.opening)?;
    let source = Source { path: &args.source, part };
    if args.list && request.is_empty() {
        return list(args, source, options.access.superblock);
    }
    if request.is_empty() {
        return Err(Failure::usage("nothing to change: give options, as -L LABEL (or -l to list)"));
    }
    if args.source.is_dir() {
        let text = request.to_text();
        let text = text.map_err(|error| Failure::about(args.source.shown(), error))?;
        let changes = maintenance::tune(&args.source, &text)?;
        let changes = changes.iter().filter_map(|line| changed(line)).collect();
        show(args, changes, &[])?;
        return if args.list { list(args, source, None) } else { Ok(()) };
    }
    if options.access.read_only {
        return Err(Failure::usage("ro and norecovery cannot be used with tune"));
    }
    if request.clear_mmp && !args.force {
        return Err(Failure::usage(
            "clear_mmp needs -f: if another host has the volume, both destroy it",
        ));
    }
    interrupt::catch()?;
    let checks = !args.force && request.may_spread_damage();
    let tuned = volume::tune(source, &options, checks, &request)?;
    show(args, tuned.changes.iter().map(Changed::from).collect(), &tuned.notes)?;
    if args.list {
        inspect::show_header(source, None)?;
    }
    Ok(())
}

/// Shows the superblock of a volume, or of the one that is mounted on a directory.
fn list(args: &TuneArgs, source: Source<'_>, place: Option<u64>) -> Result<()> {
    if !args.source.is_dir() {
        return inspect::show_header(source, place);
    }
    let name = args.source.shown();
    let failed = |error| Failure::about(name, error);
    let dir = args.source.canonicalize().map_err(failed)?;
    let mounts = MountTable::own().map_err(failed)?;
    let is_ext = |mount: &Mount| matches!(mount.kind.as_bytes(), b"ext2" | b"ext3" | b"ext4");
    match mounts.holding(&dir).filter(|mount| mount.is_extol() || is_ext(mount)) {
        Some(mount) => inspect::show_header(Path::new(&mount.source).into(), place),
        None => Err(Failure::about(name, "no ext4 volume is mounted there: name it")),
    }
}

/// A property that has changed.
#[derive(Debug, Serialize)]
struct Changed {
    property: String,
    before: String,
    after: String,
}

impl From<&extol::tune::Change> for Changed {
    fn from(change: &extol::tune::Change) -> Self {
        let (before, after) = (change.before.clone(), change.after.clone());
        Self { property: change.property.to_owned(), before, after }
    }
}

/// What a daemon says of a property.
fn changed(line: &str) -> Option<Changed> {
    let mut parts = line.split('\t').map(str::to_owned);
    Some(Changed { property: parts.next()?, before: parts.next()?, after: parts.next()? })
}

impl Changed {
    fn text(&self) -> String {
        let what = self.property.replace('_', " ");
        if self.property == "features" || self.property == "default_mount_options" {
            let (before, after): (Vec<_>, Vec<_>) =
                (self.before.split(' ').collect(), self.after.split(' ').collect());
            let on = after.iter().filter(|word| !before.contains(word)).map(|w| format!(" {w}"));
            let off = before.iter().filter(|word| !after.contains(word)).map(|w| format!(" ^{w}"));
            let words: String = on.chain(off).filter(|word| word.len() > 2).collect();
            return format!("{what}:{words}");
        }
        format!("{what}: {} -> {}", self.shown(&self.before), self.shown(&self.after))
    }
}

impl Changed {
    /// A value in words. (In JSON a time is the number of its seconds.)
    fn shown(&self, value: &str) -> String {
        let seconds = || value.parse::<u64>().ok();
        let words = match &*self.property {
            "last_check" => seconds().map(inspect::time),
            "check_interval" => seconds().and_then(|s| u32::try_from(s).ok()).map(interval),
            _ => None,
        };
        words.unwrap_or_else(|| if value.is_empty() { "none" } else { value }.to_owned())
    }
}

/// A time between two checks, as -i takes it.
fn interval(seconds: u32) -> String {
    let units = [("w", 604_800), ("d", 86_400)];
    let unit = units.into_iter().find(|(_, len)| seconds.is_multiple_of(*len));
    match (seconds, unit) {
        (0, _) => "none".to_owned(),
        (_, Some((unit, len))) => format!("{}{unit}", seconds / len),
        _ => format!("{seconds} s"),
    }
}

/// What was changed, as JSON.
#[derive(Debug, Serialize)]
pub struct Document<'t> {
    source: String,
    changes: Vec<Changed>,
    notes: &'t [String],
}

/// A document, for the test of its schema.
#[cfg(test)]
pub fn example() -> Document<'static> {
    let changes = vec![changed("label\t\tdata").expect("a line of a daemon")];
    Document { source: "a.img".into(), changes, notes: &[] }
}

fn show(args: &TuneArgs, changes: Vec<Changed>, notes: &[String]) -> Result<()> {
    let name = args.source.shown();
    if args.json {
        return print(json_text(&Document {
            source: bytes_text(args.source.as_os_str().as_bytes()),
            changes,
            notes,
        })?);
    }
    for note in notes {
        warn(format_args!("note: {note}"));
    }
    if args.quiet {
        return Ok(());
    }
    if changes.is_empty() {
        return print(format!("{name}: nothing to do, it is so already\n"));
    }
    print(changes.iter().map(|change| format!("{name}: {}\n", change.text())).collect::<String>())
}

fn request(args: &TuneArgs) -> Result<Request> {
    let bad = |error: TuneError| Failure::usage(error);
    let bytes = |text: &Option<std::ffi::OsString>| text.as_ref().map(|t| t.as_bytes().to_vec());
    let mut request = Request::default();
    request.label = bytes(&args.label);
    request.last_mounted = bytes(&args.last_mounted);
    if let Some(word) = &args.uuid {
        request.uuid = Some(volume_uuid(Some(word), now()).map_err(Failure::usage)?);
    }
    let percent = args.reserved_percent.map(ReservedBlocks::Percent);
    request.reserved = percent.or(args.reserved_blocks.map(ReservedBlocks::Count));
    request.reserved_uid = args.reserved_user.as_deref().map(user).transpose()?;
    request.reserved_gid = args.reserved_group.as_deref().map(group).transpose()?;
    request.errors = args.errors.as_deref().map(errors).transpose()?;
    request.most_mounts = args.most_mounts;
    request.mounts = args.mounts;
    if let Some(text) = &args.interval {
        request.set_interval(text).map_err(bad)?;
    }
    request.last_check = args.last_check.as_deref().map(time).transpose()?;
    for list in &args.default_options {
        request.set_default_options(list).map_err(bad)?;
    }
    for list in &args.features {
        request.set_features(list).map_err(bad)?;
    }
    for list in &args.quotas {
        request.set_quotas(list).map_err(bad)?;
    }
    for list in &args.extended {
        request.set_extended(list).map_err(bad)?;
    }
    if args.add_journal {
        request.set_features("has_journal").map_err(bad)?;
    }
    for list in &args.journal {
        request.set_journal(list).map_err(bad)?;
    }
    Ok(request)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn errors(word: &str) -> Result<ErrorPolicy> {
    match word {
        "continue" => Ok(ErrorPolicy::Continue),
        "remount-ro" => Ok(ErrorPolicy::RemountRo),
        "panic" => Ok(ErrorPolicy::Panic),
        _ => Err(Failure::usage(format_args!(
            "bad error behaviour '{word}': it must be continue, remount-ro or panic"
        ))),
    }
}

/// A number, or a name of this machine.
fn id(text: &str, what: &str, named: impl FnOnce(&str) -> Option<u32>) -> Result<u16> {
    let bounds = 0..=u16::MAX;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = number::count(text, bounds);
        return number.map_err(|e: NumberError| Failure::usage(format_args!("bad {what}: {e}")));
    }
    let Some(id) = named(text) else {
        return Err(Failure::usage(format_args!("there is no {what} '{text}': give a number")));
    };
    u16::try_from(id).map_err(|_| {
        Failure::usage(format_args!("{what} '{text}' is {id}: the superblock holds up to 65535"))
    })
}

fn user(text: &str) -> Result<u16> {
    id(text, "user", |name| Some(User::from_name(name).ok()??.uid.as_raw()))
}

fn group(text: &str) -> Result<u16> {
    id(text, "group", |name| Some(Group::from_name(name).ok()??.gid.as_raw()))
}

/// The time of a check.
fn time(text: &str) -> Result<u64> {
    let bad = || {
        Failure::usage(format_args!(
            "bad time '{text}': it must be now, @SECONDS or YYYYMMDD[HH[MM[SS]]], 1970 or later"
        ))
    };
    if text == "now" {
        return Ok(now().as_secs());
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let stamp = match (text.starts_with('@'), digits, text.len()) {
        (true, ..) => when::date(text),
        (_, true, 8 | 10 | 12 | 14) => {
            let padded = format!("{text:0<14}");
            let (minutes, seconds) = padded.split_at(12);
            when::stamp(&format!("{minutes}.{seconds}"), 0)
        }
        _ => return Err(bad()),
    };
    // The superblock has 40 bits for it.
    let sec = stamp.ok().and_then(|stamp| u64::try_from(stamp.sec).ok());
    sec.filter(|sec| *sec < 1 << 40).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};
    use std::ffi::OsString;

    #[test]
    fn times_are_told_in_words() {
        for (line, words) in [
            ("check_interval\t0\t604800", "check interval: none -> 1w"),
            ("check_interval\t86400\t3600", "check interval: 1d -> 3600 s"),
            ("last_check\t0\t1706659200", "last check: n/a -> Wed Jan 31 00:00:00 2024"),
            ("label\t\t604800", "label: none -> 604800"),
        ] {
            assert_eq!(changed(line).unwrap().text(), words);
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let line = format!("extol tune -L averyveryverylonglabel -M /{} img", "a".repeat(99));
        let mut request = parsed(&line).unwrap();
        let told = request.cut();
        assert!(told[0].contains("16 bytes and was cut to 'averyveryverylon'"), "{told:?}");
        assert_eq!(told.len(), 2);
        assert_eq!(request.label.as_deref(), Some(&b"averyveryverylon"[..]));
        assert_eq!(request.last_mounted.as_ref().map(Vec::len), Some(64));
        assert!(request.cut().is_empty());
    }

    fn parsed(line: &str) -> Result<Request> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&words)? {
            Command::Tune(args) => args.refused.check().and_then(|()| request(&args)),
            other => panic!("{other:?}"),
        }
    }

    /// All that tune2fs(8) has: what is not taken is refused by its name.
    #[test]
    fn every_option_of_tune2fs_has_an_answer() {
        for option in [
            "-c 20",
            "-C 3",
            "-e panic",
            "-E force_fsck",
            "-f",
            "-g 5",
            "-i 2w",
            "-j",
            "-J size=4",
            "-l",
            "-L x",
            "-m 1",
            "-M /d",
            "-o acl",
            "-O extent",
            "-r 9",
            "-T now",
            "-u 5",
            "-U random",
            "-J fast_commit_size=256",
            "-J location=9",
            "-J device=/dev/sdb",
            "-f -E clear_mmp",
            "-E mmp_update_interval=5",
            "-E stride=4",
            "-E stripe_width=8",
            "-E stripe-width=8",
            "-E hash_alg=tea",
            "-E hash-alg=tea",
            "-E encoding=utf8",
            "-E encoding_flags=strict",
            "-E mount_opts=acl",
            "-E orphan_file_size=32",
            "-E test_fs",
            "-E ^test_fs",
        ] {
            let parsed = parsed(&format!("extol tune {option} img"));
            assert!(parsed.is_ok(), "{option}: {parsed:?}");
        }
        let refused = parsed("extol tune -z undo img").unwrap_err().line;
        assert!(refused.contains("-z") && refused.contains("not supported"), "{refused}");
    }

    #[test]
    fn options_are_those_of_tune2fs() {
        let request = parsed(
            "extol tune -L a -m 1.5 -u root -g 7 -e panic -c -1 -C 3 -i 2w -T 20240131 -M /x \
             -o acl,^discard -O ^orphan_file -E stride=4 -f img",
        )
        .unwrap();
        assert_eq!(request.label.as_deref(), Some(&b"a"[..]));
        assert_eq!(request.reserved, Some(ReservedBlocks::Percent(1.5)));
        assert_eq!((request.reserved_uid, request.reserved_gid), (Some(0), Some(7)));
        assert_eq!((request.most_mounts, request.mounts), (Some(-1), Some(3)));
        assert_eq!(request.check_interval, Some(1_209_600));
        assert_eq!(request.last_check, Some(1_706_659_200));
        assert_eq!(request.stride, Some(4));
        assert_eq!(parsed("extol tune -T @5 img").unwrap().last_check, Some(5));
        assert_eq!(parsed("extol tune -T 19700102000001 img").unwrap().last_check, Some(86401));
        assert_eq!(parsed("extol tune -r 5 -U clear img").unwrap().uuid, Some([0; 16]));
        let journal = parsed("extol tune -J size=4 -J location=9 img").unwrap().journal.unwrap();
        assert_eq!((journal.size_mib, journal.location), (Some(4), "9".parse().ok()));
        assert_eq!(
            parsed("extol tune -j img").unwrap(),
            parsed("extol tune -O has_journal img").unwrap()
        );
        for _ in 0..99 {
            let most = parsed("extol tune -c random img").unwrap().most_mounts.unwrap();
            assert!((20..=40).contains(&most), "{most}");
        }
        for (options, words) in [
            ("-U frob", "'frob'"),
            ("-m 51", "larger than 50"),
            ("-r 5 -m 1", "cannot be used with"),
            ("-u no-such-user", "'no-such-user'"),
            ("-g 70000", "larger than 65535"),
            ("-e frob", "'frob'"),
            ("-c -2", "-2"),
            ("-C 70000", "larger than 65535"),
            ("-i 5y", "\"5y\""),
            ("-T 2024", "'2024'"),
            ("-T @-1", "'@-1'"),
            ("-o acls", "did you mean \"acl\""),
            ("-O fast_comit", "did you mean \"fast_commit\""),
            ("-E frob", "'frob'"),
            ("-J siz=4", "did you mean \"size=\""),
            ("-Q usrquoat", "did you mean \"usrquota\""),
            ("-I 256", "-I"),
            ("-z undo", "-z"),
        ] {
            let failure = parsed(&format!("extol tune {options} img")).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{options}");
            assert!(failure.line.contains(words), "{options}: {}", failure.line);
            assert!(!failure.line.contains('\n'), "{options}: {}", failure.line);
        }
    }
}
