//! `extol-bench noop`: serves the file system that does nothing, for the target of that name.

use std::sync::Arc;

use extol_bench::noop::{NoopFs, READY, mount_config};
use extol_cli_common::{Failure, Result, print, warn};
use extol_fuse::{Mount, MountConfig};

use crate::args::NoopArgs;
use crate::server::{Ending, MountPoint, end_with_input};

/// Serves it until it is unmounted or told to end.
pub fn run(args: &NoopArgs) -> Result<()> {
    let mut dir = MountPoint::at(&args.dir)?;
    // The starter may be gone by then.
    dir.made |= args.until_eof;
    if args.until_eof {
        // As a mount of a volume does. Linux shares processors out by session (autogroup), and a
        // server in the session of the load is scheduled with it. (Fails only for a process that
        // leads a group already, which is as good.)
        let _ = rustix::process::setsid();
    }
    extol_fuse::check(&dir.path)?;
    let ending = Ending::prepare()?;
    // As for a mount of a volume.
    let mut config =
        MountConfig { allow_other: rustix::process::geteuid().is_root(), ..mount_config() };
    let words = args.options.iter().flat_map(|list| list.split(',')).filter(|w| !w.is_empty());
    for word in words {
        if !config.accept(word).map_err(Failure::usage)? {
            return Err(Failure::usage(format_args!("unknown mount option \"{word}\"")));
        }
    }
    let mount = Mount::new(Arc::new(NoopFs::new()), &dir.path, &config)?;
    ending.ends(mount.stopper())?;
    if let Some(note) = mount.note() {
        warn(note);
    }
    if args.until_eof {
        end_with_input(mount.stopper(), || {})?;
    }
    // Standard output may be closed.
    let _ = print(format!("{READY}{}\n", dir.path.display()));
    mount.run()?;
    Ok(())
}
