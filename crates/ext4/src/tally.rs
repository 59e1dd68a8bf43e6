//! A counter that many threads count up and hardly anybody reads: each has a line of the processor's cache of its own, as
//! far as there are lines. With one word for all, every operation would wait until the word comes from another processor.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More threads than this share lines.
const LINES: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// See the module's story.
#[derive(Debug, Default)]
pub(crate) struct Tally([Line; LINES]);

thread_local! {
    /// The line of this thread, in all tallies.
    static LINE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % LINES
    };
}

impl Tally {
    /// One more.
    pub fn add(&self) {
        let line = LINE.try_with(|line| *line).unwrap_or(0);
        if let Some(Line(count)) = self.0.get(line) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_however_many_threads_count() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LINES {
                scope.spawn(|| (0..100).for_each(|_| tally.add()));
            }
        });
        assert_eq!(tally.total(), 200 * LINES as u64);
    }
}
