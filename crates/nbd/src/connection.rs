//! One connection with many requests under way.
//!
//! There is no thread of its own. A thread that waits for replies receives for all, one thread at a
//! time: its own bytes go straight to their place, those of others are put down for them. When it
//! has its replies, it wakes one that waits, which goes on receiving.
//!
//! ```text
//!   A: send ── receives ─ A's reply ─► returns
//!   B:    send ── waits ───────────── receives ─ C's data, B's reply ─► returns
//!   C:       send ── waits ────────────────────────── woken ─► returns
//! ```
//!
//! Invariants
//! - NB-1: all requests of a call are sent under one lock, before the call waits for any reply. A
//!   thread that sends may be stuck until the server has got rid of replies; each of those belongs
//!   to a call that has sent everything, so it receives or another thread does
//!   ([`Connection::call`]).
//! - NB-2: while calls wait, one thread receives or was woken to do so: a thread that returns
//!   passes that on ([`Table::pass_on`]).
//! - NB-3: after a failure no request is sent and no reply is believed; each call that has no whole
//!   reply fails ([`Connection::fail`]).

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use extol_sync::{Condvar, Mutex};

use crate::extents::{self, Extent};
use crate::scatter::{pieces, pieces_mut};
use crate::stream::{Closer, Receiver, Sender, Stream};
use crate::wire::{
    CHUNK_LEN, ChunkKind, Command, Coverage, Head, MOST_SMALL, Request, RequestFlags, decode_error,
    decode_hole, errno,
};
use crate::{Error, Export, Result};

/// Most bytes of a chunk of block status.
const MOST_STATUS: u32 = 16 << 20;

/// A request of a call, without its cookie.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub command: Command,
    pub flags: RequestFlags,
    pub offset: u64,
    pub len: u32,
    /// Where in the buffers its bytes begin.
    pub place: usize,
}

/// The bytes of a call.
#[derive(Debug)]
pub(crate) enum Data<'a, 'b> {
    None,
    /// For each part of the call its bytes.
    Out(&'a [IoSlice<'b>]),
    In(&'a mut [IoSliceMut<'b>]),
}

/// What a part was answered.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Extents, of a block status.
    pub extents: Vec<Extent>,
}

/// A call whose connection failed.
#[derive(Clone, Debug)]
pub(crate) struct CallFailed {
    pub error: Error,
    /// Some of it may have reached the server: each part may or may not be carried out, now or
    /// later.
    pub was_sent: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub export: Export,
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
    closer: Closer,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last_cookie: u64,
    slots: HashMap<u64, Slot>,
    /// A thread receives.
    is_received: bool,
    /// Calls that wait.
    waiting: Vec<Arc<Condvar>>,
    failure: Option<Error>,
}

impl Table {
    /// Wakes a call that waits, if none receives. (It may have been answered meanwhile, and passes
    /// that on in its turn.)
    fn pass_on(&self) {
        if !self.is_received
            && let Some(next) = self.waiting.first()
        {
            next.notify_all();
        }
    }
}

/// A request that was sent.
#[derive(Debug)]
struct Slot {
    call: Arc<Condvar>,
    command: Command,
    range: Range<u64>,
    coverage: Coverage,
    /// Bytes that another thread received, and where in the request they belong.
    put_down: Vec<(usize, Vec<u8>)>,
    extents: Vec<Extent>,
    error: Option<i32>,
    is_answered: bool,
}

/// What a chunk tells to receive.
enum Incoming {
    Nothing,
    /// Bytes of a read: where in its call, and how many.
    Bytes {
        at: usize,
        len: usize,
    },
    /// Zeros of a read.
    Zeros {
        at: usize,
        len: usize,
    },
}

impl Connection {
    pub fn new(stream: Stream, export: Export) -> Self {
        Self {
            export,
            closer: stream.sender.closer(),
            sender: Mutex::new(stream.sender),
            receiver: Mutex::new(stream.receiver),
            table: Mutex::default(),
        }
    }

    /// How many requests are under way.
    pub fn load(&self) -> usize {
        self.table.lock().slots.len()
    }

