//! A device of a server: all of its connections, and what becomes of them when one breaks.
//!
//! Reads and changes are divided into requests as large as the server takes, which go out together.
//! With several connections a call takes the one with the fewest requests under way. A flush goes
//! over any of them: a server that lets several connections be used
//! ([`MULTI_CONN`](ExportFlags::MULTI_CONN)) makes durable what was written on all.
//!
//! # A connection that breaks
//!
//! The server may have been restarted, and what it had not flushed is lost; or only the connection
//! broke. NBD does not tell which. So all connections are given up together. With an
//! [`Uri::reconnect`] of zero the device is gone then. Otherwise new ones are made until that time
//! has passed. The start of the volume must be one that it can have (`identity.rs`), and all that
//! was acknowledged since the last flush is written again (`unflushed.rs`) before all else.
//! Then requests without a reply are made again by their callers, which notice nothing.
//!
//! Two things forbid it, because the server might bring older bytes to a place to which newer ones
//! were written on a new connection, and NBD has no way to keep it from that:
//!
//! - a change without a reply, which the server may still carry out, at any time;
//! - changes that were acknowledged and not flushed, at a server that does not promise one cache
//!   for all of its connections ([`MULTI_CONN`](ExportFlags::MULTI_CONN)).
//!
//! Then the device is gone for good, unless [`Uri::settle`] promises how soon a server has done
//! with a broken connection: that time passes first. An address is taken to lead to one server:
//! that a second one does not serve the same storage while the first still writes is a matter of
//! fencing.
//!
//! Invariants
//! - NB-5: no request goes out on a new connection before all that is kept was written again on it
//!   and acknowledged, and all callers of the old ones have noted what was acknowledged there
//!   (`Client::make`).
//! - NB-6: a change is made again only if the server cannot carry out its first one later than the
//!   second, by what is promised.
//! - NB-7: once gone, every request fails with the error that was the reason.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extol_sync::Mutex;

use crate::connection::{Answer, Connection, Data, Part};
use crate::dial::{Dial, Dialer};
use crate::identity::{COMPARED, Identity};
use crate::kept::Kept;
use crate::negotiate::{Negotiation, Step};
use crate::renew::{Generation, Generations, Policy, Renew};
use crate::stream::Stream;
use crate::unflushed::Content;
use crate::wire::{Command, ExportFlags, RequestFlags};
use crate::{Error, Export, Extent, Result, Uri};

/// Connections of a device, if the server allows several.
const CONNECTIONS: usize = 4;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a further connection may take, without which it goes as well.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(3);
/// How long connections are tried to be made again.
const RECONNECT: Duration = Duration::from_secs(60);
/// How long a server may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Most bytes of a request with data. Larger ones are no faster, and take longer to be sent.
const MOST_DATA: u32 = 1 << 20;
/// Most bytes of the requests with data that a call has under way.
const WINDOW: u64 = 8 << 20;
/// Most bytes of a request without data: the largest multiple of all blocks.
const MOST_RANGE: u64 = 1 << 30;
/// Most parts of a call.
const MOST_PARTS: usize = 64;

/// A device of a server.
#[derive(Debug)]
pub struct Client {
    maker: Maker,
    export: Export,
    generations: Generations,
    kept: Kept,
}

/// How connections are made.
#[derive(Debug)]
struct Maker {
    uri: Uri,
    dialer: Dialer,
    /// What makes connections in place of this process.
    other: OnceLock<Arc<dyn Dial>>,
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::Setup>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or breaks the protocol.
    pub fn connect(uri: &Uri) -> Result<Self> {
        Self::connect_to(uri, 0)
    }

    /// Connects to a volume that begins at this byte of the export.
    ///
    /// # Errors
    /// As of [`connect`](Self::connect).
    pub fn connect_to(uri: &Uri, start: u64) -> Result<Self> {
        let maker = Maker::new(uri)?;
        let first = maker.connect(CONNECT_TIMEOUT)?;
        let export = first.export.clone();
        let connections = maker.connect_more(first);
        let reconnect = uri.reconnect.unwrap_or(RECONNECT);
        let can_lose = export.flags.contains(ExportFlags::FLUSH) && !reconnect.is_zero();
        let policy = Policy { reconnect, settle: uri.settle };
        let generations = Generations::new(connections, policy);
        let mut client = Self { maker, export, generations, kept: Kept::default() };
        if !reconnect.is_zero() {
            let compared = client.compared(start);
            let mut bytes = vec![0; (compared.end - compared.start) as usize];
            // (Where it cannot be read it is not compared.)
            let is_read = client.read(&mut [IoSliceMut::new(&mut bytes)], compared.start).is_ok();
            client.kept.unflushed = can_lose.then(Mutex::default);
            let identity = || Mutex::new(Identity::new(compared.start, bytes));
            client.kept.identity = is_read.then(identity);
        }
        Ok(client)
    }

