//! Keys of encrypted files: each in a file that holds its bytes and nothing else.
//!
//! Every place on the way from the file to the library is overwritten, and no message shows a byte.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use extol::encryption::BadKey;
use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;
use rustix::process::{Resource, Rlimit};
use zeroize::Zeroizing;

use crate::volume::Keys;

/// The mount option whose value is the path of such a file.
pub const OPTION: &[u8] = b"key=";
/// Bytes of the longest key.
const LONGEST: usize = 64;

/// Adds the keys in these files. From then on the process makes no core dump.
pub fn add(files: &[PathBuf], keys: &mut Keys) -> Result<()> {
    if !files.is_empty() {
        make_no_dump();
    }
    files.iter().try_for_each(|file| add_one(file, keys))
}

/// From now on the process makes no core dump.
pub fn make_no_dump() {
    // (With 0 the kernel makes one all the same, if it goes to a program.)
    let least = Rlimit { current: Some(1), maximum: Some(1) };
    let _ = rustix::process::setrlimit(Resource::Core, least);
}

fn add_one(path: &Path, keys: &mut Keys) -> Result<()> {
    with(path, |raw| keys.add(raw))
}

/// What `work` makes of the bytes of the key in a file.
pub fn with<T>(
    path: &Path,
    work: impl FnOnce(&[u8]) -> std::result::Result<T, BadKey>,
) -> Result<T> {
    // (One byte more, to see that the file ends.)
    let mut raw = Zeroizing::new([0; LONGEST + 1]);
    let len = read(path, &mut *raw).map_err(|error| {
        let code = Failure::code_of(error.kind());
        Failure { code, ..Failure::about(path.shown(), format_args!("read the key: {error}")) }
    })?;
    let about = |why: &dyn std::fmt::Display| Failure {
        code: Failure::USAGE,
        ..Failure::about(path.shown(), why)
    };
    if len > LONGEST {
        return Err(about(&"more than 64 bytes are no key: give a file with its raw bytes"));
    }
    work(&raw[..len]).map_err(|error| about(&error))
}

/// Fills the buffer, or as much of it as the file has.
fn read(path: &Path, to: &mut [u8]) -> std::io::Result<usize> {
    let mut file = File::open(path)?;
    let mut len = 0;
    while len < to.len() {
        match file.read(&mut to[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_a_key_of_16_to_64_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        for len in 0..80 {
            std::fs::write(&path, vec![0xA5; len]).unwrap();
            let mut keys = Keys::default();
            let added = add(std::slice::from_ref(&path), &mut keys);
            assert_eq!(added.is_ok(), (16..=64).contains(&len), "{len}");
            assert_eq!(keys.is_empty(), added.is_err());
            if let Err(failure) = added {
                assert_eq!(failure.code, Failure::USAGE);
                assert!(failure.line.contains("key: "), "{}", failure.line);
            }
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let failure = add(&["/no/key".into()], &mut Keys::default()).unwrap_err();
        assert!(failure.line.starts_with("/no/key: "), "{}", failure.line);
    }
}
