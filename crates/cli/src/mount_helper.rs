//! Called by mount(8): as `mount.extol` or `mount.fuse.extol` from fstab, and as `extol SOURCE DIR
//! -o …` by `mount.fuse3`.
//!
//! The arguments are those of every mount helper: `SOURCE DIR [-sfnv] [-N namespace] [-o options]
//! [-t type]`. Here `-f` does everything but mount, and `-s` lets unknown options pass.
//!
//! `mount.fuse3` ends every list with `dev` and `suid` unless it holds `nodev` and `nosuid`,
//! because libfuse's own default is the other way round. The user has not asked for that, so it is
//! removed ([`remove_fuse3_suffix`]). mount(8) for its part drops both words: with it a user asks
//! for them as `allow_dev` and `allow_suid`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol_cli_common::{Failure, Result};

use crate::args::UmountArgs;
use crate::mount::Request;

/// Program names of a mount helper.
const NAMES: [&str; 3] = ["mount.extol", "mount.fuse.extol", "mount.fuseblk.extol"];

/// Program names of an unmount helper.
const UNMOUNT_NAMES: [&str; 3] = ["umount.extol", "umount.fuse.extol", "umount.fuseblk.extol"];

/// True for the command line of a mount helper.
pub fn applies(words: &[OsString]) -> bool {
    if is_named_helper(words) {
        return true;
    }
    // Commands are plain words; the source of a mount has a slash, at least after mount(8) has seen
    // it.
    words.len() >= 3 && words.iter().skip(1).take(2).all(|word| word.as_bytes().starts_with(b"/"))
}

fn is_named_helper(words: &[OsString]) -> bool {
    NAMES.iter().any(|helper| program(words) == *helper)
}

fn program(words: &[OsString]) -> &OsStr {
    words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default()
}

/// True if umount(8) calls: `umount.extol DIR [-flnrv] [-N namespace] [-t type]`.
pub fn unmounts(words: &[OsString]) -> bool {
    UNMOUNT_NAMES.iter().any(|helper| program(words) == *helper)
}

/// The usage of a mount helper.
const MOUNT_USAGE: &str = "\
usage: mount.extol SOURCE DIR [-sfnvrw] [-t TYPE] [-o OPTIONS]

What mount(8) calls for lines of type extol and fuse.extol.

  -s  let unknown options pass       -f  do everything but mount
  -n  no effect                      -v  print each step
  -r  the same as -o ro              -w  read-write, or not at all
  -t  no effect                      -o  options, as for extol mount

See mount.extol(8), and extol-mount(1) for the options of -o.
";

/// The usage of an unmount helper.
const UNMOUNT_USAGE: &str = "\
usage: umount.extol DIR [-flnrv] [-t TYPE]

What umount(8) calls for mounts of type fuse.extol.

  -f  end the mount though it is in use    -l  detach it now
  -v  say what was unmounted               -n, -r, -t  no effect

See extol-umount(1).
";

/// The usage of a helper that is asked for help.
pub fn usage(words: &[OsString]) -> Option<&'static str> {
    let asks = words.iter().skip(1).any(|word| word == "--help" || word == "-h");
    match (asks, unmounts(words), is_named_helper(words)) {
        (true, true, _) => Some(UNMOUNT_USAGE),
        (true, false, true) => Some(MOUNT_USAGE),
        _ => None,
    }
}

/// Parses the command line of an unmount helper.
pub fn parse_unmount(words: &[OsString]) -> Result<UmountArgs> {
    let mut args = UmountArgs::default();
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        let Some(flags) = word.as_bytes().strip_prefix(b"-") else {
            args.dirs.push(word.into());
            continue;
        };
        for flag in flags {
            match flag {
                b'f' => args.force = true,
                b'l' => args.lazy = true,
                b'v' => args.verbose = true,
                b'n' | b'r' => {}
                b't' => drop(rest.next()),
                b'N' => return Err(Failure::usage("mount namespaces (-N) are not supported")),
                other => {
                    return Err(Failure::usage(format_args!("unknown option -{}", *other as char)));
                }
            }
        }
    }
    match args.dirs.len() {
        1 => Ok(args),
        _ => Err(Failure::usage("an unmount helper is called as: umount.extol DIR [-flnrv]")),
    }
}

