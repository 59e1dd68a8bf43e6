//! Acting as another user, for permission tests.

use rustix::fs::{Gid, Mode, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// Runs `work` in a thread that is another user and has a umask of its own. The rest of the process
/// stays as it is.
///
/// # Panics
/// If `work` panics, or the process may not change its user.
pub fn as_user<T: Send>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    umask: u32,
    work: impl FnOnce() -> T + Send,
) -> T {
    let groups: Vec<Gid> = groups.iter().map(|&g| Gid::from_raw(g)).collect();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: CLONE_FS gives this thread its own umask and working directory. Nothing of
            // that is memory, and the thread ends with `work`.
            #[allow(unsafe_code)]
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.expect("unshare");
            rustix::process::umask(Mode::from_raw_mode(umask));
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            set_thread_groups(&groups).expect("setgroups");
            set_thread_res_gid(gid, gid, gid).expect("setresgid");
            set_thread_res_uid(uid, uid, uid).expect("setresuid");
            work()
        });
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

/// Runs `work` in a thread that has no capabilities and is still the same user: root as in a
/// container.
///
/// # Panics
/// If `work` panics.
pub fn without_capabilities<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            set_capabilities(None, sets).expect("capset");
            work()
        });
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}
