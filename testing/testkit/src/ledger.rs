//! What fsync promised, written down, and checked after a crash.
//!
//! Threads work in directories of their own: create, append, overwrite, rename, replace, unlink,
//! each ended by the fsyncs that make it durable. The ledger lives in this process, outside the
//! file system under test, so it survives the crash. At any moment a thread has its *settled*
//! files, acknowledged by fsync, and at most one *step* in flight, whose names may be found in any
//! of a few listed states.
//!
//! Every sector of 512 bytes names the file, the version and its place, so a check tells old data,
//! new data, zeros and another file's data apart.
//!
//! ```text
//!   settled: name -> File{id, versions, length}      must be found exactly so
//!   step:    [ [(name, Some(file) | None), …], … ]   one of these must hold for its names
//! ```

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECTOR: usize = 512;

/// What may be found of one file.
#[derive(Clone, Copy, Debug)]
struct Expected {
    id: u64,
    /// Oldest and newest version that a sector below `sure` may carry.
    versions: (u64, u64),
    /// The length is in this range.
    length: (u64, u64),
    /// Bytes below must hold data; bytes above may also be zeros.
    sure: u64,
}

impl Expected {
    fn exact(id: u64, version: u64, length: u64) -> Self {
        Self { id, versions: (version, version), length: (length, length), sure: length }
    }

    /// A file whose first write and fsync are under way.
    fn fresh(id: u64, version: u64, length: u64) -> Self {
        Self { id, versions: (version, version), length: (0, length), sure: 0 }
    }
}

type Alternative = Vec<(String, Option<Expected>)>;

/// The ledger of one thread.
#[derive(Debug, Default)]
struct Account {
    dir: PathBuf,
    settled: BTreeMap<String, Expected>,
    step: Vec<Alternative>,
}

/// The sectors of a file.
fn contents(id: u64, version: u64, from: u64, to: u64) -> Vec<u8> {
    let first = from / SECTOR as u64;
    let last = to.div_ceil(SECTOR as u64);
    let mut bytes = Vec::with_capacity(((last - first) as usize) * SECTOR);
    for sector in first..last {
        let mut word = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version.rotate_left(32) ^ sector;
        bytes.extend(id.to_le_bytes());
        bytes.extend(version.to_le_bytes());
        bytes.extend(sector.to_le_bytes());
        for _ in 3..SECTOR / 8 {
            // Never zero: the low byte is set.
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bytes.extend((word | 1).to_le_bytes());
        }
    }
    let start = (from % SECTOR as u64) as usize;
    bytes[start..start + (to - from) as usize].to_vec()
}

/// A parallel load whose acknowledged effects are written down.
#[derive(Debug)]
pub struct CrashLoad {
    stop: Arc<AtomicBool>,
    frozen: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Account>>,
}

/// Everything that was promised by the time of the crash.
#[derive(Debug)]
pub struct Promises {
    accounts: Vec<Account>,
    /// Number of acknowledged steps.
    pub acknowledged: u64,
}

impl CrashLoad {
    /// Starts `threads` threads that work below `root` until the file system dies or they are told
    /// to stop. Each thread keeps about `files` files alive.
    #[must_use]
    pub fn start(root: &Path, threads: usize, files: usize, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let frozen = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let threads = (0..threads)
            .map(|n| {
                let (stop, frozen) = (Arc::clone(&stop), Arc::clone(&frozen));
                let acknowledged = Arc::clone(&acknowledged);
                let root = root.to_owned();
                std::thread::spawn(move || {
                    let dir = PathBuf::from(format!("crash-{seed:x}-{n}"));
                    let mut worker = Worker {
                        full: root.join(&dir),
                        root,
                        rng: SmallRng::seed_from_u64(seed ^ (n as u64) << 32),
                        next_id: (n as u64 + 1) << 40 | seed << 20,
                        limit: files,
                        account: Account { dir, ..Account::default() },
                    };
                    // An error is the crash that the load waits for; the step in flight stays in
                    // the account.
                    let _ = worker.work(&stop, &frozen, &acknowledged);
                    worker.account
                })
            })
            .collect();
        Self { stop, frozen, acknowledged, threads }
    }

