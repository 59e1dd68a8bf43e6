//! A frame from a [`View`]: nothing here reads the mount, the clock or the terminal.

use extol::Stats;
use extol_task::Distribution;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Sparkline};

use super::view::View;
use crate::stat::{Rates, fit, free_percent, state_line, time};

/// Draws the dashboard. At 24 lines and 80 columns nothing of the log and of the latencies is cut
/// off; a smaller screen shows the upper part.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let Some(stats) = view.stats() else { return };
    let latencies = latencies(view, stats);
    let table = u16::try_from(latencies.len()).unwrap_or(u16::MAX) + BORDERS;
    let others = HEAD + GAUGES + table + FOOT;
    let spare = frame.area().height.saturating_sub(others).clamp(3, 6);
    let mut left = frame.area();
    let [head, gauges, curves] = [HEAD, GAUGES, spare].map(|lines| take(&mut left, lines));
    let tables = left.height.saturating_sub(FOOT);
    let [tables, foot] = [tables, FOOT].map(|lines| take(&mut left, lines));
    header(frame, head, view, stats);
    let [log, lazy] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(1)]).areas(gauges);
    log_gauge(frame, log, stats);
    lazy_gauge(frame, lazy, stats);
    sparklines(frame, curves, view);
    let [left, right] =
        Layout::horizontal([Constraint::Length(LATENCIES), Constraint::Min(20)]).areas(tables);
    frame.render_widget(Paragraph::new(latencies).block(Block::bordered().title("latency")), left);
    frame.render_widget(
        Paragraph::new(mechanisms(view, stats, right.width.saturating_sub(BORDERS)))
            .block(Block::bordered().title("pipeline")),
        right,
    );
    frame.render_widget(Paragraph::new(footer(view)).style(Style::new().fg(Color::DarkGray)), foot);
}

/// Takes so many lines from the top, or those that there are.
fn take(area: &mut Rect, lines: u16) -> Rect {
    let taken = Rect { height: lines.min(area.height), ..*area };
    area.y += taken.height;
    area.height -= taken.height;
    taken
}

/// Lines of the head, the gauges and the foot.
const HEAD: u16 = 3;
const GAUGES: u16 = 3;
const FOOT: u16 = 1;
const BORDERS: u16 = 2;
/// Columns of the table of latencies.
const LATENCIES: u16 = 13 + 4 * 8 + BORDERS;

fn header(frame: &mut Frame<'_>, area: Rect, view: &View, stats: &Stats) {
    let rates = view.rates();
    let color = match (stats.stopped, stats.read_only || stats.frozen) {
        (true, _) => Color::Red,
        (false, true) => Color::Yellow,
        (false, false) => Color::Reset,
    };
    let bold = Style::new().add_modifier(Modifier::BOLD).fg(color);
    let lines = vec![
        Line::styled(both_ends(&state_line(view.dir(), stats), area.width.into()), bold),
        Line::from(fit("", &per_second(rates), BETWEEN, Some(area.width.into()))),
        Line::from(fit("", &stats.mount_options, ",", Some(area.width.into()))),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

/// What is between rates in a line.
const BETWEEN: &str = "  ";

/// Six digits of each have room in 80 columns.
fn per_second(rates: &Rates) -> String {
    let parts = [
        (rates.operations, "ops/s"),
        (rates.commits, "commits/s"),
        (rates.fast_commits, "fast/s"),
        (rates.syncs, "fsync/s"),
        (rates.flushes, "flushes/s"),
    ];
    let parts = parts.map(|(rate, unit)| format!("{} {unit}", short_rate(rate)));
    parts.join(BETWEEN)
}

/// A rate: with a tenth where that is more than noise.
fn short_rate(rate: f64) -> String {
    let digits = usize::from(rate < 100.0);
    format!("{rate:.digits$}")
}

/// In fewer columns an end says nothing.
const SHORT: usize = 40;

/// A line without its middle where there is no room for all of it: the mount is named at the
/// beginning, and the cause of an error at the end.
fn both_ends(line: &str, width: usize) -> String {
    let len = line.chars().count();
    if len <= width || width < SHORT {
        return line.to_owned();
    }
    let tail = (width / 2).min(SHORT);
    let head = width.saturating_sub(tail + 3);
    let (head, tail): (String, String) =
        (line.chars().take(head).collect(), line.chars().skip(len - tail).collect());
    // At words: half a number would be another one.
    let head = head.rsplit_once(' ').map_or(&*head, |(words, _)| words);
    let tail = tail.split_once(' ').map_or(&*tail, |(_, words)| words);
    format!("{head} … {tail}")
}

fn gauge<'a>(title: &'a str, percent: u64, label: String, color: Color) -> Gauge<'a> {
    Gauge::default()
        .block(Block::bordered().title(title))
        .gauge_style(Style::new().fg(color))
        .percent(u16::try_from(percent.min(100)).unwrap_or(100))
        .label(label)
}

