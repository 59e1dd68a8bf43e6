//! The claim, with a clock that the test sets, and another host that takes the volume.

use std::sync::atomic::AtomicU64;

use extol_block::{BlockDevice, MemDevice};
use extol_devices::FaultDevice;
use extol_ondisk::mmp::LEN;

use super::*;
use crate::guard::claim::{Time, nanos};
use crate::guard::{GuardedDevice, Part};
use crate::superblock::{geometry, read_superblock};

const SECOND: u64 = 1_000_000_000;

#[derive(Debug, Default)]
struct FakeTime {
    now: AtomicU64,
    /// Seconds to add when the time is asked for so many times more.
    jump: Mutex<Option<(u32, u64)>>,
}

impl FakeTime {
    fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds * SECOND, Ordering::SeqCst);
    }
}

impl Time for FakeTime {
    fn now_ns(&self) -> u64 {
        let mut jump = self.jump.lock();
        if let Some((left, seconds)) = &mut *jump {
            if *left == 0 {
                self.now.fetch_add(*seconds * SECOND, Ordering::SeqCst);
                *jump = None;
            } else {
                *left -= 1;
            }
        }
        self.now.load(Ordering::SeqCst)
    }

    fn sleep(&self, how_long: Duration) {
        self.now.fetch_add(nanos(how_long), Ordering::SeqCst);
    }
}

struct Rig {
    disk: Arc<MemDevice>,
    below: SharedDevice,
    time: Arc<FakeTime>,
    guard: Arc<Guard>,
    guarded: GuardedDevice,
    sb: Superblock,
    geo: Geometry,
}

fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let args = ["-q", "-F", "-t", "ext4", "-O", "mmp", "-E", "mmp_update_interval=1"];
    let made =
        std::process::Command::new("mke2fs").args(args).arg(&path).arg("8M").status().unwrap();
    assert!(made.success());
    let disk = Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()));
    let below: SharedDevice = Arc::clone(&disk) as _;
    let sb = read_superblock(&*below, None).unwrap();
    let geo = geometry(&*below, &sb).unwrap();
    let time = Arc::new(FakeTime::default());
    let guard = Arc::new(Guard::new(Arc::clone(&below), Arc::clone(&time) as _));
    let guarded = GuardedDevice::new(Arc::clone(&below), Arc::clone(&guard), Part::Volume);
    Rig { disk, below, time, guard, guarded, sb, geo }
}

impl Rig {
    /// Claims the volume, without the thread that renews.
    fn claim(&self) -> HeldClaim {
        let seen = Observed::observe(&self.below, &self.geo, &self.sb, None)
            .unwrap()
            .expect("the feature");
        let mut held = seen.take(&self.guard, None).unwrap();
        held.runner.take();
        held
    }

    fn place(&self) -> Place {
        Place::new(Arc::clone(&self.below), self.geo.clone(), BlockNr(self.sb.mmp_block))
    }

    fn another_host_claims(&self) {
        let mut mmp = self.place().read().unwrap();
        mmp.seq = 4711;
        mmp.nodename = name_field(b"other-host\x1b[31m");
        self.place().write(&mmp).unwrap();
    }

    fn write(&self) -> Result<(), String> {
        self.guarded.write_at(&[7; 4096], 6 << 20).map_err(|e| e.to_string())
    }

    fn bytes(&self) -> Vec<u8> {
        self.disk.to_bytes()
    }
}

#[test]
fn a_stall_has_the_claim_renewed_before_the_next_write() {
    let rig = rig();
    let held = rig.claim();
    let seq = || rig.place().read().unwrap().seq;
    let first = seq();
    rig.write().unwrap();
    assert_eq!(seq(), first, "a fresh claim costs nothing");
    rig.time.pass(6);
    rig.write().unwrap();
    assert_ne!(seq(), first, "other hosts see that it is held");
    held.release();
    assert_eq!(seq(), SEQ_CLEAN);
}

#[test]
fn nothing_is_written_after_another_host_has_claimed() {
    type Change = fn(&GuardedDevice) -> extol_block::Result<()>;
    let changes: [(&str, Change); 8] = [
        ("write", |d| d.write_at(&[7; 512], 6 << 20)),
        ("vectored", |d| d.write_vectored_at(&[std::io::IoSlice::new(&[7; 512])], 6 << 20)),
        ("scattered", |d| {
            let bufs = [std::io::IoSlice::new(&[7; 512])];
            d.write_scattered(&[extol_block::ScatteredWrite { offset: 6 << 20, bufs: &bufs }])
        }),
        ("durable", |d| d.write_fua(&[7; 512], 6 << 20)),
        ("mark", |d| d.write_mark(&[7; 512], 6 << 20)),
        ("flush", |d| d.flush()),
        ("discard", |d| d.discard(6 << 20, 4096)),
        ("zero", |d| d.zero_range(6 << 20, 4096)),
    ];
    for (name, change) in changes {
        let rig = rig();
        let held = rig.claim();
        rig.write().unwrap();
        rig.time.pass(25);
        rig.another_host_claims();
        let before = rig.bytes();
        let error = change(&rig.guarded).expect_err(name).to_string();
        assert!(
            error.contains("claimed by another host") && error.contains("other-host"),
            "{error}"
        );
        assert!(!error.contains('\n') && !error.contains('\x1b'), "{error:?}");
        // Not even when the block looks as before, and not to say that the volume is clean.
        rig.write().expect_err(name);
        held.release();
        assert!(rig.bytes() == before, "{name}: something was written");
    }
}

