//! What a peer may take of the server.

use std::time::Duration;

/// Most bytes that one READ or WRITE moves.
pub const DATA: u32 = 1 << 20;
/// Longest record of a peer: data, and what is around it.
pub const RECORD: usize = DATA as usize + (4 << 10);
/// Most fragments of a record: one for each of its bytes. So those without any take no more time.
pub const FRAGMENTS: usize = RECORD;
/// A record of so many bytes is read before there is memory for it.
pub const SMALL: usize = 16 << 10;
/// Room for what a request and its reply take beside their data.
pub const OVERHEAD: usize = 4 << 10;
/// Longest answer to READDIR and READDIRPLUS.
pub const LISTING: u32 = 256 << 10;
/// Requests of one connection that are worked on at a time. The next is read when one is answered.
pub const IN_FLIGHT: usize = 64;
/// Time for a record to arrive whole, once it has begun.
pub const RECORD_TIME: Duration = Duration::from_secs(60);
/// Time in which a peer takes the next bytes of a reply.
pub const SEND_TIME: Duration = Duration::from_secs(60);
/// A connection that keeps memory for so long, for what it does not send or take, is closed if
/// others wait for memory.
pub const STALLED: Duration = Duration::from_secs(5);
/// A connection without requests for so long is closed. (Clients connect again.)
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// A connection that is idle for so long makes room for a new one, if there are too many.
pub const MAKES_ROOM: Duration = Duration::from_secs(30);
/// Threads that work on requests.
pub const WORKERS: usize = 16;
/// Connections, if nothing else is said.
pub const CONNECTIONS: usize = 256;
/// Bytes of requests and replies in memory, if nothing else is said.
pub const MEMORY: usize = 128 << 20;
/// The least that they can be.
pub const MEMORY_LEAST: usize = 4 << 20;
/// The part of the memory that is set apart for the replies to repeated requests.
pub const REPEATS_PART: usize = 16;
/// Bytes that such a reply takes.
pub const REPEAT: usize = 512;
/// Such replies that are kept for one client.
pub const REPEATS: usize = 2048;
/// For how long.
pub const REPEATS_TIME: Duration = Duration::from_secs(120);
/// Time that requests have to end when the server stops.
pub const DRAIN: Duration = Duration::from_secs(20);
