//! `extol bench medium`: an emulated medium as a file.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extol_bench::medium::{self, MediumFs, READY};
use extol_block::{BlockDevice as _, Profile};
use extol_fuse::{Mount, Stopper};

use crate::args::BenchMediumArgs;
use crate::error::{Failure, Result, print};
use crate::signals::{self, Guard};
use crate::volume;

/// Without `--size` and a backing file.
const DEFAULT_SIZE: u64 = 4 << 30;

/// How long whoever uses the medium may keep it after the end of standard input.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves a medium until it is unmounted or told to end.
pub fn run(args: &BenchMediumArgs) -> Result<()> {
    let profile = Profile::from_text(&args.profile).map_err(Failure::usage)?;
    let size = match &args.size {
        Some(text) => Some(volume::parse_size(text, None).map_err(Failure::usage)?),
        None if args.backing.is_none() => Some(DEFAULT_SIZE),
        None => None,
    };
    let mut dir = MountPoint::at(&args.dir)?;
    // Who started us may not be there in the end to do it.
    dir.made |= args.until_eof;
    extol_fuse::check(&dir.path)?;
    // Before the first thread: they inherit it.
    medium::become_device_server();
    let guard = Guard::start()?;
    let medium = medium::open(profile, size, args.backing.as_deref()).map_err(Failure::new)?;
    let disk = dir.path.join("disk");
    let config = medium::mount_config(&medium);
    let mount = Mount::new(Arc::new(MediumFs::new(Arc::clone(&medium))), &dir.path, &config)?;
    guard.mounted(mount.stopper())?;
    if args.until_eof {
        let disk = disk.clone();
        end_with_input(mount.stopper(), move || medium::detach_loops(&disk))?;
    }
    // Nobody has to listen.
    let _ = print(format!("{READY}{}\n", disk.display()));
    mount.run()?;
    medium.flush().map_err(Failure::new)
}

/// Ends the mount when standard input ends: whoever started us wants it, or is gone and has left
/// what `before` tidies up.
pub fn end_with_input(stopper: Stopper, before: impl FnOnce() + Send + 'static) -> Result<()> {
    let wait = move || {
        let mut input = std::io::stdin().lock();
        // An error is an end, too.
        while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
        before();
        signals::stop(&stopper);
        std::thread::sleep(PATIENCE);
        stopper.abandon();
    };
    let fail = |error| Failure::system(format_args!("cannot wait for standard input: {error}"));
    std::thread::Builder::new().name("input".into()).spawn(wait).map(drop).map_err(fail)
}

/// The directory to mount on; removed in the end if it was made here.
pub struct MountPoint {
    pub path: PathBuf,
    pub made: bool,
}

impl MountPoint {
    pub fn at(path: &Path) -> Result<Self> {
        let fail = |error| Failure::about(path.display(), error);
        let made = match std::fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(fail(error)),
        };
        Ok(Self { path: path.canonicalize().map_err(fail)?, made })
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}
