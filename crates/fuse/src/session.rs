//! A mount at work: worker threads that read requests, work on them and reply.
//!
//! All workers read the same device; the kernel gives each request to one of them. When the last idle worker takes a
//! request, it starts another one first, up to `max_threads`, so a request that waits (fsync) never holds up one that
//! does not. A worker whose buffers grew with large requests ends when enough others are idle, which gives the
//! memory back; others cost next to nothing and stay.
//!
//! ```text
//!   read ──► guard { dispatch } ──► write reply ──► read …
//!                 │ panic: EIO         │ undeliverable: give the references back
//! ```
//!
//! A frozen volume lets no change through, and that may last. A worker whose request has to wait for the thaw does not
//! count against `max_threads` meanwhile, and makes sure that somebody else reads: the request that thaws must find a worker,
//! however many wait. If none can be had, the request is answered EAGAIN instead of waiting.
//!
//! The end: after an unmount every read fails with ENODEV, and the last worker out wakes [`Mount::run`]. A mount that
//! was detached while files were open goes on until they are closed; [`Stopper::abandon`] does not wait for that.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use extol_vfs::FileSystem;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno as Os;

use crate::abi::{IN_HEADER, MAX_FIXED, NOTIFY_INVAL_INODE, WRITE_HEADER, op};
use crate::buffer::Buffer;
use crate::config::MountConfig;
use crate::counts::Counts;
use crate::errno::Errno;
use crate::init::{self, Agreed};
use crate::mount::{self, MountError};
use crate::ops::{self, Context, Kernel, Outcome};
use crate::share::Share;
use crate::wire::{Reply, Request};

/// A worker that has handled a request of this size has memory worth giving back.
const LARGE: usize = 128 << 10;
/// Idle workers that may keep large buffers.
const LARGE_IDLE: usize = 4;
/// What a change gets while the volume is frozen ([`FsError::Frozen`](extol_vfs::FsError)).
const FROZEN: Errno = Errno(libc::EAGAIN);
/// Workers at the start.
const FIRST_WORKERS: usize = 2;

struct Shared {
    fs: Arc<dyn FileSystem>,
    root: u32,
    device: OwnedFd,
    dir: PathBuf,
    agreed: Agreed,
    max_threads: usize,
    share: Share,
    idle: AtomicUsize,
    pool: Mutex<Pool>,
    changed: Condvar,
    counts: Counts,
}

#[derive(Default)]
struct Pool {
    /// Workers alive.
    threads: usize,
    /// Workers that wait for other workers: they do not count against the limit.
    waiting: usize,
    /// The connection is gone.
    ended: bool,
    /// Nobody wants to wait for the end.
    abandoned: bool,
    /// Why a worker stopped, if not because of the end.
    error: Option<io::Error>,
}

impl Shared {
    /// More workers than there should be: they took the places of some who waited.
    fn surplus(&self) -> bool {
        let pool = self.pool.lock();
        pool.threads > self.max_threads + pool.waiting
    }
}

/// A file system that is mounted and answers.
#[derive(Debug)]
pub struct Mount {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mount on {}", self.dir.display())
    }
}

impl Mount {
    /// Mounts `fs` on `dir`. When this returns, the mount answers: it has agreed with the kernel, and its threads wait
    /// for requests. (It is not asked to prove that: see `mount::tune`.)
    ///
    /// # Errors
    /// If mounting fails; then nothing is left mounted.
    pub fn new(fs: Arc<dyn FileSystem>, dir: &Path, config: &MountConfig) -> Result<Self, MountError> {
        let dir = dir.canonicalize().map_err(|source| MountError::Dir { dir: dir.to_path_buf(), source })?;
        fs.refuse_when_frozen();
        let device = mount::attach(&dir, config)?;
        let started = handshake(&device, config).and_then(|agreed| {
            let shared = Arc::new(Shared {
                root: fs.root(),
                fs,
                device,
                dir: dir.clone(),
                agreed,
                max_threads: config.max_threads.max(FIRST_WORKERS),
                share: Share::default(),
                idle: AtomicUsize::new(0),
                pool: Mutex::default(),
                changed: Condvar::new(),
                counts: Counts::default(),
            });
            for _ in 0..FIRST_WORKERS {
                start_worker(&shared)?;
            }
            Ok(shared)
        });
        match started {
            Ok(shared) => {
                mount::tune(&dir, &shared.share);
                Ok(Self { shared })
            }
            Err(error) => {
                let _ = mount::unmount(&dir, true);
                Err(error)
            }
        }
    }