    /// Sends all parts, and waits for all replies. The outer error is that of the connection.
    pub fn call(
        &self,
        parts: &[Part],
        data: &mut Data<'_, '_>,
    ) -> std::result::Result<Vec<Result<Answer>>, CallFailed> {
        let call = Arc::new(Condvar::new());
        let cookies = self.send(&call, parts, data)?;
        let waited = self.wait(&call, parts, &cookies, data);
        let mut table = self.table.lock();
        let slots: Vec<_> = cookies.iter().map(|cookie| table.slots.remove(cookie)).collect();
        drop(table);
        waited.map_err(|error| CallFailed { error, was_sent: true })?;
        let answers = slots.into_iter().zip(parts).map(|(slot, part)| {
            let Some(slot) = slot else { return Err(Error::protocol("a reply is lost")) };
            if let Data::In(bufs) = data {
                for (at, bytes) in slot.put_down {
                    copy_in(bufs, part.place + at, &bytes);
                }
            }
            match slot.error {
                Some(code) => Err(Error::Refused { code }),
                None => Ok(Answer { extents: slot.extents }),
            }
        });
        Ok(answers.collect())
    }

    /// Says that no request comes any more.
    pub fn disconnect(&self) {
        if self.table.lock().failure.is_some() {
            return;
        }
        let request = Request {
            command: Command::Disconnect,
            flags: RequestFlags::empty(),
            cookie: 0,
            offset: 0,
            len: 0,
        };
        let _ = self.sender.lock().send(&mut [IoSlice::new(&request.encode())]);
        self.closer.close();
    }

    /// Ends the connection: all that wait get the first failure.
    pub fn fail(&self, error: &Error) -> Error {
        let mut table = self.table.lock();
        let first = table.failure.get_or_insert_with(|| error.clone()).clone();
        for call in table.waiting.drain(..) {
            call.notify_all();
        }
        drop(table);
        self.closer.close();
        first
    }

    /// NB-1: sends all parts.
    fn send(
        &self,
        call: &Arc<Condvar>,
        parts: &[Part],
        data: &Data<'_, '_>,
    ) -> std::result::Result<Vec<u64>, CallFailed> {
        let unsent = |error| CallFailed { error, was_sent: false };
        let mut sender = self.sender.lock();
        // (A server that was restarted meanwhile is noticed before a change is sent to it.)
        if self.table.lock().slots.is_empty() {
            sender.check_open().map_err(|error| unsent(self.fail(&error)))?;
        }
        let cookies = self.register(call, parts).map_err(unsent)?;
        let heads: Vec<_> = parts
            .iter()
            .zip(&cookies)
            .map(|(part, cookie)| {
                let Part { command, flags, offset, len, .. } = *part;
                Request { command, flags, cookie: *cookie, offset, len }.encode()
            })
            .collect();
        let mut bufs = Vec::new();
        for (part, head) in parts.iter().zip(&heads) {
            bufs.push(IoSlice::new(head));
            if let Data::Out(all) = data {
                bufs.extend(pieces(all, part.place, part.len as usize));
            }
        }
        let sent = sender.send(&mut bufs);
        drop(sender);
        if let Err(error) = sent {
            let error = self.fail(&error);
            let mut table = self.table.lock();
            for cookie in &cookies {
                table.slots.remove(cookie);
            }
            return Err(CallFailed { error, was_sent: true });
        }
        Ok(cookies)
    }

    fn register(&self, call: &Arc<Condvar>, parts: &[Part]) -> Result<Vec<u64>> {
        let mut table = self.table.lock();
        if let Some(error) = &table.failure {
            return Err(error.clone());
        }
        let cookies = parts.iter().map(|part| {
            table.last_cookie += 1;
            let slot = Slot {
                call: call.clone(),
                command: part.command,
                range: part.offset..part.offset.saturating_add(part.len.into()),
                coverage: Coverage::new(part.offset, part.len),
                put_down: Vec::new(),
                extents: Vec::new(),
                error: None,
                is_answered: false,
            };
            let cookie = table.last_cookie;
            table.slots.insert(cookie, slot);
            cookie
        });
        Ok(cookies.collect())
    }

