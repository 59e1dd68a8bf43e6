//! How parameters are read from the command line. The fields of a load are its options, so their
//! defaults are written down once.

use std::time::Duration;

use clap::{Args, Command, ValueEnum};
use extol_vfs::{Size, number};

/// What an option of this kind has if it is not given.
pub(crate) fn defaults<T: Args>() -> T {
    let command = T::augment_args(Command::new("defaults"));
    let matches = command.try_get_matches_from(["defaults"]);
    matches.and_then(|m| T::from_arg_matches(&m)).expect("every option has a default")
}

/// A number of at least one.
///
/// # Errors
/// If it is none.
pub fn positive<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = number::count(text, 1..=u64::MAX).map_err(|error| error.to_string())?;
    T::try_from(number).map_err(|_| format!("bad number \"{text}\": it is too large"))
}

/// Bytes, as fio understands them: a number without a unit is no KiB.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse::<Size>().and_then(|size| size.bytes(1)).map_err(|e| e.to_string())?;
    if bytes == 0 { Err("it must not be 0".into()) } else { Ok(bytes) }
}

/// Bytes of one call, at most 1 GiB.
pub(crate) fn block(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    if bytes > 1 << 30 { Err("at most 1G".into()) } else { Ok(bytes as usize) }
}

/// A size as mkfs understands it: a number without a unit is KiB.
///
/// # Errors
/// If it is no size.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes =
        text.parse::<Size>().and_then(|size| size.bytes(1024)).map_err(|e| e.to_string())?;
    if bytes == 0 { Err("it must not be 0".into()) } else { Ok(bytes) }
}

/// Seconds, more than none.
///
/// # Errors
/// If it is no such time.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = number::seconds(text, 0.0..=1e9).map_err(|error| error.to_string())?;
    let seconds = Some(Duration::from_secs_f64(seconds));
    seconds.filter(|s| !s.is_zero()).ok_or_else(|| "it must be a time above 0".into())
}

/// Milliseconds.
pub(crate) fn millis(text: &str) -> Result<Duration, String> {
    let millis = number::count(text, 0..=u64::MAX).map_err(|error| error.to_string())?;
    Ok(Duration::from_millis(millis))
}

/// The smallest and the largest of something.
pub(super) fn low_high(text: &str) -> Result<(u64, u64), String> {
    let numbers = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let ascending = numbers.filter(|(low, high)| low <= high);
    ascending.ok_or_else(|| "give LOW,HIGH: the smallest and the largest file in bytes".into())
}

/// The word for a value on the command line.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_without_a_unit() {
        assert_eq!((bytes("4096"), bytes("1M"), block("64k")), (Ok(4096), Ok(1 << 20), Ok(65536)));
        assert!(bytes("0").is_err() && bytes("x").is_err() && block("2G").is_err());
    }

    #[test]
    fn numbers_have_bounds() {
        for (text, words) in [("0", "less than 1"), ("-1", "negative"), ("5G", "too large")] {
            let line = positive::<u32>(text).unwrap_err();
            assert!(line.contains(words), "{text}: {line}");
        }
        assert_eq!(positive::<u32>("7"), Ok(7));
        assert!(low_high("9,5").is_err() && low_high("5").is_err());
        assert_eq!(low_high("5,9"), Ok((5, 9)));
    }
}
