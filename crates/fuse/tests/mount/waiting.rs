//! Requests that wait, and others beside them.

use std::fs::{self, File};

use extol_fuse::MountConfig;

use super::memfs::MemFs;
use super::{mount, mount_with};

/// Lets stuck requests go on, also when a test fails.
struct Release<'a>(&'a MemFs);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release_stuck();
    }
}

/// Requests that wait, though their kind does not by nature, do not keep others from being
/// answered: the watchdog replaces their workers, up to the limit.
#[test]
fn requests_that_wait_hold_up_no_others() {
    const STUCK: usize = 20;
    let Some(mut m) = mount() else { return };
    // In a directory of their own: the kernel keeps new names out of it meanwhile.
    fs::create_dir(m.path("d")).unwrap();
    std::thread::scope(|scope| {
        let release = Release(&m.fs);
        let waiting: Vec<_> = (0..STUCK)
            .map(|n| {
                let m = &m;
                scope.spawn(move || fs::metadata(m.path(&format!("d/stuck{n}"))).is_err())
            })
            .collect();
        m.fs.wait_stuck(STUCK);
        // Nothing of this is known to the kernel.
        for n in 0..50 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
            fs::write(m.path(&format!("new{n}")), "x").unwrap();
        }
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        drop(release);
        for thread in waiting {
            assert!(thread.join().unwrap());
        }
    });
    for n in 0..50 {
        assert_eq!(fs::read(m.path(&format!("new{n}"))).unwrap(), b"x");
    }
    m.unmount();
}

/// Ends deferred fsyncs, and lets later ones end at once, also when a test fails.
struct AtOnce<'a>(&'a MemFs);

impl Drop for AtOnce<'_> {
    fn drop(&mut self) {
        self.0.defer_fsyncs(false);
    }
}

/// A deferred fsync takes no worker: however many there are, and however few workers, other
/// requests are answered. Each gets its own result; one that is dropped fails.
#[test]
fn fsyncs_are_answered_later() {
    const FILES: usize = 12;
    let config = MountConfig { max_threads: 2, ..MountConfig::default() };
    let Some(mut m) = mount_with(true, &config) else { return };
    std::thread::scope(|scope| {
        let at_once = AtOnce(&m.fs);
        m.fs.defer_fsyncs(true);
        let waiting: Vec<_> = (0..FILES)
            .map(|n| {
                let m = &m;
                scope.spawn(move || {
                    let file = File::create(m.path(&format!("f{n}"))).unwrap();
                    if n % 2 == 0 { file.sync_all() } else { file.sync_data() }
                })
            })
            .collect();
        let dir = scope.spawn(|| {
            fs::create_dir(m.path("d")).unwrap();
            File::open(m.path("d")).unwrap().sync_all()
        });
        let mut deferred = m.fs.take_fsyncs(FILES + 1);
        for n in 0..50 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
            fs::write(m.path(&format!("new{n}")), "x").unwrap();
        }
        assert!(waiting.iter().all(|thread| !thread.is_finished()) && !dir.is_finished());
        assert!(m.stopper.unmount().is_err(), "files are open");
        // Two go wrong, in two ways; the rest goes well. In any order, from any thread.
        drop(deferred.swap_remove(3));
        deferred.swap_remove(5)(Err(extol_vfs::FsError::NoSpace));
        scope.spawn(move || deferred.into_iter().for_each(|done| done(Ok(()))));
        let mut results: Vec<_> =
            waiting.into_iter().chain([dir]).map(|thread| thread.join().unwrap()).collect();
        results.retain(Result::is_err);
        let mut errors: Vec<_> =
            results.into_iter().filter_map(|r| r.unwrap_err().raw_os_error()).collect();
        errors.sort_unstable();
        assert_eq!(errors, [libc::EIO, libc::ENOSPC]);
        drop(at_once);
    });
    // And with one that waits.
    File::open(m.path("f0")).unwrap().sync_all().unwrap();
    m.unmount();
}

struct Thaw<'a>(&'a MemFs);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.set_frozen(false);
    }
}

/// However many requests wait for a thaw, others find a worker, and afterwards all of them are
/// done.
#[test]
fn a_freeze_leaves_a_worker_that_reads() {
    let config = MountConfig { max_threads: 2, ..MountConfig::default() };
    let Some(mut m) = mount_with(true, &config) else { return };
    for n in 0..8 {
        // The kernel lets one name at a time into a directory.
        fs::create_dir(m.path(&format!("d{n}"))).unwrap();
    }
    std::thread::scope(|scope| {
        let thaw = Thaw(&m.fs);
        m.fs.set_frozen(true);
        let waiting: Vec<_> = (0..8)
            .map(|n| {
                let m = &m;
                scope.spawn(move || fs::write(m.path(&format!("d{n}/f")), "x"))
            })
            .collect();
        for n in 0..200 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
        }
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        drop(thaw);
        for thread in waiting {
            thread.join().unwrap().unwrap();
        }
    });
    m.unmount();
}