    /// Waits until all requests of a call are answered, or the connection has failed.
    fn wait(
        &self,
        call: &Arc<Condvar>,
        parts: &[Part],
        cookies: &[u64],
        data: &mut Data<'_, '_>,
    ) -> Result<()> {
        let mut table = self.table.lock();
        loop {
            let is_open = |cookie: &u64| table.slots.get(cookie).is_some_and(|s| !s.is_answered);
            if !cookies.iter().any(is_open) {
                table.pass_on();
                return Ok(());
            }
            if let Some(error) = &table.failure {
                return Err(error.clone());
            }
            if table.is_received {
                table.waiting.push(call.clone());
                call.wait(&mut table);
                table.waiting.retain(|other| !Arc::ptr_eq(other, call));
                continue;
            }
            table.is_received = true;
            drop(table);
            let received = self.receive(
                &mut |cookie| {
                    let nr = cookies.iter().position(|own| *own == cookie)?;
                    parts.get(nr)
                },
                data,
            );
            if let Err(error) = &received {
                self.fail(error);
            }
            table = self.table.lock();
            table.is_received = false;
        }
    }

    /// Receives one reply or chunk. `own` gives the part of a cookie of the own call.
    fn receive<'p>(
        &self,
        own: &mut dyn FnMut(u64) -> Option<&'p Part>,
        data: &mut Data<'_, '_>,
    ) -> Result<()> {
        let mut receiver = self.receiver.lock();
        let mut head = [0; CHUNK_LEN];
        receiver.read_exact(&mut head[..4])?;
        let len = Head::len_of([head[0], head[1], head[2], head[3]])?;
        receiver.read_exact(&mut head[4..len])?;
        let head = Head::decode(&head[..len])?;
        let incoming = self.incoming(&head, &mut receiver)?;
        let part = own(head.cookie());
        let mut put_down = None;
        match (incoming, part, data) {
            (Incoming::Nothing, ..) => {}
            (Incoming::Bytes { at, len }, Some(part), Data::In(bufs)) => {
                pieces_mut(bufs, part.place + at, len, |piece| receiver.read_exact(piece))?;
            }
            (Incoming::Bytes { at, len }, ..) => {
                let mut bytes = vec![0; len];
                receiver.read_exact(&mut bytes)?;
                put_down = Some((at, bytes));
            }
            (Incoming::Zeros { at, len }, Some(part), Data::In(bufs)) => {
                pieces_mut(bufs, part.place + at, len, |piece| {
                    piece.fill(0);
                    Ok(())
                })?;
            }
            (Incoming::Zeros { at, len }, ..) => put_down = Some((at, vec![0; len])),
        }
        self.received(&head, put_down)
    }

    /// Reads what follows the head but data, and checks it against the request.
    fn incoming(&self, head: &Head, receiver: &mut Receiver) -> Result<Incoming> {
        let (cookie, allocation) = (head.cookie(), self.export.allocation);
        let unknown = || Error::protocol("a reply belongs to no request");
        // (A request that is answered stays in the table until its call sees that.)
        let with = |change: &mut dyn FnMut(&mut Slot) -> Result<Incoming>| {
            let mut table = self.table.lock();
            let slot = table.slots.get_mut(&cookie).filter(|slot| !slot.is_answered);
            change(slot.ok_or_else(unknown)?)
        };
        let (kind, len) = match *head {
            Head::Simple { error: 0, .. } => return with(&mut |slot| slot.simple(&self.export)),
            Head::Simple { error, .. } => {
                return with(&mut |slot| {
                    slot.error = Some(errno(error));
                    Ok(Incoming::Nothing)
                });
            }
            Head::Chunk { .. } if !self.export.is_structured => {
                return Err(Error::protocol("a reply comes in chunks, which were not agreed"));
            }
            Head::Chunk { kind, len, .. } => (kind, len),
        };
        with(&mut |slot| slot.check_chunk(kind, len))?;
        let mut contents = Vec::new();
        let small = match kind {
            ChunkKind::Data => 8,
            _ => len as usize,
        };
        contents.resize(small, 0);
        receiver.read_exact(&mut contents)?;
        with(&mut |slot| slot.chunk(kind, len, &contents, allocation))
    }

    /// Notes that a reply or chunk is here.
    fn received(&self, head: &Head, put_down: Option<(usize, Vec<u8>)>) -> Result<()> {
        let mut table = self.table.lock();
        let Some(slot) = table.slots.get_mut(&head.cookie()) else {
            return Err(Error::protocol("a reply belongs to no request"));
        };
        slot.put_down.extend(put_down);
        let is_last = matches!(head, Head::Simple { .. } | Head::Chunk { is_last: true, .. });
        if is_last {
            slot.check_end()?;
            slot.is_answered = true;
            slot.call.notify_all();
        }
        Ok(())
    }
}

