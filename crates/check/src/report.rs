//! What a check found.

use std::fmt;

use serde::Serialize;

pub use crate::kind::Kind;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// The volume is damaged.
    Error,
    /// Worth knowing, but no damage: a counter that every mount brings up to date, an orphan that
    /// recovery finishes.
    Note,
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// What exactly, as a sentence.
    pub what: String,
    /// The inode that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u32>,
    /// The block of the volume that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// The group that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// A path of the inode, if one was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// An error that `e2fsck -fn` does not count as one (see the crate's documentation).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub beyond_e2fsck: bool,
}

impl Finding {
    pub(crate) fn error(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            severity: Severity::Error,
            what: what.into(),
            inode: None,
            block: None,
            group: None,
            path: None,
            beyond_e2fsck: false,
        }
    }

    pub(crate) fn note(kind: Kind, what: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(kind, what) }
    }

    pub(crate) fn inode(self, ino: u32) -> Self {
        Self { inode: Some(ino), ..self }
    }

    pub(crate) fn block(self, nr: u64) -> Self {
        Self { block: Some(nr), ..self }
    }

    pub(crate) fn group(self, group: u32) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Marks an error that e2fsck passes over.
    pub(crate) fn beyond(self) -> Self {
        Self { beyond_e2fsck: true, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Note => "note",
        };
        write!(f, "{severity}: {}: ", self.kind)?;
        if let Some(ino) = self.inode {
            write!(f, "inode {ino}")?;
            if let Some(path) = &self.path {
                write!(f, " ({path})")?;
            }
            f.write_str(": ")?;
        }
        if let Some(group) = self.group {
            write!(f, "group {group}: ")?;
        }
        if let Some(block) = self.block {
            write!(f, "block {block}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// Collects findings; keeps the first `max`, counts all.
#[derive(Debug)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    errors: u64,
    notes: u64,
    /// Errors that e2fsck counts, too.
    common: u64,
    max: usize,
}

impl Findings {
    pub(crate) fn new(max: usize) -> Self {
        Self { list: Vec::new(), errors: 0, notes: 0, common: 0, max }
    }

    pub(crate) fn push(&mut self, finding: Finding) {
        match finding.severity {
            Severity::Error => self.errors += 1,
            Severity::Note => self.notes += 1,
        }
        if finding.severity == Severity::Error && !finding.beyond_e2fsck {
            self.common += 1;
        }
        if self.list.len() < self.max {
            self.list.push(finding);
        }
    }

    /// True if another finding of this length would only be counted: its text need not be made.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.errors += other.errors;
        self.notes += other.notes;
        self.common += other.common;
        let room = self.max.saturating_sub(self.list.len());
        self.list.extend(other.list.into_iter().take(room));
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }

    pub(crate) fn list_mut(&mut self) -> &mut Vec<Finding> {
        &mut self.list
    }

    pub(crate) fn into_parts(self) -> (Vec<Finding>, u64, u64, u64) {
        (self.list, self.errors, self.notes, self.common)
    }
}

/// What was replayed into memory before the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// Transactions in the log.
    pub transactions: u32,
    /// Blocks that they change.
    pub blocks: u32,
    /// Copies that a revoke record cancelled.
    pub revoked: u32,
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Inodes in use.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub specials: u64,
    /// Names in directories, without `.` and `..`.
    pub names: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Blocks on the volume.
    pub blocks_total: u64,
    /// Inodes on the volume.
    pub inodes_total: u64,
    /// Orphans that the next mount deletes or truncates.
    pub orphans: u64,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// True if there are no errors.
    pub clean: bool,
    /// Number of errors, also those that are not in `findings`.
    pub errors: u64,
    /// Number of notes, also those that are not in `findings`.
    pub notes: u64,
    /// Errors that `e2fsck -fn` counts as errors, too.
    pub errors_of_e2fsck: u64,
    /// The journal was replayed into memory first: what was checked is the volume as it will be
    /// after recovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
    /// What was checked.
    pub counts: Counts,
    /// The first findings, in the order of the passes.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True if there are no errors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// True if there are errors of this kind among the kept findings.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.findings.iter().any(|f| f.kind == kind && f.severity == Severity::Error)
    }
}

/// The end of a noun behind this number.
fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let kept = self.findings.len() as u64;
        let all = self.errors.saturating_add(self.notes);
        if all > kept {
            writeln!(f, "... and {} more", all - kept)?;
        }
        let c = &self.counts;
        write!(
            f,
            "{}: {} error{}, {} note{}; {} of {} inodes and {} of {} blocks in use",
            match (self.clean, self.errors_of_e2fsck) {
                (true, _) => "clean",
                (false, 0) => "DAMAGED, though e2fsck accepts it",
                (false, _) => "DAMAGED",
            },
            self.errors,
            plural(self.errors),
            self.notes,
            plural(self.notes),
            c.inodes,
            c.inodes_total,
            c.blocks,
            c.blocks_total
        )?;
        if let Some(replayed) = &self.replayed {
            let n = replayed.transactions;
            let s = plural(n.into());
            write!(f, " (after replaying {n} transaction{s} in memory)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        let mut names: Vec<&str> = Kind::ALL.iter().map(|k| k.name()).collect();
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }

    #[test]
    fn findings_are_counted_beyond_the_limit() {
        let mut all = Findings::new(2);
        for n in 0..5 {
            all.push(Finding::error(Kind::LinkCount, "x").inode(n));
        }
        all.push(Finding::error(Kind::DirDuplicate, "y").beyond());
        all.push(Finding::note(Kind::State, "z"));
        let (list, errors, notes, common) = all.into_parts();
        assert_eq!((list.len(), errors, notes, common), (2, 6, 1, 5));
        let mut finding = list[1].clone().block(7);
        finding.path = Some("/a".into());
        assert_eq!(finding.to_string(), "error: link_count: inode 1 (/a): block 7: x");
    }
}
