//! `extol mount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extol_fuse::{BlockMount, Confinement, Mount, MountConfig, Stopper, Transport};
use extol_vfs::FileSystem;

use crate::args::MountArgs;
use crate::attendant::{Attendant, Way};
use crate::error::{Failure, Result, warn};
use crate::farewell::Farewell;
use crate::loop_device::LoopDevice;
use crate::metrics::Metrics;
use crate::options::{self, Split};
use crate::remains::{Keeper, Place};
use crate::sandbox::{self, process};
use crate::signals::Guard;
use crate::volume::VolumeOptions;
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
    /// The device of a mount that another process has made.
    pub fd: Option<i32>,
    /// The daemon keeps all rights.
    pub no_sandbox: bool,
    /// The environment is clean.
    pub clean: bool,
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
            dir: args.dir.unwrap_or_default(),
            options,
            foreground: args.foreground,
            verbose: args.verbose,
            read_write: args.read_write,
            announce: args.announce,
            fd: args.fd,
            no_sandbox: args.no_sandbox,
            clean: args.clean,
            ..Self::default()
        }
    }

    /// The command line of the process that serves. Unknown options are sorted out by now.
    fn daemon_words(&self, options: &[String]) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["mount", "-f"].map(OsString::from).into();
        let background = self.announce || !self.foreground;
        let flags = [
            (background, "--announce"),
            (self.verbose, "-v"),
            (self.read_write, "-w"),
            (self.no_sandbox, "--no-sandbox"),
            (!self.no_sandbox, "--clean"),
        ];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag.into()));
        words.extend(self.fd.map(|number| format!("--fd={number}").into()));
        for list in options {
            words.push("-o".into());
            words.push(list.into());
        }
        words.extend(["--".into(), self.source.clone().into()]);
        words.extend(self.fd.is_none().then(|| self.dir.clone().into()));
        words
    }

    /// Finds out where to mount. `/dev/fd/N` stands for a mount that is there already, as with
    /// libfuse.
    fn find_place(&mut self) -> Result<()> {
        let number = self.dir.to_str().and_then(|dir| dir.strip_prefix("/dev/fd/")).map(str::parse);
        match (self.fd, number) {
            (None, None) => {
                self.dir = absolute(&self.dir)?;
                Ok(extol_fuse::check(&self.dir)?)
            }
            (None, Some(Ok(number))) => {
                (self.fd, self.dir) = (Some(number), PathBuf::new());
                Ok(())
            }
            (Some(_), None) => Ok(()),
            _ => Err(Failure::usage("bad descriptor: use --fd N or /dev/fd/N")),
        }
    }

    /// The place, for people.
    fn place(&self) -> String {
        match self.fd {
            Some(number) => format!("descriptor {number}"),
            None => self.dir.display().to_string(),
        }
    }

    /// What its daemon's threads are left.
    fn confine(&self, volume: &VolumeOptions, untrusted: bool) -> Result<()> {
        if self.no_sandbox {
            return Ok(());
        }
        // A read-only mount may become read-write by a remount, and is opened again for that.
        let writes = !untrusted;
        let mut files = vec![(self.source.as_path(), writes)];
        files.extend(volume.journal.path.as_deref().map(|path| (path, writes)));
        sandbox::prepare(&sandbox::Wish {
            kind: sandbox::Kind::Daemon,
            keep: sandbox::DAEMON,
            files: &files,
            required: untrusted,
        })
    }

    /// What the daemon needs when it is confined.
    fn attended(&self) -> Result<Option<Arc<dyn Confinement>>> {
        if self.no_sandbox {
            return Ok(None);
        }
        daemon::prepare(self.announce)?;
        let attendant = self.fd.is_none().then(|| Attendant::start(&self.dir)).transpose()?;
        Ok(Some(Arc::new(Confined(attendant))))
    }
}

/// Mounts.
pub fn run(mut request: Request) -> Result<()> {
    if request.options.iter().flat_map(|list| options::words(list)).any(|word| word == "remount") {
        let Request { dir, options, sloppy, fake, verbose, .. } = &request;
        return remount::remount(dir, options, *sloppy, *fake, *verbose);
    }
    let Split { mut config, mut volume, metrics, untrusted, through_loop, mut words } =
        options::split(&request.options, request.sloppy)?;
    if untrusted && request.no_sandbox {
        return Err(Failure::usage("-o untrusted needs the sandbox: leave out --no-sandbox"));
    }
    request.source = absolute(&request.source)?;
    request.find_place()?;
    if request.fake {
        return Ok(());
    }
    if request.foreground {
        begin(&request, &mut words, through_loop)?;
    }
    limits::take_descriptors()?;
    // Kept until the volume holds the device: the kernel detaches it when its last holder closes
    // it.
    let attached = through_loop
        .then(|| LoopDevice::attach(&request.source, volume.access.read_only))
        .transpose()?
        .flatten();
    if let Some(device) = &attached {
        request.source = device.path().to_owned();
    }
    let place = Place::of(&request.source, &request.dir);
    if !request.foreground {
        return daemon::start(&request.daemon_words(&words), &place);
    }
    serve_through(request.fd, &mut config)?;
    request.confine(&volume, untrusted)?;

    let metrics = metrics.as_deref().map(Metrics::bind).transpose()?;
    let guard = Guard::start()?;
    let farewell = Farewell::listen()?;
    volume.access.mount_point = Some(request.dir.clone());
    volume.cache.kernel_caches = !config.direct_io;
    volume.access.waiting = Some(guard.waiting());
    let (fs, block) =
        open(&request, &mut volume, untrusted).map_err(|failure| match guard.check() {
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
            warn(format_args!("counters of {} are at {}", request.place(), metrics.url()));
        }
        metrics.serve(&config.source, &fs)?;
    }
    let served = request.attended().and_then(|confinement| {
        config.confinement = confinement;
        serve(&request, Arc::clone(&fs), &config, &guard, &place)
    });
    let has_ended = guard.closing();
    let closed =
        volume::close(&fs).map_err(|error| Failure::about(request.source.display(), error));
    // It may still stand: because the start has failed, or because a second signal did not wait.
    // (The volume is open until behind this, so what is mounted there is this mount: R1 in
    // `remains.rs`.) Else another may stand there by now, even with the same number.
    if served.is_err() || !has_ended {
        place.leave();
    }
    let outcome = served.and(closed);
    if request.announce
        && let Err(failure) = &outcome
    {
        daemon::log(&failure.line);
    }
    if request.verbose && outcome.is_ok() {
        warn(format_args!("{} is unmounted", request.place()));
    }
    farewell.say(&outcome);
    outcome
}

