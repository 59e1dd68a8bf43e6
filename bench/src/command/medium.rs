//! `extol-bench medium`: an emulated medium as a file.

use std::sync::Arc;

use extol_bench::medium::{self, MediumFs, READY};
use extol_bench::workload::size;
use extol_block::BlockDevice as _;
use extol_cli_common::{Failure, Result, print};
use extol_devices::Profile;
use extol_fuse::Mount;

use crate::args::MediumArgs;
use crate::server::{Ending, MountPoint, end_with_input};

/// Without `--size` and a backing file.
const DEFAULT_SIZE: u64 = 4 << 30;

/// Serves a medium until it is unmounted or told to end.
pub fn run(args: &MediumArgs) -> Result<()> {
    let profile = Profile::from_text(&args.profile).map_err(Failure::usage)?;
    let size = match &args.size {
        Some(text) => Some(size(text).map_err(Failure::usage)?),
        None if args.backing.is_none() => Some(DEFAULT_SIZE),
        None => None,
    };
    let mut dir = MountPoint::at(&args.dir)?;
    // The starter may be gone by then.
    dir.made |= args.until_eof;
    extol_fuse::check(&dir.path)?;
    // Before the first thread: they inherit it.
    medium::become_device_server();
    let ending = Ending::prepare()?;
    let medium = medium::open(profile, size, args.backing.as_deref()).map_err(Failure::new)?;
    let disk = dir.path.join("disk");
    let config = medium::mount_config(&medium);
    let mount = Mount::new(Arc::new(MediumFs::new(Arc::clone(&medium))), &dir.path, &config)?;
    ending.ends(mount.stopper())?;
    if args.until_eof {
        let disk = disk.clone();
        end_with_input(mount.stopper(), move || medium::detach_loops(&disk))?;
    }
    // Standard output may be closed.
    let _ = print(format!("{READY}{}\n", disk.display()));
    mount.run()?;
    medium.flush().map_err(Failure::new)
}
