//! INIT, the first request of a mount: the kernel offers capabilities, the reply accepts some.
//!
//! The reply accepts each one that makes the mount faster or more exact. None is required, so a
//! mount on an old kernel works and is slower.

use std::sync::LazyLock;

use crate::abi::{MAJOR, MIN_MINOR, MINOR, cap, fopen};
use crate::config::{MountConfig, Shown};
use crate::errno::{Errno, Result};
use crate::wire::{Args, Reply};

/// Largest request data that the reply asks for. The kernel has its own limit
/// (`fs.fuse.max_pages_limit`, 1 MiB by default).
const MAX_DATA: u32 = 16 << 20;

/// The protocol of Linux 6.16.
const MINOR_OF_6_16: u32 = 44;

/// Requests of the kernel's own (read-ahead, write-back) that may wait at a time.
const MAX_BACKGROUND: u16 = 256;

/// What was agreed upon.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// The capabilities in force.
    pub(crate) caps: u64,
    /// An invalidation waits for pages that are being written back. Before Linux 6.16 those were
    /// copies, for which it did not wait.
    pub(crate) waits_for_pages: bool,
    /// Files bypass the page cache.
    pub(crate) direct_io: bool,
    /// What is shown instead of owners and modes.
    pub(crate) shown: Shown,
    /// The only user, beside root, whose requests are answered.
    pub(crate) only_user: Option<u32>,
}

impl Agreed {
    pub(crate) fn has(self, cap: u64) -> bool {
        self.caps & cap == cap
    }

    /// Flags in the reply to the open of a file.
    pub(crate) fn open_flags(self) -> u32 {
        if self.direct_io {
            fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES
        } else {
            fopen::KEEP_CACHE
        }
    }
}

/// Most bytes of data in one request: what the kernel's limit allows, at most [`MAX_DATA`].
pub(crate) fn max_data() -> u32 {
    static MAX: LazyLock<u32> = LazyLock::new(|| {
        let limit = extol_proc::read_number::<u32>("/proc/sys/fs/fuse/max_pages_limit");
        let pages = limit.unwrap_or(256);
        pages.clamp(32, 65535).saturating_mul(page_size()).min(MAX_DATA)
    });
    *MAX
}

