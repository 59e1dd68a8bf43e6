//! Dates of seconds since 1970, in UTC.

/// A date and a time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date {
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    /// 0 is Sunday.
    pub weekday: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

/// The date of a time.
pub fn date(sec: i64) -> Date {
    let (days, second) = (sec.div_euclid(86400), sec.rem_euclid(86400));
    // 1 January 1970 was a Thursday.
    let weekday = (days + 4).rem_euclid(7);
    // The calendar repeats every 400 years of 146097 days; count from 1 March of year 0.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Date { year, month, day, weekday, hour, minute, second }
}

impl Date {
    /// As ctime(3) writes it.
    pub fn ctime(self) -> String {
        const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let name = |names: &[&'static str], at: i64| {
            usize::try_from(at).ok().and_then(|at| names.get(at)).copied().unwrap_or_default()
        };
        format!(
            "{} {} {:2} {:02}:{:02}:{:02} {}",
            name(&WEEKDAYS, self.weekday),
            name(&MONTHS, self.month - 1),
            self.day,
            self.hour,
            self.minute,
            self.second,
            self.year
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (sec, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (-1, "Wed Dec 31 23:59:59 1969"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
            (15_032_385_535, "Thu May 10 22:38:55 2446"),
        ] {
            assert_eq!(date(sec).ctime(), text);
        }
    }
}
