//! Requests of the kernel, as bytes, to a small volume in memory.
//!
//! The kernel is not hostile, but a request that is decoded wrongly is one that does something
//! else. An input is a list of requests: a header (an opcode, a node from a few, a user), the
//! length of the body, and the body.

use std::sync::{Arc, OnceLock};

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_fuse::direct::Connection;

use crate::choices::Choices;

const MAX_REQUESTS: usize = 24;
const OPCODES: &[u32] = &[
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 34, 35, 36, 38, 39, 42, 43, 44, 45, 46, 47, 50, 51, 52,
];
/// Node ids: the root, some that exist, some that do not.
const NODES: &[u64] = &[1, 1, 12, 13, 14, 15, 16, 11, 2, 8, 0, 17, 1 << 32, u64::MAX];
/// No answer is longer than a header and the largest read.
const MAX_REPLY: usize = (16 << 20) + 4096;

/// A small volume with a few files.
pub(super) fn base() -> &'static MemDevice {
    static BASE: OnceLock<MemDevice> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = Arc::new(MemDevice::new(2 << 20));
        let options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
        mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
        let fs = Ext4::open(device.clone(), &MountOptions::default()).expect("open");
        for name in ["/a", "/b", "/c"] {
            fs.write_file(name, vec![1; 3000]).expect("write");
        }
        fs.create_dir_all("/dir").expect("mkdir");
        fs.symlink("a", "/link").expect("symlink");
        fs.unmount().expect("unmount");
        drop(fs);
        device.snapshot()
    })
}

fn request(choices: &mut Choices, unique: u64) -> Vec<u8> {
    let opcode = if choices.one_in(16) { choices.any() as u32 } else { *choices.pick(OPCODES) };
    let node = if choices.one_in(16) { choices.any() } else { *choices.pick(NODES) };
    let user = choices.below(2) as u32 * 1000;
    let len = choices.below(256);
    let extensions = if choices.one_in(32) { choices.below(256) as u16 } else { 0 };
    let body: Vec<u8> = (0..len).map(|_| choices.below(256) as u8).collect();
    let lie = if choices.one_in(64) { choices.any() as u32 } else { 0 };
    let mut bytes = Vec::with_capacity(40 + len);
    bytes.extend((40 + len as u32).wrapping_add(lie).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    bytes.extend(user.to_ne_bytes());
    bytes.extend(user.to_ne_bytes());
    bytes.extend(7u32.to_ne_bytes());
    bytes.extend(extensions.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(body);
    bytes
}

/// Each answer must be one: as long as it says, to the request that was asked, with a sensible
/// errno.
pub(super) fn fuse(input: &[u8]) {
    let device = Arc::new(base().snapshot());
    let fs = Ext4::open(device, &MountOptions::default()).expect("a sound volume");
    let mut choices = Choices::from_bytes(input);
    let capabilities = choices.any();
    let mut connection = Connection::new(fs.as_ref(), capabilities);
    for unique in 1..=MAX_REQUESTS as u64 {
        if choices.are_spent() {
            break;
        }
        let bytes = request(&mut choices, unique);
        let Some(reply) = connection.answer(&bytes) else { continue };
        assert!(reply.len() >= 16 && reply.len() <= MAX_REPLY, "a reply of {} bytes", reply.len());
        let word =
            |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(word(0) as usize, reply.len());
        let error = word(4).cast_signed();
        assert!((-4095..=0).contains(&error), "errno {error}");
        assert_eq!(word(8), unique as u32);
        assert!(error == 0 || reply.len() == 16, "an error with contents");
    }
    drop(connection);
    fs.unmount().expect("unmount of a sound volume");
}
