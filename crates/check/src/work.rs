//! Work in numbered pieces, on one thread or several. Results come in order; the caller's thread
//! takes part and reports the progress.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::error::Result;

/// Does pieces `0..count` and gives their results in order, or the first error.
pub(crate) fn pieces<T: Send>(
    threads: usize,
    count: usize,
    work: &(dyn Fn(usize) -> Result<T> + Sync),
    done: &mut dyn FnMut(usize),
) -> Result<Vec<T>> {
    if threads <= 1 || count <= 1 {
        return (0..count)
            .map(|n| {
                let result = work(n);
                done(n + 1);
                result
            })
            .collect();
    }
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let results = Mutex::new(Vec::with_capacity(count));
    let one = || {
        let n = next.fetch_add(1, Relaxed);
        if n >= count || stop.load(Relaxed) {
            return false;
        }
        let result = work(n);
        if result.is_err() {
            stop.store(true, Relaxed);
        }
        results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((n, result));
        true
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| while one() {});
        }
        while one() {
            done(next.load(Relaxed).min(count));
        }
        // The others may have taken every piece before this thread got one.
        done(next.load(Relaxed).min(count));
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_unstable_by_key(|(n, _)| *n);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CheckError;

    #[test]
    fn results_come_in_order() {
        for threads in [1, 2, 5] {
            let mut last = 0;
            let squares = pieces(threads, 100, &|n| Ok(n * n), &mut |n| last = n).unwrap();
            assert_eq!(squares, (0..100).map(|n| n * n).collect::<Vec<_>>());
            assert!(last > 0);
            let failed = pieces(
                threads,
                100,
                &|n| if n == 50 { Err(CheckError::Unsupported("x".into())) } else { Ok(n) },
                &mut |_| {},
            );
            assert!(failed.is_err());
        }
    }
}
