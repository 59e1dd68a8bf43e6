//! `extol encrypt`: policies of encrypted files, on a volume that is not mounted or on one that is.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use extol::encryption::{
    Encryption, Flags, KeySpec, MasterKey, Mode, Policy, Request, from_hex, to_hex,
};
use extol_cli_common::{Failure, Result, json_text, print, print_json, warn};
use extol_proc::Shown as _;
use extol_vfs::{FsError, bytes_text};
use rustix::fs::{Mode as Permissions, OFlags, ResolveFlags};
use serde::Serialize;

use super::{Tree, show};
use crate::args::{EncryptArgs, VolumeArgs};
use crate::mounted::MountedVolume;
use crate::{interrupt, keys, maintenance};

/// Carries it out.
pub fn encrypt(args: &EncryptArgs) -> Result<()> {
    match &*args.action {
        "get-policy" => get(args),
        "set-policy" => set(args),
        other => Err(Failure::usage(format_args!(
            "there is no action {other:?}: use get-policy or set-policy"
        ))),
    }
}

fn set(args: &EncryptArgs) -> Result<()> {
    if args.json {
        return Err(Failure::usage("--json is for get-policy"));
    }
    let policy = policy(args)?;
    let volume = Source::open(args, true)?;
    for path in args.paths.iter().take_while(|_| !interrupt::came()) {
        if let Err(error) = volume.set(path, &policy) {
            volume.report(path, error);
        }
    }
    volume.close(Ok(()))
}

/// The policy that the arguments describe.
fn policy(args: &EncryptArgs) -> Result<Policy> {
    let mode = |name: &Option<String>, usual: Mode, option| match name {
        None => Ok(usual),
        Some(name) => Mode::from_name(name).ok_or_else(|| {
            let known: Vec<_> = Mode::ALL.iter().map(|mode| mode.name()).collect();
            let known = known.join(", ");
            Failure::usage(format_args!("{option}: there is no mode {name:?}: use one of {known}"))
        }),
    };
    let padding = match args.padding.unwrap_or(32) {
        padding @ (4 | 8 | 16 | 32) => padding.trailing_zeros() as u8 - 2,
        other => {
            let line = format_args!("--padding {other}: it must be 4, 8, 16 or 32");
            return Err(Failure::usage(line));
        }
    };
    let log2_data_unit = match args.data_unit_size {
        None => 0,
        Some(size) if size.is_power_of_two() && size >= 512 => size.trailing_zeros() as u8,
        Some(size) => {
            let line = format_args!("--data-unit-size {size}: it must be a power of two from 512");
            return Err(Failure::usage(line));
        }
    };
    let mut flags = Flags::from_bits_retain(padding);
    flags.set(Flags::DIRECT_KEY, args.direct_key);
    flags.set(Flags::IV_INO_LBLK_64, args.iv_ino_lblk_64);
    flags.set(Flags::IV_INO_LBLK_32, args.iv_ino_lblk_32);
    let key = match &args.descriptor {
        Some(digits) => KeySpec::Descriptor(descriptor(digits)?),
        None => KeySpec::Identifier(identifier(args)?),
    };
    if log2_data_unit != 0 && matches!(key, KeySpec::Descriptor(_)) {
        return Err(Failure::usage("--data-unit-size is not for policies of version 1"));
    }
    Ok(Policy {
        key,
        contents: mode(&args.contents, Mode::Aes256Xts, "--contents")?.number(),
        names: mode(&args.filenames, Mode::Aes256Cts, "--filenames")?.number(),
        flags,
        log2_data_unit,
        reserved: [0; 3],
    })
}

fn descriptor(digits: &str) -> Result<[u8; 8]> {
    let bytes = from_hex(digits).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Failure::usage("--descriptor: give eight bytes as 16 hexadecimal digits"))
}

fn identifier(args: &EncryptArgs) -> Result<[u8; 16]> {
    let [file] = &args.keys[..] else {
        return Err(Failure::usage(
            "which key? Give exactly one with --key FILE, or --descriptor for a policy of version \
             1",
        ));
    };
    keys::with(file, |raw| Ok(MasterKey::new(raw)?.identifier()))
}

