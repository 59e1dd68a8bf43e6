//! The sandbox of a mount's daemon. It limits an attacker whose code runs in the daemon.
//!
//! A volume is hostile input, and a mount of root's runs as root. So before the first byte of the
//! volume is read, the threads that will read it drop all rights that serving a mount does not
//! need.
//!
//! ```text
//!  process.rs   clean environment, inherited descriptors closed         (new program or start)
//!      │        image, journal, sockets (metrics, exit report) opened   with all rights
//!      ├─ inside ─► [confined] reads and recovers the volume; starts the journal's threads
//!      │        the monitor is started; in the foreground the cleanup   with all rights
//!      │        process too, until the mount stands
//!      │        mount(2) or fusermount3; /dev/fuse again; files in /sys with all rights
//!      ├─ enter ──► [confined] INIT, the workers, the queues of io_uring, READY
//!      ▼
//!    the mount stands: no thread of the process has more than `Plan` leaves it
//! ```
//!
//! Nearly all of it belongs to a *thread* and is inherited by the threads that it starts, and Linux
//! has no call that gives it to all threads at once (seccomp and, since Linux 7.0, Landlock have;
//! capabilities and groups do not). So it is applied early, at each root of the process's tree of
//! threads: [`inside`] for what reads the volume, [`enter`] in the main thread as soon as the mount
//! is made, and at the start of the few threads that are older (signals, metrics).
//!
//! # The steps of [`enter`], in this order
//!
//! | step | needs | if it fails |
//! |---|---|---|
//! | supplementary groups: none | CAP_SETGID | soft: an ordinary user keeps its own groups |
//! | capabilities: [`Plan::keep`] at most, bounding set empty | – | hard |
//! | no_new_privs | – | hard |
//! | Landlock: the volume and its journal; `/sys` and `/proc` to read; no TCP | Linux 5.13 | soft |
//! | seccomp: the list in `filter.rs`, EPERM for the rest | CONFIG_SECCOMP_FILTER | soft |
//!
//! A soft step that fails shows in `extol stat`; with `-o untrusted` all but the groups are hard.
//! Besides, for the whole process: PR_SET_DUMPABLE 0, RLIMIT_CORE 0 (memory holds the volume's
//! data), `oom_score_adj` (`process.rs`).
//!
//! # What an attacker with code in the daemon can still do
//!
//! - Read and change the volume, and give false answers to the users of the mount: that is what the
//!   daemon is for. (`nosuid,nodev` of the mount is the kernel's, and out of its reach.)
//! - Unmount its own mount (`monitor.rs`), and no other.
//! - With a volume of another host: get connections to its server, at the address that the volume
//!   was named by (`connector.rs`), and to no other.
//! - Read what is open to all in `/proc` and `/sys` (with Landlock): which processes and mounts
//!   there are.
//! - Use processor time, memory within the process's limits, and priority (CAP_SYS_NICE; no
//!   real-time policy).
//! - Send datagrams to sockets in the file system that are open to its user (the system log), and
//!   answer clients of the metrics socket.
//! - Attack the kernel through the system calls that are left, of which io_uring is the largest.
//!   *Operations of io_uring do not pass the filter*: openat, connect and similar ones are
//!   refused there by Landlock, and without Landlock not at all; UDP and UNIX sockets through
//!   io_uring are refused by neither.
//!
//! # What an attacker cannot do
//!
//! Open another file (with Landlock; without, not by system calls), run a program, make a process,
//! make memory executable, trace, signal or read another process, mount, load code into the
//! kernel, change users, use the network over TCP, regain dropped rights.

mod files;
mod filter;
pub mod process;
mod rights;

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use extol_cli_common::{Failure, Result};
use rustix::thread::CapabilitySet;

pub use filter::Kind;

/// What the threads of this process are confined to.
#[derive(Debug)]
struct Plan {
    keep: CapabilitySet,
    files: Option<files::Rules>,
    filter: std::result::Result<filter::Filter, String>,
    /// All of it must be had.
    required: bool,
    state: Mutex<State>,
}

/// What the last thread that entered has got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    entered: bool,
    capabilities: Vec<&'static str>,
    groups_left: bool,
    landlock: Option<i32>,
    seccomp: bool,
}

static PLAN: OnceLock<Plan> = OnceLock::new();

