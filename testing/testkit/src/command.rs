//! Running other programs: output captured, a deadline on everything, and errors that show the
//! whole command.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; `None` if a signal ended it or the deadline passed.
    pub code: Option<i32>,
    /// Standard output and standard error, one after the other.
    pub output: String,
    /// Standard error alone.
    pub stderr: String,
}

impl Finished {
    /// True if the exit code is 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

/// A command for a system tool; also looks in the `sbin` directories, which a user's `PATH` may
/// lack.
#[must_use]
pub fn tool(name: &str) -> Command {
    Command::new(find_tool(name).unwrap_or_else(|| name.into()))
}

/// Where a tool lies, if it is installed.
#[must_use]
pub fn find_tool(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
        .map(|dir| Path::new(dir).join(name))
        .find(|p| p.is_file())
}

/// Runs a command to its end, killing it after `limit`.
///
/// # Panics
/// If the program cannot be started.
#[must_use]
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    let line = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {line}: {e}"));
    let collect = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A broken pipe only means that the output ends here.
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = collect(Box::new(child.stdout.take().expect("stdout is piped")));
    let err = collect(Box::new(child.stderr.take().expect("stderr is piped")));
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    let code = loop {
        if let Some(status) = child.try_wait().expect("wait for a child") {
            break status.code();
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(4));
    };
    let timed_out = code.is_none() && start.elapsed() > limit;
    let stderr = err.join().expect("stderr reader");
    let mut output = out.join().expect("stdout reader");
    output.push_str(&stderr);
    if timed_out {
        output.push_str(&format!("\n[killed after {limit:?}]"));
    }
    Finished { command: line, code, output, stderr }
}

/// Runs a command that must succeed within two minutes; gives its output.
///
/// # Panics
/// If it fails.
pub fn run_ok(command: &mut Command) -> String {
    let done = run(command, Duration::from_secs(120));
    assert!(done.success(), "{} ended with {:?}:\n{}", done.command, done.code, done.output);
    done.output
}
