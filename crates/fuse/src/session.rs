//! A mount from its beginning to its end.
//!
//! *Beginning.* Mount, answer INIT, drop privileges, start the threads. If one of these fails,
//! nothing stays mounted.
//!
//! *End.* [`Mount::run`] returns when the connection has ended (`connection.rs`). A mount that is
//! detached while files are open is served until they are closed; [`Stopper::abandon`] does not
//! wait for that.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use extol_fuse_uring::RegisterError;
use extol_vfs::Mountable;
use rustix::io::Errno as Os;

use crate::abi::{IN_HEADER, MAX_FIXED, cap, op};
use crate::config::{MountConfig, Transport};
use crate::connection::Shared;
use crate::counts::Counts;
use crate::device;
use crate::init::{self, Agreed};
use crate::mount::{self, Attached, MountError};
use crate::pool::Pool;
use crate::rights::Owner;
use crate::uring::{self, Prepared};
use crate::wire::{Reply, Request};

/// Workers at the start.
const FIRST_WORKERS: usize = 2;
/// Most active workers: more of them contend for `/dev/fuse`.
const MOST_ACTIVE: usize = 16;

/// The note for a mount with the option `io_uring` on a kernel that does not offer it.
const NOT_OFFERED: &str = "requests come through /dev/fuse: for io_uring, Linux 6.14 or later is \
    needed, and \"echo Y > /sys/module/fuse/parameters/enable_uring\" before mounting";

/// A mounted file system that serves requests.
#[derive(Debug)]
pub struct Mount {
    shared: Arc<Shared>,
    note: Option<String>,
    is_block: bool,
}

impl Mount {
    /// Mounts `fs` on `dir`. When this returns, INIT is answered and the mount's threads wait for
    /// requests.
    ///
    /// # Errors
    /// If mounting fails; then nothing stays mounted.
    pub fn new(
        fs: Arc<dyn Mountable>,
        dir: &Path,
        config: &MountConfig,
    ) -> Result<Self, MountError> {
        let given = config.device.as_deref();
        let dir_error = |source| MountError::Dir { dir: dir.to_path_buf(), source };
        // A mount that another process has made does not answer yet: no request may be made to it.
        let dir = if given.is_some() {
            dir.to_path_buf()
        } else {
            dir.canonicalize().map_err(dir_error)?
        };
        fs.refuse_when_frozen();
        fs.count_opens();
        let Attached { device, is_block } = match given {
            Some(device) => Attached { device: device.try_clone()?, is_block: false },
            None => mount::attach(&dir, config)?,
        };
        // Opens and reads what it needs of the system before it drops privileges.
        let read_ahead = mount::tune_cache(&dir);
        let _ = init::max_data();
        let processors = uring::processors();
        let most = MOST_ACTIVE.min(config.max_threads.max(FIRST_WORKERS));
        let active = std::thread::available_parallelism().map_or(FIRST_WORKERS, usize::from);
        let active = active.clamp(FIRST_WORKERS, most);
        let owner = if given.is_some() { Owner::another() } else { Owner::this_process() };
        let confined = config.confinement.as_ref().map_or(Ok(String::new()), |c| c.confine());
        let started = confined.map_err(MountError::Io).and_then(|sandbox| {
            let (agreed, prepared, mut note) = handshake(&device, config, processors)?;
            let pool = Pool::new(active, config.max_threads);
            if agreed.has(cap::WRITEBACK_CACHE) {
                fs.caches_sizes();
            }
            let mut shared = Shared::new(fs, device, agreed, pool);
            shared.dir.clone_from(&dir);
            shared.over_io_uring = AtomicBool::new(prepared.is_some());
            shared.counts = Counts::of(sandbox, config.view_options());
            shared.owner = owner.confined(config.confinement.clone());
            let shared = Arc::new(shared);
            device::start(&shared, FIRST_WORKERS)?;
            if let Some(prepared) = prepared {
                match prepared.start(&shared) {
                    Ok(()) => {}
                    Err(RegisterError::Refused(error)) => note = Some(without(&error)),
                    Err(RegisterError::Failed(error)) => return Err(MountError::Short(error)),
                }
            }
            Ok((shared, note))
        });
        match started {
            Ok((shared, note)) => {
                // INIT has set it to what was agreed upon.
                if let Some(knob) = read_ahead {
                    let _ = knob.write_at(mount::READ_AHEAD_KB.as_bytes(), 0);
                }
                Ok(Self { shared, note, is_block })
            }
            Err(error) => {
                withdraw(&dir, config);
                Err(error)
            }
        }
    }