fn get(args: &EncryptArgs) -> Result<()> {
    let given = args.contents.is_some() || args.filenames.is_some() || args.descriptor.is_some();
    let numbers = args.padding.is_some() || args.data_unit_size.is_some();
    if given || numbers || args.direct_key || args.iv_ino_lblk_64 || args.iv_ino_lblk_32 {
        return Err(Failure::usage("what describes a policy is for set-policy"));
    }
    let volume = Source::open(args, false)?;
    let mut document = Document::new(&args.source);
    for path in args.paths.iter().take_while(|_| !interrupt::came()) {
        match volume.get(path) {
            Ok(Some(found)) => document.policies.push(Shown::new(path, &found)),
            Ok(None) => volume.report(path, "is not encrypted"),
            Err(error) => volume.report(path, error),
        }
    }
    let printed = match args.json {
        true => json_text(&document).and_then(print_json),
        false => print(document.text()),
    };
    volume.close(printed)
}

/// The volume, by its image or by a mount.
enum Source {
    Open(Tree),
    Mounted { volume: MountedVolume, root: File, failed: std::cell::Cell<bool> },
}

impl Source {
    fn open(args: &EncryptArgs, write: bool) -> Result<Self> {
        if !args.source.is_dir() {
            let EncryptArgs { options, keys, source, .. } = args;
            let volume =
                VolumeArgs { options: options.clone(), keys: keys.clone(), source: source.clone() };
            return Tree::open(&volume, write).map(Self::Open);
        }
        if !args.options.is_empty() {
            return Err(Failure::usage("-o is for a volume that is not mounted"));
        }
        let volume = MountedVolume::of(&args.source, "encrypt")?;
        let root = File::open(&volume.root)
            .map_err(|error| Failure::system_call(args.source.shown(), error))?;
        Ok(Self::Mounted { volume, root, failed: std::cell::Cell::new(false) })
    }

    fn set(&self, path: &OsStr, policy: &Policy) -> std::result::Result<(), String> {
        match self {
            Self::Open(tree) => tree
                .find(path, true)
                .and_then(|inode| tree.volume.set_encryption(inode.ino, policy))
                .map_err(|error| error.to_string()),
            Self::Mounted { .. } => {
                self.ask(path, |ino| Request::SetPolicy(ino, *policy)).map(drop)
            }
        }
    }

