//! The rights of the process that makes a request.
//!
//! *Purpose.* The kernel checks rights to files. It checks nothing for a request about the whole
//! volume (freeze, checkpoint, shutdown, remount, trim), because it does not know what the request
//! means. Such a request needs *rights over the mount*, which have:
//!
//! - a process with CAP_SYS_ADMIN in the user namespace of the mount, and
//! - a process of the mounting user, in that user namespace, unless that user is root.
//!   (Root in a container may lack capabilities, and must not get their effect from the daemon.)
//!
//! A user id alone proves nothing: in the mount's user namespace, root of another one has the id
//! that it is mapped to.
//!
//! *The check.* A request carries the id of its thread. `/proc` tells the capabilities and
//! the user namespace of that thread ([`Caller::of`]). The thread cannot end before it has its
//! answer, so its id is no other thread's. User and group in `/proc` must be those of the request:
//! a kernel service that acts for another process (overlayfs, nfsd, an io_uring with registered
//! credentials) has ids of its own in `/proc`, and is refused.
//!
//! *Odd cases.* On a mount that lets bind mounts map owners, the kernel tells user and group only
//! where something is created ([`NOT_TOLD`]); then `/proc` alone tells them. The id is 0 if the
//! thread is in a pid namespace that the mount cannot see. `/proc` may be hidden, or show another
//! pid namespace than that of the daemon. A daemon of an ordinary user may not look at the
//! namespace of other processes. One in a sandbox may not either; its monitor does
//! ([`Confinement::user_namespace`]). A daemon that serves what another process has mounted knows
//! neither the user nor the namespace of that process ([`Owner::another`]). In all these cases the
//! rights are *not known*, and the request is refused. Processes with CAP_SYS_ADMIN have another
//! way, on which the kernel itself checks the capability: [`control`](crate::control).
//!
//! *Locking.* None; all values are constant.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::Confinement;
use crate::errno::{Errno, Result};
use crate::wire::Request;

/// Capabilities, by their number.
pub(crate) mod capability {
    /// Writes to files of others.
    pub(crate) const DAC_OVERRIDE: u32 = 1;
    /// Keeps set-id bits that a change takes from others.
    pub(crate) const FSETID: u32 = 4;
    /// Rights over mounts.
    pub(crate) const SYS_ADMIN: u32 = 21;
    /// `chattr +j`.
    pub(crate) const SYS_RESOURCE: u32 = 24;
}

/// User and group of a request for which the kernel does not tell them.
pub(crate) const NOT_TOLD: u32 = u32::MAX;

/// Which user namespace: device and inode number of its file.
type Namespace = (u64, u64);

/// The user that owns the mount.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    uid: u32,
    /// `None`: not known; then only the kernel can check rights.
    namespace: Option<Namespace>,
    /// Looks at the namespaces of other processes, which this one may not do.
    confinement: Option<Arc<dyn Confinement>>,
    /// There is no mount and no kernel: requests come from a test, which may do everything.
    in_test: bool,
}

impl Owner {
    /// This process has mounted it.
    pub(crate) fn this_process() -> Self {
        let namespace = namespace(Path::new("/proc/self")).ok();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            namespace,
            confinement: None,
            in_test: false,
        }
    }

    /// Another process has mounted it, and it is not known which.
    pub(crate) fn another() -> Self {
        Self { uid: NOT_TOLD, namespace: None, confinement: None, in_test: false }
    }

    /// The same in a process that is confined.
    pub(crate) fn confined(self, confinement: Option<Arc<dyn Confinement>>) -> Self {
        Self { confinement, ..self }
    }

    /// A test that has no mount ([`direct`](crate::direct)).
    pub(crate) fn of_tests() -> Self {
        Self { uid: 0, namespace: None, confinement: None, in_test: true }
    }

    /// Err unless the process behind the request has rights over the mount.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<()> {
        if self.in_test {
            return Ok(());
        }
        let caller = Caller::of(self, request).ok_or(Errno(libc::EPERM))?;
        if caller.has(capability::SYS_ADMIN) || self.is_mine(&caller) {
            return Ok(());
        }
        Err(Errno(libc::EPERM))
    }

    fn is_mine(&self, caller: &Caller) -> bool {
        caller.uid == self.uid && caller.uid != 0 && caller.place == Place::Here
    }

    /// Err unless the process behind the request has the capability in the user namespace of the
    /// mount.
    pub(crate) fn check_capability(&self, request: &Request<'_>, capability: u32) -> Result<()> {
        let has = || Caller::of(self, request).is_some_and(|caller| caller.has(capability));
        if self.in_test || has() { Ok(()) } else { Err(Errno(libc::EPERM)) }
    }

    /// Err unless the process behind the request may write to a file: by its permission bits, or
    /// with CAP_DAC_OVERRIDE, in the user namespace of the mount.
    pub(crate) fn check_write(&self, request: &Request<'_>, file: &FileOwner) -> Result<()> {
        if self.in_test {
            return Ok(());
        }
        let caller = Caller::of(self, request).ok_or(Errno(libc::EACCES))?;
        let may = caller.place == Place::Here && file.lets_write(&caller);
        if may || caller.has(capability::DAC_OVERRIDE) { Ok(()) } else { Err(Errno(libc::EACCES)) }
    }

    /// Where a process is.
    fn place_of(&self, pid: u32) -> Place {
        let its = match &self.confinement {
            Some(confinement) => confinement.user_namespace(pid),
            None => namespace(Path::new(&format!("/proc/{pid}"))).ok(),
        };
        match (its, self.namespace) {
            (Some(its), Some(ours)) if its == ours => Place::Here,
            (Some(_), Some(_)) => Place::Elsewhere,
            _ => Place::Unknown,
        }
    }
}