    /// Lets another process make all connections from now on. The first such call counts.
    pub fn dial_by(&self, other: Arc<dyn Dial>) {
        let _ = self.maker.other.set(other);
    }

    /// The blocks at the start of a volume that are compared on a new connection.
    fn compared(&self, start: u64) -> Range<u64> {
        let (block, size) = (u64::from(self.export.limits.min), self.export.size);
        let start = start.min(size) / block * block;
        let end = start.saturating_add(COMPARED).checked_next_multiple_of(block);
        start..end.unwrap_or(size).min(size)
    }

    /// What the server tells of the export.
    #[must_use]
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.generations.current().map_or(0, |current| current.connections.len())
    }

    /// Fills the buffers from `offset`, which is inside like the end. Both are multiples of the
    /// least block, as in all requests.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn read(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let parts = self.with_data(Command::Read, RequestFlags::empty(), offset, len, 0);
        for window in windows(&parts) {
            all(self.call(window, &mut Data::In(bufs), &|| {})?)?;
        }
        Ok(())
    }

    /// Writes the buffers at `offset`; with `fua` they are durable then.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn write(&self, bufs: &[IoSlice<'_>], offset: u64, fua: bool) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let parts = self.with_data(Command::Write, fua_flag(fua), offset, len, 0);
        self.write_parts(&parts, bufs)
    }

    /// Does several writes, at the same time: offsets and lengths of what the buffers hold one
    /// behind the other. They are not ordered.
    ///
    /// # Errors
    /// As of [`write`](Self::write); any of them may be done.
    pub fn write_all(&self, places: &[(u64, u64)], bufs: &[IoSlice<'_>], fua: bool) -> Result<()> {
        let mut parts = Vec::new();
        let mut place = 0;
        for (offset, len) in places {
            parts.extend(self.with_data(Command::Write, fua_flag(fua), *offset, *len, place));
            place += *len as usize;
        }
        self.write_parts(&parts, bufs)
    }

    fn write_parts(&self, parts: &[Part], bufs: &[IoSlice<'_>]) -> Result<()> {
        windows(parts).try_for_each(|window| self.change(window, bufs))?;
        if self.kept.is_full() { self.flush() } else { Ok(()) }
    }

    fn change(&self, parts: &[Part], bufs: &[IoSlice<'_>]) -> Result<()> {
        self.kept.sent(parts, bufs);
        let note = || self.kept.acknowledged(parts, bufs);
        let mut data = if bufs.is_empty() { Data::None } else { Data::Out(bufs) };
        let changed = all(self.call(parts, &mut data, &note)?);
        if changed.is_err() {
            self.kept.refused(parts);
        }
        changed
    }

    /// Makes all durable that was written before this call. Nothing to do if the server has no
    /// cache that it could flush.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn flush(&self) -> Result<()> {
        if !self.export.flags.contains(ExportFlags::FLUSH) {
            return Ok(());
        }
        let part = part(Command::Flush, RequestFlags::empty(), 0..0);
        // (One that is made again covers what the first would have, and what is written again.)
        let begun = self.kept.begin_flush();
        all(self.call(&[part], &mut Data::None, &|| self.kept.end_flush(begun))?)
    }

    /// Discards a range.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn trim(&self, range: Range<u64>) -> Result<()> {
        self.without_data(Command::Trim, RequestFlags::empty(), range)
    }

    /// Makes a range read as zeros; with `fast` it fails where that takes as long as writing them.
    /// They take no space if `may_be_hole`.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn write_zeroes(&self, range: Range<u64>, may_be_hole: bool) -> Result<()> {
        let flags = if may_be_hole { RequestFlags::empty() } else { RequestFlags::NO_HOLE };
        self.without_data(Command::WriteZeroes, flags, range)
    }

    /// What is known of a range, from its start on, at least of a part of it. `None` if the server
    /// tells of no holes.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn block_status(&self, range: Range<u64>) -> Result<Option<Vec<Extent>>> {
        if self.export.allocation.is_none() || range.is_empty() {
            return Ok(None);
        }
        let end = range.end.min(range.start.saturating_add(MOST_RANGE));
        let part = part(Command::BlockStatus, RequestFlags::empty(), range.start..end);
        let mut answers = self.call(&[part], &mut Data::None, &|| {})?;
        match answers.pop() {
            Some(answer) => Ok(Some(answer?.extents)),
            None => Err(Error::protocol("a reply is lost")),
        }
    }

    fn without_data(&self, command: Command, flags: RequestFlags, range: Range<u64>) -> Result<()> {
        let parts = ranges(command, flags, range);
        parts.chunks(MOST_PARTS).try_for_each(|window| self.change(window, &[]))
    }

    /// The requests for a range with data.
    fn with_data(
        &self,
        command: Command,
        flags: RequestFlags,
        offset: u64,
        len: u64,
        place: usize,
    ) -> Vec<Part> {
        let limits = self.export.limits;
        let most = limits.max.min(MOST_DATA);
        let most = u64::from((most - most % limits.min).max(limits.min));
        let count = len.div_ceil(most);
        let requests = (0..count).map(|nr| {
            let at = nr * most;
            let len = most.min(len - at) as u32;
            Part { command, flags, offset: offset + at, len, place: place + at as usize }
        });
        requests.collect()
    }

    /// Sends requests and waits for the replies, over new connections if one breaks. If none of
    /// them was refused, `note` is called before anything else goes out on a new connection.
    fn call(
        &self,
        parts: &[Part],
        data: &mut Data<'_, '_>,
        note: &dyn Fn(),
    ) -> Result<Vec<Result<Answer>>> {
        let is_change = parts.iter().any(|part| part.command.is_change());
        loop {
            let generation = self.generations.enter(self)?;
            match least_loaded(&generation.connections).call(parts, data) {
                Ok(answers) => {
                    if answers.iter().all(Result::is_ok) {
                        note();
                    }
                    self.generations.leave(&generation, None, false);
                    return Ok(answers);
                }
                Err(failed) => {
                    let may_come = is_change && failed.was_sent;
                    self.generations.leave(&generation, Some(&failed.error), may_come);
                }
            }
        }
    }

    /// Fails if the volume begins with what it cannot hold.
    fn check_start(&self, connection: &Connection) -> Result<()> {
        let Some(identity) = &self.kept.identity else { return Ok(()) };
        let Range { start: at, end } = identity.lock().range();
        let mut start = vec![0; (end - at) as usize];
        let parts = self.with_data(Command::Read, RequestFlags::empty(), at, end - at, 0);
        let mut bufs = [IoSliceMut::new(&mut start)];
        let read = connection.call(&parts, &mut Data::In(&mut bufs));
        all(read.map_err(|failed| failed.error)?)?;
        if identity.lock().may_be(&start) {
            Ok(())
        } else {
            let why = "the export has another content now than before the connection broke: \
                       it is another one, or another host has written to it";
            Err(Error::NoExport(why.into()))
        }
    }

    fn write_again(
        &self,
        connection: &Connection,
        range: Range<u64>,
        content: &Content,
    ) -> Result<()> {
        let len = range.end - range.start;
        let none = RequestFlags::empty();
        let call = |parts: &[Part], data: &mut Data<'_, '_>| {
            all(connection.call(parts, data).map_err(|failed| failed.error)?)
        };
        match content {
            Content::Zeros => call(&ranges(Command::WriteZeroes, none, range), &mut Data::None),
            Content::Bytes(bytes, part) => {
                let bufs = [IoSlice::new(&bytes[part.clone()])];
                let parts = self.with_data(Command::Write, none, range.start, len, 0);
                windows(&parts).try_for_each(|window| call(window, &mut Data::Out(&bufs)))
            }
        }
    }
}

