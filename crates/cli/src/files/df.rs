//! `extol df`: how full volumes and mounts are.

use std::path::{Path, PathBuf};

use extol_cli_common::{Failure, Result, json_text, print, print_json};
use extol_proc::Shown as _;
use extol_vfs::{StatFs, bytes_text};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt as _;

use super::text::human;
use super::{Reading, Tree};
use crate::args::{DfArgs, VolumeArgs};
use crate::mounted::MountedVolume;
use crate::resize_mounted::mount_of;

/// Shows it.
pub fn df(args: &DfArgs) -> Result<()> {
    let mut failed = None;
    let mut rows = Vec::new();
    for source in &args.sources {
        match row(args, source) {
            Ok(row) => rows.push(row),
            Err(failure) => {
                failure.report();
                failed = Some(failure.code);
            }
        }
    }
    if args.json {
        print_json(json_text(&Report { volumes: rows })?)?;
    } else if !rows.is_empty() {
        print(table(args, &rows))?;
    }
    failed.map_or(Ok(()), |code| Err(Failure::silent(code)))
}

/// What one operand names: a volume, or the mount of one.
fn row(args: &DfArgs, source: &Path) -> Result<Row> {
    let mount = mount_of(source).filter(|_| args.options.is_empty());
    let volume = |source: &Path| VolumeArgs {
        options: args.options.clone(),
        keys: vec![],
        no_sandbox: args.no_sandbox,
        source: source.into(),
    };
    let about = |error| Failure::about(source.shown(), error);
    if let Some(dir) = mount {
        let reading = Reading::open(&volume(&dir), "df")?;
        let space = reading.fs().statfs().map_err(about);
        let root = MountedVolume::of(&dir, "df").map(|mounted| mounted.root);
        let row = space.and_then(|space| Ok(Row::new(&reading.image, Some(root?), &space)));
        reading.close(Ok(()))?;
        return row;
    }
    let tree = Tree::open(&volume(source), false)?;
    let space = tree.fs().statfs().map_err(about);
    tree.close(Ok(()))?;
    Ok(Row::new(source, None, &space?))
}

/// What is printed as JSON.
#[derive(Serialize, Debug)]
pub struct Report {
    volumes: Vec<Row>,
}

#[cfg(test)]
impl Report {
    /// One of each kind.
    pub fn example() -> Self {
        let space = StatFs {
            block_size: 1024,
            blocks: 10,
            blocks_free: 6,
            blocks_available: 5,
            inodes: 8,
            inodes_free: 7,
            name_max: 255,
        };
        let mounted = Row::new(Path::new("a\u{1b}.img"), Some("/mnt".into()), &space);
        Self { volumes: vec![mounted, Row::new(Path::new("b"), None, &space)] }
    }
}

/// How full one volume is.
#[derive(Serialize, Debug)]
struct Row {
    source: String,
    /// Where it is mounted.
    dir: Option<String>,
    bytes: u64,
    bytes_used: u64,
    bytes_available: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_free: u64,
}

impl Row {
    fn new(source: &Path, dir: Option<PathBuf>, space: &StatFs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
        let text = |path: &Path| bytes_text(path.as_os_str().as_bytes());
        Self {
            source: text(source),
            dir: dir.as_deref().map(text),
            bytes: bytes(space.blocks),
            bytes_used: bytes(space.blocks.saturating_sub(space.blocks_free)),
            bytes_available: bytes(space.blocks_available),
            inodes: space.inodes,
            inodes_used: space.inodes.saturating_sub(space.inodes_free),
            inodes_free: space.inodes_free,
        }
    }
}

/// The rows in columns, as df(1) has them.
fn table(args: &DfArgs, rows: &[Row]) -> String {
    let number = |bytes: u64| match args.human_readable {
        true => human(bytes),
        false => bytes.div_ceil(1024).to_string(),
    };
    let head = match (args.inodes, args.human_readable) {
        (true, _) => ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%", "Mounted on"],
        (_, true) => ["Filesystem", "Size", "Used", "Avail", "Use%", "Mounted on"],
        _ => ["Filesystem", "1K-blocks", "Used", "Available", "Use%", "Mounted on"],
    };
    let mut lines = vec![head.map(str::to_owned)];
    for row in rows {
        let (all, used, free) = match args.inodes {
            true => (row.inodes, row.inodes_used, row.inodes_free),
            false => (row.bytes, row.bytes_used, row.bytes_available),
        };
        let number = |value: u64| if args.inodes { value.to_string() } else { number(value) };
        let dir = row.dir.clone().unwrap_or_else(|| "-".into());
        lines.push([
            row.source.clone(),
            number(all),
            number(used),
            number(free),
            percent(used, free),
            dir,
        ]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for [source, all, used, free, share, dir] in &lines {
        let [w0, w1, w2, w3, w4] = widths[..] else { break };
        text += &format!("{source:<w0$} {all:>w1$} {used:>w2$} {free:>w3$} {share:>w4$} {dir}\n");
    }
    text
}

/// The share that is used of what ordinary users may have, rounded up.
fn percent(used: u64, free: u64) -> String {
    let all = u128::from(used) + u128::from(free);
    match all {
        0 => "-".into(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(all)),
    }
}
