//! The text form.

use std::fmt::Write as _;

use extol::{LazyInitStats, Stats};
use extol_cli_common::counted;
use extol_task::Distribution;
use serde_json::Value;

use super::Shown;
use super::summary::{advice, state_line};

/// Everything.
pub fn render(shown: &Shown) -> String {
    let Shown { dir, stats, transport, sandbox } = shown;
    let mut text = state_line(dir, stats) + "\n";
    text.extend(advice(dir, stats).into_iter().chain(["\n".to_owned()]));
    text.push_str(&pipeline_text(stats));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:<20} {transport}", "requests come over");
    let _ = writeln!(text, "{:<20} {sandbox}", "sandbox");
    text.push('\n');
    let value = serde_json::to_value(stats).unwrap_or_default();
    if let Value::Object(fields) = value {
        for (name, value) in fields.iter().filter(|(name, _)| *name != "options") {
            section(&mut text, name, value, 0);
        }
    }
    text
}

/// Without the table of everything.
fn pipeline_text(stats: &Stats) -> String {
    let mut text = stats.journal.jbd2_info();
    text.push('\n');
    let fast = &stats.journal.fast_commit;
    if fast.enabled || fast.commits > 0 {
        text.push_str(&fast.fc_info());
        text.push('\n');
    }
    pipeline(&mut text, stats);
    text
}

/// What fast commits did, in one line.
fn fast_commits(stats: &Stats) -> String {
    let f = &stats.journal.fast_commit;
    if !f.enabled && f.commits == 0 {
        return "off".to_owned();
    }
    let state = if f.enabled { "on" } else { "off" };
    format!(
        "{state}, {} for {} ({} on average), {}; {} committed in full",
        counted(f.commits, "fast commit"),
        counted(f.requests, "request"),
        time(f.average_ns),
        counted(f.blocks, "block"),
        counted(f.ineligible + f.failed, "request")
    )
}

/// The part of the log that is free, in per cent.
pub fn free_percent(stats: &Stats) -> u64 {
    let j = &stats.journal;
    (u64::from(j.log_free) * 100).checked_div(u64::from(j.log_blocks)).unwrap_or(100)
}

/// What the mechanisms do: options, log, batches, waits, phases.
fn pipeline(text: &mut String, stats: &Stats) {
    let j = &stats.journal;
    let mut row = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<20} {value}");
    };
    row("options", stats.mount_options.clone());
    if j.log_blocks > 0 {
        row(
            "log",
            format!(
                "{}% free ({} of {} blocks), {} not yet in place",
                free_percent(stats),
                j.log_free,
                j.log_blocks,
                counted(j.checkpoint_blocks, "block")
            ),
        );
    }
    row(
        "fsync batching",
        format!(
            "{} ({} on average), {}",
            counted(j.batching.waits, "wait"),
            time(j.batching.wait_ns.checked_div(j.batching.waits).unwrap_or(0)),
            counted(j.batching.syncers, "syncer")
        ),
    );
    row("fast commits", fast_commits(stats));
    row(
        "async checkpoint",
        match j.async_checkpoint.threshold {
            None => "off".to_owned(),
            Some(threshold) => {
                let a = &j.async_checkpoint;
                format!(
                    "under {}% free: {}, {}, {}",
                    threshold.percent(),
                    counted(a.runs, "run"),
                    counted(a.batches, "batch"),
                    counted(a.blocks, "block")
                )
            }
        },
    );
    row("lazy init", lazy_init(&stats.lazy_init));
    row("merged requests", stats.checkpoint_merge.line());
    row("space waits", format!("{} ({} in all)", j.space_waits, time(j.space_wait_ns)));
    text.push('\n');
    distributions(text, stats);
}

/// What the lazy initialisation of inode tables does, in one line.
pub(super) fn lazy_init(l: &LazyInitStats) -> String {
    match (l.groups_total, l.estimated_end_s) {
        (0, _) => l.state.clone(),
        (total, Some(left)) => {
            format!("{}, {} of {total} groups zeroed, about {left} s left", l.state, l.groups_done)
        }
        (total, None) => format!("{}, {} of {total} groups zeroed", l.state, l.groups_done),
    }
}

/// A row of the table of durations and sizes: name, values, how one is shown.
pub(super) type Row<'s> = (&'static str, &'s Distribution, fn(u64) -> String);

