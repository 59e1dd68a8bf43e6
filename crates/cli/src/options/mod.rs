//! The option list of a mount, split between the kernel and the library.
//!
//! Some words are for both (`ro`, `noatime`, `noacl`): the kernel acts on them, and the library
//! must know. Words of other programs that mount (mount(8), libfuse, fuse2fs) are taken, passed
//! over, or refused with a reason (`foreign.rs`). A word that is none of these is an error, unless
//! mount(8) passes -s (sloppy).
//!
//! A list is bytes: the path of a journal need not be text.

mod foreign;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use extol_block::open::{Backing, Window};
use extol_cli_common::{Failure, Result};
use extol_fuse::MountConfig;
use extol_vfs::{NumberError, bytes_text, number};

use crate::keys;
use crate::volume::VolumeOptions;

pub use foreign::{is_passed_over, unknown};

/// `--metrics` as a mount option.
pub const METRICS: &str = "metrics=";
/// The same in fstab, where other programs than mount(8) pass over it.
pub const FSTAB_METRICS: &str = "x-extol.metrics=";

/// Mount an image through a loop device of the kernel's.
const LOOP: &str = "loop";

/// For a volume that is not trusted: read-only, without set-id programs, devices and programs;
/// checked first, and only in a sandbox.
const UNTRUSTED: &str = "untrusted";

/// Largest place in an image, in bytes.
const MOST_OFFSET: u64 = i64::MAX as u64;
/// Largest cache, in bytes: a tebibyte.
const MOST_CACHE: u64 = 1 << 40;

/// The option whose value is the path of a journal.
const JOURNAL_PATH: &[u8] = b"journal_path=";

/// The parts of an option list.
#[derive(Debug)]
pub struct Split {
    pub config: MountConfig,
    pub volume: VolumeOptions,
    /// Where to serve counters.
    pub metrics: Option<String>,
    /// Files with keys of encrypted files. They are read where the volume is opened.
    pub keys: Vec<PathBuf>,
    /// The volume is not trusted.
    pub untrusted: bool,
    /// Mount an image through a loop device of the kernel's.
    pub is_loop: bool,
    /// Which part of an image or a device is the volume.
    pub part: Part,
    /// The words about a loop device, and the part that it shows, which the process that starts the
    /// daemon acts on.
    pub loop_words: Vec<OsString>,
    /// Users that are let in have all rights.
    fakeroot: bool,
    /// The volume is read-only because another option means that.
    pub read_only_is_implied: bool,
    /// The words that were taken, each as a list of its own.
    pub words: Vec<OsString>,
}

/// What a word is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    /// For the process that serves.
    Taken,
    /// For the process that starts it.
    ForLoop,
    /// For the loop device, or without one for the process that serves.
    Window,
    /// For other programs.
    PassedOver,
    Unknown,
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
        keys: Vec::new(),
        untrusted: false,
        is_loop: false,
        part: Part::default(),
        loop_words: Vec::new(),
        fakeroot: false,
        read_only_is_implied: false,
        words: Vec::new(),
    };
    let mut windows = Vec::new();
    for word in lists.iter().flat_map(words) {
        match split.take(&word)? {
            Word::Taken => split.words.push(quoted(&word)),
            Word::ForLoop => split.loop_words.push(quoted(&word)),
            Word::Window => windows.push(quoted(&word)),
            Word::Unknown if !sloppy => return Err(unknown(&word)),
            Word::PassedOver | Word::Unknown => {}
        }
    }
    split.check()?;
    let of_window = if split.is_loop { &mut split.loop_words } else { &mut split.words };
    of_window.append(&mut windows);
    if split.untrusted {
        // (What an image that is not trusted names is not opened.)
        split.part.backing.get_or_insert(&Backing::None);
        // These hold against all other words, in any order.
        for word in ["ro", "nosuid", "nodev", "noexec"] {
            split.accept(word)?;
        }
        split.volume.access.read_only = true;
    }
    // As fuse2fs has it. Linux refuses it without ro where the log is not empty.
    if split.volume.access.norecovery && !split.volume.access.read_only {
        split.accept("ro")?;
        (split.volume.access.read_only, split.read_only_is_implied) = (true, true);
    }
    split.volume.check().map_err(Failure::usage)?;
    Ok(split)
}

