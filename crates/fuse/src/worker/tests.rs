//! Workers, and a kernel that does what the test says: the device is a socket, and a message
//! through it a request or a reply. So which workers there are to be called is no matter of chance.

use std::os::fd::OwnedFd;
use std::time::Instant;

use extol_vfs::{Creds, FileSystem, NewNode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use super::*;
use crate::abi::{ENTRY_OUT, OUT_HEADER};
use crate::crew::Crew;
use crate::init::Agreed;
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
    /// A mount of at most `max_threads` workers, of whom `first` read as far as the crew knows; one
    /// is there. No tender.
    fn new(max_threads: usize, first: u32) -> Self {
        let (device, its_device) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        // Room for large requests.
        sockopt::set_socket_send_buffer_size(&device, 1 << 20).unwrap();
        let fs = Arc::new(MemFs::new(true));
        let crew = Crew::new(first, first);
        let shared = Shared::new(fs.clone(), its_device, Agreed::default(), max_threads, crew);
        let shared = Arc::new(shared);
        assert!(start(&shared).unwrap());
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
        self.shared.pool.lock().threads
    }

    fn asleep(&self) -> usize {
        self.shared.pool.lock().asleep.len()
    }
}

impl Drop for Kernel {
    /// The workers end. Those that read have to be given something first, for which they leave the
    /// active ones.
    fn drop(&mut self) {
        self.fs.release_stuck();
        let sleepers = {
            let mut pool = self.shared.pool.lock();
            pool.ended = true;
            std::mem::take(&mut pool.asleep)
        };
        sleepers.iter().for_each(|sleeper| sleeper.call());
        let start = Instant::now();
        while self.threads() > 0 && start.elapsed() < PATIENCE {
            let _ = rustix::io::write(&self.device, &request(op::IOCTL, 99, 1, &[]));
            message(&self.device, Duration::from_millis(10));
        }
        assert!(thread::panicking() || self.threads() == 0, "workers that do not end");
    }
}

/// A worker that is going to wait, and finds nobody to take its place, reads again afterwards.
#[test]
fn where_nobody_can_be_called_the_same_one_reads_again() {
    let kernel = Kernel::new(1, 1);
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

/// Who waits for a thaw does so also while another is still about to start the one who is going to
/// read.
#[test]
fn who_is_being_called_is_somebody_who_reads() {
    // The second of those who read has been called, and is not there yet.
    let kernel = Kernel::new(1, 2);
    kernel.fs.set_frozen(true);
    kernel.ask(&mkdir(1, "d"));
    until("it waits for the thaw", || kernel.shared.pool.lock().waiting == 1);
    assert_eq!(message(&kernel.device, Duration::from_millis(20)), None);
    assert!(start(&kernel.shared).unwrap(), "who waits leaves room for him");
    kernel.ask(&lookup(2, "none"));
    assert_eq!(reply(&kernel.device), no_such(2));
    kernel.fs.set_frozen(false);
    let (unique, code, _) = reply(&kernel.device);
    assert_eq!((unique, code), (1, 0));
    until("one of two sleeps or both read", || kernel.asleep() + kernel.shared.crew.readers() == 2);
}

/// Where nobody reads and nobody can be called, nobody waits for a thaw.
#[test]
fn the_last_who_reads_does_not_wait_for_a_thaw() {
    let kernel = Kernel::new(1, 1);
    kernel.fs.set_frozen(true);
    // No thread is started any more.
    kernel.shared.pool.lock().ended = true;
    kernel.ask(&mkdir(1, "d"));
    let (unique, code, _) = reply(&kernel.device);
    assert_eq!((unique, code), (1, -libc::EAGAIN));
    kernel.fs.set_frozen(false);
}
