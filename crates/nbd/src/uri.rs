//! Addresses of exports, as the [NBD URI specification] has them.
//!
//! | written | means |
//! |---|---|
//! | `nbd://HOST:PORT/EXPORT` | TCP; port 10809 if there is none |
//! | `nbds://HOST:PORT/EXPORT` | the same with TLS |
//! | `nbd+unix:///EXPORT?socket=PATH`, `nbds+unix:` | a Unix socket |
//!
//! [NBD URI specification]: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::negotiate::MOST_NAME;

const DEFAULT_PORT: u16 = 10809;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A host, by name or address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// An address of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uri {
    /// As it was written.
    text: String,
    /// Where the server is.
    pub place: Place,
    /// The name of the export; empty for the default one.
    pub export: Vec<u8>,
    /// TLS is used.
    pub tls: bool,
    /// Where certificates are.
    pub certificates: Option<PathBuf>,
    /// The name in the server's certificate, if it is not that of the host.
    pub hostname: Option<String>,
    /// The server's certificate is checked.
    pub verifies: bool,
    /// Most connections.
    pub connections: Option<usize>,
    /// After which time without an answer the server is given up.
    pub timeout: Option<Duration>,
    /// For how long a connection that broke is tried to be made again.
    pub reconnect: Option<Duration>,
    /// After which time the server has done with the requests of a connection that broke.
    pub settle: Option<Duration>,
}

/// Why an address is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UriError(String);

fn fail<T>(why: impl Into<String>) -> Result<T, UriError> {
    Err(UriError(why.into()))
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Uri {
    /// True if a word has a scheme of NBD.
    #[must_use]
    pub fn is_one(word: &[u8]) -> bool {
        let mut schemes = SCHEMES.iter().map(|(scheme, ..)| scheme.as_bytes());
        schemes.any(|scheme| word.strip_prefix(scheme).is_some_and(|rest| rest.starts_with(b":")))
    }

    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return fail("it has no ://");
        };
        let Some((_, is_unix, tls)) = SCHEMES.iter().find(|(name, ..)| *name == scheme) else {
            return fail(format!("{scheme}:// is no scheme of NBD"));
        };
        if let Some(bad) = text.chars().find(|c| c.is_control() || *c == ' ' || *c == '#') {
            return fail(format!("{bad:?} is written %{:02X}", u32::from(bad)));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(path)?;
        if export.len() > MOST_NAME || export.contains(&0) {
            return fail("the name of the export is none");
        }
        let query = Query::parse(query)?;
        let place = match (is_unix, query.socket.clone()) {
            (true, Some(socket)) if !socket.has_root() => {
                return fail("socket= is a path from the root directory");
            }
            (true, Some(socket)) if authority.is_empty() => Place::Unix(socket),
            (true, Some(_)) => return fail(format!("{scheme}:// has no host: write {scheme}:///")),
            (true, None) => return fail("?socket=PATH is missing"),
            (false, Some(_)) => return fail("socket= belongs to nbd+unix:///"),
            (false, None) => tcp(authority)?,
        };
        Ok(Self {
            text: text.to_owned(),
            place,
            export,
            tls: *tls,
            certificates: query.certificates,
            hostname: query.hostname,
            verifies: query.verifies.unwrap_or(true),
            connections: query.connections,
            timeout: query.timeout,
            reconnect: query.reconnect,
            settle: query.settle,
        })
    }
}

/// Scheme, whether it is of Unix sockets, whether it has TLS.
const SCHEMES: &[(&str, bool, bool)] = &[
    ("nbd", false, false),
    ("nbds", false, true),
    ("nbd+unix", true, false),
    ("nbds+unix", true, true),
];

#[derive(Default)]
struct Query {
    socket: Option<PathBuf>,
    certificates: Option<PathBuf>,
    hostname: Option<String>,
    verifies: Option<bool>,
    connections: Option<usize>,
    timeout: Option<Duration>,
    reconnect: Option<Duration>,
    settle: Option<Duration>,
}

impl Query {
    fn parse(text: &str) -> Result<Self, UriError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let bytes = decoded(value)?;
            let word = || match String::from_utf8(bytes.clone()) {
                Ok(word) if !word.is_empty() => Ok(word),
                _ => fail(format!("{key}= has no value")),
            };
            let path = || match bytes.contains(&0) || bytes.is_empty() {
                true => fail(format!("{key}= is no path")),
                false => Ok(PathBuf::from(OsString::from_vec(bytes.clone()))),
            };
            match key {
                "socket" => query.socket = Some(path()?),
                "tls-certificates" => query.certificates = Some(path()?),
                "tls-hostname" => query.hostname = Some(word()?),
                "tls-verify-peer" => query.verifies = Some(truth(key, &word()?)?),
                "connections" => query.connections = Some(number(key, &word()?, 1..=16)? as usize),
                "timeout" => {
                    let seconds = number(key, &word()?, 1..=86_400)?;
                    query.timeout = Some(Duration::from_secs(seconds));
                }
                "reconnect" => {
                    let seconds = number(key, &word()?, 0..=86_400)?;
                    query.reconnect = Some(Duration::from_secs(seconds));
                }
                "settle" => {
                    let seconds = number(key, &word()?, 0..=86_400)?;
                    query.settle = Some(Duration::from_secs(seconds));
                }
                "tls-psk-file" | "tls-username" => {
                    return fail(format!("{key}= is not supported: use tls-certificates=DIR"));
                }
                _ => {
                    let known = "socket, tls-certificates, tls-hostname, tls-verify-peer, \
                                 connections, timeout, reconnect, settle";
                    return fail(format!("{key}= is not known: there are {known}"));
                }
            }
        }
        Ok(query)
    }
}

