//! Expanded images that are kept for the next command.
//!
//! They are in `extol` below `$XDG_CACHE_HOME`, else below `~/.cache`, each named by what tells
//! that the compressed file is still the same: device, inode, size, times of change. A file appears
//! there whole (it is made without a name, written back, and linked), so one that is there is
//! complete.
//!
//! The directory and the files must belong to this user and be closed to all others; what is not so
//! is not read, and nothing is kept then. So no other user can put contents there, or read them.
//! All together they have at most [`MOST`] bytes: those that were used least lately go first.
//!
//! Where `TMPDIR` is set, contents go there and are not kept.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

/// Most bytes that are kept.
const MOST: u64 = 8 << 30;
/// Unit of `st_blocks`.
const SECTOR: u64 = 512;

/// The directory of kept images.
#[derive(Debug)]
pub(super) struct Kept {
    fd: OwnedFd,
    pub path: PathBuf,
}

/// The name of what a compressed file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    /// Of all that this file has ever held.
    file: String,
    name: String,
}

impl Key {
    pub fn of(file: &Metadata) -> Self {
        let its = format!("{:x}-{:x}-", file.dev(), file.ino());
        let (size, mtime, ctime) = (file.size(), file.mtime(), file.ctime());
        let (mnsec, cnsec) = (file.mtime_nsec(), file.ctime_nsec());
        Self { name: format!("{its}{size:x}-{mtime:x}.{mnsec:x}-{ctime:x}.{cnsec:x}"), file: its }
    }
}

fn is_own(stat: &rustix::fs::Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0
}

impl Kept {
    /// Opens the directory, and makes it if the one above belongs to this user. `None`: nothing is
    /// kept.
    pub fn open() -> Option<Self> {
        if std::env::var_os("TMPDIR").is_some() {
            return None;
        }
        let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let above = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Self::open_in(&above)
    }

    fn open_in(above: &Path) -> Option<Self> {
        let how = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(above, how, Mode::empty()).ok()?;
        if rustix::fs::fstat(&dir).ok()?.st_uid != rustix::process::geteuid().as_raw() {
            return None;
        }
        // (It may be there.)
        let _ = rustix::fs::mkdirat(&dir, "extol", Mode::RWXU);
        let fd = rustix::fs::openat(&dir, "extol", how | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        let is_own = is_own(&rustix::fs::fstat(&fd).ok()?);
        is_own.then(|| Self { fd, path: above.join("extol") })
    }

    /// The contents of a compressed file, if they are kept.
    pub fn find(&self, key: &Key) -> Option<File> {
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, &*key.name, how, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let file = File::from(file);
        if !(file.metadata().ok()?.is_file() && is_own(&stat) && stat.st_nlink == 1) {
            return None;
        }
        // It was used now.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let same = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: same, last_modification: now };
        let _ = rustix::fs::futimens(&file, &times);
        Some(file)
    }

    /// Keeps contents, made in this directory without a name.
    ///
    /// # Errors
    /// They are too large, or the system refuses; nothing is kept then.
    pub fn keep(&self, contents: &File, key: &Key) -> io::Result<()> {
        let bytes = contents.metadata()?.blocks().saturating_mul(SECTOR);
        if bytes > MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.make_room(MOST - bytes, key)?;
        // What is there after a power cut is whole.
        contents.sync_all()?;
        let path = format!("/proc/self/fd/{}", contents.as_raw_fd());
        rustix::fs::linkat(CWD, path, &self.fd, &*key.name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    /// Removes what a file held before, and then what was used least lately, until no more than
    /// `most` bytes are left.
    fn make_room(&self, most: u64, key: &Key) -> io::Result<()> {
        let mut left = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_owned();
            let Ok(stat) = rustix::fs::statat(&self.fd, &*name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if name.to_bytes().starts_with(key.file.as_bytes()) {
                rustix::fs::unlinkat(&self.fd, &*name, AtFlags::empty())?;
            } else if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
                let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(SECTOR);
                left.push(((stat.st_mtime, stat.st_mtime_nsec), bytes, name));
            }
        }
        left.sort();
        let mut sum: u64 = left.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, name) in left {
            if sum <= most {
                break;
            }
            rustix::fs::unlinkat(&self.fd, &*name, AtFlags::empty())?;
            sum -= bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn unnamed(dir: &Path, bytes: &[u8]) -> File {
        let how = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(dir, how, Mode::RUSR | Mode::WUSR).unwrap();
        let mut file = File::from(file);
        file.write_all(bytes).unwrap();
        file
    }

    fn found(kept: &Kept, key: &Key) -> Option<String> {
        let mut text = String::new();
        kept.find(key)?.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn contents_are_kept_while_the_file_is_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let image = scratch.path().join("a.xz");
        std::fs::write(&image, "packed").unwrap();
        let kept = Kept::open_in(scratch.path()).unwrap();
        let key = Key::of(&image.metadata().unwrap());
        assert_eq!(found(&kept, &key), None);
        kept.keep(&unnamed(&kept.path, b"contents"), &key).unwrap();
        assert_eq!(found(&kept, &key).as_deref(), Some("contents"));
        std::fs::write(&image, "packed again").unwrap();
        let later = Key::of(&image.metadata().unwrap());
        assert_eq!(found(&kept, &later), None);
        kept.keep(&unnamed(&kept.path, b"others"), &later).unwrap();
        assert_eq!((found(&kept, &key), found(&kept, &later)), (None, Some("others".into())));
        // Those that were used least lately go.
        kept.make_room(0, &key).unwrap();
        assert_eq!(std::fs::read_dir(&kept.path).unwrap().count(), 0);
    }

    #[test]
    fn what_others_can_write_is_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let image = scratch.path().join("a.xz");
        std::fs::write(&image, "packed").unwrap();
        let key = Key::of(&image.metadata().unwrap());
        let kept = Kept::open_in(scratch.path()).unwrap();
        kept.keep(&unnamed(&kept.path, b"contents"), &key).unwrap();
        let place = kept.path.join(&key.name);
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&place, 0o644);
        assert_eq!(found(&kept, &key), None);
        set(&place, 0o600);
        std::fs::hard_link(&place, scratch.path().join("other")).unwrap();
        assert_eq!(found(&kept, &key), None, "it has another name");
        std::fs::remove_file(&place).unwrap();
        symlink(scratch.path().join("other"), &place).unwrap();
        assert_eq!(found(&kept, &key), None, "a link");
        std::fs::remove_file(&place).unwrap();
        std::fs::rename(scratch.path().join("other"), &place).unwrap();
        assert_eq!(found(&kept, &key).as_deref(), Some("contents"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&place, Some(65_534), None).unwrap();
            assert_eq!(found(&kept, &key), None, "another owner");
        }
        set(&kept.path, 0o755);
        assert!(Kept::open_in(scratch.path()).is_none());
    }
}
