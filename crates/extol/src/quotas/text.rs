//! Requests about quotas as text, for a volume that another process has open, and their answers.
//!
//! ```text
//! report KIND FROM          ─►  grace SPACE INODES
//!                               ID SPACE INODES SOFT HARD SOFT HARD TIME TIME   from FROM on
//!                               more                                            if not all fit
//! limits KIND ID S H S H    ─►  (nothing; a limit that stays is -)
//! grace KIND SPACE INODES   ─►  (nothing; a time that stays is -)
//! ```

use std::str::FromStr;

use super::{Entry, Kind, Limits, Quota};

/// Entries of one answer.
pub(crate) const MOST: usize = 100;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Entries from this id on.
    Report(Kind, u32),
    /// Limits of an id.
    Limits(Kind, u32, Limits),
    /// Grace times for space and inodes.
    Grace(Kind, Option<u32>, Option<u32>),
}

impl Request {
    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        match *self {
            Self::Report(kind, from) => format!("report {} {from}", kind.name()),
            Self::Limits(kind, id, limits) => {
                let Limits { space_soft, space_hard, inode_soft, inode_hard } = limits;
                let words = [space_soft, space_hard, inode_soft, inode_hard].map(word);
                format!("limits {} {id} {}", kind.name(), words.join(" "))
            }
            Self::Grace(kind, space, inodes) => {
                format!("grace {} {} {}", kind.name(), word(space), word(inodes))
            }
        }
    }

    /// From text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let kind = |name| Kind::ALL.into_iter().find(|kind| kind.name() == name);
        match words[..] {
            ["report", of, from] => Some(Self::Report(kind(of)?, from.parse().ok()?)),
            ["limits", of, id, ss, sh, is, ih] => {
                let limits = Limits {
                    space_soft: value(ss)?,
                    space_hard: value(sh)?,
                    inode_soft: value(is)?,
                    inode_hard: value(ih)?,
                };
                Some(Self::Limits(kind(of)?, id.parse().ok()?, limits))
            }
            ["grace", of, space, inodes] => {
                Some(Self::Grace(kind(of)?, value(space)?, value(inodes)?))
            }
            _ => None,
        }
    }
}

fn word<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn value<T: FromStr>(word: &str) -> Option<Option<T>> {
    if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
}

/// What of a quota file the answer to a report has.
pub(crate) fn answer(quota: &Quota, from: u32) -> Vec<String> {
    let mut lines = vec![format!("grace {} {}", quota.space_grace, quota.inode_grace)];
    let wanted = quota.entries.iter().filter(|entry| entry.id >= from);
    lines.extend(wanted.clone().take(MOST).map(line));
    if wanted.count() > MOST {
        lines.push("more".to_owned());
    }
    lines
}

fn line(entry: &Entry) -> String {
    let e = entry;
    let longs = [
        e.space,
        e.inodes,
        e.space_soft,
        e.space_hard,
        e.inode_soft,
        e.inode_hard,
        e.space_time,
        e.inode_time,
    ];
    longs.into_iter().fold(e.id.to_string(), |line, number| format!("{line} {number}"))
}

/// Adds an answer to what earlier ones have said of a quota file. The id from which to ask again,
/// if that is not all.
#[must_use]
pub fn add_answer(quota: &mut Quota, lines: &[String]) -> Option<u32> {
    let mut more = false;
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        match (&words[..], &numbers[..]) {
            (["more"], _) => more = true,
            (["grace", ..], &[space, inodes]) => {
                let short = |seconds| u32::try_from(seconds).unwrap_or(u32::MAX);
                (quota.space_grace, quota.inode_grace) = (short(space), short(inodes));
            }
            (_, &[id, space, inodes, ss, sh, is, ih, st, it]) => quota.entries.push(Entry {
                id: u32::try_from(id).unwrap_or(u32::MAX),
                space,
                inodes,
                space_soft: ss,
                space_hard: sh,
                inode_soft: is,
                inode_hard: ih,
                space_time: st,
                inode_time: it,
            }),
            _ => {}
        }
    }
    let last = quota.entries.last().map(|entry| entry.id);
    last.and_then(|last| last.checked_add(1)).filter(|_| more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_text_and_back() {
        let limits =
            Limits { space_soft: Some(0), inode_hard: Some(u64::MAX), ..Limits::default() };
        for request in [
            Request::Report(Kind::Group, u32::MAX),
            Request::Limits(Kind::Project, 7, limits),
            Request::Grace(Kind::User, None, Some(60)),
        ] {
            assert_eq!(Request::parse(&request.to_text()), Some(request));
            assert!(request.to_text().len() < 200);
        }
        for bad in ["", "report", "report us 0", "report user -1", "limits user 1 - - -", "grace"] {
            assert_eq!(Request::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn long_reports_come_in_parts() {
        let entry = |id| Entry { space: u64::from(id) * 3, inode_time: 5, ..Entry::new(id) };
        let quota = Quota {
            kind: Kind::User,
            space_grace: 1,
            inode_grace: 2,
            entries: (0..250).map(|n| entry(n * 17_179_869)).collect(),
            file: None,
        };
        let mut found = Quota { space_grace: 0, inode_grace: 0, entries: Vec::new(), ..quota };
        let (mut from, mut parts) = (Some(0), 0);
        while let Some(start) = from {
            let lines = answer(&quota, start);
            assert!(lines.join("\n").len() < 16 << 10);
            from = add_answer(&mut found, &lines);
            parts += 1;
        }
        assert_eq!((parts, &found), (3, &quota));
        assert_eq!(
            add_answer(&mut found, &["more".into(), "x y".into()]),
            Some(250 * 17_179_869 - 17_179_868)
        );
    }
}
