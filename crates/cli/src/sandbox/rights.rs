//! Capabilities and groups of a thread.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Leaves the calling thread without supplementary groups. False if it may not.
pub fn drop_groups() -> bool {
    match rustix::process::getgroups() {
        Ok(groups) if groups.is_empty() => true,
        _ => rustix::thread::set_thread_groups(&[]).is_ok(),
    }
}

/// Takes all capabilities from the calling thread but those of `keep` that it has, and those out of
/// the reach of every program that it might run. Gives what is left.
pub fn keep_only(keep: CapabilitySet) -> rustix::io::Result<CapabilitySet> {
    let has = rustix::thread::capabilities(None)?;
    // While there is CAP_SETPCAP; no_new_privs makes the bounding set a second lock.
    if has.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // The kernel does not know it.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error),
    }
    let left = has.permitted & keep;
    let sets =
        CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(left)
}

/// Those that a plan may keep, by name.
pub fn names(set: CapabilitySet) -> Vec<&'static str> {
    let known = [
        (CapabilitySet::DAC_READ_SEARCH, "dac_read_search"),
        (CapabilitySet::SYS_ADMIN, "sys_admin"),
        (CapabilitySet::SYS_PTRACE, "sys_ptrace"),
        (CapabilitySet::SYS_NICE, "sys_nice"),
    ];
    known.iter().filter(|(one, _)| set.contains(*one)).map(|(_, name)| *name).collect()
}
