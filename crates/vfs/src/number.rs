//! Numbers as users write them, by one rule for every command and option: sizes, counts, seconds,
//! percentages and octal modes. Each has its bounds, and a mistake is one line that quotes what was
//! typed and says what is wrong with it: negative, larger or less than a bound, or no number.
//!
//! Sizes have units ([`Size`]); counts have `K` to `E`, as powers of 1024.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::Size;

/// Why a text is no such number: one line that quotes it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NumberError(pub(crate) String);

/// A kind of number, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub name: &'static str,
    pub example: &'static str,
}

const COUNT: Kind = Kind { name: "number", example: "1000" };
const MODE: Kind = Kind { name: "mode", example: "022" };

impl Kind {
    pub(crate) fn bad(self, text: &str, why: impl Display) -> NumberError {
        NumberError(format!("bad {} \"{text}\": {why}", self.name))
    }

    /// The text without the spaces around it, which must not be all.
    pub(crate) fn trimmed(self, text: &str) -> Result<&str, NumberError> {
        match text.trim() {
            "" => Err(NumberError(format!(
                "the {} is empty: give one such as {}",
                self.name, self.example
            ))),
            trimmed => Ok(trimmed),
        }
    }

    fn within<T: PartialOrd + Copy>(
        self,
        text: &str,
        number: T,
        bounds: RangeInclusive<T>,
        show: impl Fn(T) -> String,
    ) -> Result<T, NumberError> {
        let (least, most) = bounds.into_inner();
        if number > most {
            Err(self.bad(text, format_args!("it is larger than {}", show(most))))
        } else if number < least {
            Err(self.bad(text, format_args!("it is less than {}", show(least))))
        } else {
            Ok(number)
        }
    }
}

