//! The word that was meant.

/// The known word that a word is nearly: a character in three may be wrong, at most three.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let lower = word.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&lower, known.trim_end_matches('='));
    let (known, distance) = known
        .into_iter()
        .map(|known| (known, distance(known)))
        .min_by_key(|(_, distance)| *distance)?;
    let most = (word.chars().count() / 3).clamp(1, 3);
    (distance <= most).then_some(known)
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
}
