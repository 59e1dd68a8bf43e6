//! Linux's side of encryption: keys and policies of a kernel mount, by ioctl.

use crate::raw_ioctl;
use std::fs::File;
use std::path::Path;

const SET_POLICY: u32 = 0x800c_6613;
const ADD_KEY: u32 = 0xc050_6617;
const GET_POLICY_EX: u32 = 0xc009_6616;
const GET_NONCE: u32 = 0x8010_661b;
/// Bytes of `struct fscrypt_add_key_arg` before the key.
const ADD_KEY_LEN: usize = 80;

/// Adds an encryption key to the mount that `dir` is on, and gives the identifier that Linux
/// derives from it. With a descriptor it is a key for policies of version 1, and has none.
///
/// # Panics
/// If Linux refuses.
pub fn add_encryption_key(dir: &Path, descriptor: Option<[u8; 8]>, raw: &[u8]) -> [u8; 16] {
    let mut argument = vec![0; ADD_KEY_LEN];
    argument[0] = if descriptor.is_some() { 1 } else { 2 };
    if let Some(descriptor) = descriptor {
        argument[8..16].copy_from_slice(&descriptor);
    }
    let len = u32::try_from(raw.len()).expect("a short key");
    argument[40..44].copy_from_slice(&len.to_ne_bytes());
    argument.extend_from_slice(raw);
    let dir = File::open(dir).expect("open the mount");
    raw_ioctl(&dir, ADD_KEY, &mut argument).expect("Linux takes the key");
    std::array::from_fn(|i| argument[8 + i])
}

/// Sets the policy of an empty directory: `struct fscrypt_policy_v1` (which begins with 0) or
/// `fscrypt_policy_v2` (which begins with 2).
///
/// # Errors
/// What Linux answers.
pub fn set_encryption_policy(dir: &Path, policy: &[u8]) -> std::io::Result<()> {
    raw_ioctl(&File::open(dir)?, SET_POLICY, &mut policy.to_vec())
}

/// The policy of an encrypted file, in the form of [`set_encryption_policy`].
///
/// # Errors
/// What Linux answers.
pub fn encryption_policy(path: &Path) -> std::io::Result<Vec<u8>> {
    // `struct fscrypt_get_policy_ex_arg`: the length, and room for the longest policy.
    let mut argument = [&24_u64.to_ne_bytes()[..], &[0; 24]].concat();
    raw_ioctl(&File::open(path)?, GET_POLICY_EX, &mut argument)?;
    let policy = argument.split_off(8);
    let len = if policy[0] == 0 { 12 } else { 24 };
    Ok(policy[..len].to_vec())
}

/// The nonce of an encrypted file.
///
/// # Panics
/// If Linux does not tell it.
#[must_use]
pub fn encryption_nonce(path: &Path) -> [u8; 16] {
    let mut nonce = [0; 16];
    let file = File::open(path).expect("open an encrypted file");
    raw_ioctl(&file, GET_NONCE, &mut nonce).expect("Linux tells the nonce");
    nonce
}
