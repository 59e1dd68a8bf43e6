//! Charts as SVG.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// Lines over named places, such as files per second over numbers of threads.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the places are.
    pub x: String,
    /// What is shown, with its unit.
    pub y: String,
    /// Names of the places.
    pub places: Vec<String>,
    /// Name and one value per place.
    pub series: Vec<(String, Vec<Option<f64>>)>,
    /// Logarithmic scale upwards.
    pub log: bool,
}

const SIZE: (u32, u32) = (720, 400);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(128, 128, 128),
];

type DrawResult = Result<(), Box<dyn std::error::Error>>;

impl Chart {
    /// The picture; `None` if there is no value to show.
    pub(super) fn svg(&self) -> Option<String> {
        let values = || self.series.iter().flat_map(|s| s.1.iter().flatten().copied());
        let values = || values().filter(|v| v.is_finite() && (!self.log || *v > 0.0));
        let max = values().fold(f64::MIN, f64::max);
        let min = values().fold(f64::MAX, f64::min);
        if max < min || max <= 0.0 {
            return None;
        }
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let done = if self.log {
                self.draw(&area, (min / 1.5..max * 1.5).log_scale())
            } else {
                self.draw(&area, 0.0..max * 1.05)
            };
            done.ok()?;
            area.present().ok()?;
        }
        Some(svg)
    }

    fn draw<Y>(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, y: Y) -> DrawResult
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut builder = ChartBuilder::on(area);
        builder
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70);
        let x = -0.3..self.places.len().saturating_sub(1) as f64 + 0.3;
        let mut chart = builder.build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .x_labels(self.places.len().max(2))
            .x_label_formatter(&|x| self.place(*x))
            .y_label_formatter(&|y| short(*y))
            .disable_x_mesh()
            .draw()?;
        for (n, (name, points)) in self.lines().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
            chart.draw_series(points.into_iter().map(|p| Circle::new(p, 3, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .border_style(BLACK.mix(0.3))
            .background_style(WHITE.mix(0.8))
            .draw()?;
        Ok(())
    }

    /// The name of the place at `x`; nothing between two places.
    fn place(&self, x: f64) -> String {
        let near = x.round();
        if (x - near).abs() > 0.01 || near < 0.0 {
            return String::new();
        }
        self.places.get(near as usize).cloned().unwrap_or_default()
    }

    fn lines(&self) -> impl Iterator<Item = (&str, Vec<(f64, f64)>)> {
        self.series.iter().map(|(name, values)| {
            let points = values.iter().enumerate().filter_map(|(x, y)| Some((x as f64, (*y)?)));
            (
                name.as_str(),
                points.filter(|p| p.1.is_finite() && (!self.log || p.1 > 0.0)).collect(),
            )
        })
    }
}

/// A number on an axis: at most four digits.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.3}G", value / 1e9),
        v if v >= 1e6 => format!("{:.2}M", value / 1e6),
        v if v >= 1e4 => format!("{:.0}k", value / 1e3),
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_axes() {
        let cases = [
            (0.0, "0"),
            (0.5, "0.500"),
            (12.34, "12.3"),
            (1234.0, "1234"),
            (45_678.0, "46k"),
            (2e6, "2.00M"),
        ];
        for (value, want) in cases {
            assert_eq!(short(value), want);
        }
    }
}
