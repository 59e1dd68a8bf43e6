//! The text form of a journal, block by block.

use std::fmt::Write as _;

use extol_cli_common::counted;
use extol_jbd2::inspect::{
    BlockReport, FastCommitReport, FcOutcome, FcTagReport, JournalReport, Outcome, State,
};

/// The text form of a journal.
pub(super) struct JournalText<'a>(pub &'a JournalReport);

impl std::fmt::Display for JournalText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sb = &self.0.superblock;
        let features =
            if sb.features.is_empty() { "none".to_owned() } else { sb.features.join(" ") };
        writeln!(
            f,
            "journal:         version {}, checksums {}, features {features}",
            sb.version, sb.checksum
        )?;
        writeln!(f, "uuid:            {} ({} users)", sb.uuid, sb.users)?;
        writeln!(f, "size:            {} blocks of {} bytes", sb.blocks, sb.block_size)?;
        writeln!(f, "log:             blocks {} to {}", sb.first, sb.log_end.saturating_sub(1))?;
        if let Some((first, count)) = sb.fast_commit {
            writeln!(f, "fast commits:    {count} blocks from {first}")?;
        }
        match sb.start {
            0 => writeln!(f, "state:           empty, next transaction {}", sb.sequence)?,
            start => writeln!(
                f,
                "state:           begins at block {start} with transaction {}",
                sb.sequence
            )?,
        }
        if sb.errno != 0 {
            writeln!(f, "error:           the journal was aborted with error {}", sb.errno)?;
        }
        writeln!(f)?;
        for block in &self.0.blocks {
            f.write_str(&block_text(block))?;
        }
        self.recovery(f)
    }
}

impl JournalText<'_> {
    fn recovery(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let recovery = &self.0.recovery;
        writeln!(f)?;
        if let Some(reason) = &recovery.refused {
            return writeln!(f, "recovery:        refused: {reason}");
        }
        if !recovery.needed {
            return writeln!(f, "recovery:        not needed");
        }
        writeln!(
            f,
            "recovery:        replays {} ({} up to {}): {} to write in place, {} revoked by {}",
            counted(recovery.transactions, "transaction"),
            recovery.first_tid,
            recovery.end_tid.wrapping_sub(1),
            counted(recovery.blocks, "block"),
            match recovery.revoked_copies {
                1 => "1 copy".to_owned(),
                copies => format!("{copies} copies"),
            },
            counted(recovery.revoke_records, "record")
        )?;
        if recovery.fast_commits != "none" {
            writeln!(f, "fast commits:    {}", recovery.fast_commits)?;
        }
        for commit in &self.0.fast_commits {
            let FastCommitReport { block, blocks, tid, records, outcome } = commit;
            let tid =
                tid.map_or("an unknown transaction".to_owned(), |tid| format!("transaction {tid}"));
            let outcome = match outcome {
                FcOutcome::Valid => "valid: recovery applies it",
                FcOutcome::Void => "void: a leftover",
                FcOutcome::Torn => "torn: it was never durable",
            };
            let last = block.saturating_add(blocks.saturating_sub(1));
            writeln!(
                f,
                "{:17}blocks {block} to {last}, {tid}, {}, {outcome}",
                "",
                counted(*records, "record")
            )?;
        }
        Ok(())
    }
}

