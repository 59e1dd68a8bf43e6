//! The front end on a real mount whose requests come over io_uring: all tests of `mount` again, and
//! what is special there. Without Linux 6.14, or with io_uring switched off in its module, each
//! test says that it is skipped.

#[path = "mount/main.rs"]
mod mount;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use extol_fuse::MountConfig;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::thread::CpuSet;

/// Lets stuck requests go on, also when a test fails.
struct Release<'a>(&'a mount::Mounted);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.fs.release_stuck();
    }
}

/// A process that waits for a name that is stuck.
fn caller(m: &mount::Mounted, name: &str) -> Child {
    Command::new("stat")
        .arg(m.path(name))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Callers that are killed while their request is worked on leave an entry that goes on working,
/// and nothing else waits.
#[test]
fn killed_callers_in_a_storm() {
    const STUCK: usize = 12;
    let Some(mut m) = mount::mount() else { return };
    for n in 0..STUCK {
        // The kernel lets one new name at a time into a directory.
        fs::create_dir(m.path(&format!("d{n}"))).unwrap();
    }
    let release = Release(&m);
    let mut callers: Vec<_> = (0..STUCK).map(|n| caller(&m, &format!("d{n}/stuck"))).collect();
    m.fs.wait_stuck(STUCK);
    for caller in &mut callers {
        caller.kill().unwrap();
    }
    thread::scope(|scope| {
        for t in 0..4 {
            let m = &m;
            scope.spawn(move || {
                fs::create_dir(m.path(&format!("t{t}"))).unwrap();
                for n in 0..100 {
                    let path = m.path(&format!("t{t}/f{n}"));
                    let mut file = File::create(&path).unwrap();
                    file.write_all(&vec![t as u8; 50_000]).unwrap();
                    file.sync_all().unwrap();
                    assert_eq!(fs::read(&path).unwrap(), vec![t as u8; 50_000]);
                    if n % 2 == 0 {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    drop(release);
    for mut caller in callers {
        assert!(!caller.wait().unwrap().success());
    }
    m.wait_forgotten();
    m.unmount();
}

/// Keeps this thread, and those that it starts, on one processor: one queue gets all that they ask
/// for.
fn stay_here() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&n| allowed.is_set(n)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

/// More fsyncs and changes of a frozen volume than the entries of the few threads there may be:
/// others are answered beside them, and in the end all of them are.
#[test]
fn many_wait_beside_many_fsyncs() {
    // One thread has room for so many fsyncs, all threads together not for the changes as well.
    const FSYNCS: usize = 60;
    const CHANGES: usize = 240;
    let config = MountConfig { max_threads: 2, ..MountConfig::default() };
    let Some(mut m) = mount::mount_with(true, &config) else { return };
    stay_here();
    for n in 0..CHANGES {
        fs::create_dir(m.path(&format!("d{n}"))).unwrap();
        fs::write(m.path(&format!("f{n}")), "x").unwrap();
    }
    thread::scope(|scope| {
        m.fs.tell_later(true);
        let fsyncs: Vec<_> = (0..FSYNCS)
            .map(|n| {
                let m = &m;
                scope.spawn(move || File::open(m.path(&format!("f{n}"))).unwrap().sync_all())
            })
            .collect();
        let mut asked = m.fs.take_asked(FSYNCS);
        m.fs.set_frozen(true);
        let changes: Vec<_> = (0..CHANGES)
            .map(|n| {
                let m = &m;
                scope.spawn(move || File::create(m.path(&format!("d{n}/f"))))
            })
            .collect();
        for n in 0..200 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
        }
        // Half of the fsyncs are told: they are answered though all others wait.
        asked.drain(..FSYNCS / 2).for_each(|done| done(Ok(())));
        for n in 0..200 {
            assert!(fs::metadata(m.path(&format!("lost{n}"))).is_err());
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while fsyncs.iter().filter(|thread| thread.is_finished()).count() < FSYNCS / 2 {
            assert!(Instant::now() < deadline, "they wait, too");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(changes.iter().all(|thread| !thread.is_finished()));
        m.fs.set_frozen(false);
        asked.into_iter().for_each(|done| done(Ok(())));
        m.fs.tell_later(false);
        fsyncs.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        changes.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap()));
    });
    for n in 0..CHANGES {
        assert!(fs::metadata(m.path(&format!("d{n}/f"))).unwrap().is_file());
    }
    m.unmount();
}

/// A mount that is ended by force while requests are worked on: their callers get an error, and the
/// service ends with the last of them.
#[test]
fn ended_by_force_while_requests_are_worked_on() {
    const STUCK: usize = 6;
    let Some(mut m) = mount::mount() else { return };
    for n in 0..STUCK {
        fs::create_dir(m.path(&format!("d{n}"))).unwrap();
    }
    let release = Release(&m);
    let callers: Vec<_> = (0..STUCK).map(|n| caller(&m, &format!("d{n}/stuck"))).collect();
    m.fs.wait_stuck(STUCK);
    rustix::mount::unmount(m.dir.path(), UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
    for mut caller in callers {
        assert!(!caller.wait().unwrap().success());
    }
    thread::sleep(Duration::from_millis(10));
    assert!(
        m.server.as_ref().is_some_and(|server| !server.is_finished()),
        "requests are worked on"
    );
    drop(release);
    m.server.take().unwrap().join().unwrap().unwrap();
    assert!(m.stopper.has_ended());
}

/// READs that the threads of the queues do themselves: each gets what is its own, also where the
/// plan no longer holds at the end or a piece cannot be read, and so does what comes between them.
#[test]
fn reads_by_the_ring() {
    const BLOCKS: u64 = 64;
    let Some(mut m) = mount::mount() else { return };
    let shelf = m.fs.shelf.get_or_init(|| tempfile::tempfile().unwrap());
    let block = |n: u64| -> Vec<u8> { (0..4096_u64).map(|at| (n * 7 + at % 251) as u8).collect() };
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(block).collect();
    fs::write(m.path("f"), &bytes[..bytes.len() - 1001]).unwrap();
    fs::write(m.path("torn"), "torn, so that it must be read once more").unwrap();
    fs::write(m.path("panics"), "panic").unwrap();
    let direct = |name| {
        let flags = OFlags::RDONLY | OFlags::DIRECT;
        File::from(rustix::fs::openat(CWD, m.path(name), flags, Mode::empty()).unwrap())
    };
    thread::scope(|scope| {
        for t in 0..12 {
            let file = direct("f");
            scope.spawn(move || {
                let mut memory = vec![0; 8192];
                let skip = memory.as_ptr().align_offset(4096);
                for n in 0..500 {
                    let at = (n * 7 + t * 5) % BLOCKS;
                    let count = file.read_at(&mut memory[skip..skip + 4096], at * 4096).unwrap();
                    assert_eq!(count, if at == BLOCKS - 1 { 3095 } else { 4096 });
                    assert!(memory[skip..skip + count] == block(at)[..count], "{at}");
                }
            });
        }
        for t in 0..2 {
            let (torn, panics, m) = (direct("torn"), direct("panics"), &m);
            scope.spawn(move || {
                let mut memory = vec![0; 8192];
                let skip = memory.as_ptr().align_offset(4096);
                for n in 0..100 {
                    let count = torn.read_at(&mut memory[skip..skip + 4096], 0).unwrap();
                    assert_eq!(
                        &memory[skip..skip + count],
                        b"torn, so that it must be read once more"
                    );
                    let error = panics.read_at(&mut memory[skip..skip + 4096], 0).unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(5));
                    fs::write(m.path(&format!("new{t}-{n}")), vec![n; 100_000]).unwrap();
                    File::open(m.path(&format!("new{t}-{n}"))).unwrap().sync_all().unwrap();
                }
            });
        }
    });
    let plans = [&m.fs.held_plans, &m.fs.broken_plans].map(|plans| plans.load(Ordering::Relaxed));
    assert!(plans.iter().sum::<usize>() >= 12 * 500 && plans[1] > 100, "{plans:?}");
    assert!(shelf.metadata().unwrap().len() > 0);
    // Through the page cache, and by larger requests.
    assert!(fs::read(m.path("f")).unwrap() == bytes[..bytes.len() - 1001]);
    m.unmount();
}
