//! Requests of NFS clients, as bytes, to a small volume in memory.
//!
//! An input is a list of requests: a record as it is, or a program and a procedure with arguments
//! from words, names, and handles that the server has given out.

use std::sync::Arc;

use extol::{Ext4, MountOptions};
use extol_nfs::{Config, Export, Squash, answer_bytes};

use super::requests::base;
use crate::choices::Choices;

const MAX_REQUESTS: usize = 24;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NAMES: &[&[u8]] = &[b"a", b"b", b"dir", b"link", b"new", b"..", b".", b"", b"x/y"];
/// No answer is longer than the largest read and what is around it.
const MAX_REPLY: usize = (1 << 20) + 4096;
/// What stands before the results of a call that was accepted.
const HEAD: usize = 24;

fn put(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend(word.to_be_bytes());
}

fn opaque(bytes: &mut Vec<u8>, data: &[u8]) {
    put(bytes, data.len() as u32);
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// The head of a call, as root or another.
fn call(xid: u32, program: u32, procedure: u32, user: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [xid, 0, 2, program, 3, procedure, 1, 20, 0, 0, user, user, 0, 0, 0] {
        put(&mut bytes, word);
    }
    bytes
}

/// The handle in the reply to a call.
fn handle(export: &Export, record: &[u8]) -> Vec<u8> {
    let reply = answer_bytes(export, record).expect("a reply");
    reply[HEAD + 8..HEAD + 40].to_vec()
}

/// Handles of what is on the volume.
fn handles(export: &Export) -> Vec<Vec<u8>> {
    let mut mount = call(1, MOUNT, 1, 0);
    opaque(&mut mount, b"/");
    let root = handle(export, &mount);
    let find = |name: &&[u8]| {
        let mut lookup = call(1, NFS, 3, 0);
        opaque(&mut lookup, &root);
        opaque(&mut lookup, name);
        handle(export, &lookup)
    };
    let mut handles: Vec<_> = NAMES[..4].iter().map(find).collect();
    handles.push(root);
    handles
}

fn request(choices: &mut Choices, xid: u32, handles: &[Vec<u8>]) -> Vec<u8> {
    let raw = |choices: &mut Choices, most: usize| -> Vec<u8> {
        (0..choices.below(most)).map(|_| choices.below(256) as u8).collect()
    };
    if choices.one_in(8) {
        return raw(choices, 200);
    }
    let (program, most) = if choices.one_in(8) { (MOUNT, 7) } else { (NFS, 23) };
    let user = choices.below(2) as u32 * 1000;
    let mut bytes = call(xid, program, choices.below(most) as u32, user);
    for _ in 0..choices.below(14) {
        match choices.below(8) {
            0 | 1 => opaque(&mut bytes, choices.pick::<Vec<u8>>(handles)),
            2 => opaque(&mut bytes, choices.pick::<&[u8]>(NAMES)),
            3 => put(&mut bytes, choices.any() as u32),
            4 => bytes.extend(raw(choices, 64)),
            5 => opaque(&mut bytes, &raw(choices, 100)),
            _ => put(&mut bytes, choices.below(5) as u32),
        }
    }
    bytes
}

/// Each answer must be one: of whole words, to the request that was asked.
pub(super) fn nfs(input: &[u8]) {
    let device = Arc::new(base().snapshot());
    let fs = Ext4::open(device, &MountOptions::default()).expect("a sound volume");
    let config = Config { squash: Squash::None, ..Config::default() };
    let export = Export::new(fs.clone(), config).expect("an export");
    let handles = handles(&export);
    let mut choices = Choices::from_bytes(input);
    for xid in 1..=MAX_REQUESTS as u32 {
        if choices.are_spent() {
            break;
        }
        let bytes = request(&mut choices, xid, &handles);
        let Some(reply) = answer_bytes(&export, &bytes) else { continue };
        assert!(reply.len() % 4 == 0 && reply.len() <= MAX_REPLY, "{} bytes", reply.len());
        assert_eq!(reply[..8], [&bytes[..4], &[0, 0, 0, 1]].concat(), "another's reply");
    }
    drop(export);
    fs.unmount().expect("unmount of a sound volume");
}