fn truth(key: &str, word: &str) -> Result<bool, UriError> {
    match word {
        "1" | "true" | "on" | "yes" => Ok(true),
        "0" | "false" | "off" | "no" => Ok(false),
        _ => fail(format!("{key}= is true or false")),
    }
}

fn number(key: &str, word: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, UriError> {
    match word.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => fail(format!("{key}= is a number from {} to {}", range.start(), range.end())),
    }
}

/// A host and perhaps a port; an IPv6 address is in brackets.
fn tcp(authority: &str) -> Result<Place, UriError> {
    if authority.contains('@') {
        return fail("it has a user: NBD knows none");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) => (host, port),
            None => return fail("a ] is missing"),
        },
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => DEFAULT_PORT,
        Some("") => DEFAULT_PORT,
        None => return fail("a : is missing before the port"),
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => return fail(format!("{port} is no port: it is a number from 1 to 65535")),
        },
    };
    let host = String::from_utf8(decoded(host)?);
    match host {
        // (As libnbd has it.)
        Ok(host) if host.is_empty() => Ok(Place::Tcp("localhost".into(), port)),
        Ok(host) => Ok(Place::Tcp(host, port)),
        Err(_) => fail("the host is none"),
    }
}

/// Bytes with their %XX decoded.
fn decoded(text: &str) -> Result<Vec<u8>, UriError> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (Some(high), Some(low)) = (digit(bytes.next()), digit(bytes.next())) else {
            return fail("a % is written %25");
        };
        out.push((high << 4 | low) as u8);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp(host.into(), port)
    }

    #[test]
    fn addresses_of_the_specification() {
        for (text, place, export, tls) in [
            ("nbd://example.com", tcp("example.com", 10809), "", false),
            ("nbd://example.com:30000/disk", tcp("example.com", 30000), "disk", false),
            ("nbds://[::1]:7/a%20b/c%2f", tcp("::1", 7), "a b/c/", true),
            ("nbd://[fe80::1]/", tcp("fe80::1", 10809), "", false),
            ("nbd:///x", tcp("localhost", 10809), "x", false),
            (
                "nbd+unix:///e?socket=/run/n%20b.sock",
                Place::Unix("/run/n b.sock".into()),
                "e",
                false,
            ),
            ("nbds+unix:///?socket=/s", Place::Unix("/s".into()), "", true),
        ] {
            let uri = Uri::parse(text).unwrap();
            assert_eq!((uri.place, uri.export, uri.tls), (place, export.into(), tls), "{text}");
            assert!(Uri::is_one(text.as_bytes()));
        }
        let uri = "nbds://h?tls-certificates=/c&tls-hostname=n&tls-verify-peer=false&timeout=5&\
                   connections=2&reconnect=0";
        let uri = Uri::parse(uri).unwrap();
        assert_eq!(uri.certificates.as_deref(), Some("/c".as_ref()));
        assert_eq!((uri.hostname.as_deref(), uri.verifies), (Some("n"), false));
        assert_eq!((uri.connections, uri.timeout), (Some(2), Some(Duration::from_secs(5))));
        assert_eq!(uri.reconnect, Some(Duration::ZERO));
    }

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        for (text, expected) in [
            ("nbd:/x", "no ://"),
            ("http://x", "no scheme of NBD"),
            ("nbd://h:0/", "no port"),
            ("nbd://h:70000", "no port"),
            ("nbd://[::1", "] is missing"),
            ("nbd://[::1]1", ": is missing"),
            ("nbd://u@h/", "a user"),
            ("nbd://h/%4", "%25"),
            ("nbd://h/%zz", "%25"),
            ("nbd://h/a b", "%20"),
            ("nbd://h/%00", "is none"),
            ("nbd+unix:///x", "socket=PATH is missing"),
            ("nbd+unix://h/x?socket=/s", "has no host"),
            ("nbd://h/?socket=/s", "belongs to nbd+unix"),
            ("nbd+unix:///?socket=s", "from the root"),
            ("nbds://h/?tls-psk-file=/f", "tls-certificates"),
            ("nbds://h/?tls-verify-peer=maybe", "true or false"),
            ("nbd://h/?timeout=0", "from 1"),
            ("nbd://h/?what=1", "not known"),
        ] {
            let error = Uri::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for word in ["nbd", "nbdx://h", "disk.img", "http://nbd:"] {
            assert!(!Uri::is_one(word.as_bytes()), "{word}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_not(text in "(nbds?(\\+unix)?://)?.{0,40}") {
            let _ = Uri::parse(&text);
        }
    }
}