impl Renew for Client {
    fn make(&self, number: u64) -> Result<Generation> {
        let first = self.maker.connect(CONNECT_TIMEOUT)?;
        if first.export != self.export {
            let why = "the server has another export now than before the connection broke";
            return Err(Error::NoExport(why.into()));
        }
        self.check_start(&first)?;
        for (range, content) in self.kept.all() {
            self.write_again(&first, range, &content)?;
        }
        Ok(Generation { number, connections: self.maker.connect_more(first) })
    }

    fn may_come_late(&self) -> bool {
        let is_shared = self.export.flags.contains(ExportFlags::MULTI_CONN);
        !is_shared && !self.kept.is_empty()
    }
}

fn least_loaded(connections: &[Connection]) -> &Connection {
    let mut best = &connections[0];
    if connections.len() > 1 {
        let mut least = usize::MAX;
        for connection in connections {
            let load = connection.load();
            if load < least {
                (least, best) = (load, connection);
            }
        }
    }
    best
}

impl Drop for Client {
    fn drop(&mut self) {
        for connection in self.generations.current().iter().flat_map(|all| &all.connections) {
            connection.disconnect();
        }
    }
}

fn fua_flag(fua: bool) -> RequestFlags {
    if fua { RequestFlags::FUA } else { RequestFlags::empty() }
}

