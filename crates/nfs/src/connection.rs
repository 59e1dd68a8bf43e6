//! One peer.
//!
//! ```text
//!   reader thread:  room? ─► record ─► memory? ─► queue ─► worker ─► reply ─► taken
//!                     ▲                   ▲                            │        │
//!                     ╰─── in flight ◄────┼────────────────────────────╯        │
//!                                         ╰──────────── memory ◄────────────────╯
//! ```
//!
//! A reply is sent at once by the thread that has it, as far as the system takes it; what is left
//! goes to a writer thread, so that no other thread waits for a peer. It keeps its memory until it
//! is taken (`memory.rs`). So a peer that does not take its replies is soon not read any more. It
//! loses its connection after [`SEND_TIME`](limits::SEND_TIME), and after
//! [`STALLED`](limits::STALLED) if others wait for memory.
//!
//! A peer that ends its side of the connection takes no replies any more, as with Linux's nfsd:
//! requests that have not begun are dropped (`work.rs`).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extol_sync::Condvar;
use extol_sync::plain::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;

use crate::client::Client;
use crate::limits;
use crate::memory::{Hold, Owner};

/// How long a read or a write of a socket waits before the deadline is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Bytes of the stack of a reader or a writer.
pub(crate) const STACK: usize = 256 << 10;

/// A peer that is connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    /// The time at which it was accepted.
    pub(crate) opened: Instant,
    /// The owner of the memory of its requests.
    pub(crate) owner: Owner,
    state: Mutex<State>,
    changed: Condvar,
    /// The time of its last request, in milliseconds from the start of the server.
    pub(crate) last: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that are not answered.
    in_flight: usize,
    /// The replies that the writer has to send, and their memory.
    replies: VecDeque<(Vec<u8>, Hold)>,
    /// There is a writer, since when it waits for the peer to take a reply.
    writing: Option<Instant>,
    /// A long record is arriving since then.
    arriving: Option<Instant>,
    /// Nothing is read any more, because the server ends.
    ending: bool,
    /// Nothing is sent any more.
    closed: bool,
}

impl Peer {
    /// The connection with this number.
    pub(crate) fn new(
        stream: TcpStream,
        address: SocketAddr,
        number: usize,
        now: u64,
    ) -> io::Result<Arc<Self>> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        Ok(Arc::new(Self {
            stream,
            address,
            opened: Instant::now(),
            owner: Owner { client: Client::of(address.ip()), connection: number },
            state: Mutex::default(),
            changed: Condvar::new(),
            last: AtomicU64::new(now),
        }))
    }

    /// Waits until another request of this peer may be read. False: none may any more.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut state = self.state.lock();
        let is_full = |state: &mut State| !state.closed && state.in_flight >= limits::IN_FLIGHT;
        self.changed.wait_while(&mut state, is_full);
        !state.closed
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// True if no reply reaches the peer any more: it has ended its side, or the connection is
    /// closed.
    pub(crate) fn has_ended(&self) -> bool {
        let state = self.state.lock();
        let (closed, ending) = (state.closed, state.ending);
        drop(state);
        // Reading has ended on this side, too, if the server ends; it says nothing of the peer.
        let peer_ends = if ending { PollFlags::empty() } else { PollFlags::RDHUP };
        let mut ready = [PollFd::new(&self.stream, peer_ends)];
        closed || poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// A long record begins to arrive, or has arrived.
    pub(crate) fn arrives(&self, is_arriving: bool) {
        self.state.lock().arriving = is_arriving.then(Instant::now);
    }

    /// How long it has kept memory for what it does not send or take.
    pub(crate) fn stalled_for(&self) -> Duration {
        let state = self.state.lock();
        let since = [state.arriving, state.writing].into_iter().flatten().min();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) fn begin_request(&self) {
        self.state.lock().in_flight += 1;
    }

    pub(crate) fn end_request(&self) {
        self.state.lock().in_flight -= 1;
        self.changed.notify_all();
    }

    /// Waits until all requests are answered and all replies sent, and closes the connection.
    pub(crate) fn finish(&self) {
        if !self.has_ended() {
            let mut state = self.state.lock();
            self.changed.wait_while(&mut state, |state| !state.closed && state.is_busy());
        }
        self.close();
    }

    /// Closes the connection, whatever is to be sent.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let replies = std::mem::take(&mut state.replies);
        let _ = self.stream.shutdown(Shutdown::Both);
        drop(state);
        // Their memory is given back without the lock.
        drop(replies);
        self.changed.notify_all();
    }

    /// Reads no more; what was read is answered.
    pub(crate) fn stop_reading(&self) {
        self.state.lock().ending = true;
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Sends a reply, now or soon, and keeps its memory until then. Never waits for the peer.
    pub(crate) fn send(self: &Arc<Self>, mut reply: Vec<u8>, mut hold: Hold) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        if state.writing.is_none() {
            match send_now(&self.stream, &reply) {
                Ok(sent) if sent == reply.len() => return,
                Ok(sent) => drop(reply.drain(..sent)),
                Err(_) => {
                    drop(state);
                    return self.close();
                }
            }
        }
        hold.resize(reply.capacity() + limits::OVERHEAD);
        state.replies.push_back((reply, hold));
        if state.writing.is_some() {
            return;
        }
        state.writing = Some(Instant::now());
        drop(state);
        let peer = Arc::clone(self);
        let writer = thread::Builder::new().name("nfs-writer".into()).stack_size(STACK);
        if writer.spawn(move || peer.write()).is_err() {
            self.close();
        }
    }

    /// The writer: sends what waits, and ends.
    fn write(&self) {
        loop {
            let mut state = self.state.lock();
            let Some((reply, hold)) = state.replies.pop_front() else {
                state.writing = None;
                drop(state);
                self.changed.notify_all();
                return;
            };
            state.writing = Some(Instant::now());
            drop(state);
            let sent = write_until(&self.stream, &reply, Instant::now() + limits::SEND_TIME);
            drop((reply, hold));
            if sent.is_err() {
                self.close();
            }
        }
    }

    pub(crate) fn touch(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
    }
}

impl State {
    /// True if requests are not answered, or replies not sent.
    fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.writing.is_some()
    }
}

/// Sends what the system takes without a wait.
fn send_now(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(stream, &bytes[sent..], flags) {
            Ok(now) => sent += now,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

fn write_until(mut stream: &TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= end && !bytes.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}
