//! Calls of an NFSv3 client, without a network.

use std::sync::Arc;

use extol::Ext4;
use extol_nfs::{Config, Export, Squash, answer_bytes};

use super::Front;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// Most bytes of a listing, as Linux asks for them.
const LISTING: u32 = 64 << 10;
/// The attributes of a reply.
const ATTR: usize = 84;

mod procedure {
    pub const MNT: u32 = 1;
    pub const GETATTR: u32 = 1;
    pub const LOOKUP: u32 = 3;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const REMOVE: u32 = 12;
    pub const RENAME: u32 = 14;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const COMMIT: u32 = 21;
}

/// A client of an export.
#[derive(Debug)]
pub struct Nfs {
    export: Arc<Export>,
    root: Vec<u8>,
    open: Vec<u8>,
}

/// Arguments in XDR.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn opaque(mut self, bytes: &[u8]) -> Self {
        self = self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// Results in XDR.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    fn opaque(&mut self) -> &'a [u8] {
        let len = self.u32() as usize;
        &self.take(len.next_multiple_of(4))[..len]
    }

    /// Attributes that may be missing.
    fn attributes(&mut self) {
        if self.u32() == 1 {
            self.take(ATTR);
        }
    }
}

impl Nfs {
    /// A client of this volume that is root there.
    #[must_use]
    pub fn new(fs: &Arc<Ext4>) -> Self {
        let config = Config { squash: Squash::None, ..Config::default() };
        let export = Export::new(Arc::clone(fs) as _, config).expect("an export");
        let mut client = Self { export, root: Vec::new(), open: Vec::new() };
        let (status, reply) = client.call(MOUNT, procedure::MNT, Out::default().opaque(b"/"));
        assert_eq!(status, 0);
        client.root = In(&reply).opaque().to_vec();
        client
    }

    /// Gives the status and what is behind it.
    fn call(&self, program: u32, procedure: u32, args: Out) -> (u32, Vec<u8>) {
        let user = Out::default().u32(0).opaque(b"client").u32(0).u32(0).u32(0);
        let call = Out::default().u32(77).u32(0).u32(2).u32(program).u32(3).u32(procedure);
        let mut call = call.u32(1).opaque(&user.0).u32(0).u32(0);
        call.0.extend(args.0);
        let reply = answer_bytes(&self.export, &call.0).expect("a reply");
        // Behind the header of an accepted call.
        let mut results = In(&reply[24..]);
        (results.u32(), results.0.to_vec())
    }

    fn done(&self, procedure: u32, args: Out) -> Vec<u8> {
        let (status, results) = self.call(NFS, procedure, args);
        assert_eq!(status, 0, "procedure {procedure}");
        results
    }

    fn dir(&self) -> Out {
        Out::default().opaque(&self.root)
    }

    fn handle(&self, name: &str) -> Option<Vec<u8>> {
        let args = self.dir().opaque(name.as_bytes());
        let (status, reply) = self.call(NFS, procedure::LOOKUP, args);
        (status == 0).then(|| In(&reply).opaque().to_vec())
    }

    fn write_to(&self, file: &[u8], offset: u64, data: &[u8]) {
        let args = Out::default().opaque(file).u64(offset).u32(data.len() as u32).u32(0);
        self.done(procedure::WRITE, args.opaque(data));
    }

    fn commit(&self, file: &[u8]) {
        self.done(procedure::COMMIT, Out::default().opaque(file).u64(0).u32(0));
    }
}

impl Front for Nfs {
    fn name(&self) -> &'static str {
        "nfs"
    }

    fn open(&mut self, name: &str) {
        self.open = self.handle(name).expect("a file");
    }

    fn close(&mut self) {
        self.open.clear();
    }

    fn statfs(&mut self) {
        self.done(procedure::FSSTAT, self.dir());
    }

    fn getattr(&mut self) {
        self.done(procedure::GETATTR, Out::default().opaque(&self.open));
    }

    fn lookup(&mut self, name: &str) -> bool {
        self.handle(name).is_some()
    }

    fn create(&mut self, name: &str, contents: &[u8]) {
        // Unchecked, with a mode, and nothing else set.
        let args = self.dir().opaque(name.as_bytes()).u32(0).u32(1).u32(0o644);
        let made = self.done(procedure::CREATE, args.u32(0).u32(0).u32(0).u32(0).u32(0));
        let mut made = In(&made);
        assert_eq!(made.u32(), 1, "a handle follows");
        let file = made.opaque().to_vec();
        self.write_to(&file, 0, contents);
        self.commit(&file);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.write_to(&self.open, offset, data);
    }

    fn fsync(&mut self) {
        self.commit(&self.open);
    }

    fn read(&mut self, offset: u64, len: u32) -> usize {
        let args = Out::default().opaque(&self.open).u64(offset).u32(len);
        let reply = self.done(procedure::READ, args);
        let mut results = In(&reply);
        results.attributes();
        results.u32() as usize
    }

    fn unlink(&mut self, name: &str) {
        self.done(procedure::REMOVE, self.dir().opaque(name.as_bytes()));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let args = self.dir().opaque(from.as_bytes()).opaque(&self.root).opaque(to.as_bytes());
        self.done(procedure::RENAME, args);
    }

    fn list(&mut self, dir: &str) -> usize {
        let dir = self.handle(dir).expect("a directory");
        let (mut names, mut cookie, mut verifier) = (0, 0, 0);
        loop {
            let args = Out::default().opaque(&dir).u64(cookie).u64(verifier);
            let reply = self.done(procedure::READDIRPLUS, args.u32(LISTING).u32(LISTING));
            let mut results = In(&reply);
            results.attributes();
            verifier = results.u64();
            while results.u32() == 1 {
                results.u64();
                let name = results.opaque();
                cookie = results.u64();
                results.attributes();
                if results.u32() == 1 {
                    results.opaque();
                }
                names += usize::from(name != b"." && name != b"..");
            }
            if results.u32() == 1 {
                return names;
            }
        }
    }

    /// A client has no call for the whole volume: it commits the files that it has written.
    fn sync(&mut self) {
        self.commit(&self.open);
    }
}
