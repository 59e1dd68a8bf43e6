//! Looking for the end of a batch before sleeping until it ends.
//!
//! A thread that sleeps is woken by an interrupt to its processor, and often the processor has to
//! be woken first. On a virtual machine each of these goes through the host: 13 us for who sends
//! it, 8 to 50 us until the other one runs, where a loop device in memory writes a block in 5. So
//! who waits for a durable batch may look for its end himself. Between two looks it gives way:
//! whoever else is ready on this processor runs first, among them the kernel's threads that do the
//! writes. (On its way back from that call the kernel also hands over what has completed, so
//! looking is all there is to do.)
//!
//! ```text
//!   submit ─ ended? ── yes ─► go on
//!              │ no   ▲
//!              ├──────┘ give way, within LONGEST
//!              └─► sleep until it ends
//! ```
//!
//! Whether that pays is not known here: beside somebody who keeps the processor busy, giving way
//! takes a whole turn of his, where a thread that is woken would have gone first. The caller
//! measures it and says ([`Wait`](crate::Wait)).

use std::time::{Duration, Instant};

/// How long at most. A flush of a virtual disk takes 150 to 300 us; hosts wait 200 us for their
/// guests (`halt_poll_ns`).
const LONGEST: Duration = Duration::from_micros(300);

/// Asks until the answer is yes or it takes too long. Gives the last answer.
pub(super) fn poll(ended: impl FnMut() -> bool) -> bool {
    poll_for(LONGEST, ended)
}

fn poll_for(longest: Duration, mut ended: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if ended() {
            return true;
        }
        if began.elapsed() >= longest {
            return false;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_what_it_waits_for() {
        let mut asked = 0;
        let found = poll_for(Duration::from_secs(3600), || {
            asked += 1;
            asked == 3
        });
        assert!(found && asked == 3);
    }

    #[test]
    fn it_does_not_wait_for_ever() {
        let mut asked = 0;
        assert!(!poll(|| {
            asked += 1;
            false
        }));
        assert!(asked > 0);
    }
}