    /// A handle that ends the mount from elsewhere, for example from a thread that waits for signals.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Waits until the mount has ended and every request is answered.
    ///
    /// # Errors
    /// If reading requests failed.
    pub fn run(self) -> Result<(), MountError> {
        let mut pool = self.shared.pool.lock();
        let over = |pool: &Pool| pool.abandoned || (pool.ended && pool.threads == 0);
        self.shared.changed.wait_while(&mut pool, |pool| !over(pool));
        match pool.error.take() {
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
    fs: Arc<dyn FileSystem>,
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

    /// Ends a freeze, if there is one: what the kernel still holds could not be written back, and no unmount would end.
    pub fn thaw(&self) {
        let _ = self.0.fs.thaw();
    }

    /// Unmounts, after the kernel has written back what it holds. The caller waits for this process's own workers, and if
    /// it is killed meanwhile, for ever: a daemon lets a child do it ([`unmount`](crate::unmount)).
    ///
    /// # Errors
    /// [`MountError::Busy`] if files are open.
    pub fn unmount(&self) -> Result<(), MountError> {
        if self.has_ended() {
            return Ok(());
        }
        self.thaw();
        mount::unmount(&self.0.dir, false)
    }

    /// Makes the kernel write back what it holds, then takes the mount out of sight. It ends when its last file is
    /// closed.
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
        self.0.pool.lock().abandoned = true;
        self.0.changed.notify_all();
    }

    /// True once the connection to the kernel is gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.pool.lock().ended
    }
}

/// Reads and answers INIT.
fn handshake(device: &OwnedFd, config: &MountConfig) -> Result<Agreed, MountError> {
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
    let request = buffer.get(..size).and_then(Request::parse).filter(|request| request.opcode == op::INIT);
    let request = request.ok_or_else(|| io::Error::other("the kernel did not begin with INIT"))?;
    let agreed = init::negotiate(request.args(), config, &mut reply);
    if agreed.is_err() {
        reply.clear();
    }
    let code = agreed.as_ref().map_or_else(|error| -error.0, |_| 0);
    rustix::io::write(device, reply.finish(request.unique, code)).map_err(io::Error::from)?;
    agreed.map_err(|_| MountError::TooOld)
}

/// Starts a worker, unless there are enough.
fn start_worker(shared: &Arc<Shared>) -> io::Result<()> {
    let number = {
        let mut pool = shared.pool.lock();
        if pool.ended || pool.threads >= shared.max_threads + pool.waiting {
            return Ok(());
        }
        pool.threads += 1;
        pool.threads
    };
    let worker = Worker(Arc::clone(shared));
    let started = std::thread::Builder::new().name(format!("fuse-{number}")).spawn(move || worker.run());
    if started.is_err() {
        shared.pool.lock().threads -= 1;
    }
    started.map(drop)
}

struct Worker(Arc<Shared>);

