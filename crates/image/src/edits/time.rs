//! Moments, as `--mtime` takes them.

use extol_ondisk::Time;

use crate::error::{BuildError, Result};

/// What is done to the times of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeEdit {
    /// All of them are this moment.
    Set(Time),
    /// Those behind this moment are this moment.
    Clamp(Time),
}

impl TimeEdit {
    pub(super) fn apply(self, time: Time) -> Time {
        match self {
            Self::Set(moment) => moment,
            Self::Clamp(moment) => time.min(moment),
        }
    }
}

/// Reads `@SECONDS[.FRACTION]`, `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM:SS[.FRACTION]Z`. All are UTC.
///
/// # Errors
/// What is none of these.
pub fn parse_time(option: &str, text: &str) -> Result<Time> {
    let parsed = match text.strip_prefix('@') {
        Some(number) => decimal(number),
        None => calendar(text),
    };
    parsed.ok_or_else(|| {
        let why = format!(
            "{option} {text}: write @SECONDS since 1970, or a date of UTC such as 2024-02-29 or \
             2024-02-29T12:30:00Z"
        );
        BuildError::Refused(why)
    })
}

/// Seconds with a fraction; more digits than nanoseconds have are cut off. As pax writes times:
/// -1.5 is half a second before -1.
pub(crate) fn decimal(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let negative = whole.starts_with('-');
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let numeric = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if !numeric(digits) || !numeric(fraction) {
        return None;
    }
    let sec: i64 = whole.parse().ok()?;
    let nsec: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    match negative && nsec > 0 {
        true => Some(Time { sec: sec.checked_sub(1)?, nsec: 1_000_000_000 - nsec }),
        false => Some(Time { sec, nsec }),
    }
}

fn calendar(text: &str) -> Option<Time> {
    let (date, clock) = match text.split_once('T') {
        Some((date, clock)) => (date, clock.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, decimal(&format!("0.{fraction}"))?.nsec),
        None => (clock, 0),
    };
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let fits = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    fits.then(|| {
        let days = days_since_1970(year, month, day);
        Time { sec: days * 86_400 + hour * 3600 + minute * 60 + second, nsec: fraction }
    })
}

/// Three numbers of so many digits each.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut words = text.split(between);
    let mut out = [0; 3];
    for (number, digits) in out.iter_mut().zip(digits) {
        let word = words.next()?;
        if word.len() != digits || !word.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = word.parse().ok()?;
    }
    words.next().is_none().then_some(out)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    years + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use extol_ondisk::Time;

    use super::{TimeEdit, decimal, parse_time};

    #[test]
    fn moments() {
        let parse = |text| parse_time("--mtime", text).map(|time| (time.sec, time.nsec));
        for (text, sec, nsec) in [
            ("@0", 0, 0),
            ("@1700000000.5", 1_700_000_000, 500_000_000),
            ("@-1", -1, 0),
            ("@-1.5", -2, 500_000_000),
            ("@0.1234567899", 0, 123_456_789),
            ("1970-01-01", 0, 0),
            ("1969-12-31T23:59:59Z", -1, 0),
            ("2000-02-29", 951_782_400, 0),
            ("2024-02-29T12:30:00Z", 1_709_209_800, 0),
            ("2100-03-01T00:00:00.25Z", 4_107_542_400, 250_000_000),
            ("0001-01-01", -62_135_596_800, 0),
        ] {
            assert_eq!(parse(text).expect(text), (sec, nsec), "{text}");
        }
        for text in [
            "",
            "@",
            "@x",
            "@1.",
            "@.5",
            "@--1",
            "@+1",
            "now",
            "2023-02-29",
            "2024-13-01",
            "24-1-1",
            "2024-01-01T00:00:00",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00Z",
            "2024-01-00",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("--mtime {text}: write ")), "{error}");
        }
        assert_eq!(decimal("99999999999999999999"), None);
        assert_eq!(decimal("-9223372036854775808.1"), None);
    }

    #[test]
    fn set_and_clamped() {
        let at = |sec| Time { sec, nsec: 0 };
        assert_eq!(TimeEdit::Set(at(5)).apply(at(9)), at(5));
        assert_eq!(TimeEdit::Clamp(at(5)).apply(at(9)), at(5));
        assert_eq!(TimeEdit::Clamp(at(5)).apply(at(1)), at(1));
    }
}
