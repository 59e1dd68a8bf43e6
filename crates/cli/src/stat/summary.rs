//! The summary: one screen.

use std::fmt::Write as _;

use extol::Stats;
use extol_cli_common::{counted, without_os_error};
use extol_vfs::plain;

use super::text::{distribution_rows, free_percent, lazy_init, time};
use super::{Shown, fit};

/// Columns of a line, but for the first, which may not leave out why the volume is read-only.
pub const WIDTH: usize = 80;
/// What is between the items of a line.
const ITEMS: &str = ", ";

/// Whether the volume may be written, and why not.
pub fn state_line(dir: &str, stats: &Stats) -> String {
    let dir = plain(dir);
    match (&stats.read_only_reason, stats.frozen) {
        (Some(why), _) => format!("{dir}: read-only: {}", plain(&without_os_error(why.clone()))),
        (None, true) => format!("{dir}: frozen: changes wait for extol thaw"),
        (None, false) => format!("{dir}: read-write"),
    }
}

/// What to do about it, if the reason does not say it: an error, or a shutdown on purpose.
pub fn advice(dir: &str, stats: &Stats) -> Option<String> {
    let dir = plain(dir);
    if stats.needs_new_mount {
        // (The reason says what to do.)
        return None;
    }
    if stats.stopped {
        return Some(format!("when the cause is gone: extol remount -o rw {dir}"));
    }
    let is_shut_down = stats.read_only && stats.journal.aborted.is_some();
    is_shut_down.then(|| format!("to go on: extol umount {dir}, and mount again"))
}

/// In lines of at most `width` columns.
pub fn render(shown: &Shown, width: Option<usize>) -> String {
    let Shown { dir, stats, transport, sandbox } = shown;
    let mut rows = vec![state_line(dir, stats)];
    rows.extend(advice(dir, stats));
    let line = |name: &str, value: &str, between: &str| {
        fit(&format!("{name:<16} "), &plain(value), between, width)
    };
    rows.push(line("space", &space(stats), ITEMS));
    rows.push(line("options", &stats.mount_options, ","));
    let mut row = |name: &str, value: String| rows.push(line(name, &value, ITEMS));
    row("requests", format!("{} over {transport}", counted(stats.operations, "operation")));
    // Only what is missing: the rest is long.
    if sandbox.contains("NO ") || sandbox == "off" {
        row("sandbox", sandbox.clone());
    }
    let j = &stats.journal;
    row("commits", commits(stats));
    if j.log_blocks > 0 {
        let waits = format!("{} ({})", counted(j.space_waits, "wait"), time(j.space_wait_ns));
        let behind = counted(j.checkpoint_blocks, "block");
        row("log", format!("{}% free, {behind} not in place, {waits}", free_percent(stats)));
    }
    row("fast commits", short_fast_commits(stats));
    if let Some(reasons) = reasons(stats) {
        row("  in full", reasons);
    }
    row("data", data(stats));
    row("inode tables", lazy_init(&stats.lazy_init));
    if stats.errors_seen > 0 {
        row("errors", format!("{} met: see extol check", counted(stats.errors_seen, "error")));
    }
    let mut text = rows.join("\n");
    text.push('\n');
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n{:<20} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "count", "p50", "p99", "p99.9", "max"
    );
    for (name, d, show) in distribution_rows(stats).into_iter().filter(|row| is_main(row.0)) {
        let [p50, p99, p999, max] = [d.p50, d.p99, d.p999, d.max].map(show);
        let _ = writeln!(text, "{name:<20} {:>9} {p50:>9} {p99:>9} {p999:>9} {max:>9}", d.count);
    }
    text
}

/// The rows of the table of times that the summary has: not the phases of a commit.
fn is_main(name: &str) -> bool {
    !name.starts_with(' ')
}

/// Fast commits in what a line has room for.
fn short_fast_commits(stats: &Stats) -> String {
    let f = &stats.journal.fast_commit;
    if !f.enabled && f.commits == 0 {
        return "off".to_owned();
    }
    let state = if f.enabled { "on" } else { "off" };
    let requests = counted(f.requests, "request");
    let average = time(f.average_ns);
    format!(
        "{state}, {} for {requests} ({average} each), {} in full",
        f.commits,
        f.ineligible + f.failed
    )
}

fn space(s: &Stats) -> String {
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(s.block_size));
    format!(
        "{} free of {}, {} free of {}",
        size(bytes(s.free_blocks)),
        size(bytes(s.blocks)),
        s.free_inodes,
        counted(s.inodes, "inode")
    )
}

fn commits(s: &Stats) -> String {
    let j = &s.journal;
    format!(
        "{} ({} asked for), {} each, {}",
        counted(j.transactions, "transaction"),
        j.requested,
        time(j.average_commit_ns),
        counted(j.flushes, "flush")
    )
}

