//! Progress bars, if standard error is a terminal.

use std::borrow::Cow;
use std::io::IsTerminal as _;
use std::time::Duration;

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressStyle};

/// Counts bytes of an unknown number.
pub fn bytes(what: &'static str) -> ProgressBar {
    bar(None, what, "{msg} {spinner} {bytes} {bytes_per_sec}")
}

/// Counts steps of a known number.
pub fn steps(total: u64, what: String) -> ProgressBar {
    bar(Some(total), what, "{msg} {bar:30} {percent}%")
}

fn bar(total: Option<u64>, what: impl Into<Cow<'static, str>>, style: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(total, target).with_message(what);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
