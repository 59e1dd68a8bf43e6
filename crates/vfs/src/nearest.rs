//! The word that was meant.

/// The known word that a word is nearly: a character in three may be wrong, at most three.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let lower: Vec<char> = word.to_lowercase().chars().collect();
    let (known, distance) = known
        .into_iter()
        .map(|known| (known, distance(&lower, known.trim_end_matches('='))))
        .min_by_key(|(_, distance)| *distance)?;
    let most = (word.chars().count() / 3).clamp(1, 3);
    (distance <= most).then_some(known)
}

/// How many steps lead from one word to another: a character more, less, or another, or two
/// neighbours that change places (the distance of optimal string alignment).
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    // Row `i` has the distances of the first `i` characters of `from` to each beginning of `to`.
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let change = rows[i][j] + usize::from(a != b);
            let mut least = change.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_named_if_it_is_near() {
        let known = ["stride=", "stripe_width=", "nodiscard"];
        assert_eq!(nearest("strid", known), Some("stride="));
        assert_eq!(nearest("NoDiscrad", known), Some("nodiscard"));
        assert_eq!(nearest("frobnicate", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn each_kind_of_step_is_one() {
        let of = |from: &str, to| distance(&from.chars().collect::<Vec<_>>(), to);
        assert_eq!((of("", ""), of("", "abc"), of("abc", "")), (0, 3, 3));
        assert_eq!(
            (of("commit", "commit"), of("comit", "commit"), of("commmit", "commit")),
            (0, 1, 1)
        );
        assert_eq!((of("cmomit", "commit"), of("conmit", "commit")), (1, 1));
        assert_eq!((of("kitten", "sitting"), of("ca", "abc")), (3, 3));
        assert_eq!(of("größe", "grösse"), 2);
    }
}
