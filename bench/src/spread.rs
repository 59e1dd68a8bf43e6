//! Medians with their spread, and ratios of runs that took turns.

use serde::Serialize;

/// The middle of several values, with the smallest and the largest.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; `None` without any that is a number.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[half]
        } else {
            f64::midpoint(values[half - 1], values[half])
        };
        Some(Self { median, min, max })
    }

    /// Of `ours / theirs`, round by round: both had the machine in the same state.
    #[must_use]
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        Self::of(ours.iter().zip(theirs).map(|(a, b)| a / b))
    }
}

/// The mean of these values, and the half of the range around it in which the true one lies with
/// about 95 % certainty (twice the standard error); `None` of fewer than two.
#[must_use]
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some((mean, 2.0 * (variance / count).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles() {
        let s = |v: &[f64]| Spread::of(v.iter().copied());
        assert_eq!(s(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(s(&[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(s(&[]), None);
        assert_eq!(s(&[f64::NAN, 1.0]).unwrap().max, 1.0);
    }

    #[test]
    fn errors_of_means() {
        assert_eq!(mean([1.0]), None);
        assert_eq!(mean([3.0, 3.0, 3.0]), Some((3.0, 0.0)));
        let (middle, error) = mean([1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!(middle == 2.5 && (error - 1.291).abs() < 0.001, "{error}");
    }

    /// A machine that gets slower from round to round does not change the ratio.
    #[test]
    fn ratios_are_of_the_same_round() {
        let r = Spread::of_ratios(&[100.0, 50.0, 10.0], &[200.0, 100.0, 20.0]).unwrap();
        assert_eq!(r, Spread { median: 0.5, min: 0.5, max: 0.5 });
        assert_eq!(Spread::of_ratios(&[1.0], &[0.0]), None);
    }
}
