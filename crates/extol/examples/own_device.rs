//! A device of one's own: bytes of a server, by ranges over HTTP, read as they are needed.
//!
//! ```sh
//! cargo run --example own_device -- http://127.0.0.1:8000/disk.img   # lists the volume
//! cargo run --example own_device        # the same, from a server that the example itself is
//! ```
//!
//! Five methods make a device; this one is read-only, so two of them do nothing. A device that can
//! be written says so, writes, and makes durable what was written before.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use extol::device::{BlockDevice, DeviceError, DeviceOp, MemDevice, Result};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};

/// A file on a server.
#[derive(Debug)]
struct HttpRanges {
    host: String,
    path: String,
    size: u64,
}

impl HttpRanges {
    fn open(address: &str) -> io::Result<Self> {
        let bad = || io::Error::new(io::ErrorKind::InvalidInput, "use http://HOST:PORT/PATH");
        let rest = address.strip_prefix("http://").ok_or_else(bad)?;
        let (host, path) = rest.split_once('/').ok_or_else(bad)?;
        let mut file = Self { host: host.into(), path: format!("/{path}"), size: 0 };
        let head = file.ask("HEAD", "bytes=0-0", &mut [])?;
        file.size = field(&head, "content-length").ok_or_else(bad)?.parse().map_err(|_| bad())?;
        Ok(file)
    }

    /// A request, and the bytes that it asks for. Gives the head of the reply.
    fn ask(&self, method: &str, range: &str, buf: &mut [u8]) -> io::Result<String> {
        let mut stream = TcpStream::connect(&self.host)?;
        let range = if method == "GET" { format!("Range: {range}\r\n") } else { String::new() };
        let Self { host, path, .. } = self;
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{range}\r\n")?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < 16 << 10 {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        stream.read_exact(buf)?;
        Ok(String::from_utf8_lossy(&head).to_lowercase())
    }
}

/// The value of a field of a head in lower case.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim)
}

impl BlockDevice for HttpRanges {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let fail = |why| DeviceError::new(DeviceOp::Read, offset, buf.len() as u64, why);
        extol::device::check_range(DeviceOp::Read, offset, buf.len() as u64, self.size)?;
        if buf.is_empty() {
            return Ok(());
        }
        let range = format!("bytes={offset}-{}", offset + buf.len() as u64 - 1);
        let mut bytes = vec![0; buf.len()];
        let head = self.ask("GET", &range, &mut bytes).map_err(fail)?;
        if !head.starts_with("http/1.1 206") {
            return Err(fail(io::Error::other("the server gives no ranges")));
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let why = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        Err(DeviceError::new(DeviceOp::Write, offset, buf.len() as u64, why))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let address = match std::env::args().nth(1) {
        Some(address) => address,
        None => serve()?,
    };
    let device = Arc::new(HttpRanges::open(&address)?);
    println!("{address}: {} bytes", device.size());
    let options = MountOptions::default().read_only().without_threads();
    let fs = Ext4::open(device, &options)?;
    for entry in fs.walk("/")? {
        let entry = entry?;
        println!("{:>10} {}", entry.attr().size, entry.path().display());
    }
    fs.unmount()?;
    Ok(())
}

/// A server of a small volume, for as long as the example runs.
fn serve() -> std::result::Result<String, Box<dyn Error>> {
    let disk = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*disk, &MkfsOptions::default(), &mut |_| {})?;
    let fs = Ext4::open(disk.clone(), &MountOptions::default())?;
    fs.write_file("/hello", "from a server")?;
    fs.unmount()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // (A client that goes away is its own loss.)
            let _ = reply(stream, &disk);
        }
    });
    Ok(format!("http://{address}/disk.img"))
}

fn reply(mut stream: TcpStream, disk: &MemDevice) -> std::result::Result<(), Box<dyn Error>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(char::from(byte[0].to_ascii_lowercase()));
    }
    let Some(range) = field(&head, "range").and_then(|range| range.strip_prefix("bytes=")) else {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", disk.size())?;
        return Ok(());
    };
    let (first, last) = range.split_once('-').ok_or("a range")?;
    let (first, last): (u64, u64) = (first.parse()?, last.parse()?);
    let mut bytes = vec![0; usize::try_from(last + 1 - first)?];
    disk.read_at(&mut bytes, first)?;
    write!(stream, "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
    stream.write_all(&bytes)?;
    Ok(())
}
