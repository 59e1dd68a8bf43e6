//! What a peer may take of the server.

use std::time::Duration;

/// Most bytes that one READ or WRITE moves.
pub const DATA: u32 = 1 << 20;
/// Longest record of a peer: data, and what is around it.
pub const RECORD: usize = DATA as usize + (4 << 10);
/// Most fragments of a record.
pub const FRAGMENTS: usize = 64;
/// Longest answer to READDIR and READDIRPLUS.
pub const LISTING: u32 = 256 << 10;
/// Requests of one connection that are worked on at a time. The next is read when one is answered.
pub const IN_FLIGHT: usize = 64;
/// Bytes of replies that one connection has not taken. Beyond them no request of it is read.
pub const UNSENT: usize = 4 << 20;
/// Time for a record to arrive whole, once it has begun.
pub const RECORD_TIME: Duration = Duration::from_secs(60);
/// Time in which a peer takes the next bytes of a reply.
pub const SEND_TIME: Duration = Duration::from_secs(60);
/// A connection without requests for so long is closed. (Clients connect again.)
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// A connection that is idle for so long makes room for a new one, if there are too many.
pub const MAKES_ROOM: Duration = Duration::from_secs(30);
/// Threads that work on requests.
pub const WORKERS: usize = 16;
/// Connections, if nothing else is said.
pub const CONNECTIONS: usize = 256;
/// Bytes of requests and replies in memory, if nothing else is said. Each connection may have one
/// request beyond that.
pub const MEMORY: usize = 128 << 20;
/// Replies that are kept for repeated requests.
pub const REPEATS: usize = 2048;
/// For how long.
pub const REPEATS_TIME: Duration = Duration::from_secs(120);
/// Time that requests have to end when the server stops.
pub const DRAIN: Duration = Duration::from_secs(20);
