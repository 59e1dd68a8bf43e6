//! `extol verity`: files of fs-verity on a volume that is not mounted.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol::image::tree::{HashAlgorithm, Salt};
use extol_cli_common::{Failure, Result, json_text, print_json, write};
use extol_proc::Shown as _;
use extol_vfs::{
    EnableVerity, FileKind, FsError, VerityDigest, VerityPart, VolumeControl as _, bytes_text,
};
use serde::Serialize;

use super::xattrs::hex;
use super::{CHUNK, InodeRef, Tree, show};
use crate::args::VerityArgs;
use crate::interrupt;

/// Most bytes of a signature that are read: more than any volume takes.
const MOST_SIGNATURE: u64 = 1 << 16;

/// Carries it out.
pub fn verity(args: &VerityArgs) -> Result<()> {
    match &*args.action {
        "enable" => enable(args),
        "measure" => measure(args),
        "dump" => dump(args),
        other => Err(Failure::usage(format_args!(
            "there is no action {other:?}: use enable, measure or dump"
        ))),
    }
}

fn enable(args: &VerityArgs) -> Result<()> {
    refuse(args.part.is_some(), "--part is for dump")?;
    refuse(args.json, "--json is for measure")?;
    let algorithm = hash_algorithm("--hash-alg", args.hash_alg.as_deref())?.id();
    let salt = salt("--salt", args.salt.as_deref())?.bytes().to_vec();
    let signature = args.signature.as_deref().map_or(Ok(Vec::new()), read_signature)?;
    let tree = Tree::open(&args.volume, true)?;
    let block_size = match tree.fs().statfs() {
        Ok(about) => args.block_size.unwrap_or(about.block_size.min(4096)),
        Err(error) => return tree.close(Err(Failure::about(args.volume.source.shown(), error))),
    };
    let how = EnableVerity { algorithm, block_size, salt, signature };
    for path in args.paths.iter().take_while(|_| !interrupt::came()) {
        let found = tree.find(path, true);
        let done = found.and_then(|inode| tree.volume.enable_verity(inode.ino, &how));
        if let Err(error) = done {
            tree.report(show(path), error);
        }
    }
    tree.close(Ok(()))
}

/// The hash algorithm that an option names.
pub fn hash_algorithm(option: &str, name: Option<&str>) -> Result<HashAlgorithm> {
    let name = name.unwrap_or("sha256");
    HashAlgorithm::from_name(name).ok_or_else(|| {
        let line = format_args!("{option}: there is no {name:?}: use sha256 or sha512");
        Failure::usage(line)
    })
}

/// The salt that an option states.
pub fn salt(option: &str, digits: Option<&str>) -> Result<Salt> {
    let bytes = hex(digits.unwrap_or_default().as_bytes());
    bytes.and_then(|bytes| Salt::new(&bytes).ok()).ok_or_else(|| {
        let line = format_args!("{option}: give up to 32 bytes as pairs of hexadecimal digits");
        Failure::usage(line)
    })
}

fn refuse(wrong: bool, line: &str) -> Result<()> {
    if wrong { Err(Failure::usage(line)) } else { Ok(()) }
}

/// That options of `enable` are not given.
fn only_reads(args: &VerityArgs) -> Result<()> {
    let given = args.hash_alg.is_some() || args.block_size.is_some() || args.salt.is_some();
    refuse(
        given || args.signature.is_some(),
        "--hash-alg, --block-size, --salt and --signature are for enable",
    )
}

fn read_signature(path: &Path) -> Result<Vec<u8>> {
    let fail = |error| Failure::system_call(path.shown(), error);
    let file = std::fs::File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(MOST_SIGNATURE).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

fn measure(args: &VerityArgs) -> Result<()> {
    only_reads(args)?;
    refuse(args.part.is_some(), "--part is for dump")?;
    let tree = Tree::open(&args.volume, false)?;
    let mut measured = Measured::default();
    for path in args.paths.iter().take_while(|_| !interrupt::came()) {
        match regular(&tree, path).and_then(|inode| tree.volume.measure_verity(inode.ino)) {
            Ok(digest) => measured.files.push(Digest::new(path, &digest)),
            Err(error) => report(&tree, path, error),
        }
    }
    let printed = match args.json {
        true => json_text(&measured).and_then(print_json),
        false => write(measured.text().as_bytes()),
    };
    tree.close(printed)
}

/// The digests of files.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    files: Vec<Digest>,
}

/// The digest of a file.
#[derive(Debug, Serialize)]
struct Digest {
    path: String,
    algorithm: &'static str,
    digest: String,
    #[serde(skip)]
    shown: String,
}

impl Digest {
    fn new(path: &OsStr, digest: &VerityDigest) -> Self {
        let mut hex = String::new();
        for byte in &digest.bytes {
            let _ = write!(hex, "{byte:02x}");
        }
        Self {
            path: bytes_text(path.as_bytes()),
            algorithm: HashAlgorithm::from_id(digest.algorithm).map_or("", HashAlgorithm::name),
            digest: hex,
            shown: show(path).to_string(),
        }
    }
}

impl Measured {
    fn text(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            let _ = writeln!(text, "{}:{} {}", file.algorithm, file.digest, file.shown);
        }
        text
    }

    /// One of a file, for the test of the schema.
    #[cfg(test)]
    pub fn example() -> Self {
        let digest = VerityDigest { algorithm: 2, bytes: vec![0xA5; 64] };
        Self { files: vec![Digest::new(OsStr::from_bytes(b"/file\xff"), &digest)] }
    }
}

fn regular<'t>(tree: &'t Tree, path: &OsStr) -> extol_vfs::Result<InodeRef<'t>> {
    let inode = tree.find(path, true)?;
    match inode.kind()? {
        FileKind::Regular => Ok(inode),
        FileKind::Directory => Err(FsError::IsADirectory),
        _ => Err(FsError::Invalid("not a file with contents")),
    }
}

fn report(tree: &Tree, path: &OsStr, error: FsError) {
    match error {
        FsError::NoAttribute => {
            tree.report(show(path), "is no file of fs-verity, or has no signature")
        }
        error => tree.report(show(path), error),
    }
}

fn dump(args: &VerityArgs) -> Result<()> {
    only_reads(args)?;
    refuse(args.json, "--json is for measure")?;
    let part = match args.part.as_deref() {
        None | Some("descriptor") => VerityPart::Descriptor,
        Some("tree") => VerityPart::Tree,
        Some("signature") => VerityPart::Signature,
        Some(other) => {
            let line = format_args!(
                "--part: there is no part {other:?}: use descriptor, tree or signature"
            );
            return Err(Failure::usage(line));
        }
    };
    let [path] = &args.paths[..] else {
        return Err(Failure::usage("dump takes one file"));
    };
    let tree = Tree::open(&args.volume, false)?;
    tree.refuse_as_output()?;
    let outcome = match dump_one(&tree, path, part) {
        Ok(printed) => printed,
        Err(error) => {
            report(&tree, path, error);
            Ok(())
        }
    };
    tree.close(outcome)
}

/// The inner result is about standard output, the outer one about the volume.
fn dump_one(tree: &Tree, path: &OsStr, part: VerityPart) -> extol_vfs::Result<Result<()>> {
    let inode = regular(tree, path)?;
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        let count = tree.volume.read_verity(inode.ino, part, offset, &mut buffer)?;
        if count == 0 {
            return Ok(Ok(()));
        }
        if let Err(failure) = write(&buffer[..count]) {
            return Ok(Err(failure));
        }
        offset += count as u64;
    }
}