fn log_gauge(frame: &mut Frame<'_>, area: Rect, stats: &Stats) {
    let j = &stats.journal;
    if j.log_blocks == 0 {
        frame.render_widget(Paragraph::new("no log").block(Block::bordered().title("log")), area);
        return;
    }
    let used = 100 - free_percent(stats).min(100);
    let color = match used {
        0..60 => Color::Green,
        60..85 => Color::Yellow,
        _ => Color::Red,
    };
    let label =
        format!("{used}% used of {} blocks, {} not in place", j.log_blocks, j.checkpoint_blocks);
    frame.render_widget(gauge("log", used, label, color), area);
}

fn lazy_gauge(frame: &mut Frame<'_>, area: Rect, stats: &Stats) {
    let l = &stats.lazy_init;
    let title = "inode tables";
    if l.groups_total == 0 {
        frame.render_widget(
            Paragraph::new(l.state.clone()).block(Block::bordered().title(title)),
            area,
        );
        return;
    }
    let percent = l.groups_done * 100 / l.groups_total;
    let (done, total) = (l.groups_done, l.groups_total);
    let label = match l.estimated_end_s {
        Some(left) => format!("{done}/{total}, {left} s left"),
        None => format!("{} {done}/{total}", l.state),
    };
    frame.render_widget(gauge(title, percent, label, Color::Blue), area);
}

fn sparklines(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let parts: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).areas(area);
    let rates = view.rates();
    let titles = [
        format!("commits/s {}", short_rate(rates.commits)),
        format!("fsync/s {}", short_rate(rates.syncs)),
        format!("blocks home/s {}", short_rate(rates.home_blocks)),
    ];
    let curves = view.curves(usize::from(area.width) / 3);
    for ((part, title), curve) in parts.into_iter().zip(titles).zip(curves) {
        let line = Sparkline::default()
            .block(Block::bordered().title(title))
            .style(Style::new().fg(Color::Cyan))
            .data(curve);
        frame.render_widget(line, part);
    }
}

fn latencies(view: &View, stats: &Stats) -> Vec<Line<'static>> {
    let d = &stats.journal.distributions;
    let row = |name: &str, d: &Distribution| {
        Line::from(format!(
            "{name:<13}{:>8}{:>8}{:>8}{:>8}",
            time(d.p50),
            time(d.p99),
            time(d.p999),
            time(d.max)
        ))
    };
    vec![
        Line::from(format!("{:<13}{:>8}{:>8}{:>8}{:>8}", "", "p50", "p99", "p99.9", "max")),
        row("fsync, now", view.recent_syncs()),
        row("fsync", &d.sync_wait_ns),
        row("commit", &d.commit_ns),
        row("  locked", &d.locked_ns),
        row("  flushing", &d.flushing_ns),
        row("  logging", &d.logging_ns),
        row("checkpoint", &d.checkpoint_ns),
        row("handle start", &d.handle_start_ns),
        row("space wait", &d.space_wait_ns),
    ]
}

