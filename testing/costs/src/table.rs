//! The table: written, read, compared. Pure.
//!
//! A number is what one operation costs on average; it is exact, because a row has 10 or 100
//! operations.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is counted in the process, in the order of the columns behind the system calls.
pub const COUNTED: [&str; 9] = [
    "reads",
    "bytes read",
    "writes",
    "bytes written",
    "durable",
    "flushes",
    "discards",
    "locks",
    "allocations",
];
/// The first column.
pub const CALLS: &str = "calls";

const HEAD: &str = "\
# What one operation costs. Compared by `cargo test -p extol-costs`, written anew by
# `EXTOL_BLESS=1 cargo test -p extol-costs`: a commit that changes a number says why.
#
#   calls        system calls on the image, without those for memory and waiting
#   durable      writes that are durable when they end (FUA)
#   discards     discarded or zeroed ranges
#   locks        locks taken or tried, of any kind
#   allocations  of heap memory
";

/// Sums of some operations, by name of the column.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Sets a column.
    pub fn set(&mut self, name: &str, value: u64) {
        self.0.insert(name.to_owned(), value);
    }

    /// A column.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds those of another operation.
    pub fn add(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            *self.0.entry(name.clone()).or_default() += value;
        }
    }
}

/// A row: the operation, how often it was done, and the sums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// `library: statfs`.
    pub name: String,
    /// Operations.
    pub times: u64,
    /// Sums over all of them.
    pub counts: Counts,
}

impl Row {
    /// The row as one line, for another process: the sums behind the name.
    #[must_use]
    pub fn line(&self) -> String {
        let sums = COUNTED.map(|name| self.counts.get(name).to_string());
        format!("{}\t{}\t{}", self.name, self.times, sums.join("\t"))
    }

    /// The row of such a line.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let name = parts.next()?.to_owned();
        let times = parts.next()?.parse().ok()?;
        let mut counts = Counts::default();
        for column in COUNTED {
            counts.set(column, parts.next()?.parse().ok()?);
        }
        Some(Self { name, times, counts })
    }
}

fn columns() -> impl Iterator<Item = &'static str> {
    std::iter::once(CALLS).chain(COUNTED)
}

/// A sum as the average of 10 or 100 operations, exactly.
fn average(sum: u64, times: u64) -> String {
    let hundredths = sum * 100 / times.max(1);
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    match rest {
        0 => whole.to_string(),
        _ if rest.is_multiple_of(10) => format!("{whole}.{}", rest / 10),
        _ => format!("{whole}.{rest:02}"),
    }
}

/// The table as text.
#[must_use]
pub fn show(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    let widest = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut group = "";
    for row in rows {
        let of = row.name.split(':').next().unwrap_or_default();
        if of != group {
            group = of;
            let _ = write!(text, "\n{:widest$}", "");
            for name in columns() {
                let _ = write!(text, "  {name:>13}");
            }
            text.push('\n');
        }
        let _ = write!(text, "{:widest$}", row.name);
        for name in columns() {
            let _ = write!(text, "  {:>13}", average(row.counts.get(name), row.times));
        }
        text.push('\n');
    }
    text
}

/// The numbers of a table, by row and column. Cells are apart by two blanks at least.
fn numbers(text: &str) -> BTreeMap<(String, &'static str), String> {
    let rows = text.lines().filter(|line| line.contains(": ") && !line.starts_with('#'));
    let mut numbers = BTreeMap::new();
    for row in rows {
        let mut cells = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let name = cells.next().unwrap_or_default();
        for (column, cell) in columns().zip(cells) {
            numbers.insert((name.to_owned(), column), cell.to_owned());
        }
    }
    numbers
}

/// A line for each number that differs: risen ones first.
#[must_use]
pub fn differences(known: &str, now: &str) -> Vec<String> {
    let (known, now) = (numbers(known), numbers(now));
    let value = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
    let (mut risen, mut others) = (Vec::new(), Vec::new());
    for ((row, column), cell) in &now {
        let place = format!("{row}, {column}");
        match known.get(&(row.clone(), *column)) {
            Some(before) if before == cell => {}
            Some(before) if value(cell) < value(before) => {
                others.push(format!("{place}: fell from {before} to {cell}"));
            }
            Some(before) => risen.push(format!("{place}: rose from {before} to {cell}")),
            None => others.push(format!("{place}: {cell} is not in the table")),
        }
    }
    let gone = known.keys().filter(|key| !now.contains_key(*key));
    others.extend(gone.map(|(row, column)| format!("{row}, {column}: is no longer counted")));
    risen.extend(others);
    risen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, reads: u64, locks: u64) -> Row {
        let mut counts = Counts::default();
        counts.set("reads", reads);
        counts.set("locks", locks);
        Row { name: name.into(), times: 100, counts }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let text = show(&[row("library: statfs", 0, 205), row("fuse: read 1 MiB", 110, 100)]);
        let numbers = numbers(&text);
        assert_eq!(numbers.len(), 2 * (COUNTED.len() + 1), "{text}");
        let cell = |row: &str, column| numbers.get(&(row.to_owned(), column)).cloned();
        assert_eq!(cell("library: statfs", "locks").as_deref(), Some("2.05"));
        assert_eq!(cell("fuse: read 1 MiB", "reads").as_deref(), Some("1.1"));
        assert!(differences(&text, &text).is_empty());
    }

    #[test]
    fn a_line_has_the_whole_row() {
        let mut all = row("library: statfs", 3, 4);
        for (column, n) in COUNTED.iter().zip(7..) {
            all.counts.set(column, n);
        }
        assert_eq!(Row::of_line(&all.line()), Some(all));
        assert_eq!(Row::of_line("library: statfs\t100\t1"), None);
    }

    #[test]
    fn every_difference_is_told() {
        let before = show(&[row("library: a", 0, 300), row("library: gone", 1, 1)]);
        let after = show(&[row("library: a", 100, 200), row("library: new", 1, 1)]);
        let told = differences(&before, &after);
        assert_eq!(told[0], "library: a, reads: rose from 0 to 1");
        assert_eq!(told[1], "library: a, locks: fell from 3 to 2");
        let about = |name: &str| told.iter().filter(|line| line.contains(name)).count();
        assert_eq!((about("gone"), about("new")), (COUNTED.len() + 1, COUNTED.len() + 1));
        assert_eq!(told.len(), 2 + 2 * (COUNTED.len() + 1));
    }
}