fn block_text(block: &BlockReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    match block {
        BlockReport::Descriptor { block, tid, state, checksum, tags } => {
            let _ = writeln!(
                text,
                "{block:>8}  descriptor   transaction {tid}, {}{}{}",
                counted(tags.len() as u64, "tag"),
                checksum_suffix(*checksum),
                state_suffix(*state)
            );
            for tag in tags {
                let copy = tag.copy.map_or("overwritten".to_owned(), |copy| copy.to_string());
                let flags = if tag.flags.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", tag.flags.join(" "))
                };
                let _ = writeln!(
                    text,
                    "{copy:>18}  copy of block {}{flags}{}",
                    tag.home,
                    checksum_suffix(tag.checksum)
                );
            }
        }
        BlockReport::Revoke { block, tid, state, checksum, records } => {
            let list = match records {
                Some(records) => records.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
                None => "impossible count".to_owned(),
            };
            let _ = writeln!(
                text,
                "{block:>8}  revoke       transaction {tid}{}{}: {list}",
                checksum_suffix(*checksum),
                state_suffix(*state)
            );
        }
        BlockReport::Commit { block, tid, state, checksum, time } => {
            let _ = writeln!(
                text,
                "{block:>8}  commit       transaction {tid} at {}.{:09}{}{}",
                time.sec,
                time.nsec,
                checksum_suffix(*checksum),
                state_suffix(*state)
            );
        }
        BlockReport::Other { block, tid, what } => {
            let _ = writeln!(text, "{block:>8}  {what}, transaction {tid}");
        }
        BlockReport::Unused { block, count } => {
            let _ = writeln!(text, "{block:>8}  {count} blocks without a header");
        }
        BlockReport::FastCommit { block, tags, problem } => {
            let _ = writeln!(text, "{block:>8}  fast-commit block of {} tags", tags.len());
            for tag in tags {
                let _ = writeln!(text, "{:>20}{}", "", fast_commit_text(tag));
            }
            if let Some(problem) = problem {
                let _ = writeln!(text, "{:>20}{problem}", "");
            }
        }
        BlockReport::Unreadable { block, error } => {
            let _ = writeln!(text, "{block:>8}  unreadable: {error}");
        }
    }
    text
}

fn fast_commit_text(tag: &FcTagReport) -> String {
    match tag {
        FcTagReport::Head { tid, features } => {
            format!("head of transaction {tid}, features {features:#x}")
        }
        FcTagReport::AddRange { ino, block, len, start, unwritten } => {
            let unwritten = if *unwritten { ", unwritten" } else { "" };
            format!("inode {ino}: blocks {block} + {len} are at {start}{unwritten}")
        }
        FcTagReport::DelRange { ino, block, len } => {
            format!("inode {ino}: blocks {block} + {len} are gone")
        }
        FcTagReport::Creat { parent, ino, name } => {
            format!("create {name:?} in {parent}: inode {ino}")
        }
        FcTagReport::Link { parent, ino, name } => {
            format!("link {name:?} in {parent}: inode {ino}")
        }
        FcTagReport::Unlink { parent, ino, name } => {
            format!("unlink {name:?} in {parent}: inode {ino}")
        }
        FcTagReport::Inode { ino, bytes, mode, links, size, flags } => format!(
            "inode {ino}: mode {mode}, {}, size {size}, flags {flags:#x} \
             ({bytes} bytes of the inode)",
            counted(*links, "link")
        ),
        FcTagReport::Pad => "padding".to_owned(),
        FcTagReport::DataChecksums { blocks, first } => {
            format!("checksums of {}, the first at {first}", counted(*blocks as u64, "data block"))
        }
        FcTagReport::Tail { tid, checksum } => {
            format!("tail of transaction {tid}{}", checksum_suffix(*checksum))
        }
    }
}

fn checksum_suffix(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::None => "",
        Outcome::Good => ", checksum good",
        Outcome::Bad => ", checksum BAD",
    }
}

fn state_suffix(state: State) -> &'static str {
    match state {
        State::Live => "",
        State::Incomplete => ", incomplete",
        State::Stale => ", stale",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_jbd2::inspect::TagReport;

    #[test]
    fn descriptor_and_revoke_blocks() {
        let descriptor = BlockReport::Descriptor {
            block: 7,
            tid: 3,
            state: State::Live,
            checksum: Outcome::Good,
            tags: vec![TagReport {
                home: 99,
                copy: Some(8),
                flags: vec!["last"],
                checksum: Outcome::Bad,
            }],
        };
        assert_eq!(
            block_text(&descriptor),
            concat!(
                "       7  descriptor   transaction 3, 1 tag, checksum good\n",
                "                 8  copy of block 99 [last], checksum BAD\n"
            )
        );
        let revoke = BlockReport::Revoke {
            block: 9,
            tid: 3,
            state: State::Stale,
            checksum: Outcome::None,
            records: Some(vec![4, 5]),
        };
        assert_eq!(block_text(&revoke), "       9  revoke       transaction 3, stale: 4 5\n");
    }
}