/// Parses the command line of a mount helper.
pub fn parse(words: &[OsString]) -> Result<Request> {
    let mut request = Request::default();
    let mut places = Vec::new();
    let mut rest = words.iter().skip(1);
    let mut options_end = false;
    while let Some(word) = rest.next() {
        match word.as_bytes() {
            b"--" if !options_end => options_end = true,
            [b'-', flags @ ..] if !options_end && !flags.is_empty() => {
                parse_flags(flags, &mut rest, &mut request)?;
            }
            _ => places.push(word),
        }
    }
    let [source, dir] = places[..] else {
        return Err(Failure::usage(
            "a mount helper is called as: mount.extol SOURCE DIR [-sfnv] [-o OPTIONS]",
        ));
    };
    request.source = source.into();
    request.dir = dir.into();
    if is_named_helper(words) {
        let fstab = std::fs::read("/etc/fstab").unwrap_or_default();
        request.options.extend(fstab_words(&fstab, &request.dir));
    } else {
        request.options.iter_mut().for_each(remove_fuse3_suffix);
    }
    Ok(request)
}

/// Parses the flags of a word behind its dash. The value of the last one may be the next word.
fn parse_flags<'w>(
    flags: &'w [u8],
    rest: &mut impl Iterator<Item = &'w OsString>,
    request: &mut Request,
) -> Result<()> {
    for (n, flag) in flags.iter().enumerate() {
        match flag {
            b's' => request.sloppy = true,
            b'f' => request.fake = true,
            b'n' => {}
            b'v' => request.verbose = true,
            b'r' => request.options.push("ro".into()),
            b'w' => {
                request.read_write = true;
                request.options.push("rw".into());
            }
            b'o' | b'N' | b't' => {
                let attached = flags.get(n + 1..).filter(|value| !value.is_empty());
                let value = attached
                    .map(OsStr::from_bytes)
                    .or_else(|| rest.next().map(OsString::as_os_str))
                    .ok_or_else(|| {
                        Failure::usage(format_args!("-{} needs a value", *flag as char))
                    })?;
                return match flag {
                    b'o' => {
                        request.options.push(value.to_owned());
                        Ok(())
                    }
                    b'N' => Err(Failure::usage("mount namespaces (-N) are not supported")),
                    _ => Ok(()),
                };
            }
            other => {
                return Err(Failure::usage(format_args!("unknown option -{}", *other as char)));
            }
        }
    }
    Ok(())
}

/// The options `x-extol.…` of a directory's line in fstab, which mount(8) keeps to itself.
fn fstab_words(fstab: &[u8], dir: &Path) -> Vec<OsString> {
    let of_line = |line: &[u8]| {
        let fields: Vec<_> = extol_proc::words(line).map(extol_proc::unescape).collect();
        let [source, place, kind, options, ..] = &fields[..] else { return None };
        let is_its = Path::new(place) == dir && kind.as_bytes().ends_with(b"extol");
        let is_line = !source.as_bytes().starts_with(b"#") && is_its;
        is_line.then(|| options.clone())
    };
    let list = fstab.split(|byte| *byte == b'\n').find_map(of_line).unwrap_or_default();
    let words = crate::options::words(&list).into_iter();
    words.filter(|word| word.as_bytes().starts_with(b"x-extol.")).collect()
}

