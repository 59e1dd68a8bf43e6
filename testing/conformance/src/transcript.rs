//! What a case saw, as lines that can be compared.

use std::fmt::Debug;

use rustix::io::Errno;

/// The lines of one run.
#[derive(Default, Debug, Clone)]
pub struct Transcript {
    lines: Vec<String>,
}

/// A result that can be written down: values as they are, errors as errno.
pub trait Outcome {
    /// As text.
    fn text(&self) -> String;
}

impl<T: Debug> Outcome for Result<T, Errno> {
    fn text(&self) -> String {
        match self {
            Ok(value) => format!("{value:?}"),
            Err(e) => std::io::Error::from(*e).to_string(),
        }
    }
}

impl Transcript {
    /// Records what came back from a call.
    pub fn note(&mut self, what: &str, outcome: impl Outcome) {
        self.lines.push(format!("{what}: {}", outcome.text()));
    }

    /// Records a plain value.
    pub fn value(&mut self, what: &str, value: impl Debug) {
        self.lines.push(format!("{what}: {value:?}"));
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Where another run saw something else: line number, our line, theirs.
    #[must_use]
    pub fn differences<'a>(&'a self, other: &'a Self) -> Vec<(usize, &'a str, &'a str)> {
        let line = |t: &'a Self, n: usize| t.lines.get(n).map_or("(nothing)", String::as_str);
        let count = self.lines.len().max(other.lines.len());
        (0..count).map(|n| (n, line(self, n), line(other, n))).filter(|(_, a, b)| a != b).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_differing_or_missing_line_is_told() {
        let (mut a, mut b) = (Transcript::default(), Transcript::default());
        a.note("open", Ok::<_, Errno>(1));
        b.note("open", Err::<i32, _>(Errno::NOENT));
        a.value("same", 1);
        b.value("same", 1);
        a.value("more", 2);
        assert_eq!(
            a.differences(&b),
            [
                (0, "open: 1", "open: No such file or directory (os error 2)"),
                (2, "more: 2", "(nothing)")
            ]
        );
    }
}
