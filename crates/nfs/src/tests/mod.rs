//! Exports of volumes in memory, called without a network, as clients call them.

mod data;
mod dirs;
mod durable;
mod hostile;
mod names;
mod network;
mod order;
mod rights;
mod running;
mod shares;

use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;

use crate::config::Config;
use crate::export::Export;
use crate::handle::Secret;
use crate::xdr::{Args, Out};
use crate::{answer_bytes, dispatch, mountd};

pub(super) mod procedure {
    pub(crate) const GETATTR: u32 = 1;
    pub(crate) const SETATTR: u32 = 2;
    pub(crate) const LOOKUP: u32 = 3;
    pub(crate) const ACCESS: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const READ: u32 = 6;
    pub(crate) const WRITE: u32 = 7;
    pub(crate) const CREATE: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const SYMLINK: u32 = 10;
    pub(crate) const MKNOD: u32 = 11;
    pub(crate) const REMOVE: u32 = 12;
    pub(crate) const RMDIR: u32 = 13;
    pub(crate) const RENAME: u32 = 14;
    pub(crate) const LINK: u32 = 15;
    pub(crate) const READDIR: u32 = 16;
    pub(crate) const READDIRPLUS: u32 = 17;
    pub(crate) const FSSTAT: u32 = 18;
    pub(crate) const FSINFO: u32 = 19;
    pub(crate) const PATHCONF: u32 = 20;
    pub(crate) const COMMIT: u32 = 21;
}
use procedure::*;

/// Bytes of attributes.
pub(super) const ATTR: usize = 84;

pub(super) type Handle = Vec<u8>;

pub(super) fn device() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(16 << 20));
    let features = vec!["fast_commit".to_owned()];
    let options = MkfsOptions { features, ..MkfsOptions::default() };
    mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
    device
}

pub(super) fn open(device: &Arc<MemDevice>) -> Arc<Ext4> {
    Ext4::open(device.clone(), &MountOptions::default()).expect("open")
}

