//! `--metrics ADDR`: counters of a mount or an export over HTTP, in the format of Prometheus.
//!
//! One thread accepts, a few answer. Each connection has one deadline for all that it does, however
//! slowly the other side reads or writes, and those beyond the few are turned away at once; so no
//! client can delay another for long, and none can delay the mount. The volume is used only while
//! the page is made, and not kept open.

mod text;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use extol_cli_common::{Failure, Result, warn};
use text::Served;

use crate::volume::Volume;

/// Connections answered at a time.
const MOST: usize = 4;
/// Time for a request and its answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Longest request.
const REQUEST: usize = 8 << 10;

/// A bound address, not served yet.
#[derive(Debug)]
pub struct Metrics {
    listener: TcpListener,
    address: SocketAddr,
    /// The system chose the port.
    chosen: bool,
}

impl Metrics {
    /// Binds `HOST:PORT`; `:PORT` and `PORT` are ports of this machine alone, port 0 is any free
    /// one.
    pub fn bind(text: &str) -> Result<Self> {
        let place = format!("metrics on {text}");
        let about = |error: std::io::Error| Failure::system_call(&place, error);
        let address = resolve(text).ok_or_else(|| {
            Failure::usage(format_args!(
                "bad address \"{text}\" for --metrics: use HOST:PORT, such as 127.0.0.1:9184"
            ))
        })?;
        let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                Failure::about(&place, "the port is in use; choose another, or 0 for any")
            }
            _ => about(error),
        })?;
        let chosen = address.port() == 0;
        let address = listener.local_addr().map_err(about)?;
        Ok(Self { listener, address, chosen })
    }

    /// Serves until the process ends. A line says where, if it is asked for or the system has
    /// chosen the port, which the caller does not know; `place` is what the counters are of.
    pub fn serve(
        self,
        place: impl std::fmt::Display,
        source: &str,
        volume: &Arc<Volume>,
        verbose: bool,
    ) -> Result<()> {
        if verbose || self.chosen {
            warn(format_args!("counters of {place} are at http://{}/metrics", self.address));
        }
        let page = Arc::new(Page {
            source: source.to_owned(),
            volume: Arc::downgrade(volume),
            deadline: DEADLINE,
        });
        let listen = move || {
            let _ = crate::sandbox::enter();
            accept(&self.listener, &page);
        };
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(listen)
            .map(drop)
            .map_err(|error| Failure::system(format_args!("cannot start a thread: {error}")))
    }
}

/// Where the requests to this process are counted.
#[derive(Debug)]
pub enum Counters {
    Mount(extol_fuse::Requests),
    Export(extol_nfs::Counters),
}

impl Counters {
    fn read(&self) -> Served {
        match self {
            Self::Mount(requests) => Served::Fuse(requests.by_kind()),
            Self::Export(counters) => {
                Served::Nfs { calls: counters.by_procedure(), connections: counters.connections() }
            }
        }
    }
}

/// Those of the mount or the export of this process, once it stands.
static COUNTERS: OnceLock<Counters> = OnceLock::new();

/// From now on the page has these counters.
pub fn count(counters: Counters) {
    let _ = COUNTERS.set(counters);
}

/// An address as options take it: `HOST:PORT`; `:PORT` and `PORT` are ports of this machine alone.
pub fn resolve(text: &str) -> Option<SocketAddr> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Some(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.to_socket_addrs().ok()?.next()
}

#[derive(Debug)]
struct Page {
    source: String,
    volume: Weak<Volume>,
    /// Time for a request and its answer.
    deadline: Duration,
}