/// True for a minus before a digit or a point.
pub(crate) fn is_negative(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// A size in bytes, within bounds; a number without a unit counts things of `plain` bytes.
///
/// # Errors
/// One line that quotes the text.
pub fn size(text: &str, plain: u64, bounds: RangeInclusive<u64>) -> Result<u64, NumberError> {
    let bytes = text.parse::<Size>()?.bytes(plain)?;
    Size::KIND.within(text, bytes, bounds, shown_bytes)
}

/// Bytes in the largest unit in which they are a whole number.
fn shown_bytes(bytes: u64) -> String {
    let units = [(60, "E"), (50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = |shift: &u32| bytes != 0 && bytes.trailing_zeros() >= *shift;
    match units.iter().find(|(shift, _)| whole(shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// A count within bounds: `1000`, or with a unit as `10k`.
///
/// # Errors
/// One line that quotes the text.
pub fn count<T: Copy + Into<u64> + TryFrom<u64>>(
    text: &str,
    bounds: RangeInclusive<T>,
) -> Result<T, NumberError> {
    let trimmed = COUNT.trimmed(text)?;
    if is_negative(trimmed) {
        return Err(COUNT.bad(text, "it must not be negative"));
    }
    let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(end);
    let shift = match unit.trim_start().as_bytes() {
        [] => Some(0),
        [unit] => {
            let power = b"kmgtpe".iter().position(|known| *known == unit.to_ascii_lowercase());
            power.map(|power| 10 * (power + 1))
        }
        _ => None,
    };
    let Some(shift) = shift.filter(|_| !digits.is_empty()) else {
        return Err(COUNT.bad(text, "it must be a whole number"));
    };
    // All digits, so it can only be too large.
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    let (least, most) = (*bounds.start(), *bounds.end());
    let number = number
        .filter(|n| *n <= most.into())
        .ok_or_else(|| COUNT.bad(text, format_args!("it is larger than {}", most.into())))?;
    COUNT.within(text, number, least.into()..=most.into(), |n| n.to_string())?;
    T::try_from(number).map_err(|_| COUNT.bad(text, "it is too large"))
}

/// A time in seconds within bounds, such as `10` or `0.5`.
///
/// # Errors
/// One line that quotes the text.
pub fn seconds(text: &str, bounds: RangeInclusive<f64>) -> Result<f64, NumberError> {
    decimal(Kind { name: "number of seconds", example: "10 or 0.5" }, text, bounds)
}

/// A percentage within bounds.
///
/// # Errors
/// One line that quotes the text.
pub fn percent(text: &str, bounds: RangeInclusive<f64>) -> Result<f64, NumberError> {
    decimal(Kind { name: "percentage", example: "5 or 0.5" }, text, bounds)
}

fn decimal(kind: Kind, text: &str, bounds: RangeInclusive<f64>) -> Result<f64, NumberError> {
    let trimmed = kind.trimmed(text)?;
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    // (No "inf" and "nan".)
    let number = trimmed.parse::<f64>().ok().filter(|_| trimmed.chars().all(is_number));
    let Some(number) = number else {
        return Err(kind.bad(text, format_args!("it must be a number, such as {}", kind.example)));
    };
    if *bounds.start() >= 0.0 && number < 0.0 {
        return Err(kind.bad(text, "it must not be negative"));
    }
    kind.within(text, number, bounds, |n| n.to_string())
}

/// An octal number of at most `most`, such as `022`.
///
/// # Errors
/// One line that quotes the text.
pub fn octal(text: &str, most: u32) -> Result<u32, NumberError> {
    let trimmed = MODE.trimmed(text)?;
    if is_negative(trimmed) {
        return Err(MODE.bad(text, "it must not be negative"));
    }
    if !trimmed.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) {
        return Err(MODE.bad(text, "it must be octal, such as 022"));
    }
    // All digits, so it can only be too large.
    let number = u32::from_str_radix(trimmed, 8).unwrap_or(u32::MAX);
    MODE.within(text, number, 0..=most, |n| format!("{n:o}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fails<T: std::fmt::Debug>(read: Result<T, NumberError>, words: &str) {
        let line = read.unwrap_err().to_string();
        assert!(line.contains(words) && !line.contains('\n'), "{words}: {line}");
    }

    #[test]
    fn sizes_have_bounds() {
        let read = |text| size(text, 1, 4096..=1 << 40);
        assert_eq!((read("4k"), read("1T")), (Ok(4096), Ok(1 << 40)));
        fails(read("2P"), "\"2P\": it is larger than 1T");
        fails(read("1k"), "\"1k\": it is less than 4K");
        fails(read("-5M"), "\"-5M\": it must not be negative");
        fails(read("99999999999999999999"), "2^64 bytes or more");
        fails(size("7", 1, 0..=5), "larger than 5 bytes");
    }

    #[test]
    fn counts() {
        let read = |text| count::<u32>(text, 1..=1 << 20);
        assert_eq!((read("7"), read("10k"), read(" 1M ")), (Ok(7), Ok(10_240), Ok(1 << 20)));
        assert_eq!(count::<u64>("18446744073709551615", 0..=u64::MAX), Ok(u64::MAX));
        for (text, words) in [
            ("", "empty"),
            ("-1", "must not be negative"),
            ("0", "less than 1"),
            ("2M", "larger than 1048576"),
            ("4294967297", "larger than 1048576"),
            ("99999999999999999999", "larger than 1048576"),
            ("99999999999999E", "larger than 1048576"),
            ("1.5", "whole number"),
            ("x", "whole number"),
            ("k", "whole number"),
            ("8KB", "whole number"),
            ("8s", "whole number"),
            ("5%", "whole number"),
            ("+5", "whole number"),
            ("\u{e9}", "whole number"),
        ] {
            fails(read(text), words);
        }
    }

    #[test]
    fn seconds_and_modes() {
        let read = |text| seconds(text, 0.1..=86_400.0);
        assert_eq!((read("0.5"), read("10")), (Ok(0.5), Ok(10.0)));
        for (text, words) in [
            ("", "empty"),
            ("-1", "must not be negative"),
            ("-.5", "must not be negative"),
            ("0", "less than 0.1"),
            ("1e9", "larger than 86400"),
            ("1e999", "larger than 86400"),
            ("nan", "a number"),
            ("inf", "a number"),
            ("10s", "a number"),
        ] {
            fails(read(text), words);
        }
        fails(percent("51", 0.0..=50.0), "percentage \"51\": it is larger than 50");
        assert_eq!(octal("0750", 0o7777), Ok(0o750));
        for (text, words) in
            [("8", "octal"), ("+7", "octal"), ("-7", "negative"), ("10000", "than 7777")]
        {
            fails(octal(text, 0o7777), words);
        }
        fails(octal("77777777777777", 0o777), "larger than 777");
    }
}