/// Short: the pane is narrow, `width` columns inside.
fn mechanisms(view: &View, stats: &Stats, width: u16) -> Vec<Line<'static>> {
    let j = &stats.journal;
    let d = &j.distributions;
    let a = &j.async_checkpoint;
    let f = &j.fast_commit;
    let m = &stats.checkpoint_merge;
    let threshold =
        a.threshold.map_or("off".to_owned(), |t| format!("under {}% free", t.percent()));
    let fast = match f.enabled || f.commits > 0 {
        true => format!("{}, {} in full", f.commits, f.ineligible + f.failed),
        false => "off".to_owned(),
    };
    let group = view.rates().batch;
    let rows = [
        ("group size", format!("{group:.1}, p50 {}, max {}", d.batch_size.p50, d.batch_size.max)),
        ("batch waits", format!("{} ({})", j.batching.waits, time(j.batching.wait_ns))),
        ("syncers", j.batching.syncers.to_string()),
        ("fast", fast),
        ("  average", format!("{}, {} blocks", time(f.average_ns), f.blocks)),
        ("async ckpt", threshold),
        ("  wrote", format!("{} batches, {} blocks", a.batches, a.blocks)),
        ("merged", format!("{} for {}, {} queued", m.issued, m.total, m.queued)),
        ("space waits", format!("{} ({})", j.space_waits, time(j.space_wait_ns))),
        ("dirty", format!("{} KiB, {} files", stats.dirty_bytes / 1024, stats.inodes_dirty)),
    ];
    let line = |(name, value): (&str, String)| {
        Line::from(fit(&format!("{name:<12}"), &value, ", ", Some(width.into())))
    };
    rows.into_iter().map(line).collect()
}

