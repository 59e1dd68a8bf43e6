//! What a chart is drawn of, and how wide text is.

use std::fmt::Write as _;

use super::super::html::escape;

/// Sizes of text.
pub const TITLE: f64 = 15.0;
pub const TEXT: f64 = 12.0;

/// Which end of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A part of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// With its baseline at `y`.
    Text { x: f64, y: f64, size: f64, anchor: Anchor, text: String },
    /// A line of the grid or of an axis.
    Rule { from: (f64, f64), to: (f64, f64), strong: bool },
    /// The colour of a series in the legend.
    Mark { x: f64, y: f64, side: f64, fill: &'static str },
    /// Data: a bar.
    Bar { x: f64, y: f64, width: f64, height: f64, fill: &'static str },
    /// Data: a point.
    Point { x: f64, y: f64, fill: &'static str },
    /// Data: a line.
    Line { points: Vec<(f64, f64)>, stroke: &'static str },
}

/// Radius of a point.
pub const RADIUS: f64 = 3.5;

/// Shapes, and the size of what they are on.
#[derive(Clone, Debug)]
pub struct Picture {
    pub width: f64,
    pub height: f64,
    pub shapes: Vec<Shape>,
}

impl Picture {
    pub fn new(width: f64) -> Self {
        Self { width, height: 0.0, shapes: Vec::new() }
    }

    pub fn add(&mut self, shape: Shape) {
        self.shapes.push(shape);
    }

    pub fn text(&mut self, x: f64, y: f64, size: f64, anchor: Anchor, text: impl Into<String>) {
        self.add(Shape::Text { x, y, size, anchor, text: text.into() });
    }

    /// The picture's text. Its width is that on a page for screens; narrower ones shrink it.
    pub fn svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let mut s = format!(
            "<svg width=\"{:.0}\" height=\"{:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n",
            width * 1.35,
            height * 1.35
        );
        for shape in &self.shapes {
            let _ = writeln!(s, "{}", shape.svg());
        }
        s + "</svg>\n"
    }
}

impl Shape {
    fn svg(&self) -> String {
        match self {
            Self::Text { x, y, size, anchor, text } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let weight = if *size == TITLE { " font-weight=\"bold\"" } else { "" };
                format!(
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" \
                     font-family=\"sans-serif\" font-size=\"{size}\"{weight} \
                     fill=\"#000000\">{}</text>",
                    escape(text)
                )
            }
            Self::Rule { from, to, strong } => format!(
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#000000\" \
                 opacity=\"{}\"/>",
                from.0,
                from.1,
                to.0,
                to.1,
                if *strong { 0.6 } else { 0.15 }
            ),
            Self::Mark { x, y, side, fill } => format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side}\" height=\"{side}\" rx=\"2\" \
                 fill=\"{fill}\"/>"
            ),
            Self::Bar { x, y, width, height, fill } => format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill=\"{fill}\"/>"
            ),
            Self::Point { x, y, fill } => {
                format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\" fill=\"{fill}\"/>")
            }
            Self::Line { points, stroke } => {
                let mut list = String::new();
                for (x, y) in points {
                    let _ = write!(list, "{x:.1},{y:.1} ");
                }
                format!(
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" \
                     stroke-width=\"2\"/>",
                    list.trim_end()
                )
            }
        }
    }
}

/// How wide a text is, at most. What fonts there will be is not known: sans-serif ones in use are
/// narrower.
pub fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | ' ' | '-' | '/' => 0.45,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
        'A'..='Z' => 0.78,
        c if c.is_ascii() => 0.65,
        _ => 1.0,
    };
    // The title is bold.
    let bold = if size == TITLE { 1.08 } else { 1.0 };
    text.chars().map(em).sum::<f64>() * size * bold
}

/// As much of a text as fits; three points stand for the rest.
pub fn cut(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut short = text.to_owned();
    while short.pop().is_some() && width(&short, size) + width("...", size) > room {}
    format!("{}...", short.trim_end())
}

/// The lines of a text. A word that is too long for one is cut.
pub fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = cut(word, size, room);
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}