/// The reasons of full commits, the most frequent ones first.
fn reasons(s: &Stats) -> Option<String> {
    let mut reasons: Vec<_> =
        s.journal.fast_commit.reasons.iter().filter(|(_, count)| *count > 0).collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words: Vec<_> = reasons.iter().map(|(name, count)| format!("{name} {count}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn data(s: &Stats) -> String {
    format!(
        "{} not written yet in {}, {} cached",
        size(s.dirty_bytes as u64),
        counted(s.inodes_dirty as u64, "inode"),
        size(s.data_cache.bytes as u64)
    )
}

/// Bytes in binary units.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 10.0);
    format!("{value:.digits$} {}", units.get(unit).unwrap_or(&"EiB"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extol_block::{MemDevice, SharedDevice};

    use super::*;

    fn shown(options: &str) -> Shown {
        let device = MemDevice::new(16 << 20);
        extol::mkfs::mkfs(&device, &extol::mkfs::MkfsOptions::default(), &mut |_| {}).unwrap();
        let device: SharedDevice = Arc::new(device);
        let options = extol::MountOptions::parse(options).unwrap();
        Shown {
            dir: "/mnt/data".into(),
            stats: extol::Ext4::open(device, &options).unwrap().stats(),
            transport: "io_uring",
            sandbox: "capabilities sys_nice, no groups, no_new_privs, seccomp, Landlock 7".into(),
        }
    }

    /// One screen, with every line that there can be and numbers of any size.
    #[test]
    fn the_summary_fits_a_screen() {
        let mut shown = shown("commit=9,noatime,async_checkpoint=30,checkpoint=merge,errors=panic");
        let stats = &mut shown.stats;
        stats.operations = u64::MAX;
        stats.errors_seen = u64::MAX;
        stats.read_only = true;
        stats.stopped = true;
        stats.read_only_reason = Some("writing file data failed: No space left on device".into());
        stats.journal.transactions = u64::MAX;
        stats.journal.checkpoint_blocks = u64::MAX;
        stats.journal.log_blocks = 1000;
        for (_, count) in &mut stats.journal.fast_commit.reasons {
            *count = u64::MAX;
        }
        stats.journal.fast_commit.enabled = true;
        let text = render(&shown, Some(WIDTH));
        assert!(text.lines().count() <= 23, "{} lines:\n{text}", text.lines().count());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("/mnt/data: read-only: writing file data failed: No space left on device")
        );
        assert_eq!(
            lines.next(),
            Some("when the cause is gone: extol remount -o rw /mnt/data"),
            "{text}"
        );
    }

    /// A cut number would be another number; a program that reads a line needs all of it.
    #[test]
    fn no_number_is_cut() {
        let mut shown = shown("commit=9,noatime,async_checkpoint=30,checkpoint=merge,errors=panic");
        let j = &mut shown.stats.journal;
        (j.transactions, j.requested, j.average_commit_ns) = (187_012, 187_034, 243_800);
        j.flushes = 18_701_234;
        for (_, count) in &mut j.fast_commit.reasons {
            *count = 123_456_789;
        }
        let whole = render(&shown, None);
        let commits = "commits          187012 transactions (187034 asked for), 243.8us each, ";
        assert!(whole.contains(&format!("{commits}18701234 flushes\n")), "{whole}");
        assert!(!whole.contains('…'), "{whole}");
        assert!(whole.lines().any(|line| line.chars().count() > WIDTH), "{whole}");
        let screen = render(&shown, Some(WIDTH));
        assert!(screen.contains(&format!("{commits}…\n")), "{screen}");
        for (line, all) in screen.lines().zip(whole.lines()) {
            let shown = line.strip_suffix('…').unwrap_or(line);
            assert!(all.starts_with(shown), "{line}");
            assert!(line == all || shown.ends_with([',', ' ']), "{line}");
        }
    }

    #[test]
    fn the_first_line_says_the_state() {
        let mut shown = shown("");
        assert!(
            render(&shown, Some(WIDTH)).starts_with("/mnt/data: read-write\nspace "),
            "{}",
            render(&shown, Some(WIDTH))
        );
        shown.stats.frozen = true;
        assert!(render(&shown, Some(WIDTH)).starts_with("/mnt/data: frozen: "));
        shown.stats.read_only_reason = Some("mounted read-only".into());
        shown.stats.read_only = true;
        assert!(
            render(&shown, Some(WIDTH))
                .starts_with("/mnt/data: read-only: mounted read-only\nspace ")
        );
        // Nor is a volume that another program has written to; what to do is in the reason.
        shown.stats.stopped = true;
        let text = render(&shown, Some(WIDTH));
        assert!(text.contains("extol remount -o rw"), "{text}");
        shown.stats.needs_new_mount = true;
        let text = render(&shown, Some(WIDTH));
        assert!(!text.contains("remount"), "{text}");
        (shown.stats.stopped, shown.stats.needs_new_mount) = (false, false);
        // A shutdown on purpose is not mended by a remount.
        shown.stats.read_only_reason = Some("the volume was shut down".into());
        shown.stats.journal.aborted = Some("the volume was shut down".into());
        let text =
            "/mnt/data: read-only: the volume was shut down\nto go on: extol umount /mnt/data, ";
        assert!(render(&shown, Some(WIDTH)).starts_with(text), "{}", render(&shown, Some(WIDTH)));
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 20, "10 MiB"),
            ((1 << 30) - 1, "1024 MiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
