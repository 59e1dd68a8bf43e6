//! The front end on a real mount whose requests come over io_uring: all tests of `mount` again, and
//! what is special there. Without Linux 6.14, or with io_uring switched off in its module, each
//! test says that it is skipped.

#[path = "mount/main.rs"]
mod mount;

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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

/// Callers that are killed while their request is handled leave an entry that goes on with it, and
/// nothing else waits.
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

/// Keeps this thread, and those that it starts, on one processor: all their requests go to one
/// queue.
fn stay_here() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&n| allowed.is_set(n)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

/// Fsyncs and changes of a frozen volume leave an entry of the queue to others: these are answered
/// beside them, and in the end all of them are.
#[test]
fn many_wait_beside_many_fsyncs() {
    const FSYNCS: usize = 10;
    const CHANGES: usize = 10;
    let Some(mut m) = mount::mount() else { return };
    stay_here();
    for n in 0..CHANGES {
        fs::create_dir(m.path(&format!("d{n}"))).unwrap();
        fs::write(m.path(&format!("f{n}")), "x").unwrap();
    }
    thread::scope(|scope| {
        m.fs.defer_fsyncs(true);
        let fsyncs: Vec<_> = (0..FSYNCS)
            .map(|n| {
                let m = &m;
                scope.spawn(move || File::open(m.path(&format!("f{n}"))).unwrap().sync_all())
            })
            .collect();
        let mut deferred = m.fs.take_fsyncs(FSYNCS);
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
        // Half of the fsyncs end: they are answered though all others wait.
        deferred.drain(..FSYNCS / 2).for_each(|done| done(Ok(())));
        for n in 0..200 {
            assert!(fs::metadata(m.path(&format!("lost{n}"))).is_err());
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while fsyncs.iter().filter(|thread| thread.is_finished()).count() < FSYNCS / 2 {
            assert!(Instant::now() < deadline, "these fsyncs are not answered");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(changes.iter().all(|thread| !thread.is_finished()));
        m.fs.set_frozen(false);
        deferred.into_iter().for_each(|done| done(Ok(())));
        m.fs.defer_fsyncs(false);
        fsyncs.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        changes.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap()));
    });
    for n in 0..CHANGES {
        assert!(fs::metadata(m.path(&format!("d{n}/f"))).unwrap().is_file());
    }
    m.unmount();
}

/// More changes of a frozen volume than a queue has entries: the last entry serves others, so what
/// comes to it is refused instead of waiting, and all others are done after the thaw.
#[test]
fn the_last_entry_of_a_queue_waits_for_no_thaw() {
    const CHANGES: usize = 60;
    let Some(mut m) = mount::mount() else { return };
    stay_here();
    for n in 0..CHANGES {
        fs::create_dir(m.path(&format!("d{n}"))).unwrap();
    }
    thread::scope(|scope| {
        m.fs.set_frozen(true);
        let changes: Vec<_> = (0..CHANGES)
            .map(|n| {
                let m = &m;
                scope.spawn(move || File::create(m.path(&format!("d{n}/f"))).map(drop))
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !changes.iter().any(|thread| thread.is_finished()) {
            assert!(Instant::now() < deadline, "all of them wait");
            thread::sleep(Duration::from_millis(1));
        }
        for n in 0..200 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
        }
        assert!(changes.iter().any(|thread| !thread.is_finished()), "none waits");
        m.fs.set_frozen(false);
        let results: Vec<_> = changes.into_iter().map(|thread| thread.join().unwrap()).collect();
        let refused = results.iter().filter_map(|result| result.as_ref().err());
        let mut refused = refused.map(|error| error.raw_os_error());
        assert!(refused.all(|code| code == Some(libc::EAGAIN)), "{results:?}");
        assert!(results.iter().any(Result::is_ok), "{results:?}");
    });
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