fn accept(listener: &TcpListener, page: &Arc<Page>) {
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, perhaps, until a connection ends.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if busy.fetch_add(1, Ordering::SeqCst) >= MOST {
            // The request is not read.
            let _ = stream.set_nonblocking(true);
            let _ = (&stream).write_all(&response("503 Service Unavailable", "busy\n", Body::Sent));
            busy.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (page, here) = (Arc::clone(page), Arc::clone(&busy));
        let work = move || {
            let _ = answer(&stream, &page);
            drop(stream);
            here.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().name("metrics".into()).spawn(work).is_err() {
            busy.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A connection with one deadline for everything.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(stream: &TcpStream, page: &Page) -> io::Result<()> {
    let mut stream = Timed { stream, end: Instant::now() + page.deadline };
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    let reply = loop {
        let size = stream.read(&mut piece)?;
        request.extend_from_slice(piece.get(..size).unwrap_or_default());
        if let Some(reply) = reply_to(&request, page) {
            break reply;
        }
        if size == 0 || request.len() > REQUEST {
            break response("400 Bad Request", "bad request\n", Body::Sent);
        }
    };
    stream.write_all(&reply)
}

/// The reply, once the request is complete.
fn reply_to(bytes: &[u8], page: &Page) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(response("400 Bad Request", "bad request\n", Body::Sent)),
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let body = match request.method.unwrap_or_default() {
        "GET" => Body::Sent,
        "HEAD" => Body::LeftOut,
        _ => return Some(response("405 Method Not Allowed", "only GET and HEAD\n", Body::Sent)),
    };
    let (status, text) = match path {
        "/metrics" => match page.volume.upgrade() {
            Some(volume) => {
                let served = COUNTERS.get().map_or(Served::Nothing, Counters::read);
                ("200 OK", text::exposition(&page.source, &volume.stats(), &served))
            }
            None => ("503 Service Unavailable", "the volume was closed\n".to_owned()),
        },
        "/" => ("200 OK", "Extol. The counters are at /metrics\n".to_owned()),
        _ => ("404 Not Found", "not found; the counters are at /metrics\n".to_owned()),
    };
    Some(response(status, &text, body))
}

/// Whether the body follows the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Sent,
    /// As HEAD asks for: the head is that of a GET.
    LeftOut,
}

fn response(status: &str, text: &str, body: Body) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        text.len()
    )
    .into_bytes();
    if body == Body::Sent {
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, address) in [
            (":0", "127.0.0.1:0"),
            ("9184", "127.0.0.1:9184"),
            (":9184", "127.0.0.1:9184"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9184", "[::1]:9184"),
        ] {
            assert_eq!(resolve(text).map(|a| a.to_string()).as_deref(), Some(address), "{text}");
        }
        for text in ["", "x", "127.0.0.1", "127.0.0.1:99999", "1:2:3"] {
            assert_eq!(Metrics::bind(text).unwrap_err().code, Failure::USAGE, "{text}");
        }
    }

    #[test]
    fn a_port_in_use_is_one_line() {
        let first = Metrics::bind(":0").unwrap();
        let failure = Metrics::bind(&first.address.to_string()).unwrap_err();
        assert!(
            failure.line.contains("in use") && !failure.line.contains('\n'),
            "{}",
            failure.line
        );
    }

    const SHORT: Duration = Duration::from_millis(200);

    /// Clients that connect and send nothing are bounded, and do not outlive their deadline.
    #[test]
    fn silent_clients_do_not_stay() {
        let metrics = Metrics::bind(":0").unwrap();
        let address = metrics.address;
        let page = Arc::new(Page { source: "x".into(), volume: Weak::new(), deadline: SHORT });
        std::thread::spawn(move || accept(&metrics.listener, &page));
        let ask = || {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            text
        };
        let mut silent: Vec<_> = (0..MOST).map(|_| TcpStream::connect(address).unwrap()).collect();
        // All places are taken, or soon: the next is turned away and not kept.
        let start = Instant::now();
        while !ask().is_empty() && !ask().contains("busy") && start.elapsed() < SHORT / 2 {}
        for stream in &mut silent {
            let mut byte = [0];
            stream.set_read_timeout(Some(DEADLINE * 10)).unwrap();
            assert_eq!(stream.read(&mut byte).unwrap_or(0), 0, "hung up");
        }
        let start = Instant::now();
        while !ask().contains("the volume was closed") {
            assert!(start.elapsed() < DEADLINE * 10, "the places are free again");
        }
    }

    /// A request that has no end is not read for ever, however fast or slowly it comes.
    #[test]
    fn endless_requests_end() {
        let metrics = Metrics::bind(":0").unwrap();
        let address = metrics.address;
        let page = Arc::new(Page { source: "x".into(), volume: Weak::new(), deadline: SHORT });
        std::thread::spawn(move || accept(&metrics.listener, &page));
        for (piece, pause) in [(vec![b'a'; 1000], Duration::ZERO), (vec![b'a'], SHORT / 20)] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
            let start = Instant::now();
            let mut sent = 0;
            while stream.write_all(&piece).is_ok() {
                sent += piece.len();
                assert!(sent < 64 << 20 && start.elapsed() < DEADLINE, "{sent} bytes were taken");
                std::thread::sleep(pause);
            }
        }
    }

    #[test]
    fn requests() {
        let page = Page { source: "x".into(), volume: Weak::new(), deadline: DEADLINE };
        let ask =
            |text: &str| reply_to(text.as_bytes(), &page).map(|r| String::from_utf8(r).unwrap());
        assert_eq!(ask("GET /met"), None);
        assert!(ask("GET / HTTP/1.1\r\n\r\n").unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(ask("GET /x HTTP/1.0\r\nA: b\r\n\r\n").unwrap().contains(" 404 "));
        let refused = ask("POST /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(refused.contains(" 405 ") && refused.contains("\r\nAllow: GET, HEAD\r\n"));
        // HEAD: what GET gives, without the body.
        for path in ["/", "/metrics", "/x"] {
            let [get, head] =
                ["GET", "HEAD"].map(|method| ask(&format!("{method} {path} HTTP/1.1\r\n\r\n")));
            let (get, head) = (get.unwrap(), head.unwrap());
            let end = get.find("\r\n\r\n").unwrap() + 4;
            assert!(head == get[..end] && get.len() > end, "{path}: {head}");
        }
        assert!(ask("\x01\x02\r\n\r\n").unwrap().contains(" 400 "));
    }
}
