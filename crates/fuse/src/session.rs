//! A mount from its beginning to its end.
//!
//! *Beginning.* Mount, answer INIT, drop privileges, start the threads. If one of these fails,
//! nothing stays mounted.
//!
//! *End.* After an unmount each read of the device fails with ENODEV, and the last serving thread
//! wakes [`Mount::run`]. A mount that is detached while files are open is served until they are
//! closed; [`Stopper::abandon`] does not wait for that.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_sync::Condvar;
use extol_vfs::Mountable;
use parking_lot::Mutex;
use rustix::io::Errno as Os;

use crate::abi::{IN_HEADER, MAX_FIXED, op};
use crate::config::{MountConfig, Transport};
use crate::counts::Counts;
use crate::device;
use crate::init::{self, Agreed};
use crate::mount::{self, Attached, MountError};
use crate::pool::Pool;
use crate::rights::Owner;
use crate::uring::{self, Prepared, Queues, StartError};
use crate::wire::{Reply, Request};

/// Workers at the start.
const FIRST_WORKERS: usize = 2;
/// Most active workers: more of them contend for `/dev/fuse`.
const MOST_ACTIVE: usize = 16;

/// The note for a mount with the option `io_uring` on a kernel that does not offer it.
const NOT_OFFERED: &str = "requests come through /dev/fuse: for io_uring, Linux 6.14 or later is \
    needed, and \"echo Y > /sys/module/fuse/parameters/enable_uring\" before mounting";

/// What the serving threads of a mount share.
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn Mountable>,
    pub(crate) root: u32,
    pub(crate) device: OwnedFd,
    pub(crate) dir: PathBuf,
    pub(crate) agreed: Agreed,
    pub(crate) owner: Owner,
    pub(crate) counts: Counts,
    /// The workers of `/dev/fuse`.
    pub(crate) pool: Pool,
    /// The queues of io_uring.
    pub(crate) queues: Queues,
    service: Mutex<Service>,
    changed: Condvar,
}

/// The state of serving a mount.
#[derive(Default)]
struct Service {
    /// Serving threads alive.
    threads: usize,
    /// The connection has ended.
    ended: bool,
    /// [`Mount::run`] does not wait for the end.
    abandoned: bool,
    /// Why a thread stopped, if not because of the end.
    error: Option<io::Error>,
}

/// Why a serving thread ends.
#[derive(Debug)]
pub(crate) enum End {
    /// There are enough others.
    NotNeeded,
    /// The connection has ended.
    Disconnected,
    /// Serving failed.
    Failed(io::Error),
}

impl Shared {
    /// For the workers of a `device` that is not mounted yet.
    pub(crate) fn new(fs: Arc<dyn Mountable>, device: OwnedFd, agreed: Agreed, pool: Pool) -> Self {
        Self {
            root: fs.root(),
            fs,
            device,
            dir: PathBuf::new(),
            agreed,
            owner: Owner::this_process(),
            counts: Counts::default(),
            pool,
            queues: Queues::default(),
            service: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        if self.queues.are_used() { Transport::IoUring } else { Transport::Device }
    }

    /// Called before a serving thread is started.
    pub(crate) fn thread_begins(&self) {
        self.service.lock().threads += 1;
    }

    /// Called when a serving thread has ended, or could not be started. If serving failed, the
    /// mount still exists and the other threads wait for requests: the end does not wait for them.
    pub(crate) fn thread_ends(&self, end: End) {
        let over = !matches!(end, End::NotNeeded);
        {
            let mut service = self.service.lock();
            service.threads -= 1;
            service.ended |= over;
            if let End::Failed(error) = end {
                service.abandoned = true;
                service.error.get_or_insert(error);
            }
        }
        if over {
            self.pool.end();
        }
        self.changed.notify_all();
    }

    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.service.lock().threads
    }
}

/// A mounted file system that serves requests.
#[derive(Debug)]
pub struct Mount {
    shared: Arc<Shared>,
    note: Option<String>,
    is_block: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mount on {}", self.dir.display())
    }
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
        uring::look();
        let processors = std::thread::available_parallelism().map_or(FIRST_WORKERS, usize::from);
        let active =
            processors.clamp(FIRST_WORKERS, MOST_ACTIVE.min(config.max_threads.max(FIRST_WORKERS)));
        let owner = if given.is_some() { Owner::another() } else { Owner::this_process() };
        let confined = config.confinement.as_ref().map_or(Ok(String::new()), |c| c.confine());
        let started = confined.map_err(MountError::Io).and_then(|sandbox| {
            let (agreed, prepared, mut note) = handshake(&device, config)?;
            let pool = Pool::new(active, config.max_threads);
            let shared = Arc::new(Shared {
                dir: dir.clone(),
                queues: prepared.as_ref().map_or_else(Queues::default, Prepared::queues),
                counts: Counts::of(sandbox),
                owner: owner.confined(config.confinement.clone()),
                ..Shared::new(fs, device, agreed, pool)
            });
            device::start(&shared, FIRST_WORKERS)?;
            if let Some(prepared) = prepared {
                match prepared.start(&shared) {
                    Ok(()) => {}
                    Err(StartError::Refused(error)) => note = Some(without(&error)),
                    Err(StartError::Lacking(error)) => return Err(MountError::Short(error)),
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
        let mut service = self.shared.service.lock();
        let is_over =
            |service: &Service| service.abandoned || (service.ended && service.threads == 0);
        self.shared.changed.wait_while(&mut service, |service| !is_over(service));
        match service.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// Mounts `fs` on `dir`, calls `ready` once the mount answers, and serves it until it is unmounted.
///
/// # Errors
/// If mounting or serving fails.
pub fn serve(
    fs: Arc<dyn Mountable>,
    dir: &Path,
    config: &MountConfig,
    ready: impl FnOnce(Stopper),
) -> Result<(), MountError> {
    let mount = Mount::new(fs, dir, config)?;
    ready(mount.stopper());
    mount.run()
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
        self.0.service.lock().abandoned = true;
        self.0.changed.notify_all();
    }

    /// True once the connection to the kernel has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.service.lock().ended
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

/// Reads and answers INIT.
fn handshake(device: &OwnedFd, config: &MountConfig) -> Result<Handshake, MountError> {
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
    let agreed = init::negotiate(request.args(), config, &mut reply, &mut || {
        note = None;
        match uring::prepare() {
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
