//! NBD servers of others (nbdkit, qemu-nbd), and a relay that cuts connections.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::{Scratch, tool};

/// A server on a Unix socket, which ends with this value.
#[derive(Debug)]
pub struct NbdServer {
    child: Child,
    socket: PathBuf,
    program: &'static str,
    args: Vec<String>,
    dir: Arc<Scratch>,
}

impl NbdServer {
    /// nbdkit with these words (`memory 64M`).
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn nbdkit(args: &[&str]) -> Self {
        Self::start("nbdkit", args, Arc::new(Scratch::new()))
    }

    /// qemu-nbd with these words (`--shared=4 disk.qcow2`).
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn qemu_nbd(args: &[&str]) -> Self {
        Self::start("qemu-nbd", args, Arc::new(Scratch::new()))
    }

    fn start(program: &'static str, args: &[&str], dir: Arc<Scratch>) -> Self {
        let socket = dir.path().join("nbd.sock");
        // (It is written once the server can be reached; the socket may be there before.)
        let ready = dir.path().join("nbd.pid");
        for old in [&socket, &ready] {
            let _ = std::fs::remove_file(old);
        }
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let mut command = tool(program);
        match program {
            "nbdkit" => command.arg("-f").arg("-U").arg(&socket).arg("--pidfile"),
            _ => command.arg("--persistent").arg("-k").arg(&socket).arg("--pid-file"),
        };
        command.arg(&ready);
        command.args(&args).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|e| panic!("cannot start {program}: {e}"));
        let mut server = Self { child, socket, program, args, dir };
        server.wait_for(&ready);
        server
    }

    fn wait_for(&mut self, ready: &Path) {
        let end = Instant::now() + Duration::from_secs(30);
        while std::fs::metadata(ready).map_or(0, |file| file.len()) == 0 {
            let ended = self.child.try_wait().expect("the server is a child");
            assert!(ended.is_none(), "{} {:?} ended: {ended:?}", self.program, self.args);
            assert!(Instant::now() < end, "{} is not ready", self.program);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The address of the default export.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once. What it has in its own memory is lost.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, on the same socket.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        *self = Self::start(self.program, &args, self.dir.clone());
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A relay between clients and a server on Unix sockets, whose connections can be cut.
#[derive(Debug)]
pub struct Cut {
    socket: PathBuf,
    connections: Arc<Mutex<Vec<UnixStream>>>,
    refuses: Arc<AtomicBool>,
    _dir: Scratch,
}

impl Cut {
    /// A relay to a server.
    ///
    /// # Panics
    /// If there can be none.
    #[must_use]
    pub fn before(server: &Path) -> Self {
        let dir = Scratch::new();
        let socket = dir.path().join("cut.sock");
        let listener = UnixListener::bind(&socket).expect("bind");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let refuses = Arc::new(AtomicBool::new(false));
        let (all, refused, server) = (connections.clone(), refuses.clone(), server.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if refused.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(upstream) = UnixStream::connect(&server) else { continue };
                let mut open = all.lock().expect("no panic");
                let copy = |stream: &UnixStream| stream.try_clone().expect("descriptors");
                open.extend([copy(&client), copy(&upstream)]);
                relay(copy(&client), copy(&upstream));
                relay(upstream, client);
            }
        });
        Self { socket, connections, refuses, _dir: dir }
    }

    /// Its address.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Cuts all connections.
    ///
    /// # Panics
    /// If another thread panicked in it.
    pub fn cut(&self) {
        for stream in self.connections.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.refuse(true);
        self.cut();
    }
}

fn relay(mut from: UnixStream, mut to: UnixStream) {
    std::thread::spawn(move || {
        let mut buf = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from.read(&mut buf) {
            if to.write_all(&buf[..len]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