impl Split {
    /// Takes a word.
    fn take(&mut self, word: &OsStr) -> Result<Word> {
        if let Some(path) = word.as_bytes().strip_prefix(JOURNAL_PATH) {
            if path.is_empty() {
                return Err(bad("journal_path=", "give a file or a device"));
            }
            self.volume.journal.path = Some(OsStr::from_bytes(path).into());
            return Ok(Word::Taken);
        }
        if let Some(path) = word.as_bytes().strip_prefix(keys::OPTION) {
            if path.is_empty() {
                return Err(bad("key=", "give a file with the bytes of a key"));
            }
            self.keys.push(OsStr::from_bytes(path).into());
            return Ok(Word::Taken);
        }
        let Some(text) = text_of(word) else {
            return not_text(word).map(|_| Word::PassedOver);
        };
        if self.take_own(text)? {
            return Ok(Word::Taken);
        }
        if self.take_loop(text)? {
            return Ok(Word::ForLoop);
        }
        if take_part(text, &mut self.part)? {
            return Ok(Word::Window);
        }
        let kernel = self.accept(text)?;
        let (name, value) = parts(text);
        let library = self.volume.set(name, value).map_err(Failure::usage)?;
        if kernel || library {
            return Ok(Word::Taken);
        }
        foreign::accept(name, value)
            .map_or(Ok(Word::Unknown), |taken| taken.map(|()| Word::PassedOver))
    }

    /// Takes a word of the kernel's side.
    fn accept(&mut self, word: &str) -> Result<bool> {
        self.config.accept(word).map_err(Failure::usage)
    }

