//! A client of NFSv3 as a target, and exports to which it connects.
//!
//! It calls what Linux's client calls for the same system calls, and keeps what that one keeps:
//! handles of names, and the contents of files that it has read or written. A file that is opened
//! costs a GETATTR (close-to-open), one that is made a LOOKUP and a CREATE. What is written goes to
//! the server when the file is synced or closed: as one WRITE that is durable at once, if it is
//! one stretch of at most a megabyte, else as UNSTABLE ones with a COMMIT. Each thread that calls
//! has a connection of its own.
//!
//! The network is a delay of each call, there and back, in which the thread sleeps; calls that go
//! out together are delayed together.

mod client;
mod rpc;
mod server;

use std::net::SocketAddr;
use std::time::Duration;

pub use client::Client;
pub(crate) use server::Serving;

use crate::{BenchError, Result};

/// A server that is there already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Where it answers.
    pub socket: SocketAddr,
    /// The handle of the directory, if MOUNT is not to be asked for it.
    pub handle: Option<Vec<u8>>,
    /// Of each call, there and back.
    pub delay: Duration,
}

impl Address {
    /// Understands `HOST:PORT[,handle=HEX][,delay_us=N]`.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            BenchError(format!(
                "NFS server \"{text}\": use ADDRESS:PORT, and perhaps ,delay_us=N and ,handle=HEX"
            ))
        };
        let (delay, rest) = split_delay(text)?;
        let mut words = rest.split(',');
        let socket = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let mut handle = None;
        for word in words {
            let hex = word.strip_prefix("handle=").ok_or_else(wrong)?;
            let digits: Option<Vec<u8>> =
                hex.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
            let digits = digits.filter(|d| d.len() % 2 == 0).ok_or_else(wrong)?;
            handle = Some(digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect());
        }
        Ok(Self { socket, handle, delay })
    }
}

/// Takes `delay_us=N` out of a list of options.
///
/// # Errors
/// One line, if the number is none.
pub(crate) fn split_delay(list: &str) -> Result<(Duration, String)> {
    let mut delay = Duration::ZERO;
    let mut rest = Vec::new();
    for word in list.split(',') {
        match word.strip_prefix("delay_us=") {
            Some(number) => {
                let number = number.parse().ok().filter(|number| *number <= 10_000_000);
                delay = number.map(Duration::from_micros).ok_or_else(|| {
                    BenchError(format!("{word}: use microseconds, ten seconds at most"))
                })?;
            }
            None => rest.push(word),
        }
    }
    Ok((delay, rest.join(",")))
}

#[cfg(test)]
mod tests;
