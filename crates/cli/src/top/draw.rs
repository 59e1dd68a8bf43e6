//! A frame from a [`View`]: nothing here reads the mount, the clock or the terminal.

use extol::Stats;
use extol_task::Distribution;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph, Sparkline};

use super::view::View;
use crate::stat::{free_percent, time};

/// Draws the dashboard.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let Some(stats) = view.stats() else { return };
    let [head, gauges, curves, tables, foot] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(3),
        Constraint::Length(6),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, head, view, stats);
    let [log, lazy] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(1)]).areas(gauges);
    log_gauge(frame, log, stats);
    lazy_gauge(frame, lazy, stats);
    sparklines(frame, curves, view);
    let [left, right] =
        Layout::horizontal([Constraint::Length(56), Constraint::Min(20)]).areas(tables);
    frame.render_widget(
        Paragraph::new(latencies(view, stats)).block(Block::bordered().title("latency")),
        left,
    );
    frame.render_widget(
        Paragraph::new(mechanisms(view, stats)).block(Block::bordered().title("pipeline")),
        right,
    );
    frame.render_widget(Paragraph::new(footer(view)).style(Style::new().fg(Color::DarkGray)), foot);
}

fn header(frame: &mut Frame<'_>, area: Rect, view: &View, stats: &Stats) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rates = view.rates();
    let state = match (&stats.journal.aborted, stats.read_only) {
        (Some(why), _) => Span::styled(format!("  aborted: {why}"), Style::new().fg(Color::Red)),
        (None, true) => Span::styled("  read-only", Style::new().fg(Color::Yellow)),
        (None, false) => Span::raw(""),
    };
    let first = Line::from(vec![
        Span::styled(format!("extol  {}", view.dir()), bold),
        Span::raw(format!(
            "  {:.0} operations/s  {:.1} commits/s  {:.1} fast/s  {:.1} fsync/s  {:.1} flushes/s",
            rates.operations, rates.commits, rates.fast_commits, rates.syncs, rates.flushes
        )),
        state,
    ]);
    let lines = vec![
        first,
        Line::from(stats.mount_options.clone()),
        Line::from(stats.checkpoint_merge.line()),
    ];
    frame.render_widget(Paragraph::new(lines), area);
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
    let label = format!(
        "{used}% used of {} blocks, {} not yet in place",
        j.log_blocks, j.checkpoint_blocks
    );
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
    let left = l.estimated_end_s.map_or(String::new(), |s| format!(", {s} s left"));
    let label = format!("{} {}/{}{left}", l.state, l.groups_done, l.groups_total);
    frame.render_widget(gauge(title, percent, label, Color::Blue), area);
}

fn sparklines(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let parts: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).areas(area);
    let rates = view.rates();
    let titles = [
        format!("commits/s {:.1}", rates.commits),
        format!("fsync/s {:.1}", rates.syncs),
        format!("blocks home/s {:.0}", rates.home_blocks),
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
            "{name:<14}{:>9} {:>9} {:>9} {:>9}",
            time(d.p50),
            time(d.p99),
            time(d.p999),
            time(d.max)
        ))
    };
    vec![
        Line::from(format!("{:<14}{:>9} {:>9} {:>9} {:>9}", "", "p50", "p99", "p99.9", "max")),
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

fn mechanisms(view: &View, stats: &Stats) -> Vec<Line<'static>> {
    let j = &stats.journal;
    let d = &j.distributions;
    let a = &j.async_checkpoint;
    let threshold =
        a.threshold.map_or("off".to_owned(), |t| format!("under {}% free", t.percent()));
    vec![
        Line::from(format!(
            "group size   {:.1} now, p50 {}, max {}",
            view.rates().batch,
            d.batch_size.p50,
            d.batch_size.max
        )),
        Line::from(format!(
            "batch waits  {} ({}), {} syncers",
            j.batching.waits,
            time(j.batching.wait_ns),
            j.batching.syncers
        )),
        Line::from(format!("fast commits {}", fast_commits(stats))),
        Line::from(format!("async ckpt   {threshold}")),
        Line::from(format!("  wrote      {} batches, {} blocks", a.batches, a.blocks)),
        Line::from(format!(
            "space waits  {} ({}), {:.1}/s",
            j.space_waits,
            time(j.space_wait_ns),
            view.rates().space_waits
        )),
        Line::from(format!(
            "dirty data   {} KiB in {} files",
            stats.dirty_bytes / 1024,
            stats.inodes_dirty
        )),
    ]
}

/// Short: the pane is narrow.
fn fast_commits(stats: &Stats) -> String {
    let f = &stats.journal.fast_commit;
    if !f.enabled && f.commits == 0 {
        return "off".to_owned();
    }
    let full = f.ineligible + f.failed;
    format!("{} in {} blocks, {full} in full, {}", f.commits, f.blocks, time(f.average_ns))
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
            "CP merge (Queued:",
            "batch waits",
            "q quit",
            "every 1.00s",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        view.pause();
        assert!(rows(&view, 100, 30).join("\n").contains("PAUSED"));
    }

    #[test]
    fn any_size_of_terminal_will_do() {
        let mut view = View::new("/mnt", 1.0);
        assert!(rows(&view, 20, 5).concat().trim().is_empty(), "nothing known yet");
        view.feed(Instant::now(), stats());
        for (width, height) in [(1, 1), (20, 5), (300, 100), (80, 24)] {
            assert_eq!(rows(&view, width, height).len(), usize::from(height));
        }
    }
}
