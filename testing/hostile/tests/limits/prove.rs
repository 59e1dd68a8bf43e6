//! Doing everything with a volume, within bounds.

use std::sync::Arc;
use std::time::Duration;

use extol::{Ext4, MountOptions};
use extol_block::SharedDevice;
use extol_check::{CheckOptions, Kind, Recovery};
use extol_hostile::choices::Choices;
use extol_hostile::disk::Disk;
use extol_hostile::exercise::{Outcome, Plan, exercise};
use extol_hostile::layout;
use extol_hostile::watch::{self, Ended};
use parking_lot::Mutex;

use crate::craft::Craft;

/// Most requests to the device. The volumes have 6144 blocks, 1024 of them in the log. A sound one
/// takes 20, 780, 600 and 7 MiB.
pub struct Bounds {
    /// `info` and `log`.
    pub look: u64,
    /// The checker, once.
    pub check: u64,
    /// One mount, with everything that [`exercise`] does.
    pub mount: u64,
    /// Memory for all of it, bytes.
    pub memory: u64,
}

pub const BOUNDS: Bounds = Bounds { look: 4000, check: 20_000, mount: 6000, memory: 32 << 20 };

/// Longest time: only for what hangs without asking the device. Nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A proof.
pub struct Case {
    /// What is bad.
    pub name: &'static str,
    pub volume: Craft,
    /// The inodes to look at in any case.
    pub focus: Vec<u32>,
    /// A step that is known to be dangerous; gives what went wrong in it.
    pub then: fn(&Arc<Ext4>) -> Vec<String>,
    /// Extol says this somewhere (words of one message).
    pub says: &'static [&'static str],
    /// The checker finds one of these.
    pub finds: &'static [Kind],
}

impl Case {
    pub fn new(name: &'static str, volume: Craft) -> Self {
        Self { name, volume, focus: Vec::new(), then: |_| Vec::new(), says: &[], finds: &[] }
    }

    pub fn focus(mut self, inodes: &[u32]) -> Self {
        self.focus = inodes.to_vec();
        self
    }

    pub fn then(mut self, then: fn(&Arc<Ext4>) -> Vec<String>) -> Self {
        self.then = then;
        self
    }

    pub fn says(mut self, words: &'static [&'static str]) -> Self {
        self.says = words;
        self
    }

    pub fn finds(mut self, kinds: &'static [Kind]) -> Self {
        self.finds = kinds;
        self
    }

    /// Proves it.
    pub fn prove(self) {
        // Memory is that of the process: one at a time.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock();
        watch::reset_peak();
        let before = watch::memory();
        let name = self.name;
        let ended = watch::within(PATIENCE, move || self.run());
        let panics = watch::panics();
        assert!(panics.is_empty(), "{name}: {panics:?}");
        match ended {
            Ended::Value(Ok(()), _) => {}
            Ended::Value(Err(problem), _) => panic!("{name}: {problem}"),
            Ended::Panicked => panic!("{name}: panic"),
            Ended::TooLong => panic!("{name}: no end"),
        }
        let grown = watch::peak().saturating_sub(before);
        assert!(grown <= BOUNDS.memory, "{name}: {} MiB", grown >> 20);
        if std::env::var_os("EXTOL_TELL").is_some() {
            println!("    {} MiB", grown >> 20);
        }
    }

    fn run(self) -> Result<(), String> {
        let mut said = Vec::new();
        let mut took = Vec::new();
        let mut bounded = |what: &'static str, disk: &Disk, most: u64| {
            took.push((what, disk.requests()));
            let wrong = disk.found();
            if disk.requests() > most {
                return Err(format!("{what}: {} requests, {most} allowed", disk.requests()));
            }
            if wrong.is_empty() { Ok(()) } else { Err(format!("{what}: {wrong:?}")) }
        };

        let disk = Disk::new(self.volume.dev.snapshot(), true);
        let shared: SharedDevice = disk.clone();
        said.extend(extol::info(&shared).err().map(|e| e.to_string()));
        match extol::inspect_journal(&shared, &MountOptions::default()) {
            Ok(report) => said.extend(report.recovery.refused),
            Err(e) => said.push(e.to_string()),
        }
        bounded("look", &disk, BOUNDS.look)?;

        let mut found = Vec::new();
        for recovery in [Recovery::InMemory, Recovery::Ignore] {
            let disk = Disk::new(self.volume.dev.snapshot(), true);
            let options = CheckOptions { recovery, max_findings: 300, ..CheckOptions::default() };
            match extol_check::check(disk.clone(), &options, &mut |_| {}) {
                Ok(report) => found.extend(report.findings),
                Err(e) => said.push(e.to_string()),
            }
            bounded("check", &disk, BOUNDS.check)?;
        }
        if !self.finds.is_empty() && !found.iter().any(|f| self.finds.contains(&f.kind)) {
            let all: Vec<String> = found.iter().map(ToString::to_string).collect();
            return Err(format!(
                "the checker does not find {:?} but\n{}",
                self.finds,
                all.join("\n")
            ));
        }

        let plan = |options: &str, operations| Plan {
            options: MountOptions::parse(options).expect("options"),
            focus: self.focus.clone(),
            operations,
            script: None,
            threads: 1,
            crash: false,
            sound: false,
        };
        let mut use_it =
            |what, disk: &Arc<Disk>, options: &str, operations| -> Result<Outcome, String> {
                let out = exercise(
                    disk,
                    &self.volume.base.layout,
                    &plan(options, operations),
                    &mut Choices::new(5),
                );
                bounded(what, disk, BOUNDS.mount)?;
                said.extend(out.refused.clone());
                said.extend(out.corruptions.iter().cloned());
                if out.wrong.is_empty() { Ok(out) } else { Err(format!("{what}: {:?}", out.wrong)) }
            };
        use_it("mount -o ro", &Disk::new(self.volume.dev.snapshot(), true), "ro", 0)?;
        let disk = Disk::new(self.volume.dev.snapshot(), false);
        use_it("mount", &disk, "errors=continue", 60)?;
        use_it("second mount", &Disk::new(disk.mem.snapshot(), false), "errors=continue", 20)?;

        let disk = Disk::new(self.volume.dev.snapshot(), false);
        if let Ok(fs) =
            Ext4::open(disk.clone(), &MountOptions::parse("errors=continue").expect("options"))
        {
            if let Some((block, zones)) = layout::zones(&disk.mem) {
                disk.guard(block, zones);
            }
            said.extend((self.then)(&fs));
            disk.unguard();
            said.extend(fs.unmount().err().map(|e| e.to_string()));
            bounded("the dangerous step", &disk, BOUNDS.mount)?;
        }
        if std::env::var_os("EXTOL_TELL").is_some() {
            println!("{}: {took:?}\n    says {said:#?}", self.name);
            println!(
                "    finds {:?}",
                found.iter().map(|f| f.kind.name()).collect::<std::collections::BTreeSet<_>>()
            );
        }
        let matches = |text: &String| self.says.iter().all(|word| text.contains(word));
        if !self.says.is_empty() && !said.iter().any(matches) {
            return Err(format!("{:?} is not said, but {said:#?}", self.says));
        }
        Ok(())
    }
}

/// The message of an error.
pub fn message<T>(result: Result<T, extol::FsError>) -> Option<String> {
    result.err().map(|e| e.to_string())
}

/// Sound volumes keep within the bounds, too.
#[test]
fn sound_volumes() {
    for name in ["ext4-1k", "dirty", "ext3"] {
        let case = Case::new("sound", Craft::new(name));
        assert!(case.says.is_empty());
        case.prove();
    }
}
