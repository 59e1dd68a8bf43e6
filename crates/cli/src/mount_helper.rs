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

use crate::mount::Request;

/// Program names of a mount helper.
const NAMES: [&str; 3] = ["mount.extol", "mount.fuse.extol", "mount.fuseblk.extol"];

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
    let name = words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
    NAMES.iter().any(|helper| name == *helper)
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
    if !is_named_helper(words) {
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
