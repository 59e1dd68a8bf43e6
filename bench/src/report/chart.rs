//! Charts as SVG.
//!
//! Places that are numbers in order (threads, files) have a line for each series, over an axis on
//! which they are as far apart as the numbers; all others
//! (targets, loads, percentiles) a group of bars, or of points where the scale is logarithmic,
//! because a bar has no beginning there. Names of groups stand above their bars and the legend
//! above the drawing, so text meets neither other text nor data, however long names are.
//!
//! A picture is 480 units wide: the text can be read on a telephone, where that is shrunk to its
//! width, and it is enlarged on pages for screens. [`layout`](Chart::layout) decides what is where,
//! in shapes; tests look at their boxes.

mod axis;
mod bars;
mod lines;
mod shapes;

use axis::Axis;
use shapes::{Anchor, Picture, Shape, TEXT, TITLE, cut, width, wrap};

/// Values over named places, such as files per second over numbers of threads.
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
    /// Logarithmic scale of the values.
    pub log: bool,
}

/// Width of each picture, and what is free at its edges.
const WIDTH: f64 = 480.0;
const EDGE: f64 = 12.0;
/// Height of a line of text.
const LINE: f64 = 17.0;

const COLOURS: [&str; 10] = [
    "#1F77B4", "#D62728", "#2CA02C", "#9467BD", "#FF7F0E", "#808080", "#17BECF", "#E377C2",
    "#8C564B", "#BCBD22",
];

fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

impl Chart {
    /// The picture; `None` if there is no value to show.
    pub(super) fn svg(&self) -> Option<String> {
        self.layout().map(|picture| picture.svg())
    }

    fn layout(&self) -> Option<Picture> {
        let axis = Axis::of(self.values(), self.log)?;
        let mut picture = Picture::new(WIDTH);
        let mut y = EDGE;
        for line in wrap(&self.title, TITLE, WIDTH - 2.0 * EDGE) {
            picture.text(EDGE, y + TITLE, TITLE, Anchor::Start, line);
            y += TITLE + 5.0;
        }
        y = self.legend(&mut picture, y + 4.0);
        let end = match self.numbers() {
            Some(numbers) => lines::draw(self, &numbers, &axis, &mut picture, y),
            None => bars::draw(self, &axis, &mut picture, y),
        };
        picture.height = end + EDGE;
        Some(picture)
    }

    /// Colours and names of the series that have a value, as many beside each other as fit. Gives
    /// where it ends.
    fn legend(&self, picture: &mut Picture, top: f64) -> f64 {
        if self.series.len() < 2 {
            return top;
        }
        const MARK: f64 = 16.0;
        let (mut x, mut y) = (EDGE, top);
        for n in self.shown() {
            let name = cut(&self.series[n].0, TEXT, WIDTH - 2.0 * EDGE - MARK);
            let wide = MARK + width(&name, TEXT);
            if x > EDGE && x + wide > WIDTH - EDGE {
                (x, y) = (EDGE, y + LINE);
            }
            picture.add(Shape::Mark { x, y: y + 4.0, side: 10.0, fill: colour(n) });
            picture.text(x + MARK, y + TEXT, TEXT, Anchor::Start, name);
            x += wide + 14.0;
        }
        y + LINE + 4.0
    }

    /// The name of the values' axis.
    fn value_title(&self) -> String {
        format!("{}{}", self.y, if self.log { " (logarithmic scale)" } else { "" })
    }

    /// The places as numbers, if they are, each more than the one before.
    fn numbers(&self) -> Option<Vec<f64>> {
        let number = |place: &String| place.parse().ok().filter(|n: &f64| n.is_finite());
        let numbers = self.places.iter().map(number).collect::<Option<Vec<f64>>>()?;
        (numbers.len() > 1 && numbers.windows(2).all(|pair| pair[0] < pair[1])).then_some(numbers)
    }

    /// The series that have a value to show.
    fn shown(&self) -> impl Iterator<Item = usize> {
        let has = |n: &usize| (0..self.places.len()).any(|place| self.value(*n, place).is_some());
        (0..self.series.len()).filter(has)
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.series.iter().flat_map(|s| s.1.iter().flatten().copied()).filter(|v| self.shows(*v))
    }

    /// Whether a value can be shown at all.
    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }

    /// The value of a series at a place.
    fn value(&self, series: usize, place: usize) -> Option<f64> {
        let value = *self.series.get(series)?.1.get(place)?;
        value.filter(|value| self.shows(*value))
    }
}

#[cfg(test)]
mod tests;
