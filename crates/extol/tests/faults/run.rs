//! One run on failing devices: work until something fails, then everything that must hold
//! afterwards.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use extol::device::{MemDevice, SharedDevice};
use extol::vfs::FsError;
use extol::{Ext4, FileSystem, MountOptions};
use extol_check::{CheckOptions, Finding, Kind as Finds, Report, Severity};
use extol_ondisk::superblock::State;
use extol_testkit::{Need, require};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::device::{Fault, Kind};
use crate::devices::{Base, Devices, Media, Side, Variant};
use crate::ledger::Ledger;

/// Operations of one run.
const STEPS: usize = 150;
/// The on-disk number of EIO.
const CODE_EIO: u8 = 2;

fn checked(volume: &MemDevice, log: Option<&MemDevice>) -> Report {
    let options = CheckOptions {
        journal: log.map(|l| Arc::new(l.snapshot()) as SharedDevice),
        ..CheckOptions::default()
    };
    extol_check::check(Arc::new(volume.snapshot()), &options, &mut |_| {}).unwrap()
}

/// What may be wrong with a volume after a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Soundness {
    Clean,
    /// Files without a name, and blocks behind the end of a file, may be left: those of orphans,
    /// which are not trusted on a volume that is marked with an error, as on Linux.
    Undeleted,
    Any,
}

impl Soundness {
    fn allows(self, report: &Report) -> bool {
        let of_file = [
            Finds::InodeDeletion,
            Finds::InodeBitmap,
            Finds::InodeSize,
            Finds::BlockBitmap,
            Finds::GroupCount,
            Finds::OrphanFile,
        ];
        let is_of_file = |f: &Finding| of_file.contains(&f.kind);
        match self {
            Self::Clean => report.is_clean(),
            Self::Undeleted => {
                let mut errors = report.findings.iter().filter(|f| f.severity == Severity::Error);
                report.errors as usize <= report.findings.len() && errors.all(is_of_file)
            }
            Self::Any => true,
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    pub struck: bool,
    pub aborted: bool,
    /// Media that were recovered and checked.
    pub states: u64,
}

/// Runs `f`, which must end.
pub fn in_time<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = send.send(f());
    });
    match receive.recv_timeout(Duration::from_secs(90)) {
        Ok(result) => {
            let _ = thread.join();
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: a thread hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{what}: failed, see above"),
    }
}

/// True if one fault may leave so many errors: a thread that fails to read a block may note it
/// before another thread, which waited for the same read in the middle of a change, aborts the
/// journal.
fn may_count(fault: Fault, errors: u32) -> bool {
    errors == 1 || errors == 2 && fault.kind == Kind::Read
}

/// A seed that is the same for the same value.
fn seed_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// One run, alone or with several threads, which then do other things in each run.
pub fn run(variant: Variant, base: &Base, side: Side, fault: Fault, threads: usize) -> Outcome {
    let what = format!("{}, {side:?}, {fault:?}", variant.name);
    let (base, label) = (base.clone(), what.clone());
    in_time(&what, move || {
        let devices = Devices::new(variant, &base);
        devices.check(side, fault, threads, &label)
    })
}