fn part(command: Command, flags: RequestFlags, range: Range<u64>) -> Part {
    let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
    Part { command, flags, offset: range.start, len, place: 0 }
}

/// Requests without data for a range.
fn ranges(command: Command, flags: RequestFlags, range: Range<u64>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at.saturating_add(MOST_RANGE));
        parts.push(part(command, flags, at..end));
        at = end;
    }
    parts
}

/// Parts that go out together.
fn windows(parts: &[Part]) -> impl Iterator<Item = &[Part]> {
    let mut rest = parts;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(MOST_PARTS).take_while(|part| {
            bytes += u64::from(part.len);
            bytes <= WINDOW
        });
        let count = fits.count().max(1).min(rest.len());
        let (now, later) = rest.split_at(count);
        rest = later;
        (!now.is_empty()).then_some(now)
    })
}

/// The first error of all answers.
fn all(answers: Vec<Result<Answer>>) -> Result<()> {
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

impl Maker {
    fn new(uri: &Uri) -> Result<Self> {
        #[cfg(not(feature = "tls"))]
        if uri.tls {
            return Err(Error::NoExport("this program is built without TLS".into()));
        }
        Ok(Self {
            uri: uri.clone(),
            dialer: Dialer::new(uri)?,
            other: OnceLock::new(),
            #[cfg(feature = "tls")]
            tls: uri.tls.then(|| crate::tls::Setup::read(uri)).transpose()?,
        })
    }

    /// As many connections as may be used, with a first one.
    fn connect_more(&self, first: Connection) -> Vec<Connection> {
        let several = first.export.flags.contains(ExportFlags::MULTI_CONN);
        let most = if several { self.uri.connections.unwrap_or(CONNECTIONS) } else { 1 };
        let mut connections = vec![first];
        while connections.len() < most {
            match self.connect(EXTRA_TIMEOUT) {
                Ok(more) if more.export == connections[0].export => connections.push(more),
                _ => break,
            }
        }
        connections
    }

    fn connect(&self, timeout: Duration) -> Result<Connection> {
        let timeout = timeout.min(self.uri.timeout.unwrap_or(timeout));
        let dialer = self.other.get().map_or(&self.dialer as &dyn Dial, |other| &**other);
        let socket =
            dialer.dial(timeout).map_err(|error| Error::broken("cannot connect", &error))?;
        let mut stream = Stream::new(socket, &self.uri.place, timeout)?;
        let mut negotiation = Negotiation::new(&self.uri.export, self.uri.tls);
        loop {
            let mut input = vec![0; negotiation.needs()];
            stream.receiver.read_only(&mut input)?;
            let send = match negotiation.feed(&input)? {
                Step::Send(bytes) => bytes,
                Step::StartTls(bytes) => {
                    #[cfg(feature = "tls")]
                    if let Some(setup) = &self.tls {
                        stream.start_tls(setup)?;
                    }
                    bytes
                }
                Step::Ready(export) => {
                    stream.set_timeout(self.uri.timeout.unwrap_or(TIMEOUT))?;
                    return Ok(Connection::new(stream, export));
                }
            };
            if !send.is_empty() {
                stream.sender.send(&mut [IoSlice::new(&send)])?;
            }
        }
    }
}