fn footer(view: &View) -> String {
    let paused = if view.paused() { "PAUSED  " } else { "" };
    format!(
        "{paused}every {}  q quit  p pause  + faster  - slower",
        time(view.period().as_nanos() as u64)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use extol_block::{MemDevice, SharedDevice};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn stats() -> Stats {
        let device = MemDevice::new(16 << 20);
        extol::mkfs::mkfs(&device, &extol::mkfs::MkfsOptions::default(), &mut |_| {}).unwrap();
        let device: SharedDevice = Arc::new(device);
        extol::Ext4::open(device, &extol::MountOptions::parse("commit=9").unwrap()).unwrap().stats()
    }

    fn rows(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let cells = terminal.backend().buffer().content();
        cells.chunks(width.into()).map(|row| row.iter().map(|c| c.symbol()).collect()).collect()
    }

    #[test]
    fn everything_is_on_the_screen() {
        let mut now = stats();
        let start = Instant::now();
        let mut view = View::new("/mnt/data", 1.0);
        view.feed(start, now.clone());
        now.journal.transactions += 30;
        now.journal.log_blocks = 1000;
        now.journal.log_free = 250;
        now.lazy_init.state = "waiting".into();
        now.lazy_init.groups_total = 10;
        now.lazy_init.groups_done = 4;
        view.feed(start + Duration::from_secs(2), now);
        let text = rows(&view, 100, 30).join("\n");
        for part in [
            "/mnt/data",
            "15.0 commits/s",
            "rw,relatime,commit=9",
            "75% used of 1000 blocks",
            "waiting 4/10",
            "p99.9",
            "space waits",
            "merged",
            "batch waits",
            "q quit",
            "every 1.00s",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        view.pause();
        assert!(rows(&view, 100, 30).join("\n").contains("PAUSED"));
    }

    /// At 80 columns and 24 lines the log and the latencies are whole, with numbers of any length.
    #[test]
    fn a_small_terminal_cuts_nothing_that_matters() {
        let mut now = stats();
        now.journal.log_blocks = 10_240_000;
        now.journal.log_free = 0;
        now.journal.checkpoint_blocks = 10_240_000;
        now.lazy_init.state = "running".into();
        (now.lazy_init.groups_total, now.lazy_init.groups_done) = (12_345, 2345);
        now.lazy_init.estimated_end_s = Some(1234);
        let d = &mut now.journal.distributions;
        for row in [&mut d.sync_wait_ns, &mut d.space_wait_ns] {
            (row.p50, row.p99, row.p999, row.max) =
                (999_940_000, 59_990_000_000, 123_400_000_000, 1_234_500_000_000);
        }
        let mut view = View::new("/mnt", 1.0);
        view.feed(Instant::now(), now);
        let rows = rows(&view, 80, 24);
        let text = rows.join("\n");
        for whole in [
            "100% used of 10240000 blocks, 10240000 not in place",
            "2345/12345, 1234 s left",
            "p50     p99   p99.9     max│",
            "fsync         999.9ms   60.0s  123.4s 1234.5s│",
            "space wait    999.9ms   60.0s  123.4s 1234.5s│",
            "handle start ",
            "every 1.00s  q quit",
        ] {
            assert!(text.contains(whole), "{whole} is missing:\n{text}");
        }
        assert!(rows[22].starts_with('└') && rows[22].trim_end().ends_with('┘'), "{text}");
    }

    /// Under load: rates, and what the mechanisms did, are whole or not there.
    #[test]
    fn no_rate_is_cut() {
        let start = Instant::now();
        let at = |rate: u64| {
            let mut now = stats();
            let mut view = View::new("/mnt", 1.0);
            view.feed(start, now.clone());
            now.operations += rate;
            let j = &mut now.journal;
            j.transactions += rate;
            j.fast_commit.enabled = true;
            j.fast_commit.commits += rate;
            j.fast_commit.average_ns = 243_800;
            j.fast_commit.blocks += rate;
            j.distributions.sync_wait_ns.count += rate;
            j.flushes += rate;
            j.async_checkpoint.batches += rate;
            j.async_checkpoint.blocks += rate;
            view.feed(start + Duration::from_secs(1), now);
            rows(&view, 80, 24)
        };
        let all =
            |n: &str| format!("{n} ops/s  {n} commits/s  {n} fast/s  {n} fsync/s  {n} flushes/s");
        for (rate, want) in [
            (7, all("7.0")),
            (3615, all("3615")),
            (999_999, all("999999")),
            (
                12_345_678_901,
                "12345678901 ops/s  12345678901 commits/s  12345678901 fast/s  …".to_owned(),
            ),
        ] {
            let rows = at(rate);
            assert_eq!(rows[1].trim_end(), want);
            let text = rows.join("\n");
            assert!(text.contains(&format!("  wrote     {rate} batches")), "{text}");
            let blocks = format!("243.8us, {rate} blocks");
            assert!(text.contains(&blocks) || text.contains("243.8us, … "), "{text}");
        }
        let text = at(12_345_678).join("\n");
        assert!(text.contains("  wrote     12345678 batches, …│"), "{text}");
    }

    /// The first line says that the volume is read-only, and why.
    #[test]
    fn the_first_line_says_the_state() {
        let mut now = stats();
        now.read_only = true;
        now.stopped = true;
        now.read_only_reason = Some("No space left on device".into());
        let mut view = View::new("/mnt", 1.0);
        view.feed(Instant::now(), now);
        let rows = rows(&view, 80, 24);
        assert!(rows[0].starts_with("/mnt: read-only: No space left on device"), "{}", rows[0]);
        let mut now = view.stats().unwrap().clone();
        now.read_only_reason = Some(
            "writing file data failed: write of 784384 bytes at 243824: No space left on device"
                .into(),
        );
        view.feed(Instant::now(), now);
        let rows = super::tests::rows(&view, 80, 24);
        assert!(rows[0].starts_with("/mnt: read-only: writing"), "{}", rows[0]);
        assert!(rows[0].trim_end().ends_with("No space left on device"), "{}", rows[0]);
        for word in rows[0].split_whitespace().filter(|word| *word != "…") {
            let cause = view.stats().unwrap().read_only_reason.as_deref().unwrap();
            assert!(format!("/mnt: read-only: {cause}").split(' ').any(|w| w == word), "{word}");
        }
        for width in SHORT..200 {
            assert!(both_ends(&"é12 ".repeat(30), width).chars().count() <= width);
        }
        assert_eq!(both_ends(&"x".repeat(100), SHORT).chars().count(), SHORT);
    }

    #[test]
    fn any_size_of_terminal_will_do() {
        let mut view = View::new("/mnt", 1.0);
        assert!(rows(&view, 20, 5).concat().trim().is_empty(), "nothing known yet");
        view.feed(Instant::now(), stats());
        for (width, height) in [(1, 1), (1, 60), (200, 1), (20, 5), (40, 10), (200, 60), (80, 24)] {
            let rows = rows(&view, width, height);
            assert_eq!(rows.len(), usize::from(height));
            assert!(rows[0].starts_with('/'), "{width}x{height}: {}", rows[0]);
        }
    }
}
