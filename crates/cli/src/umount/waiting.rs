//! Waits of `extol umount`: bounded by `--timeout`, and never silent for longer than a second.

use std::fmt;
use std::io::Read as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use extol_cli_common::{Failure, Result, warn};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::interrupt;

/// A wait is told when it is so long.
const QUIET: Duration = Duration::from_secs(1);
/// And again so much later, or when its reason is another.
const REPEAT: Duration = Duration::from_secs(10);
/// Between two looks at the reason.
const LOOK: Duration = Duration::from_secs(1);
/// A try at a mount that is in use ends within this time.
const TRY: Duration = Duration::from_millis(700);
/// Most bytes of a child's message.
const MAX_LINE: u64 = 4096;

/// When `--timeout` is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<(Duration, Instant)>);

impl Deadline {
    pub(super) fn after(seconds: Option<f64>) -> Self {
        let limit = seconds.map(Duration::from_secs_f64);
        Self(limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?))))
    }

    pub(super) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_some_and(|(_, end)| Instant::now() >= end)
    }

    /// How long to wait now, at most `most`.
    fn step(&self, most: Duration) -> Duration {
        self.0.map_or(most, |(_, end)| end.saturating_duration_since(Instant::now()).min(most))
    }
}

/// `5 seconds`.
impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("any time"),
            Some((limit, _)) if limit == Duration::from_secs(1) => f.write_str("1 second"),
            Some((limit, _)) => write!(f, "{} seconds", limit.as_secs_f64()),
        }
    }
}

/// A wait, and what was told of it.
pub(super) struct Wait<'d> {
    deadline: &'d Deadline,
    began: Instant,
    told: Option<(String, Instant)>,
}

impl<'d> Wait<'d> {
    pub(super) fn new(deadline: &'d Deadline) -> Self {
        Self { deadline, began: Instant::now(), told: None }
    }

    /// Prints the reason if the wait is long enough by now and the reason is new or long ago.
    pub(super) fn tell(&mut self, reason: impl FnOnce() -> String) {
        if self.began.elapsed() < QUIET {
            return;
        }
        let line = reason();
        let told = self.told.as_ref();
        if told.is_none_or(|(last, at)| *last != line || at.elapsed() >= REPEAT) {
            warn(&line);
            self.told = Some((line, Instant::now()));
        }
    }

    /// Waits for the end of a process. False: the deadline is over.
    pub(super) fn for_process(
        &mut self,
        process: &OwnedFd,
        reason: impl Fn() -> String,
    ) -> Result<bool> {
        loop {
            let step = self.deadline.step(LOOK);
            if ends_within(process, step)? {
                return Ok(true);
            }
            if self.deadline.is_over() {
                return Ok(false);
            }
            self.tell(&reason);
        }
    }

    /// Waits for a child. `None`: the deadline is over, and it goes on, also behind the end of a
    /// try at a mount that is in use: it is within a system call.
    pub(super) fn for_child(
        &mut self,
        mut child: Child,
        reason: impl Fn() -> String,
    ) -> Result<Option<End>> {
        let process = open_child(&child)?;
        if !self.for_process(&process, reason)? && !ends_within(&process, TRY)? {
            return Ok(None);
        }
        let status = child.wait().map_err(cannot_wait)?;
        let mut said = Vec::new();
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(MAX_LINE).read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said);
        let said = said.trim().trim_start_matches("extol: ").to_owned();
        Ok(Some(match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => End { code, said },
            None => {
                interrupt::give_way();
                let said = format!("the process that unmounts has ended ({status})");
                End { code: Failure::FAILED, said }
            }
        }))
    }
}

/// How a child has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) code: u8,
    pub(super) said: String,
}

fn cannot_wait(error: impl Into<std::io::Error>) -> Failure {
    Failure::system(format_args!("cannot wait for a process: {}", error.into()))
}

/// The child that unmounts.
static CHILD: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Starts a child, which [`end_child`] ends.
pub(super) fn start(command: &mut Command) -> Result<Child> {
    // (The signal that ends this process waits until the child is known.)
    let mut known = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command
        .spawn()
        .map_err(|error| Failure::system(format_args!("cannot start a process: {error}")))?;
    *known = Some(open_child(&child)?);
    Ok(child)
}

/// Ends the child, so that nothing is unmounted after this process was interrupted.
pub(super) fn end_child() {
    let child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(child) = &*child {
        let _ = rustix::process::pidfd_send_signal(child, Signal::KILL);
    }
}

/// A child as a descriptor.
pub(super) fn open_child(child: &Child) -> Result<OwnedFd> {
    rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(cannot_wait)
}

/// True if a process ends within this time.
pub(super) fn ends_within(process: &impl AsFd, limit: Duration) -> Result<bool> {
    let mut wait = [PollFd::new(process, PollFlags::IN)];
    let limit = Timespec::try_from(limit).unwrap_or_default();
    match rustix::event::poll(&mut wait, Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(cannot_wait(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_bounds_each_step() {
        let none = Deadline::after(None);
        assert!(!none.is_over() && !none.is_given());
        assert_eq!(none.step(LOOK), LOOK);
        let over = Deadline::after(Some(0.0));
        assert!(over.is_over());
        assert_eq!(over.step(LOOK), Duration::ZERO);
        assert_eq!(Deadline::after(Some(2.5)).to_string(), "2.5 seconds");
        assert_eq!(Deadline::after(Some(1.0)).to_string(), "1 second");
    }

    #[test]
    fn a_child_is_waited_for_or_left() {
        let start = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", script]).stderr(std::process::Stdio::piped()).spawn().unwrap()
        };
        let none = Deadline::after(None);
        let end = Wait::new(&none).for_child(start("echo extol: why >&2; exit 7"), String::new);
        assert_eq!(end.unwrap(), Some(End { code: 7, said: "why".to_owned() }));
        let end = Wait::new(&none).for_child(start("kill -9 $$"), String::new).unwrap();
        assert_eq!(end.map(|end| end.code), Some(Failure::FAILED));
        let soon = Deadline::after(Some(0.05));
        assert_eq!(Wait::new(&soon).for_child(start("sleep 2"), String::new).unwrap(), None);
    }
}
