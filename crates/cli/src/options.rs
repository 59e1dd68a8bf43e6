//! The option list of a mount, split between the kernel and the library.
//!
//! Some words are for both (`ro`, `noatime`, `noacl`): the kernel acts on them, and the library
//! must know. A word that neither takes is an error, unless mount(8) passes -s (sloppy).

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
    pub words: Vec<String>,
}

/// Splits option lists, later ones over earlier ones.
pub fn split(lists: &[String], sloppy: bool) -> Result<Split> {
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
    for word in lists.iter().flat_map(|list| words(list)) {
        if let Some(address) = word.strip_prefix(METRICS) {
            split.metrics = Some(address.to_owned());
        }
        if word == LOOP {
            // Done by this process, and not again by the one that serves in the background.
            split.through_loop = true;
            continue;
        }
        split.untrusted |= word == UNTRUSTED;
        let kernel = split.config.accept(&word) || word == UNTRUSTED;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        let library = split.volume.set(name, value).map_err(Failure::usage)?;
        if kernel || library {
            split.words.push(word.replace('\\', r"\\").replace(',', r"\,").replace('"', "\\\""));
        } else if !sloppy {
            return Err(Failure::usage(format_args!("unknown mount option \"{word}\"")));
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

/// Options of the library alone, for commands that do not mount.
pub fn volume_only(lists: &[String]) -> Result<VolumeOptions> {
    let mut options = VolumeOptions::default();
    for word in lists.iter().flat_map(|list| words(list)) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        if !options.set(name, value).map_err(Failure::usage)? {
            return Err(Failure::usage(format_args!("unknown option \"{word}\"")));
        }
    }
    options.check().map_err(Failure::usage)?;
    Ok(options)
}

/// The words of a list. A comma inside a value is written `\,` or the value is put in double
/// quotes.
pub fn words(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    let mut chars = list.chars();
    while let Some(c) = chars.next() {
        let word = words.last_mut().expect("never empty");
        match c {
            '"' => quoted = !quoted,
            '\\' => word.extend(chars.next()),
            ',' if !quoted => words.push(String::new()),
            _ => word.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
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