    /// The transport of its requests.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.shared.transport()
    }

    /// True if the kernel sees a block device below the mount (`fuseblk`): syncfs(2) reaches the
    /// file system, and an unmount waits for it.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.is_block
    }

    /// One line about a transport other than the one that the options ask for.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The counters of its requests.
    #[must_use]
    pub fn requests(&self) -> Requests {
        Requests(Arc::downgrade(&self.shared))
    }

    /// A handle that ends the mount from elsewhere, for example from a thread that waits for
    /// signals.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Waits until the mount has ended and every request is answered.
    ///
    /// # Errors
    /// If reading requests failed.
    pub fn run(self) -> Result<(), MountError> {
        Ok(self.shared.wait_for_end()?)
    }
}

/// Ends a mount. May be used from any thread, also after the mount has ended.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Ends a freeze, if there is one. During a freeze the kernel cannot write dirty pages back,
    /// and no unmount ends.
    pub fn thaw(&self) {
        let _ = self.0.fs.thaw();
    }

    /// Unmounts, after the kernel has written its dirty pages back. The caller waits for workers of
    /// its own process, and for ever if the process is killed meanwhile: so a daemon has a child do
    /// it ([`unmount`](crate::unmount)).
    ///
    /// # Errors
    /// [`MountError::Busy`] if files are open, and half a second later, too.
    pub fn unmount(&self) -> Result<(), MountError> {
        if self.has_ended() {
            return Ok(());
        }
        self.thaw();
        mount::unmount(&self.0.dir, false)
    }

    /// Makes the kernel write its dirty pages back, then detaches the mount from the tree. The
    /// mount ends when its last file is closed.
    ///
    /// # Errors
    /// If unmounting is not possible.
    pub fn detach(&self) -> Result<(), MountError> {
        if self.has_ended() {
            return Ok(());
        }
        self.thaw();
        mount::write_back(&self.0.dir);
        mount::unmount(&self.0.dir, true)
    }

    /// Makes [`Mount::run`] return at once, whatever is open.
    pub fn abandon(&self) {
        self.0.abandon();
    }

    /// True once the connection to the kernel has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

/// The kernel's requests to a mount, counted by kind.
#[derive(Clone, Debug)]
pub struct Requests(Weak<Shared>);

impl Requests {
    /// The kinds that came, with their names in lower case; none once the mount has ended.
    #[must_use]
    pub fn by_kind(&self) -> Vec<(String, u64)> {
        self.0.upgrade().map(|shared| shared.counts.by_kind()).unwrap_or_default()
    }
}

/// Unmounts a mount that will not be served.
fn withdraw(dir: &Path, config: &MountConfig) {
    match &config.confinement {
        // A mount that another process has made is unmounted by that process.
        _ if config.device.is_some() => {}
        Some(confinement) => confinement.take_off(),
        None => mount::undo(dir),
    }
}

/// The note for a mount that could not use io_uring.
fn without(error: &io::Error) -> String {
    format!("requests come through /dev/fuse, because io_uring cannot be used: {error}")
}

/// The agreed capabilities, the queues of io_uring if it is used, and a note if it could not be.
type Handshake = (Agreed, Option<Prepared>, Option<String>);

/// Reads and answers INIT. `processors`: how many queues io_uring needs.
fn handshake(
    device: &OwnedFd,
    config: &MountConfig,
    processors: io::Result<usize>,
) -> Result<Handshake, MountError> {
    let mut buffer = vec![0; IN_HEADER + MAX_FIXED + init::max_data() as usize];
    let mut reply = Reply::default();
    reply.clear();
    let size = loop {
        match rustix::io::read(device, &mut buffer) {
            Ok(size) => break size,
            Err(Os::INTR | Os::AGAIN | Os::NOENT) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    };
    let request =
        buffer.get(..size).and_then(Request::parse).filter(|request| request.opcode == op::INIT);
    let request = request.ok_or_else(|| io::Error::other("the kernel did not begin with INIT"))?;
    let mut prepared = None;
    let mut note = (config.io_uring == Some(true)).then(|| NOT_OFFERED.to_owned());
    let agreed = init::negotiate(request.args(), config, &mut reply, || {
        note = None;
        match processors.and_then(uring::prepare) {
            Ok(queues) => prepared = Some(queues),
            Err(error) => note = Some(without(&error)),
        }
        prepared.is_some()
    });
    if agreed.is_err() {
        reply.clear();
    }
    let code = agreed.as_ref().map_or_else(|error| -error.0, |_| 0);
    rustix::io::write(device, reply.finish(request.unique, code)).map_err(io::Error::from)?;
    agreed.map(|agreed| (agreed, prepared, note)).map_err(|_| MountError::TooOld)
}
