//! Serves a file system over NFSv3 (RFC 1813), with its MOUNT protocol on the same port.
//!
//! ```text
//!   server       accepts, limits connections, stops in order
//!   connection   one peer: reads records, sends replies
//!   records      record marking (RFC 5531) within limits of size and time
//!   counters     calls and connections, to be shown
//!   admission    which connection ends for another one
//!   client       whose budgets and shares there are
//!   memory       what requests and replies may take
//!   work         queue of requests and the threads that take them
//!   repeats      calls that come again, and their replies
//!   dispatch     program and procedure of a call; replies that wait for durability
//!   mountd       MOUNT
//!   procs/       the procedures of NFS
//!   export       what they share: the file system, handles, locks, the write verifier
//!   ahead        readers with read-ahead
//!   access       rights of a caller: squashing, permission bits, access lists
//!   attrs status attributes and errors as the protocol has them
//!   handle       file handles
//!   config       what may be set
//!   rpc  xdr     calls, replies, numbers and bytes
//! ```
//!
//! Every peer is hostile. What a peer sends is decoded from a record that is whole and within
//! [`limits`]; nothing is allocated by a number that it sends. A mistake ends in an error for that
//! peer alone: a reply, or the end of its connection.
//!
//! - NF-1: what a reply calls durable is durable. Changes of names and attributes, and writes that
//!   ask for it, are answered when their fsync has called back.
//! - NF-2: bytes that are acknowledged and not durable are lost only together with the write
//!   verifier: it is new with each start and after each failed sync.
//! - NF-3: a handle names the inode that it was made for, in any later start of the server, or
//!   nothing.
//! - NF-4: a handle that the export did not hand out names nothing, so no peer leaves the subtree.

mod access;
mod admission;
mod ahead;
mod attrs;
mod client;
mod config;
mod connection;
mod counters;
mod dispatch;
mod export;
mod handle;
pub mod limits;
mod memory;
mod mountd;
mod procs;
mod records;
mod repeats;
mod rpc;
mod server;
mod status;
mod work;
mod xdr;

pub use config::{Config, Network, Squash};
pub use counters::Counters;
pub use dispatch::answer_bytes;
pub use export::{Export, ExportError};
pub use handle::Secret;
pub use server::{Server, Stopper};

#[cfg(test)]
mod tests;