    /// Takes a word that stands for others, or is about the daemon.
    fn take_own(&mut self, text: &str) -> Result<bool> {
        let address = text.strip_prefix(METRICS).or_else(|| text.strip_prefix(FSTAB_METRICS));
        if let Some(address) = address {
            self.metrics = Some(address.to_owned());
        } else if let Some(size) = text.strip_prefix("cache_size=") {
            let bytes = number::size(size, 1, 0..=MOST_CACHE).map_err(|why| about(text, &why))?;
            // 0 is the default, as for fuse2fs.
            if bytes > 0 {
                let shown = format!("{bytes}B");
                let set = self.volume.set("cache_mb", Some(&shown));
                set.map_err(|why| Failure::usage(why.replace("cache_mb", "cache_size")))?;
            }
        } else {
            match text {
                UNTRUSTED => self.untrusted = true,
                // As fuse2fs has it: what the kernel's own mounts do.
                "kernel" => {
                    for word in ["allow_other", "suid", "dev"] {
                        self.accept(word)?;
                    }
                }
                "fakeroot" => {
                    self.fakeroot = true;
                    self.config.default_permissions = false;
                    self.accept("noallow_other")?;
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Takes a word about a loop device, which the process in the background does not make again.
    fn take_loop(&mut self, text: &str) -> Result<bool> {
        match parts(text) {
            (LOOP, Some(_)) => Err(bad(text, "Extol finds a free loop device itself: use loop")),
            (LOOP, None) => {
                self.is_loop = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Refuses words that do not go together.
    fn check(&self) -> Result<()> {
        let refuse = |line| Err(Failure::usage(line));
        if self.fakeroot && self.config.allow_other {
            return refuse(
                "fakeroot cannot be used with allow_other or allow_root: every user would have \
                 all rights on the volume",
            );
        }
        if self.config.allow_root && self.config.allow_idmap {
            return refuse("allow_root cannot be used with allow_idmap");
        }
        if self.is_loop && !rustix::process::geteuid().is_root() {
            return refuse("loop needs a loop device, which only root can make: leave out loop");
        }
        Ok(())
    }
}

/// Which part of an image is the volume, and how far the image may be expanded for that.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Part {
    /// The part.
    pub window: Window,
    /// Most bytes of a compressed image when it is expanded.
    pub expand: Option<u64>,
    /// Which backing files of an image may be opened. (A command line has few such words: what
    /// they say stays in memory.)
    pub backing: Option<&'static Backing>,
}

/// Takes a word about the part of an image that is the volume.
fn take_part(text: &str, part: &mut Part) -> Result<bool> {
    let (name, value) = parts(text);
    let size = |least| {
        let value = value.ok_or_else(|| bad(text, "give a number of bytes, or a size: 1m"))?;
        number::size(value, 1, least..=MOST_OFFSET).map_err(|why| about(text, &why))
    };
    match name {
        "offset" => part.window.offset = size(0)?,
        "sizelimit" => part.window.limit = Some(size(0)?),
        "expand" => part.expand = Some(size(1)?),
        "backing" => {
            let how = match value {
                None | Some("") => return Err(bad(text, "give auto, none, or a file")),
                Some("auto") => Backing::Auto,
                Some("none") => Backing::None,
                Some(path) => Backing::Path(std::path::absolute(path).unwrap_or(path.into())),
            };
            part.backing = Some(Box::leak(Box::new(how)));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The failure for a word with a bad value.
fn bad(word: &str, wanted: &str) -> Failure {
    Failure::usage(format_args!("bad mount option \"{word}\": {wanted}"))
}

/// The failure for a word with a number that is none.
fn about(word: &str, error: &NumberError) -> Failure {
    Failure::usage(format_args!("mount option \"{}\": {error}", parts(word).0))
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
    Err(Failure::usage(format_args!(
        "bad mount option \"{}\": it is no text",
        bytes_text(word.as_bytes())
    )))
}

/// Options of commands that open a volume and do not mount it.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Those of the library.
    pub volume: VolumeOptions,
    /// Which part of an image or a device is the volume.
    pub part: Part,
}

/// The options of a command that does not mount.
pub fn opening(lists: &[impl AsRef<OsStr>]) -> Result<Opening> {
    let mut opening = Opening::default();
    let Opening { volume: options, part } = &mut opening;
    for word in lists.iter().flat_map(words) {
        if let Some(path) = word.as_bytes().strip_prefix(JOURNAL_PATH).filter(|p| !p.is_empty()) {
            options.journal.path = Some(OsStr::from_bytes(path).into());
            continue;
        }
        if let Some(path) = word.as_bytes().strip_prefix(keys::OPTION).filter(|p| !p.is_empty()) {
            keys::add(&[OsStr::from_bytes(path).into()], &mut options.keys)?;
            continue;
        }
        let taken = match text_of(&word) {
            Some(text) if take_part(text, part)? => true,
            Some(text) => {
                let (name, value) = parts(text);
                options.set(name, value).map_err(Failure::usage)?
            }
            None => not_text(&word)?,
        };
        if !taken {
            return Err(Failure::usage(format_args!(
                "unknown option \"{}\"",
                bytes_text(word.as_bytes())
            )));
        }
    }
    options.check().map_err(Failure::usage)?;
    options.access.read_only |= options.access.norecovery;
    Ok(opening)
}

/// The options of a command that takes only those that say which part of an image is the volume.
pub fn part_only(lists: &[impl AsRef<OsStr>]) -> Result<Part> {
    let mut part = Part::default();
    for word in lists.iter().flat_map(words) {
        if !text_of(&word).map_or(Ok(false), |text| take_part(text, &mut part))? {
            return Err(Failure::usage(format_args!(
                "unknown option \"{}\": only offset=, sizelimit=, expand= and backing= are known \
                 here",
                bytes_text(word.as_bytes())
            )));
        }
    }
    Ok(part)
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

/// A list of which [`words`] makes this one word.
pub fn quoted(word: &OsStr) -> OsString {
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

    /// What is handed to the process that serves names them again.
    #[test]
    fn files_of_keys_are_named_and_not_read() {
        let list = OsStr::from_bytes(b"ro,key=/a\xff,key=/b\\,c,noatime");
        let split = super::split(&[list], false).unwrap();
        let files = [OsStr::from_bytes(b"/a\xff"), OsStr::new("/b,c")];
        assert_eq!(split.keys, files);
        assert_eq!(super::split(&split.words, false).unwrap().keys, files);
        assert!(split.volume.keys.is_empty());
        assert_eq!(super::split(&lists("key="), false).unwrap_err().code, Failure::USAGE);
        assert_eq!(opening(&lists("key=/no/key")).unwrap_err().code, Failure::FAILED);
    }

    #[test]
    fn each_half_gets_its_own() {
        let split = split(&lists("ro,nosuid,commit=9,noatime"), false).unwrap();
        assert!(split.config.read_only && split.volume.access.read_only);
        assert_eq!(split.volume.journal.commit, std::time::Duration::from_secs(9));
    }

    #[test]
    fn words_of_other_programs_are_taken() {
        let fuse = "kernel_cache,big_writes,auto_cache,default_permissions,max_read=131072,\
                    subtype=ext4,fsname=/dev/sdb1,attr_timeout=0,use_ino,nonempty";
        assert!(split(&lists(fuse), false).unwrap().config.default_permissions);
        let fuse2fs = "ro,norecovery,minixdf,bsddf,acl,user_xattr,errors=continue,direct,dirsync,\
                       no_default_opts,fuse2fs_debug,cache_size=32m";
        let split = super::split(&lists(fuse2fs), false).unwrap();
        assert_eq!(split.volume.cache.metadata_bytes, 32 << 20);
        let usual = super::split(&lists("cache_size=0"), false).unwrap().volume.cache;
        assert_eq!(usual.metadata_bytes, VolumeOptions::default().cache.metadata_bytes);
        let fakeroot = super::split(&lists("fakeroot"), false).unwrap().config;
        assert!(!fakeroot.default_permissions && !fakeroot.allow_other);
        assert!(super::split(&lists("fakeroot,allow_other"), false).is_err());
        let kernel = super::split(&lists("noallow_other,kernel"), false).unwrap().config;
        assert!(kernel.allow_other && kernel.flags.is_empty());
        for address in ["metrics=:9184", "x-extol.metrics=:9184"] {
            assert_eq!(super::split(&lists(address), false).unwrap().metrics.unwrap(), ":9184");
        }
        for refused in ["lockfile=/x", "direct_io", "context=a", "X-mount.mkdir", "offset=x"] {
            assert_eq!(super::split(&lists(refused), false).unwrap_err().code, 1, "{refused}");
        }
    }

    #[test]
    fn numbers_say_what_is_wrong() {
        for (word, expected) in [
            ("offset=-1", "must not be negative"),
            ("offset=99999999999999999999", "2^64"),
            ("offset=9E", "larger than 9223372036854775807"),
            ("sizelimit=-5M", "must not be negative"),
            ("cache_size=-5", "must not be negative"),
            ("cache_size=2P", "larger than 1T"),
            ("cache_size=1k", "less than 4M"),
            ("max_threads=0", "less than 1"),
            ("uid=-1", "must not be negative"),
            ("inode_cache=-1", "must not be negative"),
        ] {
            let failure = split(&lists(word), false).unwrap_err();
            let name = format!("\"{}\"", parts(word).0);
            assert_eq!(failure.code, Failure::USAGE, "{word}");
            assert!(failure.line.contains(expected), "{word}: {}", failure.line);
            assert!(failure.line.contains(&name), "{word}: {}", failure.line);
        }
    }

    #[test]
    fn a_loop_device_is_not_chosen() {
        let line = split(&lists("loop=/dev/loop3"), false).unwrap_err().line;
        assert!(line.contains("loop=/dev/loop3") && line.contains("a free loop device"), "{line}");
    }

    #[test]
    fn norecovery_means_read_only() {
        for list in ["norecovery", "noload", "noload,rw", "rw,norecovery"] {
            let split = split(&lists(list), false).unwrap();
            assert!(split.config.read_only && split.volume.access.read_only, "{list}");
            assert!(split.read_only_is_implied, "{list}");
        }
        assert!(!split(&lists("ro,norecovery"), false).unwrap().read_only_is_implied);
        assert!(opening(&lists("noload")).unwrap().volume.access.read_only);
    }

    #[test]
    fn a_part_of_an_image_may_be_a_loop_device() {
        let window = Window { offset: 1 << 20, limit: Some(4096) };
        let split = split(&lists("ro,offset=1m,sizelimit=4096"), false).unwrap();
        assert_eq!((split.part.window, split.is_loop), (window, false));
        assert_eq!((split.words.len(), split.loop_words.len()), (3, 0));
        let again = super::split(&split.words, false).unwrap();
        assert_eq!(again.part.window, window, "the daemon gets the same");
        assert_eq!(opening(&lists("sizelimit=4k,offset=1m")).unwrap().part.window, window);
        let backing = |text: &str| opening(&lists(text)).map(|o| o.part.backing.unwrap().clone());
        assert_eq!(backing("backing=none").unwrap(), Backing::None);
        assert_eq!(backing("backing=/a").unwrap(), Backing::Path("/a".into()));
        assert!(backing("backing=").is_err());
        assert_eq!(opening(&lists("expand=1g")).unwrap().part.expand, Some(1 << 30));
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: only root has loop devices");
            return;
        }
        let split = super::split(&lists("ro,offset=1m,loop,sizelimit=4096"), false).unwrap();
        assert_eq!((split.part.window, split.is_loop), (window, true));
        assert_eq!((split.words.len(), split.loop_words.len()), (1, 3));
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
        assert_eq!(
            (failure.code, failure.line.as_str()),
            (1, "unknown mount option \"frob\" (extol mount --help lists them)")
        );
        let sloppy = split(&lists(r"ro,frob,fsname=a\,b"), true).unwrap();
        assert_eq!(sloppy.words, ["ro", r"fsname=a\,b"]);
        assert_eq!(split(&sloppy.words, false).unwrap().config.source, "a,b");
        assert_eq!(split(&lists("data=x"), true).unwrap_err().code, 1);
        assert_eq!(opening(&lists("nosuid")).unwrap_err().code, 1);
    }
}
