//! The socket by which other commands find the export of an image, and its counters.
//!
//! ```text
//!   export    listen ─► serve ─► counters as JSON to each connection
//!   stat      connect ─► read
//!   --stop    connect ─► the process that listens ─► SIGTERM ─► its end ─► exit report
//! ```
//!
//! The name is an abstract one, of the file or the device and the place of the volume in it. So an
//! image is found by whatever path, and nothing stays behind. Another user can take a name away in
//! advance: the kernel tells the user of the process that listens, and only root and the same user
//! are believed, on both sides.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use extol_block::open::is_address;
use extol_cli_common::{Failure, Result, warn};
use extol_nfs::Counters;
use extol_proc::Shown as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

use crate::exit_report;
use crate::options::Part;
use crate::sandbox;
use crate::volume::{self, Source, Volume};

/// How long the other side may take to send, or to take, the counters.
const TIME: Duration = Duration::from_secs(5);
/// Longest counters.
const LONGEST: u64 = 1 << 20;

/// The name of the socket for a volume.
fn address(source: Source<'_>) -> Result<UnixAddr> {
    let name = volume::name(source)?;
    let mut hasher = DefaultHasher::new();
    if is_address(source.path) {
        source.path.hash(&mut hasher);
    } else {
        let about = |error| Failure::system_call(source.path.shown(), error);
        let meta = std::fs::metadata(&name.path).map_err(about)?;
        match meta.file_type().is_block_device() {
            true => (meta.rdev(), 0).hash(&mut hasher),
            false => (meta.dev(), meta.ino()).hash(&mut hasher),
        }
        let window = if name.is_part() { volume::place(&name)? } else { name.window };
        window.offset.hash(&mut hasher);
    }
    let name = format!("extol/export/{:016x}", hasher.finish());
    UnixAddr::from_abstract_name(name)
        .map_err(|error| Failure::system_call("the socket of the export", error))
}

/// The process at the other end of a connection, if this user and its user believe each other.
fn trusted_peer(stream: &UnixStream) -> Option<Pid> {
    let peer = socket_peercred(stream).ok()?;
    let (own, other) = (geteuid(), peer.uid);
    (own == other || own.is_root() || other.is_root()).then_some(peer.pid)
}

/// The side of the export.
#[derive(Debug)]
pub struct Control(Option<UnixListener>);

/// The answer of an export about itself.
struct Told {
    volume: Weak<Volume>,
    counters: Counters,
    address: SocketAddr,
}

impl Control {
    /// Listens. Without a socket the export goes on, and a line says what does not work.
    pub fn listen(source: Source<'_>) -> Self {
        let listening = address(source).and_then(|address| {
            UnixListener::bind_addr(&address)
                .map_err(|error| Failure::system_call("the socket of the export", error))
        });
        match listening {
            Ok(listener) => Self(Some(listener)),
            Err(failure) => {
                warn(format_args!(
                    "{}; extol stat and extol export --stop do not find this export",
                    failure.line
                ));
                Self(None)
            }
        }
    }

    /// Answers in a thread until the process ends. To be called in the sandbox.
    pub fn serve(
        self,
        volume: &Arc<Volume>,
        counters: Counters,
        address: SocketAddr,
    ) -> Result<()> {
        let Some(listener) = self.0 else { return Ok(()) };
        let told = Told { volume: Arc::downgrade(volume), counters, address };
        let serve = move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => drop(told.answer(&stream)),
                    // Out of descriptors, perhaps, for a while.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            }
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(serve);
        thread.map(drop).map_err(|error| Failure::system_call("the socket of the export", error))
    }
}

impl Told {
    fn answer(&self, mut stream: &UnixStream) -> io::Result<()> {
        let volume = self.volume.upgrade().filter(|_| trusted_peer(stream).is_some());
        let Some(volume) = volume else { return Ok(()) };
        let mut value = serde_json::to_value(volume.stats())?;
        drop(volume);
        let calls = self.counters.by_procedure();
        let calls: serde_json::Map<_, _> =
            calls.into_iter().map(|(name, calls)| (name, Value::from(calls))).collect();
        value["export"] = json!({
            "address": self.address.to_string(),
            "process": std::process::id(),
            "connections": self.counters.connections(),
            "calls": calls,
            "sandbox": sandbox::describe(),
        });
        stream.set_write_timeout(Some(TIME))?;
        stream.write_all(value.to_string().as_bytes())
    }
}

/// An export that is running.
#[derive(Debug)]
pub struct Running {
    stream: UnixStream,
    pid: Pid,
}

/// The export of a volume. `None`: there is none that this user may ask.
pub fn find(path: &Path, part: Part) -> Result<Option<Running>> {
    let address = address(Source { path, part })?;
    let stream = match UnixStream::connect_addr(&address) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(Failure::system_call(path.shown(), error)),
    };
    Ok(trusted_peer(&stream).map(|pid| Running { stream, pid }))
}

impl Running {
    /// Its counters as JSON.
    pub fn json(self) -> Result<String> {
        let mut bytes = Vec::new();
        let fail = |error| Failure::system_call("the counters of the export", error);
        self.stream.set_read_timeout(Some(TIME)).map_err(fail)?;
        self.stream.take(LONGEST).read_to_end(&mut bytes).map_err(fail)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Ends it, and waits until the volume is closed.
    pub fn stop(self) -> Result<()> {
        let fail = |error: rustix::io::Errno| {
            Failure::system_call(
                format_args!("the export (process {})", self.pid),
                io::Error::from(error),
            )
        };
        let process = pidfd_open(self.pid, PidfdFlags::empty()).map_err(fail)?;
        // The number is that of the export still, if it has such a socket.
        let report = exit_report::connect(self.pid).ok_or_else(|| fail(rustix::io::Errno::SRCH))?;
        pidfd_send_signal(&process, Signal::TERM).map_err(fail)?;
        let mut end = [PollFd::new(&process, PollFlags::IN)];
        while poll(&mut end, None).is_err() {}
        report.read()
    }
}
