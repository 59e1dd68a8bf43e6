//! Times as touch(1) takes them: seconds, dates of ISO 8601, and stamps of POSIX. Without a zone
//! they are in UTC, as all times that the commands print.

use std::time::{SystemTime, UNIX_EPOCH};

use extol_vfs::{SetTime, Timestamp};

use crate::calendar;

/// Times to set.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub access: SetTime,
    pub modification: SetTime,
}

/// The year of the present.
pub fn this_year() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    calendar::date(i64::try_from(now).unwrap_or(0)).year
}

/// A time such as `@0`, `2024-01-31`, `2024-01-31 12:00:00.5 +0100`.
pub fn date(text: &str) -> Result<Timestamp, String> {
    let trimmed = text.trim();
    let time = match trimmed.strip_prefix('@') {
        Some(seconds) => since_1970(seconds),
        None => iso(trimmed),
    };
    time.ok_or_else(|| {
        format!("bad date {text:?}: give @SECONDS, or one as in 2024-01-31 12:00:00 +0100")
    })
}

/// A time such as 202401311200.30; without a year it is in `year`.
pub fn stamp(text: &str, year: i64) -> Result<Timestamp, String> {
    let read = || {
        let (digits, second) = match text.split_once('.') {
            Some((digits, second)) => (digits, two(second)?),
            None => (text, 0),
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let at = digits.len().checked_sub(8)?;
        let (begin, rest) = digits.split_at(at);
        let year = match begin.len() {
            0 => year,
            // As POSIX has it.
            2 => two(begin).map(|y| if y < 69 { 2000 + y } else { 1900 + y })?,
            4 => begin.parse().ok()?,
            _ => return None,
        };
        let part = |n: usize| two(rest.get(2 * n..2 * n + 2)?);
        seconds_of([year, part(0)?, part(1)?], [part(2)?, part(3)?, second])
    };
    let sec = read().ok_or_else(|| format!("bad time {text:?}: give [[CC]YY]MMDDhhmm[.ss]"))?;
    Ok(Timestamp { sec, nsec: 0 })
}

fn two(text: &str) -> Option<i64> {
    (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    text.parse().ok()
}

fn since_1970(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let sec: i64 = whole.parse().ok()?;
    let nsec = nanoseconds(fraction)?;
    // -1.5 is half a second before -1.
    match whole.starts_with('-') && nsec > 0 {
        true => Some(Timestamp { sec: sec.checked_sub(1)?, nsec: 1_000_000_000 - nsec }),
        false => Some(Timestamp { sec, nsec }),
    }
}

/// Nanoseconds of the digits behind a point.
fn nanoseconds(digits: &str) -> Option<u32> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nine: String = digits.chars().chain("000000000".chars()).take(9).collect();
    nine.parse().ok()
}

fn iso(text: &str) -> Option<Timestamp> {
    let (date, rest) = match text.find([' ', 'T', 't']) {
        Some(at) => (&text[..at], text[at + 1..].trim()),
        None => (text, ""),
    };
    let mut parts = date.split('-');
    let year = parts.next().filter(|year| year.len() == 4)?;
    let year: i64 = year.bytes().all(|b| b.is_ascii_digit()).then(|| year.parse().ok())??;
    let date = [year, two(parts.next()?)?, two(parts.next()?)?];
    if parts.next().is_some() {
        return None;
    }
    let zone_at = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (time, zone) = rest.split_at(zone_at);
    let mut parts = time.trim().split(':');
    let mut clock = [0, 0, 0];
    let mut nsec = 0;
    if !rest.is_empty() {
        clock[0] = two(parts.next()?)?;
        clock[1] = two(parts.next()?)?;
        if let Some(seconds) = parts.next() {
            let (whole, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, ""));
            clock[2] = two(whole)?;
            nsec = nanoseconds(fraction)?;
        }
        if parts.next().is_some() {
            return None;
        }
    }
    let sec = seconds_of(date, clock)?.checked_sub(zone_seconds(zone)?)?;
    Some(Timestamp { sec, nsec })
}

/// Seconds by which a zone is ahead of UTC.
fn zone_seconds(zone: &str) -> Option<i64> {
    let sign = match zone.chars().next() {
        None => return Some(0),
        Some('Z' | 'z') => return (zone.len() == 1).then_some(0),
        Some('+') => 1,
        _ => -1,
    };
    let digits = zone[1..].replacen(':', "", 1);
    let (hours, minutes) = match digits.len() {
        2 => (two(&digits)?, 0),
        4 => (two(digits.get(..2)?)?, two(digits.get(2..)?)?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Seconds since 1970 of a date and a time of day; `None` if there is no such date.
fn seconds_of(date: [i64; 3], clock: [i64; 3]) -> Option<i64> {
    let ([year, month, day], [hour, minute, second]) = (date, clock);
    let valid = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1 March of year 0, as in `calendar`.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    let days = days + (153 * m + 2) / 5 + day - 1 - 719_468;
    let sec = days * 86_400 + hour * 3600 + minute * 60 + second;
    let back = calendar::date(days * 86_400);
    ((back.year, back.month, back.day) == (year, month, day)).then_some(sec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (text, sec, nsec) in [
            ("@0", 0, 0),
            ("@-1.5", -2, 500_000_000),
            ("@1700000000.000000001", 1_700_000_000, 1),
            ("1970-01-01", 0, 0),
            ("2024-02-29 12:30", 1_709_209_800, 0),
            ("2024-02-29T12:30:15.25Z", 1_709_209_815, 250_000_000),
            ("2024-02-29 12:30:15 +0100", 1_709_206_215, 0),
            ("2024-02-29T12:30-05:30", 1_709_229_600, 0),
            ("1901-12-14", -2_147_472_000, 0),
        ] {
            assert_eq!(date(text).unwrap(), Timestamp { sec, nsec }, "{text}");
        }
        for text in [
            "",
            "@",
            "@x",
            "yesterday",
            "2023-02-29",
            "2024-13-01",
            "2024-01-01 25:00",
            "2024-01-01 1:00",
            "24-01-01",
            "2024-01-01 12:00 +1",
            "@1.x",
            "2024-01-01-01",
        ] {
            assert!(date(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stamps() {
        for (text, sec) in [
            ("02291230", 1_709_209_800),
            ("2402291230.15", 1_709_209_815),
            ("7001010000", 0),
            ("202402291230", 1_709_209_800),
        ] {
            assert_eq!(stamp(text, 2024).unwrap().sec, sec, "{text}");
        }
        for text in ["", "0229123", "022912300", "0230123a", "13011200", "01011200.5"] {
            assert!(stamp(text, 2024).is_err(), "{text}");
        }
    }

    #[test]
    fn years_go_both_ways() {
        for days in (-800_000..800_000).step_by(137) {
            let there = calendar::date(days * 86_400);
            let back = seconds_of([there.year, there.month, there.day], [0, 0, 0]);
            assert_eq!(back, Some(days * 86_400));
        }
    }
}
