//! `extol mount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extol_fuse::{BlockMount, Mount, MountConfig, Stopper, Transport};
use extol_vfs::FileSystem;

use crate::args::MountArgs;
use crate::error::{Failure, Result, warn};
use crate::farewell::Farewell;
use crate::loop_device::LoopDevice;
use crate::metrics::Metrics;
use crate::options::{self, Split};
use crate::remains::{Keeper, Place};
use crate::signals::Guard;
use crate::{daemon, limits, remount, volume};

/// What to mount, however we were called.
#[derive(Debug, Default)]
pub struct Request {
    pub source: PathBuf,
    pub dir: PathBuf,
    /// Option lists in order.
    pub options: Vec<String>,
    pub foreground: bool,
    pub verbose: bool,
    /// Read-write or not at all.
    pub read_write: bool,
    /// Unknown options pass.
    pub sloppy: bool,
    /// Do everything but mount.
    pub fake: bool,
    /// We are the child that serves in the background.
    pub announce: bool,
}

impl Request {
    pub fn from_args(args: MountArgs) -> Self {
        let mut options = args.options;
        if args.read_only {
            options.push("ro".into());
        }
        if let Some(address) = args.metrics {
            options.push(format!("{}{address}", options::METRICS));
        }
        if args.read_write {
            options.push("rw".into());
        }
        Self {
            source: args.source,
            dir: args.dir,
            options,
            foreground: args.foreground,
            verbose: args.verbose,
            read_write: args.read_write,
            announce: args.announce,
            ..Self::default()
        }
    }

    /// The command line of the child that serves in the background. Unknown options are sorted out by now.
    fn daemon_words(&self, options: &[String]) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["mount", "-f", "--announce"].map(OsString::from).into();
        words.extend(self.verbose.then(|| "-v".into()));
        words.extend(self.read_write.then(|| "-w".into()));
        for list in options {
            words.push("-o".into());
            words.push(list.into());
        }
        words.extend(["--".into(), self.source.clone().into(), self.dir.clone().into()]);
        words
    }
}

/// Mounts.
pub fn run(mut request: Request) -> Result<()> {
    if request.options.iter().flat_map(|list| options::words(list)).any(|word| word == "remount") {
        let Request { dir, options, sloppy, fake, verbose, .. } = &request;
        return remount::remount(dir, options, *sloppy, *fake, *verbose);
    }
    let Split { mut config, mut volume, metrics, through_loop, words } =
        options::split(&request.options, request.sloppy)?;
    request.source = absolute(&request.source)?;
    request.dir = absolute(&request.dir)?;
    extol_fuse::check(&request.dir)?;
    if request.fake {
        return Ok(());
    }
    limits::take_descriptors()?;
    // Kept until the volume holds the device: the kernel detaches it when its last holder closes it.
    let attached =
        through_loop.then(|| LoopDevice::attach(&request.source, volume.read_only)).transpose()?.flatten();
    if let Some(device) = &attached {
        request.source = device.path().to_owned();
    }
    let place = Place::of(&request.source, &request.dir);
    if !request.foreground {
        return daemon::start(&request.daemon_words(&words), &place);
    }
    if request.announce {
        daemon::leave_session();
    }

    let metrics = metrics.as_deref().map(Metrics::bind).transpose()?;
    let guard = Guard::start()?;
    let farewell = Farewell::listen()?;
    volume.mount_point = Some(request.dir.clone());
    volume.kernel_caches = !config.direct_io;
    volume.waiting = Some(guard.waiting());
    let (fs, block) = open(&request, &mut volume).map_err(|failure| match guard.check() {
        Err(interrupted) => Failure { code: interrupted.code, ..failure },
        Ok(()) => failure,
    })?;
    config.block = block;
    drop(attached);
    config.source = request.source.display().to_string();
    for note in fs.notes() {
        let line = format!("{}: {note}", config.source);
        if request.announce {
            daemon::log(&line);
        }
        warn(line);
    }
    config.read_only |= fs.is_read_only();
    if request.verbose {
        let how = if config.read_only { "read-only" } else { "read-write" };
        warn(format_args!("{} is open, {how}", request.source.display()));
    }
    if let Some(metrics) = metrics {
        if request.verbose || metrics.port_was_free() {
            warn(format_args!("counters of {} are at {}", request.dir.display(), metrics.url()));
        }
        metrics.serve(&config.source, &fs)?;
    }
    let served = serve(&request, Arc::clone(&fs), &config, &guard, &place);
    guard.closing();
    let closed = volume::close(&fs).map_err(|error| Failure::about(request.source.display(), error));
    // It may still stand: because the start has failed, or because a second signal did not wait.
    // (The volume is open until behind this, so what is mounted there is this mount: R1 in
    // `remains.rs`.)
    place.leave();
    let outcome = served.and(closed);
    if request.announce
        && let Err(failure) = &outcome
    {
        daemon::log(&failure.line);
    }
    if request.verbose && outcome.is_ok() {
        warn(format_args!("{} is unmounted", request.dir.display()));
    }
    farewell.say(&outcome);
    outcome
}

