//! What belongs to the process as a whole: environment, descriptors, core dumps, its place in the
//! kernel's choice when memory is short.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use extol_cli_common::{Failure, Result};
use rustix::process::{
    DumpableBehavior, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getpid, pidfd_getfd,
    pidfd_open,
};

/// Variables that a daemon keeps: the search path for `fusermount3`, and the backtrace of a panic.
const KEPT: [&str; 2] = ["PATH", "RUST_BACKTRACE"];
/// A daemon of root's has data that are not on the disk yet, so it is killed after nearly
/// everything else (as dbus and sshd); but not never (-1000): if it is what fills a control group,
/// it has to go.
const OOM_SCORE: &str = "-900";

/// This program, by its own name for `ps`; it may have been deleted or replaced, though.
pub fn program() -> Command {
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(path.unwrap_or_else(|| PathBuf::from("/proc/self/exe")));
    command.arg0("extol");
    command
}

/// Lets a command have no more of the environment than a daemon keeps.
pub fn clean_env(command: &mut Command) -> &mut Command {
    let kept: Vec<_> =
        KEPT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect();
    command.env_clear().envs(kept)
}

/// Goes on as this program with these arguments and a clean environment, which a process cannot
/// give to itself: `/proc/PID/environ` shows what it was started with. Returns only if that fails.
pub fn restart_with_clean_env(words: &[OsString]) -> Failure {
    let error = clean_env(program().args(words)).exec();
    Failure::system(format_args!("cannot start with a clean environment: {error}"))
}

/// Closes every descriptor that was inherited, but the standard ones and `keep`. To be called
/// before anything is opened.
pub fn close_inherited(keep: Option<RawFd>) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers =
        entries.flatten().filter_map(|e| extol_proc::number(e.file_name().as_encoded_bytes()));
    // One of them is that of the directory, and closed by then.
    let numbers: Vec<RawFd> = numbers.collect();
    for number in numbers.into_iter().filter(|number| *number > 2 && Some(*number) != keep) {
        let _ = nix::unistd::close(number);
    }
}

/// Takes over the descriptor with this number, which the parent has left open.
pub fn inherited(number: RawFd) -> Result<OwnedFd> {
    let fail = |error: rustix::io::Errno| {
        Failure::usage(format_args!(
            "descriptor {number} is not open ({error}): give that of /dev/fuse"
        ))
    };
    if number < 3 {
        return Err(fail(rustix::io::Errno::BADF));
    }
    let this = pidfd_open(getpid(), PidfdFlags::empty()).map_err(fail)?;
    let ours = pidfd_getfd(this.as_fd(), number, PidfdGetfdFlags::empty()).map_err(fail)?;
    let _ = nix::unistd::close(number);
    Ok(ours)
}

/// Keeps the volume's data in this process's memory: no core dumps, no tracing by other processes
/// of the same user. Tells the kernel to kill it late when memory is short, unless the
/// administrator has set something else.
pub fn protect() {
    if extol_proc::read_number::<i32>("/proc/self/oom_score_adj") == Some(0) {
        // Only with CAP_SYS_RESOURCE.
        let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    }
    let _ =
        rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
