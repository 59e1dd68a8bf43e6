//! `extol top`: what a mount does, on one screen.
//!
//! ```text
//!   MountedVolume::stats ─► view.rs  numbers, rates ─► draw.rs  a frame (a pure function)
//!                              ▲
//!   the terminal ─► keys.rs ───╯  keys; the end of the terminal
//! ```
//!
//! The terminal is restored at every end: by a key, a signal, an error, a panic. It may end first
//! (a window that is closed, a connection that breaks): then so does this.

mod draw;
mod keys;
mod view;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use extol_cli_common::{Failure, Result, print};
use extol_proc::Shown as _;
use ratatui::backend::TestBackend;
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT};

use crate::args::TopArgs;
use crate::interrupt;
use crate::mounted::MountedVolume;
use keys::{Input, Key};
use view::View;

/// Size of the frame that `--once` prints.
const ONCE: (u16, u16) = (100, 32);
/// Interval at which keys and signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the dashboard.
pub fn run(args: &TopArgs) -> Result<()> {
    let mounted = MountedVolume::of(&args.dir, "top")?;
    let mut view = View::new(&mounted.root.shown().to_string(), args.interval);
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
    interrupt::catch()?;
    // From here on a panic restores the terminal before its message.
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::about("the terminal", error))?;
    let outcome = interact(&mut terminal, &mounted, &mut view);
    let _ = ratatui::try_restore();
    if terminal.show_cursor().is_err() {
        // A terminal that is gone needs no restoring, and takes no message that it failed.
        std::mem::forget(terminal);
    }
    outcome
}

fn interact(
    terminal: &mut DefaultTerminal,
    mounted: &MountedVolume,
    view: &mut View,
) -> Result<()> {
    let mut sampled = Instant::now();
    let mut shown_size = None;
    let mut changed = true;
    loop {
        // The end is told without a line: there is no other one.
        interrupt::check().map_err(|failure| Failure::silent(failure.code))?;
        if !view.paused() && sampled.elapsed() >= view.period() {
            sampled = Instant::now();
            let stats = mounted.stats().map_err(|_| {
                Failure::new(format_args!("the mount on {} is gone", mounted.root.shown()))
            })?;
            view.feed(sampled, stats);
            changed = true;
        }
        let size = terminal.size().ok();
        if changed || size != shown_size {
            if terminal.draw(|frame| draw::draw(frame, view)).is_err() {
                return Err(hung_up());
            }
            changed = false;
            shown_size = size;
        }
        let Input::Keys(keys) = keys::wait(POLL_INTERVAL) else { return Err(hung_up()) };
        for key in keys {
            changed = true;
            match key {
                Key::Quit => return Ok(()),
                Key::Interrupt => {
                    return Err(Failure::silent(Failure::interrupted(SIGINT).code));
                }
                Key::Pause => view.pause(),
                Key::Faster => view.faster(),
                Key::Slower => view.slower(),
            }
        }
    }
}

/// The terminal is gone: the end is that of SIGHUP, which the kernel sends to most processes of a
/// terminal then. A line would reach nothing.
fn hung_up() -> Failure {
    Failure::silent(Failure::interrupted(SIGHUP).code)
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
