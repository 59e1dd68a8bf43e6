//! A line for each series over places that are numbers.
//!
//! Places lie as far apart as their numbers are, so that a slope says how fast something grows. The
//! axis is logarithmic where the numbers go over several powers of two, as threads and files
//! mostly do, and linear otherwise.

use super::axis::{Axis, short};
use super::shapes::{Anchor, Picture, RADIUS, Shape, TEXT, cut, width};
use super::{Chart, EDGE, LINE, WIDTH, colour};

const HEIGHT: f64 = 190.0;
/// How many times the smallest place the largest one is on a logarithmic axis, at least.
const FAR: f64 = 8.0;

/// Draws from `top` on, over these places, and gives where the drawing ends.
pub(super) fn draw(
    chart: &Chart,
    numbers: &[f64],
    axis: &Axis,
    picture: &mut Picture,
    top: f64,
) -> f64 {
    let title = cut(&chart.value_title(), TEXT, WIDTH - 2.0 * EDGE);
    picture.text(EDGE, top + TEXT, TEXT, Anchor::Start, title);
    let low = top + LINE + 10.0 + HEIGHT;
    let widest = axis.ticks.iter().map(|t| width(&short(*t), TEXT)).fold(0.0, f64::max);
    let (left, right) = (EDGE + widest + 6.0, WIDTH - EDGE);
    let up = |value: f64| low - axis.at(value) * HEIGHT;
    for tick in &axis.ticks {
        let y = up(*tick);
        let strong = *tick == axis.low || *tick == 0.0;
        picture.add(Shape::Rule { from: (left, y), to: (right, y), strong });
        picture.text(left - 6.0, y + TEXT / 3.0, TEXT, Anchor::End, short(*tick));
    }
    let first = left + 16.0;
    let span = right - 16.0 - first;
    let across: Vec<f64> = shares(numbers).into_iter().map(|part| first + part * span).collect();
    for series in chart.shown() {
        let points: Vec<(f64, f64)> = across
            .iter()
            .enumerate()
            .filter_map(|(place, x)| Some((*x, up(chart.value(series, place)?))))
            .collect();
        let fill = colour(series);
        for (x, y) in &points {
            picture.add(Shape::Point { x: *x, y: *y, fill });
        }
        if points.len() > 1 {
            picture.add(Shape::Line { points, stroke: fill });
        }
    }
    let below = low + RADIUS + 4.0;
    for (x, name) in names(&chart.places, &across) {
        picture.text(x, below + TEXT, TEXT, Anchor::Middle, name);
    }
    let scale = if is_log(numbers) { " (logarithmic scale)" } else { "" };
    let name = cut(&format!("{}{scale}", chart.x), TEXT, WIDTH - 2.0 * EDGE);
    picture.text(WIDTH / 2.0, below + LINE + TEXT, TEXT, Anchor::Middle, name);
    below + 2.0 * LINE
}

/// Whether the axis of these places, which rise, is logarithmic.
fn is_log(numbers: &[f64]) -> bool {
    matches!((numbers.first(), numbers.last()), (Some(a), Some(b)) if *a > 0.0 && *b >= a * FAR)
}

/// Where places are on their axis, from 0 to 1.
fn shares(numbers: &[f64]) -> Vec<f64> {
    let at = |number: f64| if is_log(numbers) { number.log10() } else { number };
    let (Some(low), Some(high)) = (numbers.first(), numbers.last()) else { return Vec::new() };
    let (low, high) = (at(*low), at(*high));
    numbers.iter().map(|number| ((at(*number) - low) / (high - low)).clamp(0.0, 1.0)).collect()
}

/// The names of places and where their middles are. Those of both ends are there; one between that
/// would meet another is left out.
fn names<'a>(places: &'a [String], across: &[f64]) -> Vec<(f64, &'a str)> {
    const GAP: f64 = 6.0;
    let half = |name: &str| width(name, TEXT) / 2.0;
    let middle = |name: &str, x: f64| x.clamp(half(name) + 2.0, WIDTH - half(name) - 2.0);
    let all: Vec<(f64, &str)> =
        places.iter().zip(across).map(|(name, x)| (middle(name, *x), name.as_str())).collect();
    let Some((last, others)) = all.split_last() else { return Vec::new() };
    let end = last.0 - half(last.1) - GAP;
    let mut free = 0.0;
    let mut kept = Vec::new();
    for (x, name) in others {
        if x - half(name) >= free && x + half(name) <= end {
            free = x + half(name) + GAP;
            kept.push((*x, *name));
        }
    }
    kept.push(*last);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_far_apart_as_their_numbers() {
        let near = |got: Vec<f64>, want: &[f64]| {
            assert_eq!(got.len(), want.len());
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-3), "{got:?} {want:?}");
        };
        near(shares(&[1e3, 1e5, 1e6, 1e7]), &[0.0, 0.5, 0.75, 1.0]);
        near(shares(&[1e3, 1e4, 5e4]), &[0.0, 0.5886, 1.0]);
        near(shares(&[1.0, 2.0, 4.0, 8.0, 16.0]), &[0.0, 0.25, 0.5, 0.75, 1.0]);
        // Near each other, or with a zero: linear.
        near(shares(&[1.0, 2.0, 4.0]), &[0.0, 0.3333, 1.0]);
        near(shares(&[0.0, 10.0, 100.0]), &[0.0, 0.1, 1.0]);
        near(shares(&[-5.0, 0.0, 5.0]), &[0.0, 0.5, 1.0]);
        near(shares(&[f64::MIN_POSITIVE, f64::MAX]), &[0.0, 1.0]);
    }

    #[test]
    fn both_ends_have_their_names() {
        let places: Vec<String> = ["1000000", "1000001", "1000100"].map(str::to_owned).into();
        let names: Vec<&str> = names(&places, &[100.0, 101.0, 400.0]).iter().map(|n| n.1).collect();
        assert_eq!(names, ["1000000", "1000100"]);
    }
}
