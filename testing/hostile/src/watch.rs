//! Watches panics of any thread, memory, time.

use std::sync::Once;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Remembers panics of all threads (background threads of a volume must not die silently).
pub fn hear_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let old = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let name = std::thread::current().name().unwrap_or("?").to_owned();
            if name == "case" || name.starts_with("extol-") {
                let mut text = format!("thread {name}: {info}");
                if std::env::var_os("RUST_BACKTRACE").is_some() {
                    text.push_str(&format!("\n{}", std::backtrace::Backtrace::force_capture()));
                }
                PANICS.lock().push(text);
            } else {
                old(info);
            }
        }));
    });
}

/// Panics since the last call.
pub fn panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock())
}

/// How it ended.
#[derive(Debug)]
pub enum Ended<T> {
    /// With a value, after this time.
    Value(T, Duration),
    /// With a panic.
    Panicked,
    /// Not yet.
    TooLong,
}

/// Runs something on a thread of its own, for so long at most.
pub fn within<T: Send + 'static>(
    limit: Duration,
    f: impl FnOnce() -> T + Send + 'static,
) -> Ended<T> {
    hear_panics();
    let (tx, rx) = mpsc::channel();
    let began = Instant::now();
    let thread = std::thread::Builder::new().name("case".into()).spawn(move || {
        let _ = tx.send(f());
    });
    let Ok(thread) = thread else { return Ended::TooLong };
    match rx.recv_timeout(limit) {
        Ok(value) => {
            let _ = thread.join();
            Ended::Value(value, began.elapsed())
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let _ = thread.join();
            Ended::Panicked
        }
        Err(mpsc::RecvTimeoutError::Timeout) => Ended::TooLong,
    }
}

/// Starts counting the most memory in use from now.
pub fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Memory in use, bytes.
pub fn memory() -> u64 {
    status("VmRSS")
}

/// The most since [`reset_peak`].
pub fn peak() -> u64 {
    status("VmHWM")
}
