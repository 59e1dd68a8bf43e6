//! `extol bench noop`: serves the file system that does nothing, for the contender of that name.

use std::sync::Arc;

use extol_bench::noop::{NoopFs, READY, mount_config};
use extol_fuse::{Mount, MountConfig};

use crate::args::BenchNoopArgs;
use crate::daemon::leave_session;
use crate::error::{Failure, Result, print, warn};
use crate::medium::{MountPoint, end_with_input};
use crate::options;
use crate::signals::Guard;

/// Serves it until it is unmounted or told to end.
pub fn run(args: &BenchNoopArgs) -> Result<()> {
    let mut dir = MountPoint::at(&args.dir)?;
    // Who started us may not be there in the end to do it.
    dir.made |= args.until_eof;
    if args.until_eof {
        // As a mount of a volume does. Linux shares processors out by session (autogroup), and a
        // server in the session of the load is scheduled with it.
        leave_session();
    }
    extol_fuse::check(&dir.path)?;
    let guard = Guard::start()?;
    // As for a mount of a volume.
    let mut config =
        MountConfig { allow_other: rustix::process::geteuid().is_root(), ..mount_config() };
    for word in args.options.iter().flat_map(|list| options::words(list)) {
        if !config.accept(&word) {
            return Err(Failure::usage(format_args!("unknown mount option \"{word}\"")));
        }
    }
    let mount = Mount::new(Arc::new(NoopFs::new()), &dir.path, &config)?;
    guard.mounted(mount.stopper())?;
    if let Some(note) = mount.note() {
        warn(note);
    }
    if args.until_eof {
        end_with_input(mount.stopper(), || {})?;
    }
    // Nobody has to listen.
    let _ = print(format!("{READY}{}\n", dir.path.display()));
    mount.run()?;
    Ok(())
}
