//! Talking to a mount that stands: the one request that Linux has no system call for, `remount`.
//!
//! Reading the extended attribute `user.extol.remount:LIST` of the root *is* the request, and its value is the answer: `+`,
//! then one warning per line; or `-` and the line that says why nothing has changed. Reading works on read-only mounts
//! as well, where nothing may be set, and it carries text both ways. Only root and the user who mounted may ask.
//! Who lists attributes, or copies them, never names this one.
//!
//! What the kernel itself keeps of a mount (`ro`, `nosuid` …) is changed with [`set_flags`].

use std::io;
use std::path::Path;

use extol_vfs::{FileSystem, RemountError};
use rustix::io::Errno as Os;

use crate::config::MountConfig;
use crate::errno::{Errno, Result};

/// What a name begins with that is a request.
pub(crate) const REMOUNT: &str = "user.extol.remount:";
/// Longest name of an attribute.
const NAME_MAX: usize = 255;
/// Room for an answer.
const ANSWER: usize = 16 << 10;

/// The daemon's side: answers a request of user `uid`.
pub(crate) fn answer(fs: &dyn FileSystem, uid: u32, list: &[u8]) -> Result<Vec<u8>> {
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(Errno(libc::EPERM));
    }
    let list = std::str::from_utf8(list).map_err(|_| Errno(libc::EINVAL))?;
    let mut text = match fs.remount(list) {
        Ok(warnings) => format!("+{}", warnings.join("\n")),
        Err(RemountError(line)) => format!("-{line}"),
    };
    text.truncate(text.floor_char_boundary(ANSWER));
    Ok(text.into_bytes())
}

fn understand(answer: &[u8]) -> std::result::Result<Vec<String>, RemountError> {
    let text = String::from_utf8_lossy(answer);
    match text.strip_prefix('+') {
        Some(warnings) => Ok(warnings.lines().map(str::to_owned).collect()),
        None => Err(RemountError(text.trim_start_matches('-').to_owned())),
    }
}

/// Asks the daemon of the mount with this root to change options. Gives its warnings, or its refusal.
///
/// # Errors
/// If the mount could not be asked: `ENODATA` or `EOPNOTSUPP` if it is none of ours, `EPERM`, `ENOTCONN` …
pub fn remount(root: &Path, list: &str) -> io::Result<std::result::Result<Vec<String>, RemountError>> {
    let name = format!("{REMOUNT}{list}");
    if name.len() > NAME_MAX {
        let room = NAME_MAX - REMOUNT.len();
        return Ok(Err(RemountError(format!(
            "too many options at once (at most {room} characters): give them in several commands"
        ))));
    }
    let mut buffer = vec![0; ANSWER];
    let len = rustix::fs::getxattr(root, name.as_str(), &mut buffer[..]).map_err(io::Error::from)?;
    Ok(understand(buffer.get(..len).unwrap_or_default()))
}

/// Makes the kernel's flags of the mount on `dir` those of `config`: read-only or not, `nosuid`, `noatime` …
///
/// # Errors
/// `EBUSY` if it should become read-only while files are open for writing, `EPERM` for ordinary users.
pub fn set_flags(dir: &Path, config: &MountConfig) -> io::Result<()> {
    rustix::mount::mount_remount(dir, config.kernel_flags(), c"").map_err(|error| match error {
        Os::BUSY => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "files are open for writing, or unlinked files are still open",
        ),
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        assert_eq!(understand(b"+"), Ok(vec![]));
        assert_eq!(understand(b"+one\ntwo"), Ok(vec!["one".to_owned(), "two".to_owned()]));
        assert_eq!(understand(b"-no: a reason"), Err(RemountError("no: a reason".into())));
        let long = "x".repeat(300);
        assert!(remount(Path::new("/"), &long).unwrap().unwrap_err().0.contains("several commands"));
    }
}
