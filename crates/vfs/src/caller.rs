//! The process on whose behalf a thread works, as far as limits of quotas are concerned.
//!
//! Few operations are told the ids of the process that asked for them, and a limit may be in the
//! way of any that takes space. So a front end says them for the length of a request
//! ([`acting_for`]), and the file system asks where it has to know ([`caller`]). The same for a
//! write past all caches ([`directly`], [`is_direct`]): limits are stricter with it.

use std::cell::Cell;

use crate::Creds;

thread_local! {
    static CALLER: Cell<Option<Creds>> = const { Cell::new(None) };
    static DIRECT: Cell<bool> = const { Cell::new(false) };
}

/// Puts the former caller back.
struct Former(Option<Creds>);

impl Drop for Former {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}

/// Does `work` on behalf of a process with these ids; `None`: they are not known.
pub fn acting_for<T>(creds: Option<Creds>, work: impl FnOnce() -> T) -> T {
    let _former = Former(CALLER.replace(creds));
    work()
}

/// The process on whose behalf this thread works, if it is known.
#[must_use]
pub fn caller() -> Option<Creds> {
    CALLER.get()
}

/// Ends a direct write.
struct NotDirect;

impl Drop for NotDirect {
    fn drop(&mut self) {
        DIRECT.set(false);
    }
}

/// Does `work` for a file that is open with O_DIRECT.
pub fn directly<T>(work: impl FnOnce() -> T) -> T {
    DIRECT.set(true);
    let _end = NotDirect;
    work()
}

/// True if this thread writes to a file that is open with O_DIRECT.
#[must_use]
pub fn is_direct() -> bool {
    DIRECT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_write_ends_with_its_work() {
        assert!(directly(is_direct));
        assert!(std::panic::catch_unwind(|| directly(|| panic!("on purpose"))).is_err());
        assert!(!is_direct());
    }

    #[test]
    fn the_innermost_caller_counts_and_a_panic_ends_it() {
        let (one, two) = (Creds { uid: 1, gid: 1 }, Creds { uid: 2, gid: 2 });
        assert_eq!(caller(), None);
        acting_for(Some(one), || {
            assert_eq!(acting_for(Some(two), caller), Some(two));
            assert_eq!(acting_for(None, caller), None);
            let panicked =
                std::panic::catch_unwind(|| acting_for(Some(two), || panic!("on purpose")));
            assert!(panicked.is_err());
            assert_eq!(caller(), Some(one));
        });
        assert_eq!(caller(), None);
    }
}