    fn get(&self, path: &OsStr) -> std::result::Result<Option<Encryption>, String> {
        match self {
            Self::Open(tree) => {
                let found = tree.find(path, true);
                match found.and_then(|inode| tree.volume.encryption(inode.ino)) {
                    Ok(found) => Ok(Some(found)),
                    Err(FsError::NoAttribute) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::Mounted { .. } => {
                let answer = self.ask(path, Request::Policy)?;
                let Some(line) = answer.first() else { return Ok(None) };
                let other = || "the mount is of another version of extol".to_owned();
                Encryption::parse(line).map(Some).ok_or_else(other)
            }
        }
    }

    /// Asks the daemon about a file, which is open meanwhile: its inode stays the same.
    fn ask(
        &self,
        path: &OsStr,
        request: impl FnOnce(u32) -> Request,
    ) -> std::result::Result<Vec<String>, String> {
        let Self::Mounted { volume, root, .. } = self else { return Ok(Vec::new()) };
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(root, path, flags, Permissions::empty(), how);
        let file = File::from(file.map_err(|error| error.to_string())?);
        let about = file.metadata().map_err(|error| error.to_string())?;
        let ino = u32::try_from(about.ino()).map_err(|_| "is no file of an ext4 volume")?;
        maintenance::encryption(&volume.root, &request(ino).to_text())
            .map_err(|failure| failure.line)
    }

    fn report(&self, path: &OsStr, error: impl std::fmt::Display) {
        match self {
            Self::Open(tree) => tree.report(show(path), error),
            Self::Mounted { failed, .. } => {
                warn(format_args!("{}: {error}", show(path)));
                failed.set(true);
            }
        }
    }

    fn close(self, outcome: Result<()>) -> Result<()> {
        match self {
            Self::Open(tree) => tree.close(outcome),
            Self::Mounted { failed, .. } if failed.get() => {
                outcome.and(Err(Failure::silent(Failure::FAILED)))
            }
            Self::Mounted { .. } => outcome.and(interrupt::check()),
        }
    }
}

/// Policies as JSON.
#[derive(Debug, Serialize)]
pub struct Document {
    source: String,
    policies: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct Shown {
    path: String,
    version: u8,
    key: String,
    has_key: bool,
    contents: String,
    filenames: String,
    padding: usize,
    /// `null`: those of a block.
    data_unit_size: Option<u64>,
    direct_key: bool,
    iv_ino_lblk_64: bool,
    iv_ino_lblk_32: bool,
    nonce: String,
}

impl Shown {
    fn new(path: &OsStr, found: &Encryption) -> Self {
        let policy = &found.context.policy;
        let mode = |number| {
            Mode::from_number(number).map_or_else(|| number.to_string(), |mode| mode.name().into())
        };
        let unit = policy.log2_data_unit;
        Self {
            path: show(path),
            version: policy.version(),
            key: match &policy.key {
                KeySpec::Descriptor(bytes) => to_hex(bytes),
                KeySpec::Identifier(bytes) => to_hex(bytes),
            },
            has_key: found.has_key,
            contents: mode(policy.contents),
            filenames: mode(policy.names),
            padding: policy.padding(),
            data_unit_size: 1_u64.checked_shl(unit.into()).filter(|_| unit != 0),
            direct_key: policy.flags.contains(Flags::DIRECT_KEY),
            iv_ino_lblk_64: policy.flags.contains(Flags::IV_INO_LBLK_64),
            iv_ino_lblk_32: policy.flags.contains(Flags::IV_INO_LBLK_32),
            nonce: to_hex(&found.context.nonce),
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}: policy of version {}\n  key:       {} ({})\n  contents:  {}\n  filenames: {}, \
             padded to {} bytes\n",
            self.path,
            self.version,
            self.key,
            if self.has_key { "it is there" } else { "it is not there" },
            self.contents,
            self.filenames,
            self.padding
        );
        let flags = [
            (self.direct_key, "direct key"),
            (self.iv_ino_lblk_64, "inode number in IVs of 64 bits"),
            (self.iv_ino_lblk_32, "inode number in IVs of 32 bits"),
        ];
        for (_, words) in flags.iter().filter(|(is, _)| *is) {
            let _ = writeln!(text, "  with:      {words}");
        }
        if let Some(size) = self.data_unit_size {
            let _ = writeln!(text, "  data unit: {size} bytes");
        }
        let _ = writeln!(text, "  nonce:     {}", self.nonce);
        text
    }
}

impl Document {
    fn new(source: &Path) -> Self {
        Self { source: bytes_text(source.as_os_str().as_bytes()), policies: Vec::new() }
    }

    fn text(&self) -> String {
        self.policies.iter().map(Shown::text).collect()
    }
}

/// A document, for the test of its schema.
#[cfg(test)]
pub fn example() -> Document {
    let policy = |key, flags, log2_data_unit| {
        let flags = Flags::from_bits_retain(flags);
        Policy { key, contents: 1, names: 77, flags, log2_data_unit, reserved: [0; 3] }
    };
    let policies = [
        policy(KeySpec::Identifier([1; 16]), 0x0B, 9),
        policy(KeySpec::Descriptor([2; 8]), 0, 255),
    ];
    let mut document = Document::new(Path::new("a.img"));
    for policy in policies {
        let context = extol::encryption::Context { policy, nonce: [3; 16] };
        let found = Encryption { context, has_key: false };
        document.policies.push(Shown::new(OsStr::new("/dir"), &found));
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};
    use std::ffi::OsString;

    fn parsed(line: &str) -> Result<Policy> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&words)? {
            Command::Encrypt(args) => policy(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_describe_a_policy() {
        let line = "extol encrypt set-policy --descriptor 0123456789abcdef img /dir";
        let policy = parsed(line).unwrap();
        assert_eq!(
            policy.key,
            KeySpec::Descriptor([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef])
        );
        assert_eq!((policy.contents, policy.names, policy.flags.bits()), (1, 4, 3));
        let more = "--contents adiantum --filenames Adiantum --padding 8 --direct-key";
        let policy = parsed(&line.replace("--desc", &format!("{more} --desc"))).unwrap();
        assert_eq!((policy.contents, policy.names, policy.flags.bits()), (9, 9, 5));
        for (more, words) in [
            ("--padding 5", "4, 8, 16 or 32"),
            ("--padding 64", "4, 8, 16 or 32"),
            ("--contents AES", "\"AES\""),
            ("--data-unit-size 4097", "power of two"),
            ("--data-unit-size 512", "version 1"),
            ("--direct-key --iv-ino-lblk-64", "cannot be used with"),
        ] {
            let failure = parsed(&line.replace("--desc", &format!("{more} --desc"))).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{more}");
            assert!(failure.line.contains(words), "{more}: {}", failure.line);
        }
        for line in [
            "extol encrypt set-policy img /dir",
            "extol encrypt set-policy --descriptor 0123 img /dir",
            "extol encrypt set-policy --key a --key b img /dir",
        ] {
            assert_eq!(parsed(line).unwrap_err().code, Failure::USAGE, "{line}");
        }
    }
}
