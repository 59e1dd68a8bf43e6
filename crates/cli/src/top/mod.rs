//! `extol top`: what a mount does, on one screen.
//!
//! ```text
//!   MountedVolume::stats ─► view.rs  numbers, rates ─► draw.rs  a frame (a pure function)
//! ```
//!
//! The terminal is restored at every end: by a key, a signal, an error, a panic.

mod draw;
mod view;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extol_cli_common::{Failure, Result, print};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::TopArgs;
use crate::mounted::MountedVolume;
use view::View;

/// Size of the frame that `--once` prints.
const ONCE: (u16, u16) = (100, 32);
/// Interval at which keys and signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the dashboard.
pub fn run(args: &TopArgs) -> Result<()> {
    let mounted = MountedVolume::of(&args.dir)?;
    let mut view = View::new(&mounted.root.display().to_string(), args.interval);
    view.feed(Instant::now(), mounted.stats()?);
    if args.once {
        // Rates need two samples.
        let period = view.period();
        std::thread::sleep(period);
        view.feed(Instant::now(), mounted.stats()?);
        return print(frame_text(&view)?);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "extol top needs a terminal; use extol top --once for one frame, or extol stat --watch",
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::system(format_args!("cannot wait for signals: {error}")))?;
    }
    // From here on a panic restores the terminal before its message.
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::about("the terminal", error))?;
    let outcome = interact(&mut terminal, &mounted, &mut view, &stop);
    ratatui::restore();
    outcome
}

fn interact(
    terminal: &mut DefaultTerminal,
    mounted: &MountedVolume,
    view: &mut View,
    stop: &AtomicBool,
) -> Result<()> {
    let fail = |error: std::io::Error| Failure::about("the terminal", error);
    let mut sampled = Instant::now();
    let mut changed = true;
    while !stop.load(Ordering::Relaxed) {
        if !view.paused() && sampled.elapsed() >= view.period() {
            sampled = Instant::now();
            let stats = mounted.stats().map_err(|_| {
                Failure::new(format_args!("the mount on {} is gone", mounted.root.display()))
            })?;
            view.feed(sampled, stats);
            changed = true;
        }
        if changed {
            terminal.draw(|frame| draw::draw(frame, view)).map_err(fail)?;
            changed = false;
        }
        if event::poll(POLL_INTERVAL).map_err(fail)? {
            changed = true;
            if let Event::Key(key) = event::read().map_err(fail)?
                && key.kind != KeyEventKind::Release
            {
                match key.code {
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(());
                    }
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('p' | ' ') => view.pause(),
                    KeyCode::Char('+') => view.faster(),
                    KeyCode::Char('-') => view.slower(),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// One frame as text.
fn frame_text(view: &View) -> Result<String> {
    let fail = |error| Failure { line: format!("drawing: {error}"), code: Failure::INTERNAL };
    let mut terminal = Terminal::new(TestBackend::new(ONCE.0, ONCE.1)).map_err(fail)?;
    terminal.draw(|frame| draw::draw(frame, view)).map_err(fail)?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(ONCE.0)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text.trim_end().to_owned() + "\n")
}
