//! What a scenario saw, as lines that can be compared.

use rustix::io::Errno;
use std::fmt::{Debug, Write};

/// The lines of one run.
#[derive(Default, Debug)]
pub struct Transcript {
    lines: Vec<String>,
}

/// A result that can be written down: values as they are, errors as errno.
pub trait Outcome {
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

impl<T: Debug> Outcome for std::io::Result<T> {
    fn text(&self) -> String {
        match self {
            Ok(value) => format!("{value:?}"),
            Err(e) => e.to_string(),
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

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Fails the test unless both runs saw the same.
    #[track_caller]
    pub fn assert_same(&self, other: &Self) {
        let mut message = String::new();
        for n in 0..self.lines.len().max(other.lines.len()) {
            let (ours, theirs) = (self.lines.get(n), other.lines.get(n));
            if ours != theirs {
                let text = |line: Option<&String>| line.map_or("(nothing)".to_owned(), Clone::clone);
                let _ = writeln!(message, "  Linux:   {}\n  subject: {}", text(ours), text(theirs));
            }
        }
        assert!(message.is_empty(), "the transcripts differ:\n{message}");
    }
}
