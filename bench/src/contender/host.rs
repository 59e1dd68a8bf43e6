//! Whether the machine has room for what a load writes, told before it begins.
//!
//! Images are sparse, so a volume may be larger than what is free below it; what counts is what the
//! load has on it at a time. A file in tmpfs is memory: it may take what the file system has free,
//! and no more than the machine can give.

use std::path::{Path, PathBuf};

use super::{Contender, Medium, Place};
use crate::machine;
use crate::workload::Footprint;
use crate::{BenchError, Result};

/// Where the bytes of a volume end up.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Store {
    Memory,
    Dir(PathBuf),
}

/// What is free there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Free {
    bytes: u64,
    /// It is memory, which other programs need, too.
    memory: bool,
}

impl Free {
    fn holds(self, bytes: u64) -> bool {
        // Blocks of extents or names for 250 blocks of data; of memory an eighth stays free.
        let spare = bytes / 250 + if self.memory { self.bytes / 8 } else { 0 };
        bytes.saturating_add(spare) <= self.bytes
    }
}

impl Place {
    /// Err if `what` writes more than there is room for below the volumes of this contender: one
    /// line that says where, and what to do.
    ///
    /// # Errors
    /// That.
    pub fn check_room(&self, contender: &Contender, what: &str, needs: Footprint) -> Result<()> {
        match self.store(contender) {
            None => Ok(()),
            Some(Store::Dir(dir)) => check_dir(&dir, what, needs),
            Some(Store::Memory) => match machine::free_memory() {
                Some(bytes) => check(
                    Free { bytes, memory: true },
                    "memory",
                    "give --medium image, or make the load smaller",
                    what,
                    needs,
                ),
                None => Ok(()),
            },
        }
    }

    fn store(&self, contender: &Contender) -> Option<Store> {
        match (contender, &self.medium) {
            (Contender::Noop(_), _) => None,
            (Contender::Dir(dir), _) => Some(Store::Dir(dir.clone())),
            (_, Medium::Device(_)) => None,
            (_, Medium::Image) => Some(Store::Dir(self.dir.clone())),
            (Contender::Library(_), Medium::Memory) | (_, Medium::Emulated(_)) => {
                Some(Store::Memory)
            }
            (_, Medium::Memory) => Some(Store::Dir("/dev/shm".into())),
        }
    }
}

/// The same for files in a directory.
///
/// # Errors
/// If there is no room.
pub(crate) fn check_dir(dir: &Path, what: &str, needs: Footprint) -> Result<()> {
    // (A directory that is not there has an error of its own later.)
    let Some(free) = free_in(dir) else { return Ok(()) };
    let place = format!("{}{}", dir.display(), if free.memory { " (memory)" } else { "" });
    check(free, &place, "give a --dir with more room, or make the load smaller", what, needs)
}

fn check(free: Free, place: &str, advice: &str, what: &str, needs: Footprint) -> Result<()> {
    if free.holds(needs.bytes) {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    let Footprint { bytes, files } = needs;
    let noun = if files == 1 { "file" } else { "files" };
    Err(BenchError(format!(
        "{what} has {} MiB in {files} {noun} at a time, and {place} has {} MiB free: {advice}",
        mib(bytes),
        mib(free.bytes)
    )))
}

/// What files in a directory may take.
fn free_in(dir: &Path) -> Option<Free> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let found = rustix::fs::statfs(dir).ok()?;
    let kind = found.f_type as u64 & u64::from(u32::MAX);
    let memory = kind == TMPFS || kind == RAMFS;
    // Without a limit of its own it says that it has no blocks at all.
    let own = match found.f_blocks {
        0 => u64::MAX,
        _ => found.f_bavail.saturating_mul(u64::try_from(found.f_bsize).ok()?),
    };
    let bytes = if memory { own.min(machine::free_memory()?) } else { own };
    Some(Free { bytes, memory })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Programs;
    use crate::subject::SubjectKind;

    fn place(medium: &str) -> Place {
        let medium = Medium::parse(medium).unwrap();
        Place { medium, dir: "/var/tmp".into(), programs: Programs::default() }
    }

    #[test]
    fn where_the_bytes_go() {
        let library = Contender::Library(String::new());
        let mount = Contender::Mounted(SubjectKind::Extol, String::new());
        let dir = |dir: &str| Some(Store::Dir(dir.into()));
        for (medium, contender, want) in [
            ("image", &library, dir("/var/tmp")),
            ("image", &mount, dir("/var/tmp")),
            ("image", &Contender::Raw, dir("/var/tmp")),
            ("memory", &library, Some(Store::Memory)),
            ("memory", &mount, dir("/dev/shm")),
            ("sata", &library, Some(Store::Memory)),
            ("sata", &mount, Some(Store::Memory)),
            ("/dev/sdz", &mount, None),
            ("image", &Contender::Noop(String::new()), None),
            ("memory", &Contender::Dir("/srv".into()), dir("/srv")),
        ] {
            assert_eq!(place(medium).store(contender), want, "{medium} {contender:?}");
        }
    }

    #[test]
    fn of_memory_some_stays_free() {
        let of = |memory, bytes| Free { bytes: 1000 << 20, memory }.holds(bytes);
        assert!(of(false, 990 << 20) && !of(false, 999 << 20));
        assert!(of(true, 860 << 20) && !of(true, 880 << 20));
        assert!(of(true, 0) && !of(false, u64::MAX));
    }

    #[test]
    fn the_line_says_where_and_what_to_do() {
        let needs = Footprint { bytes: 1 << 60, files: 1 };
        let library = Contender::Library(String::new());
        for (medium, part) in [("image", "/var/tmp"), ("memory", "memory has"), ("nvme", "memory")]
        {
            let told = place(medium).check_room(&library, "seq", needs).unwrap_err().0;
            assert!(told.contains(part) && told.contains("MiB free: give "), "{told}");
            assert!(!told.contains('\n'), "{told}");
            place(medium).check_room(&library, "seq", Footprint::of(1, 1)).unwrap();
        }
        check_dir(Path::new("/none"), "seq", needs).unwrap();
        let shm = free_in(Path::new("/dev/shm"));
        if let (Some(free), Some(most)) = (shm.filter(|f| f.memory), machine::free_memory()) {
            // (Other programs take and give memory meanwhile.)
            assert!(free.bytes <= most.saturating_add(1 << 30), "{free:?} {most}");
        }
    }
}
