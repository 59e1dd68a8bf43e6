//! The option list of a mount, split between the kernel and the library.
//!
//! Some words are for both (`ro`, `noatime`, `noacl`): the kernel acts on them, and the library
//! must know. Words of other programs that mount (mount(8), libfuse, fuse2fs) are taken, passed
//! over, or refused with a reason (`foreign.rs`). A word that is none of these is an error, unless
//! mount(8) passes -s (sloppy).
//!
//! A list is bytes: the path of a journal need not be text.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use extol_cli_common::{Failure, Result};
use extol_fuse::MountConfig;

use crate::volume::VolumeOptions;

/// `--metrics` as a mount option, for fstab.
pub const METRICS: &str = "x-extol.metrics=";

/// Mount an image through a loop device of the kernel's.
pub const LOOP: &str = "loop";

/// For a volume that is not trusted: read-only, without set-id programs, devices and programs;
/// checked first, and only in a sandbox.
const UNTRUSTED: &str = "untrusted";

/// The option whose value is a path.
const JOURNAL_PATH: &[u8] = b"journal_path=";

/// The parts of an option list.
#[derive(Debug)]
pub struct Split {
    pub config: MountConfig,
    pub volume: VolumeOptions,
    /// Where to serve counters.
    pub metrics: Option<String>,
    /// The volume is not trusted.
    pub untrusted: bool,
    /// Mount an image through a loop device of the kernel's.
    pub through_loop: bool,
    /// The words that were taken, each as a list of its own.
    pub words: Vec<OsString>,
}

/// Splits option lists, later ones over earlier ones.
pub fn split(lists: &[impl AsRef<OsStr>], sloppy: bool) -> Result<Split> {
    let mut split = Split {
        config: MountConfig {
            allow_other: rustix::process::geteuid().is_root(),
            ..MountConfig::default()
        },
        volume: VolumeOptions::default(),
        metrics: None,
        untrusted: false,
        through_loop: false,
        words: Vec::new(),
    };
    for word in lists.iter().flat_map(words) {
        if split.take(&word)? {
            split.words.push(quoted(&word));
        } else if word != LOOP && !sloppy {
            return Err(unknown(&word));
        }
    }
    if split.untrusted {
        // These hold against all other words, in any order.
        for word in ["ro", "nosuid", "nodev", "noexec"] {
            split.config.accept(word);
        }
        split.volume.access.read_only = true;
    }
    split.volume.check().map_err(Failure::usage)?;
    Ok(split)
}

impl Split {
    /// Takes a word for the process that serves. False: it is unknown, or done by this process.
    fn take(&mut self, word: &OsStr) -> Result<bool> {
        if let Some(path) = word.as_bytes().strip_prefix(JOURNAL_PATH).filter(|p| !p.is_empty()) {
            self.volume.journal.path = Some(OsStr::from_bytes(path).into());
            return Ok(true);
        }
        let Some(text) = text_of(word) else { return not_text(word) };
        if let Some(address) = text.strip_prefix(METRICS) {
            self.metrics = Some(address.to_owned());
        }
        if text == LOOP {
            // Not again by the process that serves in the background.
            self.through_loop = true;
            return Ok(false);
        }
        self.untrusted |= text == UNTRUSTED;
        let kernel = self.config.accept(text) || text == UNTRUSTED;
        let (name, value) = parts(text);
        let library = self.volume.set(name, value).map_err(Failure::usage)?;
        Ok(kernel || library)
    }
}

/// A word as text. `None`: it is none.
pub fn text_of(word: &OsStr) -> Option<&str> {
    std::str::from_utf8(word.as_bytes()).ok()
}

/// Name and value of a word.
pub fn parts(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    }
}

/// A word that is no text: for other programs, or an error.
fn not_text(word: &OsStr) -> Result<bool> {
    let foreign: [&[u8]; 3] = [b"x-", b"comment=", b"fsname="];
    if foreign.iter().any(|name| word.as_bytes().starts_with(name)) {
        return Ok(true);
    }
    Err(Failure::usage(format_args!("bad mount option \"{}\": it is no text", word.display())))
}

/// The failure for a word that nothing takes.
pub fn unknown(word: &OsStr) -> Failure {
    Failure::usage(format_args!("unknown mount option \"{}\"", word.display()))
}

/// A list of which [`words`] makes this one word.
pub fn escaped(word: &OsStr) -> OsString {
    let escape = |byte: &u8| match byte {
        b',' | b'"' | b'\\' => vec![b'\\', *byte],
        _ => vec![*byte],
    };
    OsString::from_vec(word.as_bytes().iter().flat_map(escape).collect())
}

