//! The process on whose behalf a thread works, as far as limits of quotas are concerned.
//!
//! Few operations are told the ids of the process that asked for them, and a limit may be in the
//! way of any that takes space. So a front end says them for the length of a request
//! ([`acting_for`]), and the file system asks where it has to know ([`caller`]).

use std::cell::Cell;

use crate::Creds;

thread_local! {
    static CALLER: Cell<Option<Creds>> = const { Cell::new(None) };
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

#[cfg(test)]
mod tests {
    use super::*;

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
