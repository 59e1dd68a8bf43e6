//! Calls of NFSv3 and MOUNT over TCP, one at a time for each thread, with a network between.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use extol_devices::sleep_until;
use parking_lot::Mutex;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// Longest reply: a READ of a megabyte.
const LONGEST: u32 = (1 << 20) + 4096;
const LAST: u32 = 1 << 31;
const LIMIT: Duration = Duration::from_secs(60);

/// A server, and how far away it is.
#[derive(Debug)]
pub(super) struct Rpc {
    address: SocketAddr,
    /// There and back.
    delay: Duration,
    /// Connections that no thread uses now.
    idle: Mutex<Vec<TcpStream>>,
    /// Number of the next call: a call with the number of another is taken for a repeated one.
    next: AtomicU32,
    /// Bytes of one READ or WRITE.
    pub part: usize,
}

/// Words and bytes of a call.
#[derive(Debug, Default)]
pub(super) struct Args(Vec<u8>);

impl Args {
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// `sattr3`: the mode, and times of the client.
    pub fn attributes(self, mode: Option<u32>, seconds: Option<u32>) -> Self {
        let with_mode = match mode {
            Some(mode) => self.u32(1).u32(mode),
            None => self.u32(0),
        };
        let mut all = with_mode.u32(0).u32(0).u32(0);
        for _ in 0..2 {
            all = match seconds {
                Some(seconds) => all.u32(2).u32(seconds).u32(0),
                None => all.u32(0),
            };
        }
        all
    }
}

/// What a server answered.
#[derive(Debug)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the NFS server gave an answer that is none")
}

impl Answer {
    pub fn take(&mut self, len: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(bad)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().map_err(|_| bad())?))
    }

    pub fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().map_err(|_| bad())?))
    }

    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let len = self.u32()? as usize;
        let bytes = self.take(len)?.to_vec();
        self.take(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }

    /// The size that attributes tell, and whether they are those of a directory.
    pub fn fattr(&mut self) -> io::Result<Attr> {
        let kind = self.u32()?;
        self.take(16)?;
        let size = self.u64()?;
        self.take(56)?;
        Ok(Attr { size, is_dir: kind == 2 })
    }

    /// The same, if they are there.
    pub fn post_op(&mut self) -> io::Result<Option<Attr>> {
        if self.u32()? == 0 { Ok(None) } else { self.fattr().map(Some) }
    }
}

/// What of the attributes is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attr {
    pub size: u64,
    pub is_dir: bool,
}

impl Rpc {
    pub fn new(address: SocketAddr, delay: Duration) -> Self {
        Self { address, delay, idle: Mutex::default(), next: AtomicU32::new(first()), part: 512 }
    }

    /// Calls a procedure of NFS; an error is the status.
    pub fn call(&self, procedure: u32, args: Args) -> io::Result<Answer> {
        self.calls(procedure, [args])?.pop().ok_or_else(bad)
    }

    /// Calls a procedure several times at once.
    pub fn calls(
        &self,
        procedure: u32,
        calls: impl IntoIterator<Item = Args>,
    ) -> io::Result<Vec<Answer>> {
        let mut answers = self.exchange(NFS, procedure, calls)?;
        for answer in &mut answers {
            match answer.u32()? {
                0 => {}
                // These are errno's.
                status @ 1..32 => {
                    return Err(io::Error::from_raw_os_error(status.cast_signed()));
                }
                status => return Err(io::Error::other(format!("NFS status {status}"))),
            }
        }
        Ok(answers)
    }

    /// The handle of the root of the export, by MOUNT.
    pub fn mount(&self) -> io::Result<Vec<u8>> {
        let mut answers = self.exchange(MOUNT, 1, [Args::default().bytes(b"/")])?;
        let mut answer = answers.pop().ok_or_else(bad)?;
        match answer.u32()? {
            0 => answer.bytes(),
            status => Err(io::Error::other(format!("MOUNT status {status}"))),
        }
    }

    fn exchange(
        &self,
        program: u32,
        procedure: u32,
        calls: impl IntoIterator<Item = Args>,
    ) -> io::Result<Vec<Answer>> {
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let mut sent = Vec::new();
        for args in calls {
            let xid = self.next.fetch_add(1, Ordering::Relaxed);
            sent.push((xid, None));
            connection.write_all(&record(xid, program, procedure, &args))?;
        }
        for _ in 0..sent.len() {
            let (xid, answer) = receive(&mut connection)?;
            let call = sent.iter_mut().find(|call| call.0 == xid).ok_or_else(bad)?;
            call.1 = Some(answer);
        }
        self.idle.lock().push(connection);
        // The time of the network comes on top of that of the server.
        sleep_until(Instant::now() + self.delay);
        sent.into_iter().map(|(_, answer)| answer.ok_or_else(bad)).collect()
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let connection = TcpStream::connect(self.address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(LIMIT))?;
        Ok(connection)
    }
}

/// The first number of a client, which no client before it is likely to have used.
fn first() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    (now >> 6) as u32
}

/// A call as root, as a record.
fn record(xid: u32, program: u32, procedure: u32, args: &Args) -> Vec<u8> {
    let credentials = Args::default().u32(0).bytes(b"extol-bench").u32(0).u32(0).u32(0);
    let mut call = Args::default().u32(0).u32(xid).u32(0).u32(2).u32(program).u32(3);
    call = call.u32(procedure).u32(1).bytes(&credentials.0).u32(0).u32(0);
    call.0.extend(&args.0);
    let len = u32::try_from(call.0.len() - 4).unwrap_or(0);
    call.0[..4].copy_from_slice(&(len | LAST).to_be_bytes());
    call.0
}

/// A reply, behind its header.
fn receive(connection: &mut TcpStream) -> io::Result<(u32, Answer)> {
    let mut bytes = Vec::new();
    loop {
        let mut mark = [0; 4];
        connection.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let start = bytes.len();
        let len = (mark & !LAST) as usize;
        if start + len > LONGEST as usize {
            return Err(bad());
        }
        bytes.resize(start + len, 0);
        connection.read_exact(&mut bytes[start..])?;
        if mark & LAST != 0 {
            break;
        }
    }
    let mut answer = Answer { bytes, at: 0 };
    let xid = answer.u32()?;
    let accepted = (answer.u32()?, answer.u32()?);
    answer.u32()?;
    answer.bytes()?;
    match (accepted, answer.u32()?) {
        ((1, 0), 0) => Ok((xid, answer)),
        _ => Err(io::Error::other("the NFS server refused a call")),
    }
}
