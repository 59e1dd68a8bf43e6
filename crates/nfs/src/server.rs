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
use extol_sync::plain::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

use crate::admission::{self, Place};
use crate::client::Client;
use crate::connection::{Peer, STACK};
use crate::counters::Counters;
use crate::dispatch;
use crate::export::Export;
use crate::limits::{self, OVERHEAD};
use crate::memory::{Hold, Memory};
use crate::procs;
use crate::records::{End, Records};
use crate::repeats::{Begun, Key, Origin, Repeats};
use crate::rpc::{Call, Refused};
use crate::work::{Answer, Queue, Request, Shared};

/// Takes a line about a peer.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How long a request waits for memory until its connection is looked at.
const LOOK: Duration = Duration::from_millis(100);
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
    pub(crate) shared: Arc<Shared>,
    queue: Queue,
    peers: Mutex<HashMap<usize, Arc<Peer>>>,
    fewer_peers: Condvar,
    next: AtomicUsize,
    started: Instant,
    /// When a connection was last closed for its memory.
    closed_one: Mutex<Instant>,
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
        let total = export.config.memory.max(limits::MEMORY_LEAST);
        let repeats = Repeats::new(total / limits::REPEATS_PART);
        let memory = Memory::new(total - total / limits::REPEATS_PART);
        let inner = Arc::new(Inner {
            export,
            shared: Arc::new(Shared { memory, repeats }),
            queue: Queue::default(),
            peers: Mutex::default(),
            fewer_peers: Condvar::new(),
            next: AtomicUsize::new(0),
            started: Instant::now(),
            closed_one: Mutex::new(Instant::now()),
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

    /// The memory, and the calls that are known.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.inner.shared)
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
        if !self.make_room(Client::of(address.ip())) {
            return self.say(address, "there are too many connections");
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let peer = stream
            .set_nonblocking(false)
            .and_then(|()| Peer::new(stream, address, number, self.now()));
        let Ok(peer) = peer else { return };
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

    /// True if another connection of this client may be had, perhaps because one was closed for it.
    fn make_room(&self, newcomer: Client) -> bool {
        let peers = self.peers.lock();
        if peers.len() < self.export.config.connections {
            return true;
        }
        let now = self.now();
        let place = |(number, peer): (&usize, &Arc<Peer>)| Place {
            number: *number,
            client: peer.owner.client,
            unused: now.saturating_sub(peer.last.load(Ordering::Relaxed)),
            is_busy: peer.is_busy(),
        };
        let places: Vec<_> = peers.iter().map(place).collect();
        let victim = admission::victim(&places, newcomer).and_then(|number| peers.get(&number));
        let Some(victim) = victim.map(Arc::clone) else { return false };
        drop(peers);
        self.say(victim.address, "others need its place");
        victim.close();
        // (Its reader ends soon.)
        self.remove(victim.owner.connection);
        true
    }

    /// Reads the requests of a peer until it has no more.
    fn read(&self, peer: &Arc<Peer>) {
        let mut records = Records::new(&peer.stream);
        while peer.wait_for_room() {
            let mut hold = None;
            let mut admit = |bytes| {
                hold = self.hold(peer, bytes + OVERHEAD, || peer.has_ended());
                peer.arrives(true);
                hold.is_some()
            };
            let record = records.next(&mut admit);
            if hold.is_some() {
                peer.arrives(false);
            }
            let record = match record {
                Ok(record) => record,
                Err(End::Closed | End::Idle) => return,
                Err(End::Broken(why)) => return self.say(peer.address, why),
            };
            if !self.take(peer, record, hold) {
                return self.say(peer.address, "a record is no call");
            }
        }
    }

    /// Puts a request into the queue, unless its peer ends before there is memory for it. A long
    /// record has a hold. False: the record is no request.
    fn take(&self, peer: &Arc<Peer>, record: Vec<u8>, hold: Option<Hold>) -> bool {
        let held = |bytes: usize, key: Option<Key>| match hold {
            Some(mut hold) => {
                hold.resize(record.len() + OVERHEAD);
                Some(hold)
            }
            None => self.hold(peer, bytes, || self.shared.is_given_up(peer, key)),
        };
        let short = |held: Option<Hold>, reply| held.map_or((), |hold| peer.send(reply, hold));
        let call = match Call::decode(&record) {
            Ok(call) => call,
            Err(Refused::NoCall) => return false,
            Err(Refused::Reply(reply)) => {
                short(held(OVERHEAD, None), reply);
                return true;
            }
        };
        // Calls that do nothing are no use of the connection.
        if call.procedure != 0 {
            peer.touch(self.now());
        }
        let (xid, mut key) = (call.xid, None);
        if call.program == dispatch::PROGRAM && !procs::is_repeatable(call.procedure) {
            let repeats = &self.shared.repeats;
            let its_key = repeats.key(peer.address, xid, &record);
            let origin = Origin { port: peer.address.port(), opened: peer.opened };
            match repeats.begin(its_key, origin, Arc::clone(peer)) {
                Begun::New => key = Some(its_key),
                Begun::Running { given_up } => {
                    if let Some(peer) = given_up {
                        peer.close();
                    }
                    return true;
                }
                Begun::Answered(reply) => {
                    short(held(OVERHEAD, None), reply.to_vec());
                    return true;
                }
            }
        }
        let bytes = record.len() + OVERHEAD + long_reply(&call, &record);
        if let Some(hold) = held(bytes, key) {
            let answer = Answer::new(&self.shared, peer, (xid, key), hold);
            self.queue.put(Request { record, answer });
        }
        true
    }

    /// Waits for memory for a request of a peer. `None`: it is given up before.
    fn hold(&self, peer: &Arc<Peer>, bytes: usize, is_given_up: impl Fn() -> bool) -> Option<Hold> {
        loop {
            if let Some(hold) = self.shared.memory.take(peer.owner, bytes, LOOK) {
                return Some(hold);
            }
            if is_given_up() {
                return None;
            }
            self.close_stalled();
        }
    }

    /// Closes the connection that keeps memory from others for too long, of the client that has the
    /// most; one at a time, because what waits may have enough then.
    fn close_stalled(&self) {
        let mut closed_one = self.closed_one.lock();
        if closed_one.elapsed() < LOOK {
            return;
        }
        let memory = &self.shared.memory;
        let peers = self.peers.lock();
        let stalled = peers.values().filter_map(|peer| {
            let time = peer.stalled_for();
            (time >= limits::STALLED).then(|| (memory.held_by(peer.owner.client), time, peer))
        });
        let worst = stalled.max_by_key(|(held, time, _)| (*held, *time));
        let worst = worst.map(|(.., peer)| Arc::clone(peer));
        drop(peers);
        if let Some(peer) = worst {
            *closed_one = Instant::now();
            self.say(peer.address, "others wait for the memory of what it does not send or take");
            peer.close();
        }
    }

    /// A worker.
    fn work(&self) {
        while let Some(Request { record, mut answer }) = self.queue.take() {
            if answer.is_given_up() {
                continue;
            }
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

/// Bytes that the reply to a call has beside [`OVERHEAD`], at most. A long record is not worked on
/// by the procedures whose replies are long.
fn long_reply(call: &Call<'_>, record: &[u8]) -> usize {
    if call.program != dispatch::PROGRAM || !procs::has_long_reply(call.procedure) {
        return 0;
    }
    // The last word: the count of READ, READDIR and READDIRPLUS.
    record.last_chunk().map_or(0, |word| u32::from_be_bytes(*word).min(limits::DATA) as usize)
}