impl Slot {
    /// A whole reply without an error.
    fn simple(&mut self, export: &Export) -> Result<Incoming> {
        match self.command {
            Command::Read if export.is_structured => {
                Err(Error::protocol("a read is answered without chunks, which were agreed"))
            }
            Command::Read => {
                let len = self.range.end - self.range.start;
                let at = self.coverage.add(self.range.start, len)?;
                Ok(Incoming::Bytes { at, len: len as usize })
            }
            Command::BlockStatus => Err(Error::protocol("a block status has no extent")),
            _ => Ok(Incoming::Nothing),
        }
    }

    /// Before the contents of a chunk are read: whether it may be so long.
    fn check_chunk(&self, kind: ChunkKind, len: u32) -> Result<Incoming> {
        let asked = self.range.end - self.range.start;
        let good = match (kind, self.command) {
            (ChunkKind::None, _) => len == 0,
            (ChunkKind::Data, Command::Read) => len > 8 && u64::from(len) <= asked + 8,
            (ChunkKind::Hole, Command::Read) => len == 12,
            (ChunkKind::BlockStatus, Command::BlockStatus) => len <= MOST_STATUS,
            (ChunkKind::Error | ChunkKind::ErrorAt, _) => len <= MOST_SMALL,
            _ => false,
        };
        match good {
            true => Ok(Incoming::Nothing),
            false => Err(Error::protocol(format!(
                "a chunk of {len} bytes ({kind:?}) answers {:?}",
                self.command
            ))),
        }
    }

    fn chunk(
        &mut self,
        kind: ChunkKind,
        len: u32,
        contents: &[u8],
        allocation: Option<u32>,
    ) -> Result<Incoming> {
        match kind {
            ChunkKind::None => Ok(Incoming::Nothing),
            ChunkKind::Data => {
                let offset = contents.first_chunk().map_or(u64::MAX, |at| u64::from_be_bytes(*at));
                let len = u64::from(len) - 8;
                let at = self.coverage.add(offset, len)?;
                Ok(Incoming::Bytes { at, len: len as usize })
            }
            ChunkKind::Hole => {
                let (offset, len) = decode_hole(contents)?;
                let at = self.coverage.add(offset, len.into())?;
                Ok(Incoming::Zeros { at, len: len as usize })
            }
            ChunkKind::BlockStatus => {
                let context = allocation.unwrap_or_default();
                if !self.extents.is_empty() {
                    return Err(Error::protocol("a block status comes twice"));
                }
                self.extents = extents::decode(contents, context, self.range.clone())?;
                Ok(Incoming::Nothing)
            }
            ChunkKind::Error | ChunkKind::ErrorAt => {
                self.error = Some(decode_error(contents)?);
                Ok(Incoming::Nothing)
            }
        }
    }

    /// A reply ends: it has an error, or everything that was asked for.
    fn check_end(&self) -> Result<()> {
        let is_whole = match self.command {
            Command::Read => self.coverage.is_whole(),
            Command::BlockStatus => !self.extents.is_empty(),
            _ => true,
        };
        if self.error.is_some() || is_whole {
            return Ok(());
        }
        Err(Error::protocol("a reply ends before all of it has come"))
    }
}

fn copy_in(bufs: &mut [IoSliceMut<'_>], at: usize, mut bytes: &[u8]) {
    let _ = pieces_mut(bufs, at, bytes.len(), |piece| {
        let (now, rest) = bytes.split_at(piece.len());
        piece.copy_from_slice(now);
        bytes = rest;
        Ok::<_, ()>(())
    });
}