impl Devices {
    fn check(&self, side: Side, fault: Fault, threads: usize, what: &str) -> Outcome {
        let fs = self.mount(threads > 0);
        let mut ledgers = self.base.ledgers.clone();
        if threads > 0 {
            let others = |n| seed_of(&(what, n, std::env::var_os("EXTOL_SHAKE")));
            ledgers.iter_mut().enumerate().for_each(|(n, l)| l.reseed(others(n)));
        }
        self.device(side).arm(fault);
        let failed = self.work(&fs, &mut ledgers, threads);
        let mut outcome = Outcome::default();
        let broken = failed.is_some();
        if let Some(error) = failed {
            assert!(self.device(side).struck(), "{what}: an error without a fault: {error}");
            outcome.aborted = fs.stats().journal.aborted.is_some();
            if fault.kind.loses_changes() && fault.kind != Kind::Gone {
                assert!(outcome.aborted, "{what}: {error}, and the volume stays writable");
            }
            if outcome.aborted {
                self.after_an_abort(&fs, &ledgers, fault, what);
            } else {
                self.continues(&fs, fault, what);
            }
        }
        let unmounted = fs.unmount();
        assert_eq!(fs.unmount(), unmounted, "{what}: the second time does nothing");
        outcome.struck = self.device(side).struck();
        if !outcome.struck && threads == 0 {
            let stats = fs.stats().journal;
            assert!(stats.checkpoints > 1, "{what}: the log never filled up");
        }
        let aborted_before = outcome.aborted;
        // (A closed volume's journal is shut down.)
        let why = fs.stats().journal.aborted.filter(|why| why != "the volume was closed");
        outcome.aborted |= why.is_some();
        assert!(unmounted.is_err() || !outcome.aborted, "{what}: unmount succeeds after an abort");
        if outcome.struck && fault.kind.loses_changes() {
            assert!(unmounted.is_err(), "{what}: the failure was not reported");
        }
        if unmounted.is_ok() && !broken {
            ledgers.iter_mut().for_each(Ledger::closed);
        }
        let seen = fs.stats().errors_seen;
        if !outcome.aborted && seen > 0 {
            let sb = self.written().superblock();
            assert!(sb.state.contains(State::ERROR), "{what}: the state on disk");
            assert_eq!(u64::from(sb.error_count), seen, "{what}: errors on disk");
        }
        let noted = outcome.aborted && !fault.forever && fault.kind != Kind::Gone;
        if noted {
            self.must_be_noted(fault, aborted_before, &format!("{what}, {:?}", fs.first_error()));
        }
        drop(fs);
        let damage = !outcome.aborted && broken;
        // An unreadable block may also have kept unlinked files from being deleted, which no call
        // reports.
        let undeleted = threads > 0 && fault.kind == Kind::Read && seen > 0;
        let soundness = match (damage, undeleted) {
            (true, _) => Soundness::Any,
            (false, true) => Soundness::Undeleted,
            (false, false) => Soundness::Clean,
        };
        let mut rng = SmallRng::seed_from_u64(fault.nth);
        if self.log.is_none() && fault.nth.is_multiple_of(5) && !damage {
            self.e2fsck_recovers(&self.cut(0.5, &mut rng), &ledgers, what);
            outcome.states += 1;
        }
        for survival in [1.0, 0.0, 0.5] {
            self.recovers(
                self.cut(survival, &mut rng),
                &ledgers,
                noted.then_some(fault),
                soundness,
                &format!("{what}, survival {survival}"),
            );
            outcome.states += 1;
        }
        outcome
    }

    /// Works until the end or the first error.
    fn work(&self, fs: &Arc<Ext4>, ledgers: &mut [Ledger], threads: usize) -> Option<FsError> {
        if threads == 0 {
            return (0..STEPS).find_map(|_| ledgers[0].step(fs).err());
        }
        std::thread::scope(|scope| {
            let workers: Vec<_> = ledgers
                .iter_mut()
                .map(|l| scope.spawn(move || (0..STEPS / 2).find_map(|_| l.step(fs).err())))
                .collect();
            workers
                .into_iter()
                .filter_map(|w| w.join().unwrap())
                .fold(None, |first, e| first.or(Some(e)))
        })
    }

    /// Nothing is changed or acknowledged any more; reads still work.
    fn after_an_abort(&self, fs: &Arc<Ext4>, ledgers: &[Ledger], fault: Fault, what: &str) {
        assert!(fs.is_read_only(), "{what}: not read-only");
        let root = fs.root();
        let unreadable = fault.forever && matches!(fault.kind, Kind::Read | Kind::Gone);
        for _ in 0..2 {
            match fs.create_dir("/later").unwrap_err() {
                FsError::ReadOnly => {}
                // The path cannot be followed.
                FsError::Io(_) if unreadable => {}
                other => panic!("{what}: a change after the abort: {other}"),
            }
            assert!(
                matches!(fs.fsync(root, false), Err(FsError::Io(_))),
                "{what}: fsync after the abort"
            );
            assert!(matches!(fs.sync(), Err(FsError::Io(_))), "{what}: sync after the abort");
            for path in ledgers.iter().flat_map(Ledger::unsynced) {
                // (Its creation may have failed.)
                let Ok(inode) = fs.inode(&path) else { continue };
                for data_only in [true, false] {
                    let synced = fs.fsync(inode.ino(), data_only);
                    assert!(
                        matches!(synced, Err(FsError::Io(_))),
                        "{what}: fsync of {path}: {synced:?}"
                    );
                }
            }
        }
        if !unreadable {
            assert!(fs.statfs().is_ok());
            for (path, contents) in ledgers.iter().filter_map(Ledger::a_settled_file) {
                assert!(
                    fs.read_file(&path).as_ref() == Ok(&contents),
                    "{what}: {path} cannot be read"
                );
            }
        }
        let error = fs.first_error();
        assert!(error.is_some(), "{what}: no error is reported");
        assert_eq!(fs.panic_wanted(), self.panics(), "{what}");
    }