/// Opens the volume; read-only if it turns out to be write-protected, as mount(8) does and in its words.
fn open(
    request: &Request,
    volume: &mut volume::VolumeOptions,
) -> Result<(Arc<volume::Volume>, Option<BlockMount>)> {
    let opened = volume::open_for_mount(&request.source, volume);
    if opened.is_ok()
        || volume.read_only
        || request.read_write
        || !volume::is_write_protected(&request.source)
    {
        return opened;
    }
    volume.read_only = true;
    let opened = volume::open_for_mount(&request.source, volume)?;
    warn(format_args!("{}: WARNING: source write-protected, mounted read-only.", request.dir.display()));
    Ok(opened)
}

fn serve(
    request: &Request,
    fs: Arc<volume::Volume>,
    config: &MountConfig,
    guard: &Guard,
    place: &Place,
) -> Result<()> {
    guard.check()?;
    // In the background the parent does that.
    let keeper = if request.announce { None } else { Some(Keeper::start(place)?) };
    let mount = Mount::new(Arc::clone(&fs) as Arc<dyn FileSystem>, &request.dir, config)?;
    guard.mounted(mount.stopper())?;
    if let Some(note) = mount.note() {
        let line = format!("{}: {note}", request.source.display());
        if request.announce {
            daemon::log(&line);
        }
        warn(line);
    }
    if request.verbose {
        let how = if mount.transport() == Transport::IoUring { ", over io_uring" } else { "" };
        warn(format_args!("{} is mounted on {}{how}", request.source.display(), request.dir.display()));
        if !mount.is_block() && !config.read_only {
            warn(format_args!(
                "sync(1) and syncfs(2) do not reach this mount: use fsync, \"extol sync {}\", or mount \
                 a block device as root (-o loop for an image)",
                request.dir.display()
            ));
        }
    }
    watch(request, &fs, mount.stopper())?;
    // Nothing may fail behind this.
    if request.announce {
        daemon::announce()?;
    }
    keeper.into_iter().for_each(Keeper::dismiss);
    mount.run()?;
    if fs.panic_wanted() {
        return Err(Failure::about(
            request.source.display(),
            "an error on the volume ended the mount (errors=panic)",
        ));
    }
    Ok(())
}

/// How soon somebody is told that something is wrong with the volume.
const LOOK: Duration = Duration::from_millis(250);

/// Says what goes wrong first with the volume or its device, once. With `errors=panic` that ends the mount.
fn watch(request: &Request, fs: &Arc<volume::Volume>, stopper: Stopper) -> Result<()> {
    let (source, background) = (request.source.display().to_string(), request.announce);
    let fs = Arc::downgrade(fs);
    let mut told = false;
    let watch = move || {
        while let Some(fs) = fs.upgrade()
            && !stopper.has_ended()
        {
            if !told && let Some(trouble) = fs.trouble() {
                told = true;
                let state = if fs.is_read_only() { "; the volume is read-only now" } else { "" };
                let line = format!("{source}: {trouble}{state}");
                if background { daemon::log(&line) } else { warn(line) }
            }
            if fs.panic_wanted() {
                stopper.abandon();
                return;
            }
            drop(fs);
            std::thread::sleep(LOOK);
        }
    };
    let started = std::thread::Builder::new().name("watch".into()).spawn(watch);
    started.map(drop).map_err(|error| Failure::system(format_args!("cannot start a thread: {error}")))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Failure::about(path.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_what_we_got() {
        let request =
            Request { source: "/a b".into(), dir: "-d".into(), verbose: true, ..Request::default() };
        let words = request.daemon_words(&["ro".into(), "commit=3".into()]);
        let crate::args::Command::Mount(args) =
            crate::args::parse(&[vec!["extol".into()], words].concat()).unwrap()
        else {
            panic!("not mount");
        };
        assert!(args.foreground && args.announce && args.verbose);
        assert_eq!(args.options, ["ro", "commit=3"]);
        assert_eq!((args.source.to_str(), args.dir.to_str()), (Some("/a b"), Some("-d")));
    }

    #[test]
    fn letters_become_options() {
        let words = "extol mount -r img dir".split(' ').map(OsString::from).collect::<Vec<_>>();
        let crate::args::Command::Mount(args) = crate::args::parse(&words).unwrap() else {
            panic!("not mount")
        };
        assert_eq!(Request::from_args(args).options, ["ro"]);
    }
}