fn page_size() -> u32 {
    u32::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// The capabilities that a mount asks for.
///
/// `ASYNC_DIO` only where files bypass the page cache as a whole. Elsewhere the kernel answers EIO
/// for a short write (a full volume), and does not invalidate the page cache behind an asynchronous
/// direct write, so that buffered readers see old data.
///
/// `WRITEBACK_CACHE` never beside direct I/O: the kernel would keep the times, and send them before
/// every fsync.
fn wanted(config: &MountConfig) -> u64 {
    let mut caps = cap::ASYNC_READ
        | cap::EXPORT_SUPPORT
        | cap::BIG_WRITES
        | cap::DONT_MASK
        | cap::DO_READDIRPLUS
        | cap::READDIRPLUS_AUTO
        | cap::PARALLEL_DIROPS
        | cap::MAX_PAGES
        | cap::CACHE_SYMLINKS
        | cap::NO_OPENDIR_SUPPORT
        | cap::HANDLE_KILLPRIV_V2
        | cap::SETXATTR_EXT
        | cap::INIT_EXT;
    if config.allow_idmap && config.default_permissions {
        caps |= cap::ALLOW_IDMAP;
    }
    // (Access lists would be checked with owners and modes that are not shown.)
    if config.posix_acl && config.default_permissions && !config.shown.is_any() {
        caps |= cap::POSIX_ACL;
    }
    if config.direct_io {
        caps |= cap::ASYNC_DIO;
    } else if config.writeback_cache {
        caps |= cap::WRITEBACK_CACHE;
    }
    caps
}

/// Answers INIT. `ring` says whether this side can take requests over io_uring, if the kernel can.
pub(crate) fn negotiate(
    mut args: Args<'_>,
    config: &MountConfig,
    reply: &mut Reply<'_>,
    ring: impl FnOnce() -> bool,
) -> Result<Agreed> {
    let major = args.u32()?;
    let minor = args.u32()?;
    let max_readahead = args.u32()?;
    let low = args.u32()?;
    if major < MAJOR || (major == MAJOR && minor < MIN_MINOR) {
        return Err(Errno(libc::EPROTO));
    }
    let mut offered = u64::from(low);
    if offered & cap::INIT_EXT != 0 {
        offered |= u64::from(args.u32()?) << 32;
    }
    let mut caps = offered & wanted(config);
    if offered & cap::HANDLE_KILLPRIV_V2 == 0 {
        caps |= offered & cap::HANDLE_KILLPRIV;
    }
    if config.io_uring != Some(false) && offered & cap::OVER_IO_URING != 0 && ring() {
        caps |= cap::OVER_IO_URING;
    }
    let max_pages = u16::try_from(max_data() / page_size()).unwrap_or(u16::MAX);
    reply
        .u32(MAJOR)
        .u32(minor.min(MINOR))
        .u32(max_readahead)
        .u32(caps as u32)
        .u16(MAX_BACKGROUND)
        .u16(MAX_BACKGROUND / 4 * 3)
        .u32(max_data())
        .u32(1) // times have nanoseconds
        .u16(max_pages)
        .u16(0)
        .u32((caps >> 32) as u32)
        .zeros(4 + 2 + 22);
    let only_user = config.allow_root.then(|| rustix::process::geteuid().as_raw());
    Ok(Agreed {
        caps,
        waits_for_pages: minor >= MINOR_OF_6_16,
        direct_io: config.direct_io,
        shown: config.shown,
        only_user,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(minor: u32, caps: u64) -> (Result<Agreed>, usize) {
        init_with(minor, caps, &MountConfig::default())
    }

    fn init_with(minor: u32, caps: u64, config: &MountConfig) -> (Result<Agreed>, usize) {
        let mut bytes = Vec::new();
        for word in [7, minor, 131_072, caps as u32, (caps >> 32) as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([0; 44]);
        let mut reply = Reply::default();
        reply.clear();
        let agreed = negotiate(Args(&bytes), config, &mut reply, || true);
        (agreed, reply.body_len())
    }

    #[test]
    fn takes_only_what_is_offered() {
        let (agreed, len) = init(44, u64::MAX);
        let agreed = agreed.unwrap();
        assert_eq!(len, 64);
        assert!(agreed.has(cap::POSIX_ACL | cap::HANDLE_KILLPRIV_V2));
        let unwanted =
            [cap::HANDLE_KILLPRIV, cap::WRITEBACK_CACHE, cap::ASYNC_DIO, cap::ALLOW_IDMAP];
        assert!(!unwanted.into_iter().any(|cap| agreed.has(cap)));
        let config = MountConfig { writeback_cache: true, ..MountConfig::default() };
        let agreed = init_with(44, u64::MAX, &config).0.unwrap();
        assert!(agreed.has(cap::WRITEBACK_CACHE) && !agreed.has(cap::ASYNC_DIO));
        for io_uring in [None, Some(true), Some(false)] {
            let config = MountConfig { io_uring, ..MountConfig::default() };
            let has = |offered| init_with(44, offered, &config).0.unwrap().has(cap::OVER_IO_URING);
            assert_eq!((has(u64::MAX), has(!cap::OVER_IO_URING)), (io_uring != Some(false), false));
        }
        let waits = |minor| init(minor, 0).0.unwrap().waits_for_pages;
        assert!(waits(44) && !waits(43));
        let (agreed, _) = init(31, cap::ASYNC_READ | cap::HANDLE_KILLPRIV);
        assert_eq!(agreed.unwrap().caps, cap::ASYNC_READ | cap::HANDLE_KILLPRIV);
        assert_eq!(init(22, 0).0.unwrap_err(), Errno(libc::EPROTO));
    }

    #[test]
    fn direct_files_have_no_cache() {
        let config =
            MountConfig { direct_io: true, writeback_cache: true, ..MountConfig::default() };
        let agreed = init_with(44, u64::MAX, &config).0.unwrap();
        assert!(!agreed.has(cap::WRITEBACK_CACHE) && agreed.has(cap::ASYNC_DIO));
        assert_eq!(agreed.open_flags(), fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES);
        assert_eq!(init(44, u64::MAX).0.unwrap().open_flags(), fopen::KEEP_CACHE);
    }
}
