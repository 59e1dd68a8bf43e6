//! What Unicode 12.1.0 says of each code point, as far as folding needs it.
//!
//! A number for each code point, in blocks of 64 of which each different one is there once:
//!
//! | number | the code point |
//! | --- | --- |
//! | 0 to 254 | stays; the number is its canonical combining class |
//! | 255 | is ignored (Default_Ignorable_Code_Point) |
//! | from 256 | becomes the mapping of this number |
//!
//! Hangul syllables are not in the tables: they are decomposed by arithmetic. Code points that are
//! not assigned in 12.1.0, for private use or no characters stay as they are; Linux takes them for
//! valid.

mod data;

const BLOCK_BITS: u32 = 6;
const IGNORED: u16 = 255;
const FIRST_MAPPING: u16 = 256;

/// Behind the blocks only these are not as they are: tags and variation selectors.
const IGNORED_ABOVE: std::ops::Range<u32> = 0xE_0000..0xE_1000;

/// The first syllable, and how many there are of each consonant and vowel.
const SYLLABLE: u32 = 0xAC00;
const LEADING: u32 = 19;
const VOWELS: u32 = 21;
/// One of the trailing consonants is none.
const TRAILING: u32 = 28;

/// What a code point becomes.
pub(crate) enum Entry {
    Same {
        /// Canonical combining class; 0 is none.
        class: u8,
    },
    Ignored,
    /// Characters that all stay as they are.
    Becomes(&'static [char]),
    /// Leading consonant, vowel and trailing consonant.
    Hangul([Option<char>; 3]),
}

const OTHER: Entry = Entry::Same { class: 0 };

pub(crate) fn look_up(char: char) -> Entry {
    let point = u32::from(char);
    if let Some(syllable) = point.checked_sub(SYLLABLE)
        && syllable < LEADING * VOWELS * TRAILING
    {
        return Entry::Hangul(jamos(syllable));
    }
    match number(point) {
        Some(IGNORED) => Entry::Ignored,
        Some(class @ ..IGNORED) => Entry::Same { class: class as u8 },
        Some(mapping @ FIRST_MAPPING..) => {
            becomes(usize::from(mapping - FIRST_MAPPING)).map_or(OTHER, Entry::Becomes)
        }
        None if IGNORED_ABOVE.contains(&point) => Entry::Ignored,
        None => OTHER,
    }
}

fn number(point: u32) -> Option<u16> {
    let block = usize::from(*data::INDEX.get((point >> BLOCK_BITS) as usize)?);
    let within = (point & ((1 << BLOCK_BITS) - 1)) as usize;
    data::BLOCKS.get((block << BLOCK_BITS) + within).copied()
}

fn becomes(mapping: usize) -> Option<&'static [char]> {
    let start = usize::from(*data::STARTS.get(mapping)?);
    let end = usize::from(*data::STARTS.get(mapping + 1)?);
    data::MAPPED.get(start..end)
}

fn jamos(syllable: u32) -> [Option<char>; 3] {
    let trailing = syllable % TRAILING;
    [
        char::from_u32(0x1100 + syllable / TRAILING / VOWELS),
        char::from_u32(0x1161 + syllable / TRAILING % VOWELS),
        if trailing == 0 { None } else { char::from_u32(0x11A7 + trailing) },
    ]
}