#[test]
fn a_durable_write_that_ends_too_late_is_not_acknowledged() {
    let rig = rig();
    let _held = rig.claim();
    // The time is asked for before the write and after it; it stands still in between.
    *rig.time.jump.lock() = Some((1, 25));
    rig.another_host_claims();
    assert!(rig.guarded.write_fua(&[7; 512], 6 << 20).is_err());
}

#[test]
fn a_stall_inside_the_renewal_is_noticed() {
    let rig = rig();
    let held = rig.claim();
    rig.time.pass(6);
    // The time is asked for by the guard, before the lock and behind it, when the renewal begins,
    // for its age, and behind the write.
    for (asked, doubted) in [(3, false), (4, true), (5, true)] {
        rig.time.pass(6);
        let before = rig.time.now.load(Ordering::SeqCst);
        *rig.time.jump.lock() = Some((asked, 25));
        rig.write().unwrap();
        let passed = rig.time.now.load(Ordering::SeqCst) - before;
        assert_eq!(passed >= 25 * SECOND + nanos(held.claim.wait), doubted, "{asked}: {passed}");
    }
}

#[test]
fn a_claim_that_cannot_be_read_stops_the_write() {
    let rig = rig();
    let seen = Observed::observe(&rig.below, &rig.geo, &rig.sb, None).unwrap().unwrap();
    let fault = extol_devices::Fault::once(extol_block::DeviceOp::Read, 2);
    let failing: SharedDevice = Arc::new(FaultDevice::new(Arc::clone(&rig.disk), [fault]));
    let seen = Observed { place: Place { dev: failing, ..seen.place }, ..seen };
    let mut held = seen.take(&rig.guard, None).unwrap();
    held.runner.take();
    rig.time.pass(25);
    assert!(rig.write().is_err(), "the claim is not known");
}

/// Says that the mount is to end, and what was waited for.
#[derive(Debug, Default)]
struct Impatient(Mutex<Vec<String>>);

impl Waiting for Impatient {
    fn waits(&self, line: &str) {
        self.0.lock().push(line.to_owned());
    }
    fn is_interrupted(&self) -> bool {
        !self.0.lock().is_empty()
    }
}

#[test]
fn a_hostile_interval_is_bounded_said_and_interruptible() {
    let rig = rig();
    let mut sb = rig.sb.clone();
    let set = |seq, interval| {
        let mut mmp = rig.place().read().unwrap();
        (mmp.seq, mmp.check_interval) = (seq, interval);
        rig.place().write(&mmp).unwrap();
    };
    // Impossible, and maybe in use: at once.
    set(12, 65535);
    let error = Observed::observe(&rig.below, &rig.geo, &sb, None).unwrap_err().to_string();
    assert!(error.contains("65535 s is impossible") && error.contains("clear_mmp"), "{error}");
    sb.mmp_update_interval = 65535;
    set(12, 5);
    assert!(Observed::observe(&rig.below, &rig.geo, &sb, None).is_err());
    // Impossible, and clean.
    set(SEQ_CLEAN, 65535);
    let seen = Observed::observe(&rig.below, &rig.geo, &sb, None).unwrap().unwrap();
    assert_eq!((seen.interval, seen.check), (MAX_CHECK, MAX_CHECK));
    let before = rig.bytes();
    let impatient = Arc::new(Impatient::default());
    let waiting: Arc<dyn Waiting> = Arc::clone(&impatient) as _;
    let error = seen.take(&rig.guard, Some(&waiting)).unwrap_err().to_string();
    assert!(error.contains("interrupted"), "{error}");
    assert!(impatient.0.lock()[0].contains("waiting 11 s"), "{:?}", impatient.0.lock());
    let at = usize::try_from(rig.sb.mmp_block * u64::from(rig.geo.block_size.bytes())).unwrap();
    assert_eq!(rig.place().read().unwrap().seq, SEQ_CLEAN, "it was given back");
    let after = rig.bytes();
    assert!(before[..at] == after[..at] && before[at + LEN..] == after[at + LEN..]);
    // Possible, and maybe in use.
    set(12, 300);
    let impatient = Arc::new(Impatient::default());
    let waiting: Arc<dyn Waiting> = Arc::clone(&impatient) as _;
    let error =
        Observed::observe(&rig.below, &rig.geo, &rig.sb, Some(&waiting)).unwrap_err().to_string();
    assert!(error.contains("interrupted"), "{error}");
    assert!(impatient.0.lock()[0].contains("waiting 360 s"), "{:?}", impatient.0.lock());
}