/// The rights that [`prepare`] plans for.
#[derive(Debug)]
pub struct Config<'a> {
    pub kind: Kind,
    pub keep: CapabilitySet,
    /// Files that may be opened again, and whether to write.
    pub files: &'a [(&'a Path, bool)],
    /// The port that connections go to over TCP, if any may be made.
    pub port: Option<u16>,
    /// Everything in the list of [`enter`]'s steps must be had.
    pub required: bool,
}

/// Rights of a daemon. Real-time I/O priorities (`ckpt_thread_ioprio=rt:…`, also by a remount) need
/// CAP_SYS_NICE.
pub const DAEMON: CapabilitySet = CapabilitySet::SYS_NICE;

/// Makes the plan, once per process. Without it [`enter`] and [`inside`] confine nothing.
pub fn prepare(config: &Config<'_>) -> Result<()> {
    let files = match config.kind {
        // Landlock forbids every change of the tree of mounts, which the monitor has to make.
        Kind::Monitor => None,
        Kind::Daemon | Kind::Connector => files::Rules::new(config.files, config.port),
    };
    if config.required && files.is_none() {
        return Err(missing("Landlock (Linux 5.13, and \"landlock\" in the boot parameter lsm=)"));
    }
    let filter = filter::build(config.kind, files.is_some());
    if let (true, Err(why)) = (config.required, &filter) {
        return Err(missing(why));
    }
    let plan = Plan {
        keep: config.keep,
        files,
        filter,
        required: config.required,
        state: Mutex::new(State::default()),
    };
    PLAN.set(plan).map_err(|_| Failure { line: "two sandboxes".into(), code: Failure::INTERNAL })
}

fn missing(what: &str) -> Failure {
    Failure::system(format_args!("-o untrusted needs a sandbox, and this machine lacks {what}"))
}

/// Confines the calling thread, and those that it starts from now on.
pub fn enter() -> Result<()> {
    let Some(plan) = PLAN.get() else { return Ok(()) };
    let fail = |what: &str, error: &dyn std::fmt::Display| {
        Failure::system(format_args!(
            "cannot confine the daemon ({what}): {error}; --no-sandbox does without"
        ))
    };
    let groups_left = !rights::drop_groups();
    let kept = rights::keep_only(plan.keep).map_err(|error| fail("capabilities", &error))?;
    rustix::thread::set_no_new_privs(true).map_err(|error| fail("no_new_privs", &error))?;
    let landlock = plan.files.as_ref().and_then(files::Rules::enforce);
    if plan.required && landlock.is_none() {
        return Err(missing("Landlock"));
    }
    let seccomp = plan.filter.as_ref().map_err(Clone::clone).and_then(filter::Filter::install);
    if let (true, Err(why)) = (plan.required, &seccomp) {
        return Err(missing(why));
    }
    let state = State {
        entered: true,
        capabilities: rights::names(kept),
        groups_left,
        landlock,
        seccomp: seccomp.is_ok(),
    };
    *plan.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    Ok(())
}

/// Does `work` in a thread that is confined, and waits for it.
pub fn inside<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if PLAN.get().is_none() {
        return work();
    }
    std::thread::scope(|scope| {
        let confined = || enter().and_then(|()| work());
        let thread = std::thread::Builder::new().name("open".into()).spawn_scoped(scope, confined);
        let thread = thread
            .map_err(|error| Failure::system(format_args!("cannot start a thread: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// True if [`enter`] confines.
#[cfg(feature = "network")]
pub fn is_planned() -> bool {
    PLAN.get().is_some()
}

/// What is in force, for `extol stat`.
pub fn describe() -> String {
    let Some(plan) = PLAN.get() else { return "off (--no-sandbox)".into() };
    plan.state.lock().unwrap_or_else(PoisonError::into_inner).describe()
}

impl State {
    fn describe(&self) -> String {
        let capabilities = match &self.capabilities[..] {
            [] => "no capabilities".to_owned(),
            names => format!("capabilities {}", names.join("+")),
        };
        let groups = if self.groups_left { "own groups" } else { "no groups" };
        let seccomp = if self.seccomp { "seccomp" } else { "NO seccomp" };
        let landlock = match self.landlock {
            Some(version) => format!("Landlock {version}"),
            None => "NO Landlock".to_owned(),
        };
        format!("{capabilities}, {groups}, no_new_privs, {seccomp}, {landlock}")
    }
}

#[cfg(test)]
mod tests;