/// Removes the words that `mount.fuse3` appends to a list.
fn remove_fuse3_suffix(list: &mut OsString) {
    for word in [&b"suid"[..], b"dev"] {
        if let Some(rest) = list.as_bytes().strip_suffix(word)
            && (rest.is_empty() || rest.ends_with(b","))
        {
            let end = rest.iter().rposition(|byte| *byte != b',').map_or(0, |last| last + 1);
            *list = OsStr::from_bytes(rest.get(..end).unwrap_or_default()).to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn knows_when_it_is_a_helper() {
        assert!(applies(&words("/sbin/mount.extol img dir")));
        assert!(applies(&words("mount.fuse.extol img dir -o rw")));
        assert!(applies(&words("extol /dev/sdb1 /mnt -o rw")));
        assert!(!applies(&words("extol mount /dev/sdb1 /mnt")));
        assert!(!applies(&words("extol --help")));
        assert!(!applies(&words("extol ls /img")));
    }

    #[test]
    fn helpers_have_help() {
        let start = |line: &str| usage(&words(line)).map(|text| text.lines().next().unwrap_or(""));
        for line in ["/sbin/mount.extol --help", "mount.fuse.extol -h", "mount.extol a b -h"] {
            assert!(
                start(line).is_some_and(|text| text.starts_with("usage: mount.extol")),
                "{line}"
            );
        }
        let umount = start("/sbin/umount.extol --help").expect("a usage");
        assert!(umount.starts_with("usage: umount.extol"), "{umount}");
        for line in ["mount.extol a b", "extol --help", "extol /a /b -h"] {
            assert_eq!(start(line), None, "{line}");
        }
    }

    #[test]
    fn parses_what_umount_passes() {
        assert!(unmounts(&words("/sbin/umount.fuse.extol /mnt")) && !unmounts(&words("extol x")));
        let args = parse_unmount(&words("umount.extol /mnt -fv -t fuse.extol")).unwrap();
        assert!(args.force && args.verbose && !args.lazy && args.dirs == [Path::new("/mnt")]);
        for line in ["umount.extol", "umount.extol a b", "umount.extol a -x", "umount.extol a -N 1"]
        {
            assert_eq!(parse_unmount(&words(line)).unwrap_err().code, Failure::USAGE, "{line}");
        }
    }

    #[test]
    fn options_of_its_own_are_read_from_fstab() {
        let fstab = b"# /dev/a /mnt fuse.extol x-extol.no\n/dev/\xff /m fuse.extol x-extol.no\n\
            /dev/b\t/m\\040t  fuse.extol  defaults,x-extol.metrics=:9184,x-systemd.a 0 0\n\
            /dev/c /ext4 ext4 x-extol.metrics=:1 0 0\n";
        let words = |dir: &str| fstab_words(fstab, Path::new(dir));
        assert_eq!(words("/m t"), ["x-extol.metrics=:9184"]);
        assert!(words("/ext4").is_empty() && words("/mnt").is_empty());
    }

    #[test]
    fn parses_what_mount_passes() {
        let request =
            parse(&words("mount.extol /dev/sdb1 /mnt -sv -o rw,noatime -t fuse.extol -ocommit=3"))
                .unwrap();
        assert_eq!((request.source, request.dir), ("/dev/sdb1".into(), "/mnt".into()));
        assert!(request.sloppy && request.verbose && !request.fake && !request.foreground);
        assert_eq!(request.options, ["rw,noatime", "commit=3"]);
        assert!(parse(&words("mount.extol /dev/sdb1 /mnt -f -n")).unwrap().fake);
        for (line, options) in [
            ("mount.extol /i /m -o rw,suid,dev", "rw,suid,dev"),
            ("extol /i /m -o rw,dev,suid", "rw"),
            ("extol /i /m -o dev,suid", ""),
            ("extol /i /m -o nosuid,dev", "nosuid"),
            ("extol /i /m -o suid,dev,dev,suid", "suid,dev"),
            ("extol /i /m -o nodev,suid", "nodev"),
        ] {
            assert_eq!(parse(&words(line)).unwrap().options, [options], "{line}");
        }
        for line in
            ["mount.extol a", "mount.extol a b c", "mount.extol a b -x", "mount.extol a b -o"]
        {
            assert_eq!(parse(&words(line)).unwrap_err().code, Failure::USAGE, "{line}");
        }
    }
}