/// The rows of the table of durations and sizes.
pub(super) fn distribution_rows(stats: &Stats) -> [Row<'_>; 9] {
    let d = &stats.journal.distributions;
    [
        ("durable request", &d.sync_wait_ns, time),
        ("requests per commit", &d.batch_size, |n| n.to_string()),
        ("commit", &d.commit_ns, time),
        ("  locked", &d.locked_ns, time),
        ("  flushing", &d.flushing_ns, time),
        ("  logging", &d.logging_ns, time),
        ("checkpoint", &d.checkpoint_ns, time),
        ("handle start", &d.handle_start_ns, time),
        ("space wait", &d.space_wait_ns, time),
    ]
}

/// The table of durations and sizes.
fn distributions(text: &mut String, stats: &Stats) {
    let _ = writeln!(
        text,
        "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9}  powers of two",
        "", "count", "p50", "p99", "p99.9", "max"
    );
    for (name, distribution, show) in distribution_rows(stats) {
        let _ = writeln!(
            text,
            "{name:<20} {:>9} {:>9} {:>9} {:>9} {:>9}  {}",
            distribution.count,
            show(distribution.p50),
            show(distribution.p99),
            show(distribution.p999),
            show(distribution.max),
            bars(distribution)
        );
    }
}

/// One bar per power of two, from the first to the last one with values; its height is the
/// logarithm of the count.
fn bars(distribution: &Distribution) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some((first, last)) = distribution.buckets.first().zip(distribution.buckets.last()) else {
        return String::new();
    };
    let most = distribution.buckets.iter().map(|(_, n)| *n).max().unwrap_or(1);
    let levels = f64::from(u32::try_from(HEIGHTS.len() - 1).unwrap_or(1));
    let mut power = first.0;
    let mut bars = String::new();
    loop {
        let count = distribution.buckets.iter().find(|(le, _)| *le == power).map_or(0, |(_, n)| *n);
        let height = (count as f64 + 1.0).ln() / (most as f64 + 1.0).ln() * levels;
        bars.push(if count == 0 {
            ' '
        } else {
            HEIGHTS.get(height as usize).copied().unwrap_or('█')
        });
        match power.checked_mul(2) {
            Some(next) if power < last.0 => power = next,
            _ => break,
        }
    }
    format!("{} |{bars}| {}", label(first.0), label(last.0))
}

/// A power of two as a short number.
fn label(n: u64) -> String {
    match n {
        0..1024 => n.to_string(),
        1024..0x10_0000 => format!("{}Ki", n >> 10),
        0x10_0000..0x4000_0000 => format!("{}Mi", n >> 20),
        _ => format!("{}Gi", n >> 30),
    }
}

/// Nanoseconds with a unit.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => short(ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => short(ns as f64 / 1e6, "ms"),
        _ => short(ns as f64 / 1e9, "s"),
    }
}

fn short(value: f64, unit: &str) -> String {
    if value < 10.0 { format!("{value:.2}{unit}") } else { format!("{value:.1}{unit}") }
}

fn section(text: &mut String, name: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let name = name.replace('_', " ");
    let _ = match value {
        Value::Object(fields) => {
            let _ = writeln!(text, "{indent}{name}:");
            // Distributions have their table.
            for (name, value) in fields.iter().filter(|(name, _)| *name != "distributions") {
                section(text, name, value, depth + 1);
            }
            Ok(())
        }
        Value::Null => writeln!(text, "{indent}{name:<26} -"),
        Value::String(plain) => writeln!(text, "{indent}{name:<26} {plain}"),
        other => writeln!(text, "{indent}{name:<26} {other}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_tables() {
        let stats = serde_json::json!({
            "free_blocks": 7, "by_group": {"x": 1}, "state": "clean", "error": null
        });
        let mut text = String::new();
        section(&mut text, "alloc", &stats, 0);
        assert!(text.contains("alloc:\n  by group:\n    x "), "{text}");
        assert!(text.contains("  free blocks                7\n"), "{text}");
        assert!(text.contains("error                      -\n"), "{text}");
    }

    #[test]
    fn times_are_short() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500, "1.50us"),
            (25_000_000, "25.0ms"),
            (3_000_000_000, "3.00s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn one_bar_per_power_of_two() {
        let histogram = extol_task::Histogram::default();
        assert_eq!(bars(&histogram.distribution()), "");
        for value in [1000, 1000, 1000, 5000] {
            histogram.record(value);
        }
        assert_eq!(bars(&histogram.distribution()), "1Ki |█ ▄| 8Ki".replace(" ▄", "  ▄"));
    }
}
