//! The `extol` command.
//!
//! ```text
//!   main ── mount_helper.rs  called as mount.extol, or by mount.fuse: SOURCE DIR -o …
//!     │     args/            the command line of everything else, with its manual
//!     ├── mount/          mount
//!     │     options.rs       splits -o
//!     │     daemon.rs        the process in the background
//!     │     signals.rs       ends it
//!     │     sandbox/         confines the daemon; monitor.rs does for it what it may not
//!     │     connector.rs     and connects to the server of its volume
//!     │     loop_device.rs   an image through a loop device (-o loop)
//!     │     start_cleanup.rs unmounts after a failed start
//!     │     exit_report.rs   tells umount how the daemon ended
//!     │     limits.rs        raises the limit of descriptors
//!     ├── export/         export: serves a volume over NFS
//!     ├── watch.rs        the thread of either that reports errors of the volume
//!     ├── umount.rs       umount: waits for the end of the daemon and reads its exit report
//!     │     mount_table.rs   what the kernel says is mounted
//!     ├── maintenance.rs  sync, checkpoint, freeze, thaw of a mounted volume
//!     ├── remount.rs      changes options of a mounted volume, in the kernel and in the daemon
//!     ├── stat/           counters of a mounted volume (mounted.rs reads them)
//!     ├── top/            the same as a dashboard    metrics/   and over HTTP
//!     ├── inspect/        info, log, replay    calendar.rs  dates, also for ls
//!     ├── mkfs.rs         mkfs    staged.rs  a file that takes the place of another one
//!     ├── resize.rs       resize    tune.rs  tune2fs's options
//!     ├── defrag.rs       defrag, on a mount and on a volume that is not mounted
//!     ├── files/          ls, cat, cp, put, rm, chmod, verity … on a volume that is not mounted
//!     ├── keys.rs         keys of encrypted files (-o key=, --key)
//!     ├── as_typed.rs     paths in messages as they were typed    text_file.rs  scripts and lists
//!     ├── interrupt.rs    Ctrl-C leaves nothing half made
//!     ├── manual/         manual pages, completions of shells
//!     └── volume.rs       the only module that opens volumes
//! ```
//!
//! Each failure is one line on stderr, `extol: …`, and an exit code as mount(8) has them: see
//! `extol_cli_common`.

mod args;
mod as_typed;
mod calendar;
mod check;
mod connector;
mod daemon;
mod defrag;
mod exit_report;
mod expanded;
mod export;
mod files;
mod inspect;
mod interrupt;
#[cfg(test)]
mod json_tests;
mod key;
mod keys;
mod limits;
mod loop_device;
mod maintenance;
mod manual;
mod metrics;
mod mkfs;
mod monitor;
mod mount;
mod mount_helper;
mod mount_table;
mod mounted;
mod options;
mod quota;
mod remount;
mod resize;
mod resize_mounted;
mod resize_report;
mod sandbox;
mod signals;
mod staged;
mod start_cleanup;
mod stat;
mod text_file;
mod top;
mod tune;
mod umount;
mod volume;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use extol_cli_common::Result;

use args::Command;

/// Why: `docs/decisions/0006-allocator.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signals::survive_limits();
    extol_cli_common::main("extol", run)
}

fn run(words: &[OsString]) -> Result<()> {
    if let Some(usage) = mount_helper::usage(words) {
        return extol_cli_common::print(usage);
    }
    if mount_helper::unmounts(words) {
        return umount::run(&mount_helper::parse_unmount(words)?);
    }
    if mount_helper::applies(words) {
        return mount::run(mount_helper::parse(words)?);
    }
    interrupt::explain(carry_out(args::parse(words)?))
}

fn carry_out(command: Command) -> Result<()> {
    match command {
        Command::Mount(args) => mount::run(mount::Request::from_args(args)?),
        Command::MountMonitor(args) => monitor::run(&args),
        Command::MountConnector(args) => connector::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Remount(args) => remount::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Sync(args) => maintenance::sync(&args),
        Command::Checkpoint(args) => maintenance::checkpoint(&args),
        Command::Freeze(args) => maintenance::freeze(&args),
        Command::Thaw(args) => maintenance::thaw(&args),
        Command::Info(args) => inspect::info(&args),
        Command::Log(args) => inspect::log(&args),
        Command::Replay(args) => inspect::replay(&args),
        Command::Check(args) => check::run(&args),
        Command::Mkfs(args) => mkfs::run(*args),
        Command::Ls(args) => files::ls(&args),
        Command::Cat(args) => files::cat(&args),
        Command::Cp(args) => files::cp(&args),
        Command::Tar(args) => files::tar(&args),
        Command::Put(args) => files::change(&args),
        Command::Rm(args) => files::change(&args),
        Command::Mkdir(args) => files::change(&args),
        Command::Mv(args) => files::change(&args),
        Command::Ln(args) => files::change(&args),
        Command::Chmod(args) => files::change(&args),
        Command::Chown(args) => files::change(&args),
        Command::Touch(args) => files::change(&args),
        Command::Truncate(args) => files::change(&args),
        Command::Mknod(args) => files::change(&args),
        Command::Setxattr(args) => files::change(&args),
        Command::Getxattr(args) => files::getxattr(&args),
        Command::Edit(args) => files::edit(&args),
        Command::Defrag(args) => defrag::run(&args),
        Command::Verity(args) => files::verity(&args),
        Command::Encrypt(args) => files::encrypt(&args),
        Command::Key(args) => key::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Resize(args) => resize::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Quota(args) => quota::run(&args),
    }
}
