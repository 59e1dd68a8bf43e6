//! A name to its folded form.
//!
//! Valid UTF-8 is decomposed and folded code point by code point, and then each run of combining
//! characters is put in the order of their classes. An ignored code point ends a run, so nothing
//! is ordered across it.
//!
//! Malformed names are folded as well, since Linux looks at the first byte of a character only: a
//! continuation byte that belongs to no character (*stray*) is taken over as it is. Names in
//! Latin-1 have such bytes. Linux goes over a run of combining characters once to find the lowest
//! class and then once for each class, and takes over the stray bytes in it each time. At the
//! beginning of a name a stray byte cannot be folded; neither can a character that is cut short,
//! too long or a surrogate.

use crate::tables::{Entry, look_up};

/// The folded form of a name, up to its first NUL byte. None if it cannot be folded: such a name
/// equals only itself.
#[must_use]
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase());
    }
    if matches!(name, [0x80..0xC0, ..]) {
        return None;
    }
    let mut folded = Folded { out: Vec::with_capacity(name.len() + 8), run: Vec::new() };
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|char| folded.push(char));
        match *chunk.invalid() {
            [] => {}
            [stray @ 0x80..0xC0] => folded.push_stray(stray),
            _ => return None,
        }
    }
    folded.end_run();
    Some(folded.out)
}

/// Whether a name has code points that its folded form is without.
#[must_use]
pub fn has_ignored(name: &[u8]) -> bool {
    let ignored = |char| matches!(look_up(char), Entry::Ignored);
    !name.is_ascii() && name.utf8_chunks().any(|chunk| chunk.valid().chars().any(ignored))
}

/// A part of a run that begins with a combining character.
#[derive(Clone, Copy)]
enum Part {
    Combining { class: u8, char: char },
    Stray(u8),
}

struct Folded {
    out: Vec<u8>,
    /// Combining characters whose order is open, and stray bytes among them.
    run: Vec<Part>,
}

impl Folded {
    fn push(&mut self, char: char) {
        match look_up(char) {
            Entry::Same { class } => self.push_folded(char, class),
            Entry::Ignored => self.end_run(),
            Entry::Becomes(chars) => chars.iter().for_each(|char| match look_up(*char) {
                Entry::Same { class } => self.push_folded(*char, class),
                Entry::Ignored | Entry::Becomes(_) | Entry::Hangul(..) => {
                    debug_assert!(false, "the tables give what a character becomes in the end");
                }
            }),
            Entry::Hangul(jamos) => {
                self.end_run();
                jamos.into_iter().flatten().for_each(|jamo| self.put(jamo));
            }
        }
    }

    /// A character that stays as it is.
    fn push_folded(&mut self, char: char, class: u8) {
        if class == 0 {
            self.end_run();
            self.put(char);
        } else {
            self.run.push(Part::Combining { class, char });
        }
    }

    fn push_stray(&mut self, stray: u8) {
        if self.run.is_empty() { self.out.push(stray) } else { self.run.push(Part::Stray(stray)) }
    }

    fn put(&mut self, char: char) {
        self.out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        let mut next = self.pass(&run, 0);
        while let Some(class) = next {
            next = self.pass(&run, class);
        }
    }

    /// Takes over what has a class, and stray bytes. Returns the next class in the run.
    fn pass(&mut self, run: &[Part], now: u8) -> Option<u8> {
        let mut next = None;
        for part in run {
            match *part {
                Part::Combining { class, char } if class == now => self.put(char),
                Part::Combining { class, .. } if class > now => {
                    next = Some(next.map_or(class, |next: u8| next.min(class)));
                }
                Part::Combining { .. } => {}
                Part::Stray(stray) => self.out.push(stray),
            }
        }
        next
    }
}