    /// A read failed and the volume stays writable.
    fn continues(&self, fs: &Arc<Ext4>, fault: Fault, what: &str) {
        if fault.forever || fs.is_read_only() {
            return;
        }
        let made = fs.write_file("/later", b"later").and_then(|()| fs.sync());
        assert!(made.is_ok(), "{what}: {made:?} after one failed read");
        assert_eq!(fs.read_file("/later").as_deref(), Ok(&b"later"[..]), "{what}");
    }

    /// The next mount knows of the error, even if all unflushed writes are lost.
    fn must_be_noted(&self, fault: Fault, at_once: bool, what: &str) {
        for media in [self.written(), self.cut(0.0, &mut SmallRng::seed_from_u64(0))] {
            assert_eq!(media.journal_errno(&self.base), -5, "{what}: the journal's errno");
            let sb = media.superblock();
            assert!(sb.state.contains(State::ERROR), "{what}: the state on disk");
            assert_eq!(
                (sb.first_error_errcode, sb.last_error_errcode),
                (CODE_EIO, CODE_EIO),
                "{what}"
            );
            assert!(may_count(fault, sb.error_count), "{what}: {} errors on disk", sb.error_count);
            assert_eq!((sb.first_error_line, sb.first_error_ino), (0, 0));
            assert!(sb.first_error_block == 0 || fault.kind == Kind::Read, "{what}");
            assert!(sb.first_error_time > 0 && sb.last_error_time >= sb.first_error_time, "{what}");
            assert!(sb.first_error_func[0] != 0 && sb.first_error_func[31] == 0, "{what}");
            assert!(
                sb.feature_incompat.contains(extol_ondisk::Incompat::NEEDS_RECOVERY) || !at_once,
                "{what}: the mark says that nothing is to be recovered"
            );
        }
    }

    /// e2fsck recovers the volume to the same.
    fn e2fsck_recovers(&self, media: &Media, ledgers: &[Ledger], what: &str) {
        if !require(&[Need::Tool("e2fsck")]) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::write(&image, media.volume.to_bytes()).unwrap();
        for (how, codes) in [("-fy", [0, 1]), ("-fn", [0, 0])] {
            let out = Command::new("e2fsck").arg(how).arg(&image).output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(
                codes.map(Some).contains(&out.status.code()),
                "{what}: e2fsck {how} says\n{text}"
            );
        }
        let volume = Arc::new(MemDevice::from_bytes(&std::fs::read(&image).unwrap()));
        let fs = Ext4::open(volume, &MountOptions::default()).unwrap();
        for ledger in ledgers {
            ledger.verify(&fs).unwrap_or_else(|e| panic!("{what}: recovered by e2fsck: {e}"));
        }
    }

    /// The media recover to a sound volume that holds what was acknowledged, and that has the
    /// error.
    fn recovers(
        &self,
        media: Media,
        ledgers: &[Ledger],
        noted: Option<Fault>,
        mut soundness: Soundness,
        what: &str,
    ) {
        let report = checked(&media.volume, media.log.as_ref());
        // (The mark is the journal's errno or the superblock's state.)
        let marked = report.findings.iter().any(|f| f.kind == Finds::State);
        if marked && soundness == Soundness::Clean {
            soundness = Soundness::Undeleted;
        }
        assert!(soundness.allows(&report), "{what}: before the recovery:\n{report}");
        let (volume, log) = media.shared();
        let mut options = MountOptions::parse(self.variant.options).unwrap();
        options.background.threads = false;
        options.journal.device = log.clone().map(|l| l as SharedDevice);
        for mount in 0..2 {
            let fs = Ext4::open(Arc::clone(&volume) as SharedDevice, &options)
                .unwrap_or_else(|e| panic!("{what}: mount {mount} after the fault: {e}"));
            let now = Media { volume: volume.snapshot(), log: log.as_ref().map(|l| l.snapshot()) };
            assert_eq!(now.journal_errno(&self.base), 0, "{what}: errno survives the mount");
            for ledger in ledgers {
                ledger.verify(&fs).unwrap_or_else(|e| panic!("{what}: mount {mount}: {e}"));
            }
            fs.unmount().unwrap_or_else(|e| panic!("{what}: unmount {mount} after the fault: {e}"));
            let now = Media { volume: volume.snapshot(), log: None };
            let sb = now.superblock();
            if let Some(fault) = noted {
                assert!(sb.state.contains(State::ERROR), "{what}: the error is forgotten");
                assert_eq!(sb.first_error_errcode, CODE_EIO, "{what}");
                assert!(may_count(fault, sb.error_count), "{what}: {} errors", sb.error_count);
            }
        }
        let report = checked(&volume, log.as_deref());
        assert!(soundness.allows(&report), "{what}: after the recovery:\n{report}");
    }
}