/// Begins in the process that will serve: with a clean environment, and nothing open that was
/// inherited. Nothing of its own is open yet.
fn begin(request: &Request, words: &mut Vec<String>, through_loop: bool) -> Result<()> {
    if !request.no_sandbox && !request.clean {
        words.extend(through_loop.then(|| options::LOOP.to_owned()));
        return Err(process::start_anew(&request.daemon_words(words)));
    }
    if request.announce {
        daemon::leave_session();
    }
    process::close_inherited(request.fd);
    Ok(())
}

/// Takes over the device of a mount that another process has made. It is not known where that is,
/// so there is no unmounting it, and no stirring of a queue of io_uring; and nothing may be left
/// with the kernel when the daemon has to end without an unmount.
fn serve_through(fd: Option<i32>, config: &mut MountConfig) -> Result<()> {
    let Some(number) = fd else { return Ok(()) };
    config.device = Some(Arc::new(process::inherited(number)?));
    (config.writeback_cache, config.io_uring) = (false, Some(false));
    Ok(())
}

/// The daemon's rights, and the process that has others.
#[derive(Debug)]
struct Confined(Option<Arc<Attendant>>);

impl Confinement for Confined {
    fn confine(&self) -> std::io::Result<String> {
        if let Some(attendant) = &self.0 {
            attendant.mounted();
        }
        process::settle();
        sandbox::enter().map_err(|failure| std::io::Error::other(failure.line))?;
        Ok(sandbox::describe())
    }

    fn take_off(&self) {
        if let Some(Err(failure)) = self.0.as_ref().map(|attendant| attendant.take_off(Way::Clear))
        {
            failure.report();
        }
    }

    fn stir(&self, processor: usize) -> bool {
        self.0.as_ref().is_some_and(|attendant| attendant.stir(processor))
    }

    fn user_namespace(&self, process: u32) -> Option<(u64, u64)> {
        self.0.as_ref()?.user_namespace(process)
    }
}

/// Opens the volume; read-only if it turns out to be write-protected, as mount(8) does and in its
/// words.
fn open(
    request: &Request,
    volume: &mut VolumeOptions,
    untrusted: bool,
) -> Result<(Arc<volume::Volume>, Option<BlockMount>)> {
    let opened = volume::open_for_mount(&request.source, volume, untrusted);
    if opened.is_ok()
        || volume.access.read_only
        || request.read_write
        || !volume::is_write_protected(&request.source)
    {
        return opened;
    }
    volume.access.read_only = true;
    let opened = volume::open_for_mount(&request.source, volume, untrusted)?;
    warn(format_args!("{}: WARNING: source write-protected, mounted read-only.", request.place()));
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
    // In the background the parent does that; and what another process has mounted is its own.
    let keeps = !request.announce && request.fd.is_none();
    let keeper = keeps.then(|| Keeper::start(place)).transpose()?;
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
        warn(format_args!("{} is mounted on {}{how}", request.source.display(), request.place()));
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

/// Says what goes wrong first with the volume or its device, once. With `errors=panic` that ends
/// the mount.
fn watch(request: &Request, fs: &Arc<volume::Volume>, stopper: Stopper) -> Result<()> {
    let (source, background) = (request.source.display().to_string(), request.announce);
    let fs = Arc::downgrade(fs);
    let mut told = false;
    let watch = move || {
        while let Some(fs) = fs.upgrade()
            && !stopper.has_ended()
        {
            if !told && let Some(trouble) = fs.first_error() {
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
    started
        .map(drop)
        .map_err(|error| Failure::system(format_args!("cannot start a thread: {error}")))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Failure::about(path.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_what_we_got() {
        let request = Request {
            source: "/a b".into(),
            dir: "-d".into(),
            verbose: true,
            ..Request::default()
        };
        let words = request.daemon_words(&["ro".into(), "commit=3".into()]);
        let crate::args::Command::Mount(args) =
            crate::args::parse(&[vec!["extol".into()], words].concat()).unwrap()
        else {
            panic!("not mount");
        };
        assert!(args.foreground && args.announce && args.verbose);
        assert_eq!(args.options, ["ro", "commit=3"]);
        assert!(args.clean && !args.no_sandbox);
        let dir = args.dir.as_deref().and_then(Path::to_str);
        assert_eq!((args.source.to_str(), dir), (Some("/a b"), Some("-d")));
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
