//! Groups of bars, or of points, below each other: names of any length have a line of their own.

use super::axis::{Axis, short};
use super::shapes::{Anchor, Picture, Shape, TEXT, cut, width};
use super::{Chart, EDGE, LINE, WIDTH, colour};

/// Height of a bar, and of a bar with the gap below it.
const BAR: f64 = 11.0;
const STEP: f64 = 15.0;
/// Room for the number behind a bar.
const NUMBER: f64 = 56.0;

/// Draws from `top` on, and gives where the drawing ends.
pub(super) fn draw(chart: &Chart, axis: &Axis, picture: &mut Picture, top: f64) -> f64 {
    // Numbers stand behind the bars, on their left for negative ones.
    let negative = if axis.low < 0.0 { NUMBER } else { 0.0 };
    let (left, right) = (EDGE + negative, WIDTH - EDGE - NUMBER);
    let at = |value: f64| left + axis.at(value) * (right - left);
    let mut grid = Vec::new();
    let mut y = top;
    for (place, name) in chart.places.iter().enumerate() {
        picture.text(EDGE, y + TEXT, TEXT, Anchor::Start, cut(name, TEXT, WIDTH - 2.0 * EDGE));
        y += LINE;
        for series in chart.shown() {
            let number = chart.value(series, place).map(|value| {
                bar(axis, picture, (at(value), y), at(axis.low.max(0.0)), value, series)
            });
            grid.push((y - 1.0, number.unwrap_or_default()));
            y += STEP;
        }
        y += 6.0;
    }
    // The grid is interrupted by names and numbers.
    for tick in &axis.ticks {
        let (x, strong) = (at(*tick), *tick == 0.0);
        for (y, _) in grid.iter().filter(|(_, number)| x < number.0 || number.1 < x) {
            let rule = Shape::Rule { from: (x, *y), to: (x, y + STEP), strong };
            picture.shapes.insert(0, rule);
        }
    }
    labels(chart, axis, picture, &at, y)
}

/// Draws a bar with its number, and gives from where to where the number is.
fn bar(
    axis: &Axis,
    picture: &mut Picture,
    (x, y): (f64, f64),
    zero: f64,
    value: f64,
    series: usize,
) -> (f64, f64) {
    let fill = colour(series);
    if axis.log {
        picture.add(Shape::Point { x, y: y + BAR / 2.0, fill });
    } else {
        // (Also what is next to nothing is seen.)
        let width = (x - zero).abs().max(1.0);
        picture.add(Shape::Bar { x: x.min(zero), y, width, height: BAR, fill });
    }
    let number = short(value);
    let wide = width(&number, TEXT);
    let (anchor, begin, from) = match value < 0.0 {
        true => (Anchor::End, x - 6.0, x - 6.0 - wide),
        false => (Anchor::Start, x + 6.0, x + 6.0),
    };
    picture.text(begin, y + BAR - 1.0, TEXT, anchor, number);
    (from, from + wide)
}

/// Numbers at the ticks, those left out that would meet the one before, and the axis' name.
fn labels(
    chart: &Chart,
    axis: &Axis,
    picture: &mut Picture,
    at: &dyn Fn(f64) -> f64,
    y: f64,
) -> f64 {
    let mut free = 0.0;
    for tick in &axis.ticks {
        let label = short(*tick);
        let half = width(&label, TEXT) / 2.0;
        // At the picture's edge it moves inwards.
        let x = at(*tick).clamp(half + 2.0, WIDTH - half - 2.0);
        if x - half < free {
            continue;
        }
        free = x + half + 6.0;
        picture.text(x, y + TEXT, TEXT, Anchor::Middle, label);
    }
    let title = format!("{}, by {}", chart.value_title(), chart.x);
    let title = cut(&title, TEXT, WIDTH - 2.0 * EDGE);
    picture.text(WIDTH / 2.0, y + LINE + TEXT, TEXT, Anchor::Middle, title);
    y + 2.0 * LINE
}
