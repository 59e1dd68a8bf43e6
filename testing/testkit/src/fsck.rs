//! The checkers of e2fsprogs: `e2fsck`, `debugfs`, `dumpe2fs`.

use crate::{Image, run, run_ok, tool};
use std::process::Command;
use std::time::Duration;

/// What e2fsck said.
#[derive(Debug, Clone)]
pub struct FsckReport {
    /// Exit code of e2fsck: 0 clean, bit 0 errors corrected, bit 2 errors left.
    pub code: i32,
    /// Everything it printed.
    pub output: String,
}

impl FsckReport {
    /// True if there was nothing to complain about.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.code == 0
    }

    /// Fails the test unless the volume is clean.
    ///
    /// # Panics
    /// If e2fsck found anything.
    #[track_caller]
    pub fn assert_clean(&self, what: &str) {
        assert!(
            self.is_clean(),
            "{what}: e2fsck ended with {}:\n{}",
            self.code,
            shorten(&self.output)
        );
    }

    /// Fails the test unless a repairing run did nothing but what belongs to every crash: it
    /// replayed the journal, finished orphans and brought summary counts up to date.
    ///
    /// # Panics
    /// If e2fsck had to repair more.
    #[track_caller]
    pub fn assert_only_recovered(&self, what: &str) {
        if let Some(repairs) = self.unexpected_repairs() {
            panic!("{what}: e2fsck ended with {}, it repaired:\n{repairs}", self.code);
        }
    }

    /// What a repairing run did beyond that which belongs to every crash; all that it printed if it
    /// failed.
    #[must_use]
    pub fn unexpected_repairs(&self) -> Option<String> {
        self.unexpected_repairs_but(|_| false)
    }

    /// As [`unexpected_repairs`](Self::unexpected_repairs), without the repairs (problem and
    /// question on one line) that are known to be none.
    #[must_use]
    pub fn unexpected_repairs_but(&self, mut known: impl FnMut(&str) -> bool) -> Option<String> {
        if self.code & !1 != 0 {
            return Some(shorten(&self.output));
        }
        let mut repaired = repairs(&self.output);
        repaired.retain(|repair| !known(repair));
        (!repaired.is_empty()).then(|| shorten(&repaired.join("\n")))
    }
}

/// The problems that e2fsck repaired, apart from those that belong to every crash: orphans, and the
/// summary counts of the superblock, which Linux, too, leaves out of date until the unmount. The
/// number of an external journal's device, which follows the machine's present devices, is no
/// repair either.
fn repairs(output: &str) -> Vec<String> {
    let allowed = [
        "Free blocks count wrong (",
        "Free inodes count wrong (",
        "orphan",
        "Superblock hint for external",
    ];
    let mut found = Vec::new();
    let mut before = "";
    for line in output.lines().filter(|l| !l.trim().is_empty()) {
        // The question stands behind the problem or on a line of its own.
        let alone = line.split("? ").next().is_some_and(|question| !question.contains(' '));
        let problem = if alone { format!("{before} {line}") } else { line.to_owned() };
        let is_repair =
            line.contains("? yes") || line.contains("FIXED.") || line.contains("CLEARED.");
        if is_repair && !allowed.iter().any(|a| problem.to_lowercase().contains(&a.to_lowercase()))
        {
            found.push(problem);
        }
        before = line;
    }
    found
}

fn shorten(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= 60 {
        return text.to_owned();
    }
    format!("{}\n… {} lines more", lines[..60].join("\n"), lines.len() - 60)
}

fn journal_args(image: &Image, command: &mut Command) {
    if let Some(journal) = &image.journal {
        command.arg("-j").arg(journal);
    }
}

fn e2fsck_run(mut command: Command, image: &Image, mode: &str) -> FsckReport {
    command.arg(mode);
    journal_args(image, &mut command);
    let done = run(command.arg(&image.path), Duration::from_secs(300));
    FsckReport { code: done.code.unwrap_or(-1), output: done.output }
}

/// `e2fsck -fn`: looks at everything, changes nothing.
#[must_use]
pub fn e2fsck(image: &Image) -> FsckReport {
    e2fsck_run(tool("e2fsck"), image, "-fn")
}

/// The same by the e2fsck of `scripts/newest-e2fsprogs.sh` ([`Need::NewE2fsck`](crate::Need)).
#[must_use]
pub fn new_e2fsck(image: &Image) -> FsckReport {
    e2fsck_run(Command::new(crate::need::new_e2fsck_path()), image, "-fn")
}

/// `e2fsck -fy`: recovers and repairs.
#[must_use]
pub fn e2fsck_fix(image: &Image) -> FsckReport {
    e2fsck_run(tool("e2fsck"), image, "-fy")
}

/// Output of one debugfs request on an image that nothing has mounted read-write.
///
/// # Panics
/// If debugfs fails.
#[must_use]
pub fn debugfs(image: &Image, request: &str) -> String {
    let said = run_ok(tool("debugfs").args(["-R", request]).arg(&image.path));
    // Its version comes by another way, and so at any place.
    match said.split_once("debugfs 1.") {
        Some((before, rest)) => {
            before.to_owned() + rest.split_once('\n').map_or("", |(_, after)| after)
        }
        None => said,
    }
}

/// `dumpe2fs -h`.
///
/// # Panics
/// If dumpe2fs fails.
#[must_use]
pub fn dump_super(image: &Image) -> String {
    run_ok(tool("dumpe2fs").arg("-h").arg(&image.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Need, Scratch, require};

    #[test]
    fn counts_and_orphans_are_no_repairs() {
        let quiet = "x: recovering journal\nOrphan file (inode 12) block 0 is not clean.\nClear? \
            yes\nFree blocks count wrong (15, counted=14).\nFix? yes\n\nClearing orphaned inode 12 \
            (uid=0)\n";
        assert_eq!(repairs(quiet), Vec::<String>::new());
        let group = "Free blocks count wrong for group #0 (3, counted=2).\nFix? yes\n";
        assert_eq!(repairs(group).len(), 1);
        assert_eq!(repairs("Inode 12 has illegal block(s).  Clear? yes\n").len(), 1);
    }

    #[test]
    fn a_fresh_image_is_clean_and_a_damaged_one_is_not() {
        if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Tool("debugfs")]) {
            return;
        }
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4", "-b", "1024"]);
        e2fsck(&image).assert_clean("fresh");
        assert!(dump_super(&image).contains("clean"));
        assert!(debugfs(&image, "stat <2>").contains("Type: directory"));
        let report = {
            // The root directory's first block: damage that needs a repair.
            let line = debugfs(&image, "blocks <2>");
            let block: u64 =
                line.split_whitespace().find_map(|w| w.parse().ok()).expect("a block number");
            image.write_at(block * 1024, &[0xff; 64]);
            e2fsck(&image)
        };
        assert!(!report.is_clean(), "{}", report.output);
        let fixed = e2fsck_fix(&image);
        assert!(std::panic::catch_unwind(|| fixed.assert_only_recovered("damaged")).is_err());
        e2fsck(&image).assert_clean("repaired");
    }
}
