//! What the threads that serve a mount share, and how they find its end.
//!
//! Each serving thread is counted from before its start until its end ([`Shared::thread_begins`],
//! [`Shared::thread_ends`]). The connection has ended once the kernel says so to one of them: after
//! an unmount, or when it was aborted (`/sys/fs/fuse/connections/N/abort`). Every other thread
//! hears the same, because each read of the device fails from then on; idle workers are woken and
//! end. [`Shared::wait_for_end`] returns when the last one has ended.
//!
//! If the device or a ring fails in another way, the mount still exists and the other threads wait
//! for requests, so that function returns at once, with the error.
//!
//! *Locking.* One lock, a leaf.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use extol_proc::Shown as _;
use extol_sync::Condvar;
use extol_sync::plain::Mutex;
use extol_vfs::Mountable;

use crate::abi::{NOTIFY_INC_EPOCH, NOTIFY_INVAL_INODE, ROOT_NODE};
use crate::config::Transport;
use crate::counts::Counts;
use crate::init::Agreed;
use crate::interrupts::Interrupts;
use crate::pool::Pool;
use crate::rights::Owner;
use crate::wire::Reply;
use crate::writers::Writers;

/// What the serving threads of a mount share.
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn Mountable>,
    pub(crate) root: u32,
    pub(crate) device: OwnedFd,
    pub(crate) dir: PathBuf,
    pub(crate) agreed: Agreed,
    pub(crate) owner: Owner,
    pub(crate) counts: Counts,
    pub(crate) writers: Writers,
    pub(crate) interrupts: Interrupts,
    /// The workers of `/dev/fuse`.
    pub(crate) pool: Pool,
    /// Requests come over io_uring.
    pub(crate) over_io_uring: AtomicBool,
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
    /// [`Shared::wait_for_end`] does not wait for the end.
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

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mount on {}", self.dir.shown())
    }
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
            writers: Writers::default(),
            interrupts: Interrupts::default(),
            pool,
            over_io_uring: AtomicBool::new(false),
            service: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        match self.over_io_uring.load(Ordering::Relaxed) {
            true => Transport::IoUring,
            false => Transport::Device,
        }
    }

    /// Sends the notification of [`Server::invalidate`](crate::ops::Server::invalidate).
    pub(crate) fn invalidate(&self, nodeid: u64, offset: i64) {
        let mut message = Reply::default();
        message.u64(nodeid).u64(offset.cast_unsigned()).u64(0);
        // It fails if the kernel has forgotten the node: then there is nothing to drop.
        let _ = rustix::io::write(&self.device, message.finish(0, NOTIFY_INVAL_INODE));
    }

    /// Makes the kernel drop all that it caches of these inodes, and all names. That may wait for
    /// requests to this mount, so a thread of its own does it.
    pub(crate) fn drop_caches(self: &Arc<Self>, inodes: Vec<u32>) -> io::Result<JoinHandle<()>> {
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("drop-caches".into()).spawn(move || {
            let mut message = Reply::default();
            // Older kernels refuse it. There a remount by root has dropped the names that are not
            // in use, and an inode that is gone makes the kernel ask again (ESTALE).
            let _ = rustix::io::write(&shared.device, message.finish(0, NOTIFY_INC_EPOCH));
            for ino in inodes {
                let node = if ino == shared.root { ROOT_NODE } else { ino.into() };
                shared.invalidate(node, 0);
            }
        })
    }

    /// Called before a serving thread is started.
    pub(crate) fn thread_begins(&self) {
        self.service.lock().threads += 1;
    }

    /// Called when a serving thread has ended, or could not be started.
    pub(crate) fn thread_ends(&self, end: End) {
        let over = !matches!(end, End::NotNeeded);
        if over {
            self.pool.end();
            // A thread that waits for a thaw would wait for ever: no request can ask for one now.
            let _ = self.fs.thaw();
        }
        let mut service = self.service.lock();
        service.threads -= 1;
        service.ended |= over;
        if let End::Failed(error) = end {
            service.abandoned = true;
            service.error.get_or_insert(error);
        }
        drop(service);
        self.changed.notify_all();
    }

    /// Waits until the connection has ended and no thread serves it any more, or until it is
    /// abandoned.
    pub(crate) fn wait_for_end(&self) -> io::Result<()> {
        let mut service = self.service.lock();
        let is_over = |it: &Service| it.abandoned || (it.ended && it.threads == 0);
        self.changed.wait_while(&mut service, |service| !is_over(service));
        service.error.take().map_or(Ok(()), Err)
    }

    /// Makes [`wait_for_end`](Self::wait_for_end) return at once.
    pub(crate) fn abandon(&self) {
        self.service.lock().abandoned = true;
        self.changed.notify_all();
    }

    /// True once the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.service.lock().ended
    }

    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.service.lock().threads
    }
}
