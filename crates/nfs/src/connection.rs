//! One peer.
//!
//! ```text
//!   reader thread:  room? ─► record ─► memory? ─► queue ─► worker ─► reply
//!                     ▲                                                │
//!                     ╰──────── in flight, unsent ◄────────────────────╯
//! ```
//!
//! A reply is sent at once by the thread that has it, as far as the system takes it; what is left
//! goes to a writer thread, so that no other thread waits for a peer. A peer that does not take its
//! replies is not read any more, and loses its connection after [`SEND_TIME`](limits::SEND_TIME).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extol_sync::Condvar;
use parking_lot::Mutex;
use rustix::net::SendFlags;

use crate::limits;

/// How long a read or a write of a socket waits before the deadline is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Bytes of the stack of a reader or a writer.
pub(crate) const STACK: usize = 256 << 10;

/// A peer that is connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
    /// When it was last read from, in milliseconds from the start of the server.
    pub(crate) last: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that are not answered.
    in_flight: usize,
    /// What the writer has to send.
    replies: VecDeque<Vec<u8>>,
    unsent: usize,
    /// There is a writer.
    writing: bool,
    /// Nothing is sent any more.
    closed: bool,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream, address: SocketAddr, now: u64) -> io::Result<Arc<Self>> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        Ok(Arc::new(Self {
            stream,
            address,
            state: Mutex::default(),
            changed: Condvar::new(),
            last: AtomicU64::new(now),
        }))
    }

    /// Waits until another request of this peer may be read. False: none may any more.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut state = self.state.lock();
        let is_full = |state: &mut State| {
            !state.closed
                && (state.in_flight >= limits::IN_FLIGHT || state.unsent >= limits::UNSENT)
        };
        self.changed.wait_while(&mut state, is_full);
        !state.closed
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.in_flight == 0 && state.unsent == 0
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
        let mut state = self.state.lock();
        let is_busy =
            |state: &mut State| !state.closed && (state.in_flight > 0 || state.unsent > 0);
        self.changed.wait_while(&mut state, is_busy);
        drop(state);
        self.close();
    }

    /// Closes the connection, whatever is to be sent.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.replies.clear();
        state.unsent = 0;
        let _ = self.stream.shutdown(Shutdown::Both);
        drop(state);
        self.changed.notify_all();
    }

    /// Reads no more; what was read is answered.
    pub(crate) fn stop_reading(&self) {
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Sends a reply, now or soon. Never waits for the peer.
    pub(crate) fn send(self: &Arc<Self>, mut reply: Vec<u8>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        if !state.writing {
            match send_now(&self.stream, &reply) {
                Ok(sent) if sent == reply.len() => return,
                Ok(sent) => drop(reply.drain(..sent)),
                Err(_) => {
                    drop(state);
                    return self.close();
                }
            }
        }
        state.unsent += reply.len();
        state.replies.push_back(reply);
        if state.writing {
            return;
        }
        state.writing = true;
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
            let Some(reply) = state.replies.pop_front() else {
                state.writing = false;
                state.unsent = 0;
                drop(state);
                self.changed.notify_all();
                return;
            };
            drop(state);
            let sent = write_until(&self.stream, &reply, Instant::now() + limits::SEND_TIME);
            let mut state = self.state.lock();
            state.unsent -= reply.len().min(state.unsent);
            drop(state);
            self.changed.notify_all();
            if sent.is_err() {
                self.close();
            }
        }
    }

    pub(crate) fn touch(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
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
