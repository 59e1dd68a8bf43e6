//! Tables of text and numbers.

use serde::Serialize;

/// One field of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Nothing to say.
    Missing,
    /// Text, to the left.
    Text(String),
    /// A number, shown with so many digits after the point.
    Number {
        /// Value.
        value: f64,
        /// Digits after the point.
        #[serde(skip)]
        digits: usize,
        /// It misses a goal.
        #[serde(rename = "missed", skip_serializing_if = "std::ops::Not::not")]
        missed: bool,
    },
}

impl Cell {
    /// A number, or nothing.
    #[must_use]
    pub fn number(value: impl Into<Option<f64>>, digits: usize) -> Self {
        match value.into() {
            Some(value) if value.is_finite() => Self::Number { value, digits, missed: false },
            _ => Self::Missing,
        }
    }

    /// Nanoseconds, shown in microseconds.
    #[must_use]
    pub fn micros(ns: impl Into<Option<u64>>) -> Self {
        Self::number(ns.into().map(|ns| ns as f64 / 1000.0), 1)
    }

    /// The same cell with a mark if a goal is missed.
    #[must_use]
    pub fn missed_if(self, condition: bool) -> Self {
        match self {
            Self::Number { value, digits, .. } => Self::Number { value, digits, missed: condition },
            other => other,
        }
    }

    /// True if it is marked.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        matches!(self, Self::Number { missed: true, .. })
    }

    /// As it is shown. A missed goal has an exclamation mark.
    #[must_use]
    pub fn show(&self) -> String {
        match self {
            Self::Missing => "-".into(),
            Self::Text(text) => text.clone(),
            Self::Number { value, digits, missed } => {
                format!("{value:.digits$}{}", if *missed { "!" } else { "" })
            }
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows; each has as many cells as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one cell per column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row of another table: {}", self.title);
        self.rows.push(cells);
    }

    /// Columns side by side, numbers to the right.
    pub(super) fn text(&self) -> String {
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|r| r.iter().map(Cell::show).collect()).collect();
        let width = |c: usize| {
            let cells = shown.iter().map(|r| r[c].chars().count());
            cells.chain([self.columns[c].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let left = |c: usize| self.rows.iter().any(|r| matches!(r[c], Cell::Text(_)));
        let line = |cells: &[String]| {
            let mut s = String::new();
            for (c, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(widths[c].saturating_sub(cell.chars().count()));
                if c > 0 {
                    s += "  ";
                }
                s += &if left(c) { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
            }
            s.trim_end().to_owned() + "\n"
        };
        let mut s = format!("{}\n", self.title);
        s += &line(&self.columns);
        shown.iter().for_each(|row| s += &line(row));
        s
    }
}