/// The owner of a file, and the permission bits of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileOwner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) perm: u32,
    /// An access list decides about all others.
    pub(crate) owner_alone: bool,
}

impl FileOwner {
    /// True if the bits let a process write.
    fn lets_write(&self, caller: &Caller) -> bool {
        const WRITE: u32 = 0o2;
        let bits = match () {
            () if caller.uid == self.uid => self.perm >> 6,
            () if self.owner_alone => 0,
            () if caller.gid == self.gid || caller.is_in(self.gid) => self.perm >> 3,
            () => self.perm,
        };
        bits & WRITE != 0
    }
}

/// Where a process is, seen from the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In the mount's user namespace.
    Here,
    /// In another one.
    Elsewhere,
    /// It is not to be seen.
    Unknown,
}

/// The thread behind a request.
#[derive(Debug)]
pub(crate) struct Caller {
    uid: u32,
    gid: u32,
    /// Its effective capabilities.
    effective: u64,
    groups: Vec<u32>,
    place: Place,
}

impl Caller {
    /// What `/proc` tells of it. `None`: nothing that can be relied on.
    pub(crate) fn of(owner: &Owner, request: &Request<'_>) -> Option<Self> {
        if request.pid == 0 || !proc_is_ours() {
            return None;
        }
        let dir = PathBuf::from(format!("/proc/{}", request.pid));
        let status = fs::read(dir.join("status")).ok()?;
        let mut caller = Self::parse(&status, request.uid, request.gid)?;
        caller.place = owner.place_of(request.pid);
        Some(caller)
    }

    fn parse(status: &[u8], uid: u32, gid: u32) -> Option<Self> {
        let field = |name| extol_proc::field(status, name);
        let numbers = |name| field(name).map(extol_proc::words);
        // Ids are real, effective, saved, and those for files; a thread of the kernel has no memory
        // of its own.
        let for_files = |name| extol_proc::number::<u32>(numbers(name)?.nth(3)?);
        let (its_uid, its_gid) = (for_files("Uid")?, for_files("Gid")?);
        let agrees = |told, is| told == is || told == NOT_TOLD;
        if !agrees(uid, its_uid) || !agrees(gid, its_gid) || field("VmSize").is_none() {
            return None;
        }
        let digits = std::str::from_utf8(field("CapEff")?).ok()?;
        let effective = u64::from_str_radix(digits, 16).ok()?;
        let groups = numbers("Groups")?.map_while(extol_proc::number).collect();
        let (uid, gid) = (its_uid, its_gid);
        Some(Self { uid, gid, effective, groups, place: Place::Unknown })
    }

    fn has(&self, capability: u32) -> bool {
        self.place == Place::Here && self.effective & (1 << capability) != 0
    }

    /// True if it has a capability by which it gains nothing over the volume: root whose namespace
    /// is not to be seen is believed.
    fn is_believed(&self, capability: u32) -> bool {
        let known = self.place == Place::Here || (self.place == Place::Unknown && self.uid == 0);
        known && self.effective & (1 << capability) != 0
    }

    /// True if set-id bits stay as they are when it changes a file.
    pub(crate) fn keeps_set_id(&self) -> bool {
        self.is_believed(capability::FSETID)
    }

    /// True if it may know the names of `trusted.` attributes, whose values the kernel keeps from
    /// all others.
    pub(crate) fn sees_trusted(&self) -> bool {
        self.is_believed(capability::SYS_ADMIN)
    }

