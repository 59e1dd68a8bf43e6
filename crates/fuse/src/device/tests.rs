//! Workers, and a kernel that does what the test says: the device is a socket, and a message
//! through it a request or a reply. So which workers there are is no matter of chance.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use extol_vfs::{Creds, FileSystem, NewNode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use super::*;
use crate::abi::{ENTRY_OUT, OUT_HEADER};
use crate::init::Agreed;
use crate::pool::Pool;
use memfs::MemFs;

// Other tests use the rest of it.
#[allow(dead_code)]
#[path = "../../tests/memfs/mod.rs"]
mod memfs;

/// What takes longer is not going to happen.
const PATIENCE: Duration = Duration::from_secs(10);
const ROOT: u32 = 2;
/// Seconds for which the kernel remembers a name.
const NAME_VALID: u64 = 24 * 60 * 60;

/// The kernel's end of a mount.
struct Kernel {
    shared: Arc<Shared>,
    fs: Arc<MemFs>,
    device: OwnedFd,
}

fn request(opcode: u32, unique: u64, nodeid: u64, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let mut bytes = Vec::new();
    bytes.extend(((IN_HEADER + body.len()) as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(nodeid.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

fn lookup(unique: u64, name: &str) -> Vec<u8> {
    request(op::LOOKUP, unique, 1, &[name.as_bytes(), &[0]])
}

fn read(unique: u64, ino: u32, offset: u64, size: u32) -> Vec<u8> {
    let body: [&[u8]; 4] = [&[0; 8], &offset.to_ne_bytes(), &size.to_ne_bytes(), &[0; 20]];
    request(op::READ, unique, ino.into(), &body)
}

/// A message that comes within so long.
fn message(socket: &OwnedFd, patience: Duration) -> Option<Vec<u8>> {
    let patience = Timespec::try_from(patience).unwrap();
    let mut there = [PollFd::new(socket, PollFlags::IN)];
    let mut bytes = vec![0; 1 << 16];
    let size = (poll(&mut there, Some(&patience)).unwrap() > 0)
        .then(|| rustix::io::read(socket, &mut bytes));
    bytes.truncate(size?.unwrap());
    Some(bytes)
}

/// The next reply: to which request, its code and what it carries.
fn reply(socket: &OwnedFd) -> (u64, i32, Vec<u8>) {
    let bytes = message(socket, PATIENCE).expect("a reply");
    let (header, body) = bytes.split_at(OUT_HEADER);
    let code = i32::from_ne_bytes(header[4..8].try_into().unwrap());
    (u64::from_ne_bytes(header[8..].try_into().unwrap()), code, body.to_vec())
}

/// The reply to a lookup of a name that does not exist: for the kernel to remember.
fn no_such(unique: u64) -> (u64, i32, Vec<u8>) {
    let mut entry = vec![0; ENTRY_OUT];
    entry[16..24].copy_from_slice(&NAME_VALID.to_ne_bytes());
    (unique, 0, entry)
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

impl Kernel {
    /// A mount of at most `workers` workers, of which one is started. No watchdog.
    fn new(workers: usize) -> Self {
        let (device, its_device) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        // Room for large requests.
        sockopt::set_socket_send_buffer_size(&device, 1 << 20).unwrap();
        let fs = Arc::new(MemFs::new(true));
        let pool = Pool::new(workers, workers);
        let shared = Arc::new(Shared::new(fs.clone(), its_device, Agreed::default(), pool));
        assert!(shared.pool.start(&|id| start_worker(&shared, id)));
        Self { shared, fs, device }
    }

    /// A file that holds this; its reads are stuck if it begins so.
    fn file(&self, text: &str) -> u32 {
        let attr =
            self.fs.create(ROOT, b"f", NewNode::Regular, 0o644, 0, Creds::default()).unwrap();
        self.fs.write(attr.id.ino, 0, text.as_bytes()).unwrap();
        attr.id.ino
    }

    fn ask(&self, request: &[u8]) {
        rustix::io::write(&self.device, request).unwrap();
    }

    fn threads(&self) -> usize {
        self.shared.threads()
    }
}

impl Drop for Kernel {
    /// The workers end. Those that read need a request first.
    fn drop(&mut self) {
        self.fs.release_stuck();
        self.shared.pool.end();
        let start = Instant::now();
        while self.threads() > 0 && start.elapsed() < PATIENCE {
            let _ = rustix::io::write(&self.device, &request(op::IOCTL, 99, 1, &[]));
            message(&self.device, Duration::from_millis(10));
        }
        assert!(thread::panicking() || self.threads() == 0, "workers that do not end");
    }
}

/// A worker that is going to wait where no other can be had reads again afterwards.
#[test]
fn the_only_worker_reads_again() {
    let kernel = Kernel::new(1);
    let ino = kernel.file("text");
    for unique in 1..5 {
        kernel.ask(&read(unique, ino, 0, 9));
        assert_eq!(reply(&kernel.device), (unique, 0, b"text".to_vec()));
    }
    assert_eq!(kernel.threads(), 1);
}

fn mkdir(unique: u64, name: &str) -> Vec<u8> {
    request(op::MKDIR, unique, 1, &[&0o755u32.to_ne_bytes(), &[0; 4], name.as_bytes(), &[0]])
}

/// A worker that is being started counts as one that reads: a change waits for the thaw.
#[test]
fn a_change_waits_for_the_thaw_while_a_worker_is_started() {
    let kernel = Kernel::new(2);
    let second = kernel.shared.pool.reserve();
    kernel.fs.set_frozen(true);
    kernel.ask(&mkdir(1, "d"));
    until("it waits for the thaw", || kernel.shared.pool.counts()[3] == 1);
    assert_eq!(message(&kernel.device, Duration::from_millis(20)), None);
    assert!(start_worker(&kernel.shared, second));
    kernel.ask(&lookup(2, "none"));
    assert_eq!(reply(&kernel.device), no_such(2));
    kernel.fs.set_frozen(false);
    let (unique, code, _) = reply(&kernel.device);
    assert_eq!((unique, code), (1, 0));
    until("both read", || kernel.shared.pool.counts()[1] == 2);
}

/// Where no other worker reads and none can be had, a change does not wait for a thaw.
#[test]
fn the_last_worker_does_not_wait_for_a_thaw() {
    let kernel = Kernel::new(1);
    kernel.fs.set_frozen(true);
    // No thread is started any more.
    kernel.shared.pool.end();
    kernel.ask(&mkdir(1, "d"));
    let (unique, code, _) = reply(&kernel.device);
    assert_eq!((unique, code), (1, -libc::EAGAIN));
    kernel.fs.set_frozen(false);
}

/// A deferred reply that is dropped says EIO, and one that is sent is sent once.
#[test]
fn deferred_replies_are_sent_once() {
    let kernel = Kernel::new(1);
    let defer = |unique| DeferredReply::new(&kernel.shared, unique);
    drop(defer(7));
    assert_eq!(reply(&kernel.device), (7, -libc::EIO, vec![]));
    defer(8).send(Err(FsError::NoSpace));
    defer(9).send(Ok(()));
    assert_eq!(reply(&kernel.device), (8, -libc::ENOSPC, vec![]));
    assert_eq!(reply(&kernel.device), (9, 0, vec![]));
    assert_eq!(message(&kernel.device, Duration::from_millis(10)), None);
}
