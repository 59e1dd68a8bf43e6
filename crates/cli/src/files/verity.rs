//! `extol verity`: files of fs-verity on a volume that is not mounted.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use extol_cli_common::{Failure, Result, write};
use extol_proc::Shown as _;
use extol_vfs::{EnableVerity, FileKind, FsError, VerityPart, VolumeControl as _};

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
    let algorithm = match args.hash_alg.as_deref() {
        None | Some("sha256") => 1,
        Some("sha512") => 2,
        Some(other) => {
            let line = format_args!("--hash-alg: there is no {other:?}: use sha256 or sha512");
            return Err(Failure::usage(line));
        }
    };
    let salt = args.salt.as_deref().map_or(Some(Vec::new()), |digits| hex(digits.as_bytes()));
    let salt = salt.filter(|salt| salt.len() <= 32).ok_or_else(|| {
        Failure::usage("--salt: give up to 32 bytes as pairs of hexadecimal digits")
    })?;
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
    let mut outcome = Ok(());
    for path in args.paths.iter().take_while(|_| !interrupt::came()) {
        match regular(&tree, path).and_then(|inode| tree.volume.measure_verity(inode.ino)) {
            Ok(digest) => {
                let name = if digest.algorithm == 1 { "sha256:" } else { "sha512:" };
                let mut line = name.to_owned();
                for byte in &digest.bytes {
                    let _ = write!(line, "{byte:02x}");
                }
                let _ = writeln!(line, " {}", show(path));
                outcome = outcome.and_then(|()| write(line.as_bytes()));
            }
            Err(error) => report(&tree, path, error),
        }
    }
    tree.close(outcome)
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
        FsError::NoAttribute => tree.report(show(path), "is no file of fs-verity, or has none"),
        error => tree.report(show(path), error),
    }
}

fn dump(args: &VerityArgs) -> Result<()> {
    only_reads(args)?;
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
