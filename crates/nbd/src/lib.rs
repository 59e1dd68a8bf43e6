//! Network block devices: a client of the [NBD protocol].
//!
//! ```text
//!   uri.rs          nbd://host:port/export        where a server is, and how it is reached
//!   negotiate.rs    greeting, options, export     a machine without I/O: bytes in, bytes out
//!   wire.rs         requests and replies          bytes to types and back
//!   extents.rs      replies of block status
//!        │
//!   dial.rs         making connections
//!   stream.rs       TCP, Unix sockets, TLS (tls.rs)
//!   connection.rs   one connection, with many requests under way
//!   kept.rs         what is kept of changes for a new connection:
//!   unflushed.rs      what a server may still lose
//!   identity.rs       whether a server has the storage of before
//!   renew.rs        connections that are replaced when one breaks
//!   client.rs       a device
//! ```
//!
//! What a server says is not trusted: all numbers are checked against what was asked and against
//! fixed bounds before memory is taken or a byte is used. An error reply fails its request
//! ([`Error::Refused`]); a reply that breaks the protocol fails the connection.
//!
//! [NBD protocol]: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md

mod client;
mod connection;
mod dial;
pub mod extents;
mod identity;
mod kept;
pub mod negotiate;
mod renew;
mod scatter;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod unflushed;
mod uri;
pub mod wire;

pub use client::Client;
pub use dial::{Dial, Dialer};
pub use extents::Extent;
pub use negotiate::{BlockLimits, Export};
pub use uri::{Place, Uri, UriError};
pub use wire::{Command, ExportFlags, RequestFlags};

use std::io;
use std::time::Duration;

/// What ends a request or a connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The server refused one request, with this error number of Linux. Other requests go on.
    #[error("the server answers: {}", io::Error::from_raw_os_error(*code))]
    Refused {
        /// The error number.
        code: i32,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("{why}")]
    Broken {
        /// What kind of error.
        kind: io::ErrorKind,
        /// What happened.
        why: String,
    },
    /// The server does not answer.
    #[error("the server has not answered for {} s", after.as_secs())]
    TimedOut {
        /// How long.
        after: Duration,
    },
    /// The server breaks the protocol.
    #[error("the server breaks the NBD protocol: {0}")]
    Protocol(String),
    /// The server has no such export, or not on these terms.
    #[error("{0}")]
    NoExport(String),
}

/// Result of a request.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A reply against the rules.
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol(what.into())
    }

    /// A failed system call on the socket.
    pub(crate) fn broken(what: &str, error: &io::Error) -> Self {
        Self::Broken { kind: error.kind(), why: format!("{what}: {error}") }
    }

    /// True if the network or the server is gone, perhaps for a while.
    pub(crate) fn is_of_network(&self) -> bool {
        match self {
            // (This process may not connect, and will not be allowed to either.)
            Self::Broken { kind, .. } => *kind != io::ErrorKind::PermissionDenied,
            Self::TimedOut { .. } => true,
            _ => false,
        }
    }

    /// The same with other words.
    pub(crate) fn with_text(&self, why: String) -> Self {
        let kind = match self {
            Self::Broken { kind, .. } => *kind,
            Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            _ => return self.clone(),
        };
        Self::Broken { kind, why }
    }

    /// As an error of I/O.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match &self {
            Self::Refused { code } => io::Error::from_raw_os_error(*code),
            Self::Broken { kind, .. } => io::Error::new(*kind, self.to_string()),
            Self::TimedOut { .. } => io::Error::new(io::ErrorKind::TimedOut, self.to_string()),
            Self::Protocol(_) => io::Error::new(io::ErrorKind::InvalidData, self.to_string()),
            Self::NoExport(_) => io::Error::new(io::ErrorKind::NotFound, self.to_string()),
        }
    }
}
