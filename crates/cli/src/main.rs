//! The `extol` command.
//!
//! ```text
//!   main ── helper.rs   called as mount.extol, or by mount.fuse: SOURCE DIR -o …
//!     │     args/       the command line of everything else, with its manual
//!     ├── mount.rs      mount: options.rs splits -o, daemon.rs goes to the background, signals.rs ends it
//!     │     sandbox/       what its daemon may still do; attendant.rs has the rights that it lacks
//!     │     loop_device.rs an image through a loop device (-o loop)
//!     │     remains.rs     takes off what a failed start leaves, farewell.rs tells how it ended
//!     │     limits.rs      has it descriptors enough
//!     ├── umount.rs     umount: waits until the daemon has written everything, and hears how it ended
//!     ├── whole.rs      sync, checkpoint, freeze, thaw of a live mount
//!     ├── remount.rs    changes options of a live mount, in the kernel and in the daemon
//!     ├── stat/         counters of a live mount (live.rs reads them)
//!     ├── top/          the same as a dashboard    metrics/   and over HTTP
//!     ├── look.rs       info, log, replay
//!     ├── mkfs.rs       mkfs
//!     ├── files/        ls, cat, cp, put, rm, mkdir on a volume that is not mounted
//!     └── volume.rs     the only file that opens volumes
//! ```
//!
//! Whatever goes wrong is one line on stderr, `extol: …`, and an exit code as mount(8) has them.

mod args;
mod attendant;
mod check;
mod daemon;
mod error;
mod farewell;
mod files;
mod helper;
mod limits;
mod live;
mod look;
mod loop_device;
mod metrics;
mod mkfs;
mod mount;
mod options;
mod progress;
mod remains;
mod remount;
mod sandbox;
mod signals;
mod stat;
mod top;
mod umount;
mod volume;
mod whole;

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use args::Command;
use error::{Failure, Result};

/// Why: `docs/decisions/0006-allocator.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signals::survive_limits();
    let words: Vec<OsString> = std::env::args_os().collect();
    // A panic has printed its message already.
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| run(&words)));
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            failure.report();
            ExitCode::from(failure.code)
        }
        Err(_) => ExitCode::from(Failure::INTERNAL),
    }
}

fn run(words: &[OsString]) -> Result<()> {
    if helper::applies(words) {
        return mount::run(helper::parse(words)?);
    }
    match args::parse(words)? {
        Command::Mount(args) => mount::run(mount::Request::from_args(args)),
        Command::Attend(args) => attendant::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Remount(args) => remount::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Sync(args) => whole::sync(&args),
        Command::Checkpoint(args) => whole::checkpoint(&args),
        Command::Freeze(args) => whole::freeze(&args),
        Command::Thaw(args) => whole::thaw(&args),
        Command::Info(args) => look::info(&args),
        Command::Log(args) => look::log(&args),
        Command::Replay(args) => look::replay(&args),
        Command::Check(args) => check::run(&args),
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Ls(args) => files::ls(&args),
        Command::Cat(args) => files::cat(&args),
        Command::Cp(args) => files::cp(&args),
        Command::Put(args) => files::put(&args),
        Command::Rm(args) => files::rm(&args),
        Command::Mkdir(args) => files::mkdir(&args),
    }
}