impl Worker {
    fn run(&self) {
        let shared = &*self.0;
        let size = IN_HEADER + MAX_FIXED + init::max_data() as usize;
        let mut buffer = Buffer::new(size, IN_HEADER + WRITE_HEADER);
        let mut reply = Reply::default();
        let mut large = false;
        let error = loop {
            shared.idle.fetch_add(1, Ordering::SeqCst);
            let read = rustix::io::read(&shared.device, &mut *buffer);
            let still_idle = shared.idle.fetch_sub(1, Ordering::SeqCst) - 1;
            match read {
                Ok(size) => {
                    if still_idle == 0 {
                        // Without another thread this one still answers, later.
                        let _ = start_worker(&self.0);
                    }
                    large |= size > LARGE;
                    if let Some(request) = buffer.get(..size).and_then(Request::parse) {
                        self.answer(&request, &mut reply);
                        large |= reply.body_len() > LARGE;
                    }
                }
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => {}
                Err(Os::NODEV) => break Some(None),
                Err(error) => break Some(Some(io::Error::from(error))),
            }
            let surplus = shared.surplus();
            if (large || surplus) && shared.idle.load(Ordering::SeqCst) > LARGE_IDLE {
                break None;
            }
        };
        drop((buffer, reply));
        let mut pool = shared.pool.lock();
        pool.threads -= 1;
        if let Some(error) = error {
            pool.ended = true;
            if pool.error.is_none() {
                pool.error = error;
            }
        }
        shared.changed.notify_all();
    }

    fn answer(&self, request: &Request<'_>, reply: &mut Reply) {
        let shared = &*self.0;
        let context = Context {
            fs: &*shared.fs,
            root: shared.root,
            agreed: shared.agreed,
            kernel: self,
            counts: &shared.counts,
        };
        let outcome = loop {
            reply.clear();
            let work = AssertUnwindSafe(|| ops::dispatch(&context, request, reply));
            let outcome = std::panic::catch_unwind(work).unwrap_or(Err(Errno(libc::EIO)));
            if outcome != Err(FROZEN) || !self.wait_thawed() {
                break outcome;
            }
            for &ino in &reply.references {
                shared.fs.forget(ino, 1);
            }
        };
        let code = match outcome {
            Ok(Outcome::Silent) => return,
            Err(_) if matches!(request.opcode, op::FORGET | op::BATCH_FORGET) => return,
            Ok(Outcome::Reply) => 0,
            Err(Errno(number)) => {
                reply.clear_body();
                -number
            }
        };
        let sent = rustix::io::write(&shared.device, reply.finish(request.unique, code));
        if code != 0 || sent.is_err() {
            for &ino in &reply.references {
                shared.fs.forget(ino, 1);
            }
        }
    }

    /// Waits until the volume is thawed, if others can go on meanwhile.
    fn wait_thawed(&self) -> bool {
        let shared = &*self.0;
        shared.pool.lock().waiting += 1;
        if shared.idle.load(Ordering::SeqCst) == 0 {
            let _ = start_worker(&self.0);
        }
        let others = {
            let pool = shared.pool.lock();
            pool.threads > pool.waiting
        };
        if others {
            shared.fs.wait_thawed();
        }
        shared.pool.lock().waiting -= 1;
        others
    }

    fn notify_inval(&self, nodeid: u64, offset: i64) {
        let mut message = Reply::default();
        message.clear();
        message.u64(nodeid).u64(offset as u64).u64(0);
        // The kernel may know nothing of the node any more: just as well.
        let _ = rustix::io::write(&self.0.device, message.finish(0, NOTIFY_INVAL_INODE));
    }
}

impl Kernel for Worker {
    fn written_back(&self, nodeid: u64, bytes: usize) {
        self.0.share.written_back(nodeid, bytes);
    }

    fn syncs(&self, nodeid: u64) {
        self.0.share.syncs(nodeid);
    }

    fn invalidate_attributes(&self, nodeid: u64) {
        self.notify_inval(nodeid, -1);
    }

    fn write_back(&self, nodeid: u64) {
        self.0.pool.lock().waiting += 1;
        if self.0.idle.load(Ordering::SeqCst) == 0 {
            let _ = start_worker(&self.0);
        }
        self.notify_inval(nodeid, 0);
        self.0.pool.lock().waiting -= 1;
    }
}
