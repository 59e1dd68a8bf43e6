//! Requests of FUSE, as Linux sends them for system calls, without a kernel.

use std::sync::Arc;

use extol::Ext4;
use extol_fuse::direct::Connection;

use super::Front;

const ROOT: u64 = 1;
/// Bytes of a listing.
const LISTING: u32 = 32 << 10;
const READ_WRITE: u32 = 2;

mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const UNLINK: u32 = 10;
    pub const RENAME: u32 = 12;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const CREATE: u32 = 35;
    pub const READDIRPLUS: u32 = 44;
    pub const SYNCFS: u32 = 50;
}

/// A connection as a mount has it.
#[derive(Debug)]
pub struct Fuse<'a> {
    connection: Connection<'a>,
    unique: u64,
    /// The open file: node and handle.
    open: (u64, u64),
}

/// The fields of a request.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn name(mut self, name: &str) -> Self {
        self.0.extend(name.as_bytes());
        self.0.push(0);
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn word(reply: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(reply[at..at + 8].try_into().expect("eight bytes"))
}

impl<'a> Fuse<'a> {
    /// On this volume, with what Linux and Extol agree upon by default.
    #[must_use]
    pub fn new(fs: &'a Arc<Ext4>) -> Self {
        Self { connection: Connection::new(&**fs, 0).keeping(), unique: 0, open: (0, 0) }
    }

    /// Sends a request; gives the errno and the body of the reply.
    fn ask(&mut self, opcode: u32, node: u64, body: Body) -> (i32, &[u8]) {
        self.unique += 1;
        let mut request = Vec::with_capacity(40 + body.0.len());
        request.extend((40 + body.0.len() as u32).to_ne_bytes());
        request.extend(opcode.to_ne_bytes());
        request.extend(self.unique.to_ne_bytes());
        request.extend(node.to_ne_bytes());
        // User, group, thread, extensions.
        request.extend([0; 16]);
        request.extend(body.0);
        match self.connection.answer(&request) {
            None => (0, &[]),
            Some(reply) => {
                let code = i32::from_ne_bytes(reply[4..8].try_into().expect("four bytes"));
                (-code, &reply[16..])
            }
        }
    }

    fn done(&mut self, opcode: u32, node: u64, body: Body) -> &[u8] {
        let (errno, reply) = self.ask(opcode, node, body);
        assert_eq!(errno, 0, "request {opcode}");
        reply
    }

    fn forget(&mut self, node: u64) {
        self.ask(opcode::FORGET, node, Body::default().u64(1));
    }

    /// The node of a name, with a reference; 0 if it is not there.
    fn node(&mut self, name: &str) -> u64 {
        word(self.done(opcode::LOOKUP, ROOT, Body::default().name(name)), 0)
    }

    fn release(&mut self, (node, handle): (u64, u64)) {
        let body = Body::default().u64(handle).u32(READ_WRITE).u32(0).u64(0);
        self.done(opcode::RELEASE, node, body);
        self.forget(node);
    }

    fn write_to(&mut self, (node, handle): (u64, u64), offset: u64, data: &[u8]) {
        let body = Body::default().u64(handle).u64(offset).u32(data.len() as u32).u32(0);
        let body = body.u64(0).u32(READ_WRITE).u32(0).bytes(data);
        let written = word(self.done(opcode::WRITE, node, body), 0);
        assert_eq!(written as u32 as usize, data.len());
    }

    fn sync_file(&mut self, (node, handle): (u64, u64)) {
        self.done(opcode::FSYNC, node, Body::default().u64(handle).u32(0).u32(0));
    }
}

impl Front for Fuse<'_> {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn open(&mut self, name: &str) {
        let node = self.node(name);
        let opened = self.done(opcode::OPEN, node, Body::default().u32(READ_WRITE).u32(0));
        self.open = (node, word(opened, 0));
    }

    fn close(&mut self) {
        self.release(self.open);
    }

    fn statfs(&mut self) {
        self.done(opcode::STATFS, ROOT, Body::default());
    }

    fn getattr(&mut self) {
        self.done(opcode::GETATTR, self.open.0, Body::default().u32(0).u32(0).u64(0));
    }

    fn lookup(&mut self, name: &str) -> bool {
        let node = self.node(name);
        if node != 0 {
            self.forget(node);
        }
        node != 0
    }

    fn create(&mut self, name: &str, contents: &[u8]) {
        assert_eq!(self.node(name), 0, "the kernel looks first");
        let body = Body::default().u32(READ_WRITE).u32(0o100_644).u32(0o22).u32(0).name(name);
        let made = self.done(opcode::CREATE, ROOT, body);
        // (Behind the 128 bytes of the entry.)
        let file = (word(made, 0), word(made, 128));
        self.write_to(file, 0, contents);
        self.sync_file(file);
        self.release(file);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.write_to(self.open, offset, data);
    }

    fn fsync(&mut self) {
        self.sync_file(self.open);
    }

    fn read(&mut self, offset: u64, len: u32) -> usize {
        let (node, handle) = self.open;
        let body = Body::default().u64(handle).u64(offset).u32(len).u32(0).u64(0).u64(0);
        self.done(opcode::READ, node, body).len()
    }

    fn unlink(&mut self, name: &str) {
        self.done(opcode::UNLINK, ROOT, Body::default().name(name));
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.done(opcode::RENAME, ROOT, Body::default().u64(ROOT).name(from).name(to));
    }

    fn list(&mut self, dir: &str) -> usize {
        let dir = self.node(dir);
        let (mut names, mut cookie) = (0, 0);
        loop {
            let body = Body::default().u64(0).u64(cookie).u32(LISTING).u32(0).u64(0).u64(0);
            let mut rest = self.done(opcode::READDIRPLUS, dir, body).to_vec();
            if rest.is_empty() {
                break;
            }
            while !rest.is_empty() {
                // An entry of 128 bytes, then inode, cookie, length, type, and the name.
                let node = word(&rest, 0);
                let len = u32::from_ne_bytes(rest[144..148].try_into().expect("four bytes"));
                let name = rest[152..152 + len as usize].to_vec();
                cookie = word(&rest, 136);
                rest.drain(..152 + (len as usize).next_multiple_of(8));
                if node != 0 && name != b"." && name != b".." {
                    self.forget(node);
                    names += 1;
                }
            }
        }
        self.forget(dir);
        names
    }

    fn sync(&mut self) {
        self.done(opcode::SYNCFS, ROOT, Body::default().u64(0));
    }
}
