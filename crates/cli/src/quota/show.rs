//! Quotas as text and as JSON.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use extol::quotas::{Entry, Kind, LIMIT_UNIT, Quota, WrongUsage};
use extol_cli_common::{Result, counted, json_text, print, print_json};
use extol_proc::Shown as _;
use extol_vfs::bytes_text;
use serde::Serialize;

use super::owners;
use crate::args::QuotaArgs;
use crate::files::human;

/// Shows quotas, as the arguments say.
pub(super) fn quotas(args: &QuotaArgs, quotas: &[Quota]) -> Result<()> {
    if args.json {
        return print_json(json_text(&Document::new(&args.source, quotas))?);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let texts: Vec<String> = quotas.iter().map(|quota| table(&args.source, quota, now)).collect();
    print(texts.join("\n"))
}

fn table(source: &Path, quota: &Quota, now: u64) -> String {
    let mut text = format!(
        "{} quotas of {}{}: grace times {} for blocks, {} for inodes\n",
        quota.kind.name(),
        source.shown(),
        quota.file.map(|file| format!(" in {file}, which Extol does not keep")).unwrap_or_default(),
        span(quota.space_grace.into()),
        span(quota.inode_grace.into())
    );
    if quota.entries.is_empty() {
        return text;
    }
    let _ = writeln!(
        text,
        "{:<16}    {:>7} {:>7} {:>7} {:>6}  {:>9} {:>9} {:>9} {:>6}",
        quota.kind.name(),
        "used",
        "soft",
        "hard",
        "grace",
        "inodes",
        "soft",
        "hard",
        "grace"
    );
    for entry in &quota.entries {
        let _ = writeln!(text, "{}", row(quota.kind, entry, now));
    }
    text
}

fn row(kind: Kind, entry: &Entry, now: u64) -> String {
    let name = owners::name(kind, entry.id).unwrap_or_else(|| format!("#{}", entry.id));
    let bytes = |units: u64| units.saturating_mul(LIMIT_UNIT);
    let limit = |limit: u64, show: fn(u64) -> String| match limit {
        0 => "-".to_owned(),
        limit => show(limit),
    };
    let above = |used: u64, soft: u64| soft != 0 && used > soft;
    let blocks_above = above(entry.space, bytes(entry.space_soft));
    let inodes_above = above(entry.inodes, entry.inode_soft);
    let mark = |above: bool| if above { '+' } else { '-' };
    let left = |above: bool, time: u64| match (above, time) {
        (false, _) => String::new(),
        // (It begins with the next change on a mount that enforces limits.)
        (true, 0) => "-".to_owned(),
        (true, time) if time <= now => "none".to_owned(),
        (true, time) => span(time - now),
    };
    let line = format!(
        "{name:<16} {}{} {:>7} {:>7} {:>7} {:>6}  {:>9} {:>9} {:>9} {:>6}",
        mark(blocks_above),
        mark(inodes_above),
        human(entry.space),
        limit(bytes(entry.space_soft), human),
        limit(bytes(entry.space_hard), human),
        left(blocks_above, entry.space_time),
        entry.inodes,
        limit(entry.inode_soft, |n| n.to_string()),
        limit(entry.inode_hard, |n| n.to_string()),
        left(inodes_above, entry.inode_time),
    );
    line.trim_end().to_owned()
}

/// A time in the largest unit of which there are at least two, or that it is a multiple of.
fn span(seconds: u64) -> String {
    let units = [(604_800, "w"), (86_400, "d"), (3600, "h"), (60, "m")];
    let fits = |len: u64| seconds >= 2 * len || (seconds == len && seconds > 0);
    match units.into_iter().find(|(len, _)| fits(*len)) {
        Some((len, unit)) => format!("{}{unit}", seconds / len),
        None => format!("{seconds}s"),
    }
}

/// What is wrong, in lines.
pub(super) fn wrong(source: &Path, wrong: &[WrongUsage], repaired: bool) -> String {
    let mut text = String::new();
    for found in wrong {
        let amount = |(bytes, inodes): (u64, u64)| {
            format!("{} and {}", counted(bytes, "byte"), counted(inodes, "inode"))
        };
        let _ = writeln!(
            text,
            "{} {}: uses {}, the quota inode says {}",
            found.kind.name(),
            owners::name(found.kind, found.id).unwrap_or_else(|| found.id.to_string()),
            amount(found.used),
            amount(found.stated)
        );
    }
    if wrong.is_empty() {
        let _ = writeln!(text, "{}: the usage is right", source.shown());
    } else if repaired {
        let owners = counted(wrong.len() as u64, "owner");
        let _ = writeln!(text, "{}: the usage of {owners} was set right", source.shown());
    }
    text
}

/// Quotas as JSON.
#[derive(Debug, Serialize)]
pub struct Document {
    source: String,
    quotas: Vec<File>,
}

#[derive(Debug, Serialize)]
struct File {
    kind: &'static str,
    block_grace: u32,
    inode_grace: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'static str>,
    owners: Vec<Owner>,
}

#[derive(Debug, Serialize)]
struct Owner {
    id: u32,
    name: Option<String>,
    bytes: u64,
    bytes_soft: u64,
    bytes_hard: u64,
    bytes_grace_ends: Option<u64>,
    inodes: u64,
    inodes_soft: u64,
    inodes_hard: u64,
    inodes_grace_ends: Option<u64>,
}

impl Document {
    fn new(source: &Path, quotas: &[Quota]) -> Self {
        let file = |quota: &Quota| File {
            kind: quota.kind.name(),
            block_grace: quota.space_grace,
            inode_grace: quota.inode_grace,
            file: quota.file,
            owners: quota.entries.iter().map(|entry| Owner::new(quota.kind, entry)).collect(),
        };
        Self {
            source: bytes_text(source.as_os_str().as_bytes()),
            quotas: quotas.iter().map(file).collect(),
        }
    }
}

impl Owner {
    fn new(kind: Kind, entry: &Entry) -> Self {
        let time = |time: u64| (time != 0).then_some(time);
        Self {
            id: entry.id,
            name: owners::name(kind, entry.id),
            bytes: entry.space,
            bytes_soft: entry.space_soft.saturating_mul(LIMIT_UNIT),
            bytes_hard: entry.space_hard.saturating_mul(LIMIT_UNIT),
            bytes_grace_ends: time(entry.space_time),
            inodes: entry.inodes,
            inodes_soft: entry.inode_soft,
            inodes_hard: entry.inode_hard,
            inodes_grace_ends: time(entry.inode_time),
        }
    }
}

/// What a check has found, as JSON.
#[derive(Debug, Serialize)]
pub struct Checked {
    source: String,
    wrong: Vec<Wrong>,
    repaired: bool,
}

#[derive(Debug, Serialize)]
struct Wrong {
    kind: &'static str,
    id: u32,
    name: Option<String>,
    bytes: u64,
    inodes: u64,
    stated_bytes: u64,
    stated_inodes: u64,
}

impl Checked {
    pub(super) fn new(source: &Path, wrong: &[WrongUsage], repaired: bool) -> Self {
        let wrong = wrong.iter().map(|found| Wrong {
            kind: found.kind.name(),
            id: found.id,
            name: owners::name(found.kind, found.id),
            bytes: found.used.0,
            inodes: found.used.1,
            stated_bytes: found.stated.0,
            stated_inodes: found.stated.1,
        });
        Self { source: bytes_text(source.as_os_str().as_bytes()), wrong: wrong.collect(), repaired }
    }
}

/// Documents, for the test of their schemas.
#[cfg(test)]
pub fn examples() -> ([Document; 2], [Checked; 2]) {
    let source = Path::new("a.img");
    let entry = Entry { space: 5000, space_soft: 1, space_time: 9, ..Entry::new(0) };
    let quota = |entries: Vec<Entry>| {
        let file = entries.is_empty().then_some("aquota.user");
        Quota { kind: Kind::User, space_grace: 1, inode_grace: 2, entries, file }
    };
    let documents = [vec![], vec![entry, Entry::new(4_000_000_000)]];
    let wrong = WrongUsage { kind: Kind::Project, id: 9, stated: (1, 2), used: (3, 4) };
    (
        documents.map(|entries| Document::new(source, &[quota(entries)])),
        [Checked::new(source, &[], false), Checked::new(source, &[wrong], true)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_is_exceeded_and_for_how_long() {
        let entry = Entry {
            space: 20 << 10,
            space_soft: 10,
            space_hard: 2048,
            space_time: 1000 + 3 * 86_400 + 5,
            inodes: 3,
            inode_soft: 2,
            inode_time: 1000,
            ..Entry::new(0)
        };
        let words = row(Kind::User, &entry, 1000);
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(words, ["root", "++", "20K", "10K", "2.0M", "3d", "3", "2", "-", "none"]);
        let row = row(Kind::User, &Entry::new(4_000_000_000), 1000);
        assert!(row.starts_with("#4000000000      --       0       -"), "{row}");
        assert!(!row.ends_with(' '));
    }

    #[test]
    fn times_have_the_unit_that_says_most() {
        let spans = [0, 59, 60, 119, 120, 3600, 86_400, 604_800, 700_000];
        let shown = ["0s", "59s", "1m", "119s", "2m", "1h", "1d", "1w", "8d"];
        assert_eq!(spans.map(span), shown);
    }
}