    /// Number of acknowledged steps so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until so many steps are acknowledged.
    ///
    /// # Panics
    /// If that takes longer than `limit`, or all threads have ended.
    pub fn wait_for(&self, steps: u64, limit: Duration) {
        let start = Instant::now();
        while self.acknowledged() < steps {
            assert!(
                start.elapsed() < limit,
                "only {} of {steps} steps after {limit:?}",
                self.acknowledged()
            );
            assert!(
                self.threads.iter().any(|t| !t.is_finished()),
                "all threads of the load have ended"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// From now on nothing counts as acknowledged: each thread ends with the step that it is in.
    /// Called immediately before a crash that needs time to take effect. (While Linux's shutdown
    /// ioctl runs, an fsync may still return success for a transaction that is lost.)
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
    }

    /// Ends the load and gives the promises. Called after the crash, or before it for a load that
    /// ends in peace.
    ///
    /// # Panics
    /// If a thread panicked.
    #[must_use]
    pub fn finish(self) -> Promises {
        self.stop.store(true, Ordering::SeqCst);
        let accounts =
            self.threads.into_iter().map(|t| t.join().expect("thread of the load")).collect();
        Promises { accounts, acknowledged: self.acknowledged.load(Ordering::SeqCst) }
    }
}

struct Worker {
    root: PathBuf,
    full: PathBuf,
    rng: SmallRng,
    next_id: u64,
    limit: usize,
    account: Account,
}

impl Worker {
    fn work(
        &mut self,
        stop: &AtomicBool,
        frozen: &AtomicBool,
        acknowledged: &AtomicU64,
    ) -> std::io::Result<()> {
        std::fs::create_dir(&self.full)?;
        File::open(&self.full)?.sync_all()?;
        File::open(&self.root)?.sync_all()?;
        while !stop.load(Ordering::SeqCst) {
            let settled = self.step()?;
            if frozen.load(Ordering::SeqCst) {
                return Ok(());
            }
            for (name, file) in settled {
                match file {
                    Some(file) => self.account.settled.insert(name, file),
                    None => self.account.settled.remove(&name),
                };
            }
            self.account.step.clear();
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn any(&mut self) -> Option<(String, Expected)> {
        let count = self.account.settled.len();
        if count == 0 {
            return None;
        }
        let nth = self.rng.random_range(0..count);
        self.account.settled.iter().nth(nth).map(|(n, f)| (n.clone(), *f))
    }

    fn fresh_name(&mut self) -> (u64, String) {
        self.next_id += 1;
        let pad = self.rng.random_range(0..30);
        (self.next_id, format!("f{:x}{}", self.next_id & 0xfffff, "-".repeat(pad)))
    }

    fn sync_dir(&self) -> std::io::Result<()> {
        File::open(&self.full)?.sync_all()
    }

    /// One step; returns what is settled by it.
    fn step(&mut self) -> std::io::Result<Alternative> {
        let full = self.account.settled.len() >= self.limit;
        match (self.any(), self.rng.random_range(0..10)) {
            (Some(file), 0..=1) => self.append(file),
            (Some(file), 2) => self.overwrite(file),
            (Some(file), 3) => self.rename(file),
            (Some(file), 4) => self.replace(file),
            (Some(file), 5) => self.unlink(file),
            (Some(file), _) if full => self.unlink(file),
            (_, 9) => self.noise(),
            _ => self.create(),
        }
    }

    fn create(&mut self) -> std::io::Result<Alternative> {
        let (id, name) = self.fresh_name();
        let length = self.rng.random_range(1..20_000);
        self.account.step = vec![
            vec![(name.clone(), None)],
            vec![(name.clone(), Some(Expected::fresh(id, 1, length)))],
        ];
        let mut file = File::create_new(self.full.join(&name))?;
        file.write_all(&contents(id, 1, 0, length))?;
        // fsync of a new file makes its name durable as well: ext4 promises that.
        file.sync_all()?;
        Ok(vec![(name, Some(Expected::exact(id, 1, length)))])
    }

    fn append(&mut self, (name, old): (String, Expected)) -> std::io::Result<Alternative> {
        let (version, from) = (old.versions.1, old.length.1);
        let to = from + self.rng.random_range(1..30_000u64);
        self.account.step =
            vec![vec![(name.clone(), Some(Expected { length: (from, to), sure: from, ..old }))]];
        let mut file = File::options().append(true).open(self.full.join(&name))?;
        file.write_all(&contents(old.id, version, from, to))?;
        if self.rng.random() {
            file.sync_data()?
        } else {
            file.sync_all()?
        }
        Ok(vec![(name, Some(Expected { length: (to, to), sure: to, ..old }))])
    }

    fn overwrite(&mut self, (name, old): (String, Expected)) -> std::io::Result<Alternative> {
        let (version, length) = (old.versions.1 + 1, old.length.1);
        let mixed = Expected { versions: (old.versions.0, version), ..old };
        self.account.step = vec![vec![(name.clone(), Some(mixed))]];
        let file = File::options().write(true).open(self.full.join(&name))?;
        file.write_all_at(&contents(old.id, version, 0, length), 0)?;
        file.sync_data()?;
        Ok(vec![(name, Some(Expected { versions: (version, version), ..old }))])
    }

    fn rename(&mut self, (name, file): (String, Expected)) -> std::io::Result<Alternative> {
        let (_, new) = self.fresh_name();
        let before = vec![(name.clone(), Some(file)), (new.clone(), None)];
        let after = vec![(name.clone(), None), (new.clone(), Some(file))];
        self.account.step = vec![before, after.clone()];
        std::fs::rename(self.full.join(&name), self.full.join(&new))?;
        self.sync_dir()?;
        Ok(after)
    }

    /// The careful way to replace a file: write aside, fsync, rename over it, fsync the directory.
    fn replace(&mut self, (name, old): (String, Expected)) -> std::io::Result<Alternative> {
        let (id, aside) = self.fresh_name();
        let length = self.rng.random_range(1..9000);
        let new = Expected::exact(id, 1, length);
        let after = vec![(name.clone(), Some(new)), (aside.clone(), None)];
        self.account.step = vec![
            vec![(name.clone(), Some(old)), (aside.clone(), None)],
            vec![(name.clone(), Some(old)), (aside.clone(), Some(Expected::fresh(id, 1, length)))],
            after.clone(),
        ];
        let mut file = File::create_new(self.full.join(&aside))?;
        file.write_all(&contents(id, 1, 0, length))?;
        file.sync_all()?;
        std::fs::rename(self.full.join(&aside), self.full.join(&name))?;
        self.sync_dir()?;
        Ok(after)
    }

    fn unlink(&mut self, (name, file): (String, Expected)) -> std::io::Result<Alternative> {
        self.account.step = vec![vec![(name.clone(), Some(file))], vec![(name.clone(), None)]];
        std::fs::remove_file(self.full.join(&name))?;
        self.sync_dir()?;
        Ok(vec![(name, None)])
    }

    /// Work without an fsync: it may survive or not, but must not disturb the rest.
    fn noise(&mut self) -> std::io::Result<Alternative> {
        let n = self.rng.random_range(0..6);
        let path = self.full.join(format!("noise{n}"));
        match self.rng.random_range(0..4) {
            0 => {
                let _ = std::fs::remove_file(&path);
            }
            1 => {
                if let Ok(file) = File::options().write(true).open(&path) {
                    let _ = file.set_len(self.rng.random_range(0..100_000));
                }
            }
            _ => {
                let length = self.rng.random_range(1..100_000);
                let _ = std::fs::write(&path, contents(u64::MAX, n, 0, length));
            }
        }
        Ok(Vec::new())
    }
}

impl Promises {
    /// Number of files that must be there.
    #[must_use]
    pub fn files(&self) -> usize {
        self.accounts.iter().map(|a| a.settled.len()).sum()
    }

    /// Deletes everything that the load has made.
    ///
    /// # Panics
    /// If that fails.
    pub fn forget(self, root: &Path) {
        for account in &self.accounts {
            let dir = root.join(&account.dir);
            if dir.exists() {
                std::fs::remove_dir_all(&dir)
                    .unwrap_or_else(|e| panic!("remove {}: {e}", dir.display()));
            }
        }
    }

    /// Checks every promise below `root`; the list of broken ones.
    #[must_use]
    pub fn broken(&self, root: &Path) -> Vec<String> {
        let mut broken = Vec::new();
        for account in &self.accounts {
            let dir = root.join(&account.dir);
            if !dir.is_dir() {
                if !account.settled.is_empty() {
                    broken.push(format!("{} is missing", account.dir.display()));
                }
                continue;
            }
            let touched =
                |name: &str| account.step.iter().any(|alt| alt.iter().any(|(n, _)| n == name));
            for (name, file) in account.settled.iter().filter(|(n, _)| !touched(n)) {
                if let Err(e) = check(&dir.join(name), Some(file)) {
                    broken.push(e);
                }
            }
            broken.extend(check_step(&dir, &account.step));
            broken.extend(strangers(&dir, account));
        }
        broken
    }

    /// Fails the test if a promise is broken.
    ///
    /// # Panics
    /// If one is.
    #[track_caller]
    pub fn assert_kept(&self, root: &Path, what: &str) {
        let broken = self.broken(root);
        let shown: String = broken.iter().take(15).map(|l| format!("  {l}\n")).collect();
        assert!(
            broken.is_empty(),
            "{what}: {} broken promises among {} files and {} acknowledged steps:\n{shown}",
            broken.len(),
            self.files(),
            self.acknowledged
        );
    }
}

/// One of the alternatives must hold; if none does, says why each fails.
fn check_step(dir: &Path, step: &[Alternative]) -> Option<String> {
    let mut why = Vec::new();
    for alternative in step {
        let errors: Vec<String> = alternative
            .iter()
            .filter_map(|(name, file)| check(&dir.join(name), file.as_ref()).err())
            .collect();
        if errors.is_empty() {
            return None;
        }
        why.push(errors.join(" and "));
    }
    (!step.is_empty()).then(|| format!("step in flight, no state fits: {}", why.join("; or ")))
}

/// Names that no step can have left.
fn strangers(dir: &Path, account: &Account) -> Vec<String> {
    let known = |name: &str| {
        name.starts_with("noise")
            || account.settled.contains_key(name)
            || account.step.iter().any(|alt| alt.iter().any(|(n, _)| n == name))
    };
    match dir.read_dir() {
        Err(e) => vec![format!("read {}: {e}", dir.display())],
        Ok(entries) => entries
            .filter_map(|e| match e {
                Ok(e) if known(&e.file_name().to_string_lossy()) => None,
                Ok(e) => Some(format!("{} should not be there", e.path().display())),
                Err(e) => Some(format!("read {}: {e}", dir.display())),
            })
            .collect(),
    }
}

fn check(path: &Path, expected: Option<&Expected>) -> Result<(), String> {
    let found = std::fs::read(path);
    let (bytes, expected) = match (found, expected) {
        (Err(e), None) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        (Err(e), _) => return Err(format!("{}: {e}", path.display())),
        (Ok(_), None) => return Err(format!("{} should be gone", path.display())),
        (Ok(bytes), Some(expected)) => (bytes, expected),
    };
    let length = bytes.len() as u64;
    if length < expected.length.0 || length > expected.length.1 {
        return Err(format!("{}: length {length}, expected {:?}", path.display(), expected.length));
    }
    for (n, sector) in bytes.chunks(SECTOR).enumerate() {
        let from = (n * SECTOR) as u64;
        let to = from + sector.len() as u64;
        let right = (expected.versions.0..=expected.versions.1).any(|v| {
            let want = contents(expected.id, v, from, to);
            let sure = expected.sure.saturating_sub(from).min(sector.len() as u64) as usize;
            // Above `sure` each byte may still be the zero of an unwritten block.
            sector[..sure] == want[..sure]
                && sector[sure..].iter().zip(&want[sure..]).all(|(a, b)| a == b || *a == 0)
        });
        if !right {
            let head: Vec<u64> = sector
                .chunks_exact(8)
                .take(3)
                .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")))
                .collect();
            return Err(format!(
                "{}: wrong bytes at {from}: (id, version, sector) is {head:x?}, expected \
                    {expected:x?}",
                path.display()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, KernelMount, Need, Scratch, Shutdown, require, shutdown};

    fn quiet_load(root: &Path) -> Promises {
        let load = CrashLoad::start(root, 2, 20, 5);
        load.wait_for(150, Duration::from_secs(60));
        load.finish()
    }

    #[test]
    fn a_load_that_ends_in_peace_keeps_its_promises_and_damage_is_noticed() {
        let scratch = Scratch::new();
        let promises = quiet_load(scratch.path());
        promises.assert_kept(scratch.path(), "peace");
        let (name, file) = promises.accounts[0].settled.iter().next().expect("a file");
        let path = scratch.path().join(&promises.accounts[0].dir).join(name);
        let bytes = std::fs::read(&path).unwrap();
        let mut wrong = bytes.clone();
        *wrong.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &wrong).unwrap();
        assert_eq!(promises.broken(scratch.path()).len(), 1, "a wrong byte");
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(promises.broken(scratch.path()).len(), 1, "a short file");
        std::fs::write(&path, contents(file.id + 1, 1, 0, file.length.0)).unwrap();
        assert_eq!(promises.broken(scratch.path()).len(), 1, "another file's data");
        std::fs::rename(&path, path.with_file_name("stranger")).unwrap();
        assert_eq!(promises.broken(scratch.path()).len(), 2, "a lost name and a stranger");
    }

    #[test]
    fn linux_keeps_its_promises_across_a_shutdown() {
        if !require(&[Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs")]) {
            return;
        }
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 128 << 20, &["-t", "ext4"]);
        let dir = scratch.dir("mnt");
        let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
        let load = CrashLoad::start(&dir, 3, 30, 6);
        load.wait_for(200, Duration::from_secs(60));
        load.freeze();
        shutdown(&dir, Shutdown::Now);
        let promises = load.finish();
        mount.unmount();
        let mount = KernelMount::mount(&image, &dir, &[]);
        // (How much of it was home already, and whether e2fsck is content, is Linux's affair.)
        promises.assert_kept(&dir, "Linux");
        mount.unmount();
    }
}