/// A client of an export.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) export: Arc<Export>,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Client {
    /// Of a new volume whose root directory is open to all, as the user 1000.
    pub(super) fn new(config: Config) -> (Arc<MemDevice>, Self) {
        let device = device();
        let fs = open(&device);
        fs.set_permissions("/", 0o777).expect("chmod");
        (device, Self::of(fs, config))
    }

    /// Of an export with the secret that is kept, unless the configuration has one.
    pub(super) fn of(fs: Arc<Ext4>, config: Config) -> Self {
        let secret = config.secret.clone().or(Some(Secret::of([9; 32])));
        let config = Config { secret, ..config };
        Self { export: Export::new(fs, config).expect("export"), uid: 1000, gid: 100 }
    }

    pub(super) fn user(&self, uid: u32, gid: u32) -> Self {
        Self { uid, gid, ..self.clone() }
    }

    pub(super) fn request(
        &self,
        program: u32,
        number: u32,
        args: impl FnOnce(&mut Out),
    ) -> Vec<u8> {
        let mut body = Out::default();
        body.u32(0).opaque(b"client").u32(self.uid).u32(self.gid).u32(1).u32(7);
        let mut out = Out::default();
        out.u32(77).u32(0).u32(2).u32(program).u32(3).u32(number);
        out.u32(1).opaque(&body.into_bytes()).u32(0).u32(0);
        args(&mut out);
        out.into_bytes()
    }

    fn results(&self, program: u32, number: u32, args: impl FnOnce(&mut Out)) -> Vec<u8> {
        let reply = answer_bytes(&self.export, &self.request(program, number, args));
        let reply = reply.expect("a reply");
        assert_eq!(reply[..24], [&77u32.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16]].concat());
        reply[24..].to_vec()
    }

    /// Calls a procedure of NFS. Gives the status, and what is behind it.
    pub(super) fn call(&self, number: u32, args: impl FnOnce(&mut Out)) -> (u32, Vec<u8>) {
        let results = self.results(dispatch::PROGRAM, number, args);
        let status = Args::new(&results).u32().expect("a status");
        (status, results[4..].to_vec())
    }

    pub(super) fn mount(&self, path: &[u8]) -> Result<Handle, u32> {
        let results = self.results(mountd::PROGRAM, 1, |out| {
            out.opaque(path);
        });
        let mut args = Args::new(&results);
        match args.u32().expect("a status") {
            0 => Ok(args.opaque(64).expect("a handle").to_vec()),
            status => Err(status),
        }
    }

    pub(super) fn root(&self) -> Handle {
        self.mount(b"/").expect("the root")
    }

    pub(super) fn lookup(&self, dir: &Handle, name: &[u8]) -> Result<Handle, u32> {
        let (status, rest) = self.call(LOOKUP, |out| {
            out.opaque(dir).opaque(name);
        });
        let handle = || Args::new(&rest).opaque(64).expect("a handle").to_vec();
        if status == 0 { Ok(handle()) } else { Err(status) }
    }

    /// A procedure that makes something: its handle.
    pub(super) fn make(
        &self,
        number: u32,
        dir: &Handle,
        name: &[u8],
        args: impl FnOnce(&mut Out),
    ) -> Result<Handle, u32> {
        let (status, rest) = self.call(number, |out| {
            out.opaque(dir).opaque(name);
            args(out);
        });
        if status != 0 {
            return Err(status);
        }
        let mut args = Args::new(&rest);
        assert_eq!(args.u32(), Ok(1), "a handle follows");
        Ok(args.opaque(64).expect("a handle").to_vec())
    }

    pub(super) fn create(&self, dir: &Handle, name: &[u8], mode: u32) -> Result<Handle, u32> {
        self.make(CREATE, dir, name, |out| {
            out.u32(1);
            settings(out, Some(mode));
        })
    }

    pub(super) fn mkdir(&self, dir: &Handle, name: &[u8], mode: u32) -> Result<Handle, u32> {
        self.make(MKDIR, dir, name, |out| settings(out, Some(mode)))
    }

    /// REMOVE or RMDIR.
    pub(super) fn remove(&self, number: u32, dir: &Handle, name: &[u8]) -> u32 {
        self.call(number, |out| {
            out.opaque(dir).opaque(name);
        })
        .0
    }

    pub(super) fn rename(&self, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> u32 {
        let args = |out: &mut Out| {
            out.opaque(from.0).opaque(from.1).opaque(to.0).opaque(to.1);
        };
        self.call(RENAME, args).0
    }

    /// The words of its attributes: type, mode, links, user, group, size, …
    pub(super) fn attr(&self, handle: &Handle) -> Result<Vec<u32>, u32> {
        let (status, rest) = self.call(GETATTR, |out| {
            out.opaque(handle);
        });
        let words =
            rest.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().expect("a word")));
        if status == 0 { Ok(words.collect()) } else { Err(status) }
    }

    pub(super) fn mode(&self, handle: &Handle) -> u32 {
        self.attr(handle).expect("attributes")[1]
    }

    pub(super) fn size(&self, handle: &Handle) -> u32 {
        self.attr(handle).expect("attributes")[6]
    }

    /// The status, and the write verifier.
    pub(super) fn write(&self, file: &Handle, offset: u64, data: &[u8], stable: u32) -> (u32, u64) {
        let (status, rest) = self.call(WRITE, |out| {
            let count = u32::try_from(data.len()).expect("short");
            out.opaque(file).u64(offset).u32(count).u32(stable).opaque(data);
        });
        if status == 0 {
            let tail = &rest[rest.len() - 16..];
            assert_eq!(tail[..4], u32::try_from(data.len()).expect("short").to_be_bytes());
            assert_eq!(tail[4..8], stable.to_be_bytes());
        }
        (status, last_u64(&rest))
    }

    pub(super) fn commit(&self, file: &Handle) -> (u32, u64) {
        let (status, rest) = self.call(COMMIT, |out| {
            out.opaque(file).u64(0).u32(0);
        });
        (status, last_u64(&rest))
    }

    /// The data, and whether the file ends there.
    pub(super) fn read(
        &self,
        file: &Handle,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), u32> {
        let (status, rest) = self.call(READ, |out| {
            out.opaque(file).u64(offset).u32(count);
        });
        if status != 0 {
            return Err(status);
        }
        let mut args = Args::new(&rest[4 + ATTR..]);
        let (count, is_end) = (args.u32().expect("a count"), args.bool().expect("a word"));
        let data = args.opaque(1 << 20).expect("data").to_vec();
        assert_eq!((count as usize, args.end()), (data.len(), Ok(())));
        Ok((data, is_end))
    }

    /// SETATTR with these arguments in place of the attributes.
    pub(super) fn set(&self, file: &Handle, args: impl FnOnce(&mut Out)) -> u32 {
        let set = |out: &mut Out| {
            out.opaque(file);
            args(out);
            out.bool(false);
        };
        self.call(SETATTR, set).0
    }

    pub(super) fn chmod(&self, file: &Handle, mode: u32) -> u32 {
        self.set(file, |out| settings(out, Some(mode)))
    }

    pub(super) fn chown(&self, file: &Handle, uid: Option<u32>, gid: Option<u32>) -> u32 {
        self.set(file, |out| {
            out.bool(false);
            for id in [uid, gid] {
                out.bool(id.is_some());
                id.map(|id| out.u32(id));
            }
            out.bool(false).u32(0).u32(0);
        })
    }

    pub(super) fn truncate(&self, file: &Handle, size: u64) -> u32 {
        self.set(file, |out| {
            out.u32(0).u32(0).u32(0).bool(true).u64(size).u32(0).u32(0);
        })
    }

    pub(super) fn access(&self, file: &Handle, wanted: u32) -> u32 {
        let (status, rest) = self.call(ACCESS, |out| {
            out.opaque(file).u32(wanted);
        });
        assert_eq!(status, 0);
        u32::from_be_bytes(*rest.last_chunk().expect("a word"))
    }
}

fn last_u64(bytes: &[u8]) -> u64 {
    bytes.last_chunk().map_or(0, |word| u64::from_be_bytes(*word))
}

/// Attributes to set: a mode, and nothing else.
pub(super) fn settings(out: &mut Out, mode: Option<u32>) {
    out.bool(mode.is_some());
    mode.map(|mode| out.u32(mode));
    out.u32(0).u32(0).u32(0).u32(0).u32(0);
}