    /// True if one of its further groups is this one.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.groups.contains(&group)
    }
}

/// True if `/proc` shows the pid namespace of this process, in which the kernel counts the threads
/// of requests.
fn proc_is_ours() -> bool {
    let shown = fs::read_link("/proc/self").ok();
    shown.and_then(|link| extol_proc::number::<u32>(link.as_os_str().as_encoded_bytes()))
        == Some(std::process::id())
}

fn namespace(process: &Path) -> io::Result<Namespace> {
    let file = fs::metadata(process.join("ns/user"))?;
    Ok((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\tx\xff\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t10 20 \n\
        VmSize:\t 100 kB\n\
        CapEff:\t0000000000200010\n";

    #[test]
    fn a_status_tells_ids_groups_and_capabilities() {
        let mut caller = Caller::parse(STATUS, 4, 8).unwrap();
        assert!(caller.is_in(20) && !caller.is_in(8));
        assert!(!caller.has(capability::SYS_ADMIN), "somewhere");
        caller.place = Place::Here;
        assert!(caller.has(capability::SYS_ADMIN) && !caller.has(capability::SYS_RESOURCE));
        assert!(caller.keeps_set_id());
        caller.place = Place::Elsewhere;
        assert!(!caller.has(capability::SYS_ADMIN) && !caller.keeps_set_id());
    }

    /// The owner by its bits, a group by its own, and all others by theirs, as in POSIX.
    #[test]
    fn one_class_of_bits_decides() {
        let caller = Caller::parse(STATUS, 4, 8).unwrap();
        for (uid, gid, perm, may) in [
            (4, 0, 0o200, true),
            (4, 0, 0o022, false),
            (0, 8, 0o020, true),
            (0, 20, 0o020, true),
            (0, 20, 0o202, false),
            (0, 0, 0o002, true),
            (0, 0, 0o220, false),
        ] {
            let file = FileOwner { uid, gid, perm, owner_alone: false };
            assert_eq!(file.lets_write(&caller), may, "{file:?}");
            let listed = FileOwner { owner_alone: true, ..file };
            assert_eq!(listed.lets_write(&caller), may && uid == 4, "{listed:?}");
        }
    }

    #[test]
    fn a_service_that_acts_for_others_is_not_known() {
        assert!(Caller::parse(STATUS, 0, 8).is_none() && Caller::parse(STATUS, 4, 0).is_none());
        let kernel = STATUS.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"Vm"));
        assert!(Caller::parse(&kernel.collect::<Vec<_>>().join(&b'\n'), 4, 8).is_none());
        assert_eq!(Caller::parse(STATUS, NOT_TOLD, NOT_TOLD).unwrap().uid, 4);
        assert!(
            Caller::parse(b"", 0, 0).is_none()
                && Caller::parse(b"Uid:\nGid:\nVmSize:\n", 0, 0).is_none()
        );
    }

    #[test]
    fn this_process_is_here() {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let request = |pid| Request { opcode: 0, unique: 0, nodeid: 1, uid, gid, pid, body: &[] };
        let owner = Owner::this_process();
        let caller = Caller::of(&owner, &request(std::process::id())).unwrap();
        assert_eq!(caller.place, Place::Here);
        assert!(
            Caller::of(&owner, &request(0)).is_none(),
            "of a pid namespace that is not to be seen"
        );
        let elsewhere = Owner { namespace: Some((0, 0)), ..owner.clone() };
        assert_eq!(elsewhere.check(&request(std::process::id())), Err(Errno(libc::EPERM)));
        let unknown = Owner { namespace: None, ..owner.clone() };
        assert_eq!(unknown.check(&request(std::process::id())), Err(Errno(libc::EPERM)));
        assert_eq!(Owner::another().check(&request(std::process::id())), Err(Errno(libc::EPERM)));
    }

    /// A process without the right to look asks one that has it.
    #[derive(Debug)]
    struct Told(Option<Namespace>);

    impl Confinement for Told {
        fn confine(&self) -> io::Result<String> {
            Ok(String::new())
        }
        fn take_off(&self) {}
        fn user_namespace(&self, _process: u32) -> Option<Namespace> {
            self.0
        }
    }

    #[test]
    fn a_confined_process_is_told() {
        let own = Owner::this_process();
        let place =
            |told| own.clone().confined(Some(Arc::new(Told(told)))).place_of(std::process::id());
        assert_eq!(place(own.namespace), Place::Here);
        assert_eq!(place(Some((0, 0))), Place::Elsewhere);
        assert_eq!(place(None), Place::Unknown);
    }
}
