//! The axis of a chart's values: its range, its ticks, and numbers beside them.

/// A range of values with ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
    pub ticks: Vec<f64>,
    pub log: bool,
}

/// Ticks on a linear axis, about.
const TICKS: f64 = 5.0;

impl Axis {
    /// The axis for values; `None` without one other than 0. It holds 0 unless it is logarithmic.
    pub fn of(values: impl Iterator<Item = f64>, log: bool) -> Option<Self> {
        let (low, high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > high || (low == 0.0 && high == 0.0) {
            return None;
        }
        Some(if log { Self::log(low, high) } else { Self::linear(low.min(0.0), high.max(0.0)) })
    }

    fn linear(low: f64, high: f64) -> Self {
        let step = nice((high - low) / TICKS);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        // (A step of a fifth of the range: there are few.)
        let count = (last - first).clamp(1.0, 20.0) as u32;
        let ticks: Vec<f64> = (0..=count).map(|n| (first + f64::from(n)) * step).collect();
        Self { low: first * step, high: last * step, ticks, log: false }
    }

    /// From a tick below the least value to one above the greatest. Ticks are decades, and where
    /// these are few, twice and five times them.
    fn log(low: f64, high: f64) -> Self {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let fine = last - first <= 2;
        let factors: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = if last - first > 8 { 2 } else { 1 };
        let mut ticks: Vec<f64> = (first..=last)
            .step_by(every)
            .flat_map(|power| factors.iter().map(move |f| f * 10_f64.powi(power)))
            .collect();
        let below = ticks.iter().rposition(|t| *t <= low * 1.001).unwrap_or(0);
        let end = (low.max(high) / 1.001).max(low * 1.1);
        let above = ticks.iter().position(|t| *t >= end).unwrap_or(ticks.len() - 1);
        ticks.truncate(above + 1);
        ticks.drain(..below.min(above.saturating_sub(1)));
        let high = ticks.last().copied().unwrap_or(high).max(high);
        Self { low: ticks.first().copied().unwrap_or(low).min(low), high, ticks, log: true }
    }

    /// Where a value is, from 0 to 1.
    pub fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        part.clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten, not less than this.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= step * 0.999).unwrap_or(10.0);
    factor * power
}

/// A number, short: three digits at least, and a unit for thousands and more.
pub fn short(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 1e9 => format!("{:.2} G", value / 1e9),
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    };
    // Without zeros behind the point.
    let (digits, unit) = text.split_once(' ').map_or((&*text, None), |(d, u)| (d, Some(u)));
    let digits = match digits.contains('.') && !digits.contains('e') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    unit.map_or(digits.to_owned(), |unit| format!("{digits} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.5, "0.5"),
            (12.34, "12.34"),
            (-2.0, "-2"),
            (1234.0, "1234"),
            (45_678.0, "45.7 k"),
            (100_000.0, "100 k"),
            (2e6, "2 M"),
            (1e-5, "1.0e-5"),
        ];
        for (value, want) in cases {
            assert_eq!(short(value), want);
        }
    }

    #[test]
    fn a_range_holds_its_values_and_has_few_ticks() {
        for values in
            [[1.0, 2.0], [0.0, 0.3], [-7.0, 40.0], [-3.0, -1.0], [1e-7, 1e9], [99.0, 99.0]]
        {
            for log in [false, true] {
                if log && values[0] <= 0.0 {
                    continue;
                }
                let axis = Axis::of(values.into_iter(), log).expect("values");
                assert!(axis.low <= values[0] && values[1] <= axis.high, "{values:?} {axis:?}");
                assert!((2..=11).contains(&axis.ticks.len()), "{values:?} {axis:?}");
                assert!(axis.ticks.is_sorted() && axis.low < axis.high, "{axis:?}");
                assert!(log || (axis.low <= 0.0 && axis.high >= 0.0), "{axis:?}");
                for value in values {
                    assert!((0.0..=1.0).contains(&axis.at(value)));
                }
            }
        }
        assert_eq!(Axis::of([0.0].into_iter(), false), None);
        assert_eq!(Axis::of(std::iter::empty(), false), None);
    }
}
