//! Makes a failing list of operations short.

use std::time::{Duration, Instant};

/// The shortest list found within `limit` that still fails: pieces are left out, first large ones,
/// then small ones, as long as what remains fails. `fails` must make a fresh start for each list.
pub(crate) fn shortest<T: Clone>(
    mut list: Vec<T>,
    limit: Duration,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let start = Instant::now();
    let mut piece = list.len().div_ceil(2);
    loop {
        let mut at = 0;
        let mut shorter = false;
        while at < list.len() {
            if start.elapsed() > limit {
                return list;
            }
            let mut rest = list.clone();
            rest.drain(at..(at + piece).min(list.len()));
            if fails(&rest) {
                list = rest;
                shorter = true;
            } else {
                at += piece;
            }
        }
        match (piece, shorter) {
            (0 | 1, false) => return list,
            (1, true) => {}
            _ => piece = piece.div_ceil(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let fails = |list: &[i32]| {
            let three = list.iter().position(|n| *n == 3);
            three.is_some_and(|at| list[at..].contains(&70))
        };
        let list = shortest((0..200).collect(), Duration::from_secs(5), fails);
        assert_eq!(list, [3, 70]);
    }

    #[test]
    fn it_ends_when_the_time_is_over() {
        let list = shortest((0..100).collect::<Vec<i32>>(), Duration::ZERO, |_| true);
        assert_eq!(list.len(), 100);
    }
}
