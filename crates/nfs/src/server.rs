//! Accepts peers, reads their requests, and ends in order.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extol_sync::Condvar;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

use crate::connection::{Peer, STACK};
use crate::counters::Counters;
use crate::dispatch;
use crate::export::Export;
use crate::limits;
use crate::procs;
use crate::records::{End, Records};
use crate::repeats::Begun;
use crate::rpc::{Call, Refused};
use crate::work::{Answer, Memory, Queue, Request, Shared};

/// Takes a line about a peer.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Room for what a request and its reply take beside their data.
const OVERHEAD: usize = 4 << 10;
/// Ports that only root may use.
const LOW_PORTS: u16 = 1024;

/// Serves an export.
pub struct Server {
    inner: Arc<Inner>,
    listener: TcpListener,
    /// Readable when the server is to stop.
    stop: UnixStream,
    stopper: Stopper,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) export: Arc<Export>,
    shared: Arc<Shared>,
    queue: Queue,
    peers: Mutex<HashMap<usize, Arc<Peer>>>,
    fewer_peers: Condvar,
    next: AtomicUsize,
    started: Instant,
    log: Log,
}

/// Ends a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<UnixStream>,
    stopped: Arc<AtomicBool>,
}

impl Stopper {
    /// No peer is accepted and no request read any more; those that were read are answered, and
    /// [`Server::run`] returns.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
    }

    /// True once it was told to.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl Server {
    /// Will serve an export to the peers of a listener. `log` takes a line for each peer that
    /// loses its connection for what it did.
    ///
    /// # Errors
    /// If the system refuses what a server needs.
    pub fn new(export: Arc<Export>, listener: TcpListener, log: Log) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (stop, other) = UnixStream::pair()?;
        let memory = Memory::new(export.config.memory);
        let inner = Arc::new(Inner {
            export,
            shared: Arc::new(Shared { memory, repeats: Default::default() }),
            queue: Queue::default(),
            peers: Mutex::default(),
            fewer_peers: Condvar::new(),
            next: AtomicUsize::new(0),
            started: Instant::now(),
            log,
        });
        let stopper = Stopper { stop: Arc::new(other), stopped: Arc::default() };
        Ok(Self { inner, listener, stop, stopper })
    }

    /// What ends it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters(Arc::downgrade(&self.inner))
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn run(self) -> io::Result<()> {
        let workers = (0..limits::WORKERS).map(|_| {
            let inner = Arc::clone(&self.inner);
            thread::Builder::new().name("nfs-worker".into()).spawn(move || inner.work())
        });
        let workers: Vec<_> = workers.collect();
        if workers.iter().any(Result::is_ok) {
            self.accept();
            self.inner.end_connections();
        }
        self.inner.queue.stop();
        let mut failed = Ok(());
        for worker in workers {
            match worker {
                Ok(worker) => drop(worker.join()),
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    fn accept(&self) {
        while !self.stopper.is_stopped() {
            let mut ready = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.stop, PollFlags::IN),
            ];
            if poll(&mut ready, None).is_err() {
                continue;
            }
            match self.listener.accept() {
                Ok((stream, address)) => self.inner.admit(stream, address),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Out of descriptors, perhaps, until a connection ends.
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Inner {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn connections(&self) -> usize {
        self.peers.lock().len()
    }

    fn say(&self, address: SocketAddr, what: &str) {
        (self.log)(&format!("{address}: {what}; the connection is closed"));
    }

    /// Serves a peer in threads of its own, if it may connect and there is room.
    fn admit(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let config = &self.export.config;
        if !config.allows(address.ip()) {
            return self.say(address, "the address is not allowed");
        }
        if config.low_ports && address.port() >= LOW_PORTS {
            return self.say(address, "the port is not below 1024");
        }
        if !self.make_room() {
            return self.say(address, "there are too many connections");
        }
        let Ok(peer) =
            stream.set_nonblocking(false).and_then(|()| Peer::new(stream, address, self.now()))
        else {
            return;
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.peers.lock().insert(number, Arc::clone(&peer));
        let inner = Arc::clone(self);
        let reader = thread::Builder::new().name("nfs-reader".into()).stack_size(STACK);
        let serve = move || {
            inner.read(&peer);
            peer.finish();
            inner.remove(number);
        };
        if reader.spawn(serve).is_err() {
            self.remove(number);
        }
    }

    fn remove(&self, number: usize) {
        self.peers.lock().remove(&number);
        self.fewer_peers.notify_all();
    }

    /// True if another connection may be had, perhaps because an idle one was closed for it.
    fn make_room(&self) -> bool {
        let peers = self.peers.lock();
        if peers.len() < self.export.config.connections {
            return true;
        }
        let idle = peers.iter().filter(|(_, peer)| peer.is_idle());
        let oldest = idle.min_by_key(|(_, peer)| peer.last.load(Ordering::Relaxed));
        let oldest = oldest.map(|(number, peer)| (*number, Arc::clone(peer)));
        drop(peers);
        let Some((number, peer)) = oldest else { return false };
        let idle = self.now().saturating_sub(peer.last.load(Ordering::Relaxed));
        if u128::from(idle) < limits::MAKES_ROOM.as_millis() {
            return false;
        }
        peer.close();
        // (Its reader ends soon.)
        self.remove(number);
        true
    }

    /// Reads the requests of a peer until it has no more.
    fn read(&self, peer: &Arc<Peer>) {
        let mut records = Records::new(&peer.stream);
        while peer.wait_for_room() {
            let record = match records.next() {
                Ok(record) => record,
                Err(End::Closed | End::Idle) => return,
                Err(End::Broken(why)) => return self.say(peer.address, why),
            };
            peer.touch(self.now());
            if !self.take(peer, record) {
                return self.say(peer.address, "a record is no call");
            }
        }
    }

    /// Puts a request into the queue. False: it is none.
    fn take(&self, peer: &Arc<Peer>, record: Vec<u8>) -> bool {
        let call = match Call::decode(&record) {
            Ok(call) => call,
            Err(Refused::NoCall) => return false,
            Err(Refused::Reply(reply)) => {
                peer.send(reply);
                return true;
            }
        };
        let (xid, mut bytes, mut key) = (call.xid, record.len() + OVERHEAD, None);
        if call.program == dispatch::PROGRAM {
            if procs::has_long_reply(call.procedure) {
                bytes += last_word(&record).min(limits::DATA) as usize;
            }
            if call.procedure != 0 && !procs::is_repeatable(call.procedure) {
                let repeats = &self.shared.repeats;
                let its_key = repeats.key(peer.address.ip(), xid, &record);
                match repeats.begin(its_key, Arc::clone(peer)) {
                    Begun::New => key = Some(its_key),
                    Begun::Running => return true,
                    Begun::Answered(reply) => {
                        peer.send(reply.to_vec());
                        return true;
                    }
                }
            }
        }
        let answer = Answer::new(&self.shared, peer, (xid, key), bytes);
        self.queue.put(Request { record, answer });
        true
    }

    /// A worker.
    fn work(&self) {
        while let Some(Request { record, answer }) = self.queue.take() {
            let Ok(call) = Call::decode(&record) else { continue };
            let send = Box::new(move |reply| answer.send(reply));
            // A panic fails this request only: its answer says so when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                dispatch::work(&self.export, call, send, &mut |job| job());
            }));
        }
    }

    /// Waits until what was read is answered, and closes all connections.
    fn end_connections(&self) {
        let mut peers = self.peers.lock();
        peers.values().for_each(|peer| peer.stop_reading());
        let end = Instant::now() + limits::DRAIN;
        while !peers.is_empty() && Instant::now() < end {
            self.fewer_peers.wait_until(&mut peers, end);
        }
        peers.values().for_each(|peer| peer.close());
    }
}

/// The last word of a record: the count of READ, READDIR and READDIRPLUS.
fn last_word(record: &[u8]) -> u32 {
    record.last_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}
