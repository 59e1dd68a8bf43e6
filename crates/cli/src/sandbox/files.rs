//! Landlock: which files a thread may open. What is open already stays open.

use std::path::Path;
use std::sync::Mutex;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};

/// The newest interface that this code uses; on older kernels the crate leaves out what they lack.
const KNOWN: ABI = ABI::V6;
/// Read while a mount is in use: what a disk can discard, limits of FUSE, the table of
/// mounts, the rights of a process that asks for something. Landlock treats the memory of other
/// processes in `/proc` as tracing and refuses it.
const TO_READ: [&str; 2] = ["/sys", "/proc"];

/// A set of rules that a thread can enforce on itself.
#[derive(Debug)]
pub struct Rules(Mutex<RulesetCreated>);

impl Rules {
    /// Rules that let `files` be opened for reading and, if so said, for writing. `None` where the
    /// kernel has no Landlock. Connections over TCP go to `port` only, if one is given.
    pub fn new(files: &[(&Path, bool)], port: Option<u16>) -> Option<Self> {
        let rules = Self(Mutex::new(build(files, port).ok()?));
        // Whether it works shows when it is done, in a thread of its own.
        let works = std::thread::scope(|scope| {
            let probe = std::thread::Builder::new().spawn_scoped(scope, || {
                rustix::thread::set_no_new_privs(true).ok().and_then(|()| rules.enforce())
            });
            probe.ok().and_then(|thread| thread.join().ok().flatten())
        });
        works.map(|_| rules)
    }

    /// Confines the calling thread, which has no_new_privs. Gives the version of Landlock, `None`
    /// if that did not work.
    pub fn enforce(&self) -> Option<i32> {
        let rules = self.0.lock().ok()?.try_clone().ok()?;
        let RestrictionStatus { ruleset, landlock, .. } = rules.restrict_self().ok()?;
        match landlock {
            LandlockStatus::Available { effective_abi, kernel_abi }
                if ruleset != RulesetStatus::NotEnforced =>
            {
                Some(kernel_abi.unwrap_or(effective_abi as i32))
            }
            _ => None,
        }
    }
}

fn build(files: &[(&Path, bool)], port: Option<u16>) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::AbstractUnixSocket)?
        .create()?;
    let write = AccessFs::from_file(KNOWN) & !BitFlags::from(AccessFs::Execute);
    for (path, writes) in files {
        let access = if *writes { write } else { AccessFs::ReadFile.into() };
        // What cannot be found cannot be opened either.
        if let Ok(file) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(file, access))?;
        }
    }
    if let Some(port) = port {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    for path in TO_READ {
        if let Ok(dir) = PathFd::new(path) {
            let access = AccessFs::ReadFile | AccessFs::ReadDir;
            rules = rules.add_rule(PathBeneath::new(dir, access))?;
        }
    }
    Ok(rules)
}
