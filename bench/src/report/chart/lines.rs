//! A line for each series over places that are numbers.

use super::axis::{Axis, short};
use super::shapes::{Anchor, Picture, RADIUS, Shape, TEXT, cut, width};
use super::{Chart, EDGE, LINE, WIDTH, colour};

const HEIGHT: f64 = 190.0;

/// Draws from `top` on, and gives where the drawing ends.
pub(super) fn draw(chart: &Chart, axis: &Axis, picture: &mut Picture, top: f64) -> f64 {
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
    let step = (right - 16.0 - first) / (chart.places.len().max(2) - 1) as f64;
    let across = |place: usize| first + place as f64 * step;
    for series in 0..chart.series.len() {
        let points: Vec<(f64, f64)> = (0..chart.places.len())
            .filter_map(|place| Some((across(place), up(chart.value(series, place)?))))
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
    let mut free = 0.0;
    for (place, name) in chart.places.iter().enumerate() {
        let half = width(name, TEXT) / 2.0;
        let x = across(place).clamp(half + 2.0, WIDTH - half - 2.0);
        if x - half < free {
            continue;
        }
        free = x + half + 6.0;
        picture.text(x, below + TEXT, TEXT, Anchor::Middle, name.clone());
    }
    let name = cut(&chart.x, TEXT, WIDTH - 2.0 * EDGE);
    picture.text(WIDTH / 2.0, below + LINE + TEXT, TEXT, Anchor::Middle, name);
    below + 2.0 * LINE
}