/// Options of the library alone, for commands that do not mount.
pub fn volume_only(lists: &[impl AsRef<OsStr>]) -> Result<VolumeOptions> {
    let mut options = VolumeOptions::default();
    for word in lists.iter().flat_map(words) {
        if let Some(path) = word.as_bytes().strip_prefix(JOURNAL_PATH).filter(|p| !p.is_empty()) {
            options.journal.path = Some(OsStr::from_bytes(path).into());
            continue;
        }
        let taken = match text_of(&word).map(parts) {
            Some((name, value)) => options.set(name, value).map_err(Failure::usage)?,
            None => not_text(&word)?,
        };
        if !taken {
            return Err(Failure::usage(format_args!("unknown option \"{}\"", word.display())));
        }
    }
    options.check().map_err(Failure::usage)?;
    Ok(options)
}

/// The words of a list. A comma inside a value is written `\,` or the value is put in double
/// quotes.
pub fn words(list: impl AsRef<OsStr>) -> Vec<OsString> {
    let mut words = vec![Vec::new()];
    let mut is_quoted = false;
    let mut bytes = list.as_ref().as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        let word = words.last_mut().expect("never empty");
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' => word.extend(bytes.next()),
            b',' if !is_quoted => words.push(Vec::new()),
            _ => word.push(byte),
        }
    }
    words.into_iter().filter(|word| !word.is_empty()).map(OsString::from_vec).collect()
}

/// A word as a list.
fn quoted(word: &OsStr) -> OsString {
    let escaped = word.as_bytes().iter().flat_map(|byte| {
        let escape = matches!(byte, b'\\' | b',' | b'"').then_some(b'\\');
        escape.into_iter().chain([*byte])
    });
    OsString::from_vec(escaped.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_fuse::MountFlags;

    fn lists(list: &str) -> [String; 1] {
        [list.to_owned()]
    }

    #[test]
    fn words_may_hold_commas() {
        assert_eq!(
            words(r#"ro,,fsname=a\,b,x="c,d",noatime"#),
            ["ro", "fsname=a,b", "x=c,d", "noatime"]
        );
        assert!(words("").is_empty());
    }

    /// Of a word that is no text only a path is taken.
    #[test]
    fn paths_need_not_be_text() {
        let list = OsStr::from_bytes(b"ro,journal_path=/a\xff\\,b,x-a=\xff");
        let split = super::split(&[list], false).unwrap();
        let path = OsStr::from_bytes(b"/a\xff,b");
        assert_eq!(split.volume.journal.path.as_deref().map(|path| path.as_os_str()), Some(path));
        let again = super::split(&split.words, false).unwrap();
        assert_eq!(again.volume.journal.path, split.volume.journal.path);
        for list in [&b"commit=\xff"[..], b"\xff", b"journal_path="] {
            let failure = super::split(&[OsStr::from_bytes(list)], true).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{list:?}");
        }
    }

    #[test]
    fn each_half_gets_its_own() {
        let split = split(&lists("ro,nosuid,commit=9,noatime"), false).unwrap();
        assert!(split.config.read_only && split.volume.access.read_only);
        assert_eq!(split.volume.journal.commit, std::time::Duration::from_secs(9));
    }

    #[test]
    fn untrusted_is_stronger_than_what_follows() {
        let split = split(&lists("untrusted,rw,suid,dev,exec"), false).unwrap();
        assert!(split.untrusted && split.config.read_only && split.volume.access.read_only);
        let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        assert!(split.config.flags.contains(safe), "{:?}", split.config.flags);
        assert_eq!(split.words, ["untrusted", "rw", "suid", "dev", "exec"]);
    }

    #[test]
    fn unknown_words_are_named() {
        let failure = split(&lists("ro,frob"), false).unwrap_err();
        assert_eq!((failure.code, failure.line.as_str()), (1, "unknown mount option \"frob\""));
        let sloppy = split(&lists(r"ro,frob,fsname=a\,b"), true).unwrap();
        assert_eq!(sloppy.words, ["ro", r"fsname=a\,b"]);
        assert_eq!(split(&sloppy.words, false).unwrap().config.source, "a,b");
        assert_eq!(split(&lists("data=x"), true).unwrap_err().code, 1);
        assert_eq!(volume_only(&lists("nosuid")).unwrap_err().code, 1);
    }
}
