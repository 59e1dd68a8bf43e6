//! `extol stat`: the counters of a live mount.
//!
//! The mount gives them as JSON in a virtual extended attribute of its root. The text form begins with what Linux
//! shows in `/proc/fs/jbd2/<device>/info`, line for line, and goes on with a table of everything else.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extol_fuse::STATS_XATTR;
use extol_journal::JournalStats;
use serde_json::Value;

use crate::args::StatArgs;
use crate::error::{Failure, Result, print};

/// Shows them.
pub fn run(args: &StatArgs) -> Result<()> {
    let text = read(&args.dir)?;
    let stats: Value = serde_json::from_str(&text).map_err(|error| Failure {
        line: format!("the mount's counters: {error}"),
        code: Failure::INTERNAL,
    })?;
    if args.json {
        return print(serde_json::to_string_pretty(&stats).unwrap_or(text) + "\n");
    }
    print(render(&stats))
}

fn read(dir: &Path) -> Result<String> {
    let fail = |error: rustix::io::Errno| match error {
        rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP => {
            Failure::new(format_args!("{} is not on a volume that extol has mounted", dir.display()))
        }
        rustix::io::Errno::NOTCONN => Failure::new(format_args!(
            "{}: the daemon has died; unmount (extol umount {0}) and mount again",
            dir.display()
        )),
        error => Failure::about(dir.display(), error),
    };
    let root = root_of(dir)?;
    let mut buffer = vec![0; 65536];
    let len = rustix::fs::getxattr(&root, STATS_XATTR, &mut buffer[..]).map_err(fail)?;
    buffer.truncate(len);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// The root of the mount that holds `dir`.
pub fn root_of(dir: &Path) -> Result<PathBuf> {
    let fail = |error: std::io::Error| match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOTCONN) => Failure::new(format_args!(
            "{}: the daemon has died; unmount (extol umount {0}) and mount again",
            dir.display()
        )),
        _ => Failure::about(dir.display(), error),
    };
    let mut root = dir.canonicalize().map_err(fail)?;
    let device = root.metadata().map_err(fail)?.dev();
    while let Some(parent) = root.parent() {
        if parent.metadata().map_err(fail)?.dev() != device {
            break;
        }
        root = parent.to_path_buf();
    }
    Ok(root)
}

/// The text form.
fn render(stats: &Value) -> String {
    let mut text = String::new();
    let journal = stats.get("journal").cloned().map(serde_json::from_value::<JournalStats>);
    if let Some(Ok(journal)) = journal {
        text.push_str(&journal.jbd2_info());
        text.push('\n');
    }
    if let Value::Object(sections) = stats {
        for (name, value) in sections {
            section(&mut text, name, value, 0);
        }
    }
    text
}

fn section(text: &mut String, name: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let name = name.replace('_', " ");
    // Writing to a string cannot fail.
    let _ = match value {
        Value::Object(fields) => {
            let _ = writeln!(text, "{indent}{name}:");
            for (name, value) in fields {
                section(text, name, value, depth + 1);
            }
            Ok(())
        }
        Value::Null => writeln!(text, "{indent}{name:<26} -"),
        Value::String(plain) => writeln!(text, "{indent}{name:<26} {plain}"),
        other => writeln!(text, "{indent}{name:<26} {other}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_tables() {
        let stats = serde_json::json!({"alloc": {"free_blocks": 7, "by_group": {"x": 1}}, "state": "clean", "error": null});
        let text = render(&stats);
        assert!(text.contains("alloc:\n  by group:\n    x "), "{text}");
        assert!(text.contains("  free blocks                7\n"), "{text}");
        assert!(text.contains("error                      -\n"), "{text}");
    }

    #[test]
    fn the_journal_comes_first_as_linux_shows_it() {
        let journal = extol_journal::Journal::open(extol_journal::JournalConfig {
            device: std::sync::Arc::new(extol_device::MemDevice::new(1 << 20)),
            block_size: extol_device::BlockSize::new(4096).unwrap(),
            blocks: 256,
            log: None,
            barrier: true,
            commit_interval: std::time::Duration::from_secs(5),
            async_commit: false,
            cache_bytes: 1 << 20,
            clock: std::sync::Arc::new(extol_service::SystemClock::new()),
        })
        .unwrap();
        let text = render(&serde_json::json!({"journal": journal.stats()}));
        assert!(text.starts_with("0 transactions (0 requested), each up to "), "{text}");
        assert!(text.contains("\njournal:\n"), "{text}");
    }
}
