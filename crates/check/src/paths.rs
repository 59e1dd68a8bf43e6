//! Paths for the inodes that findings are about: the directories are read once more, only if there
//! are findings.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

use extol_ondisk::InodeNr;

use crate::dirs::{entry_at, text};
use crate::error::Result;
use crate::inodes::{Dir, DirContent, Inodes};
use crate::report::Finding;
use crate::vol::Vol;

const ROOT: u32 = InodeNr::ROOT.0;
/// Deeper directories are shown with their lowest names only.
const MAX_DEPTH: usize = 100;

/// Gives the findings the paths of their inodes.
pub(crate) fn add(
    vol: &Vol,
    inodes: &Inodes,
    dirs: &[Dir],
    findings: &mut [Finding],
) -> Result<()> {
    let mut wanted: HashSet<u32> = findings.iter().filter_map(|f| f.inode).collect();
    wanted.remove(&ROOT);
    if wanted.is_empty() {
        return label(findings, &HashMap::new());
    }
    let mut names: HashMap<u32, (u32, Vec<u8>)> = HashMap::new();
    // First the inodes themselves, then the directories above them, whose parents are known.
    for _ in 0..2 {
        for dir in dirs {
            look(vol, dir, &wanted, &mut names)?;
        }
        let mut above = HashSet::new();
        for (parent, _) in names.values() {
            let mut at = *parent;
            for _ in 0..MAX_DEPTH {
                if at == 0 || at == ROOT || names.contains_key(&at) || !above.insert(at) {
                    break;
                }
                at = inodes.get(at).map_or(0, |info| info.parent.load(Relaxed));
            }
        }
        if above.is_empty() {
            break;
        }
        wanted = above;
    }
    label(findings, &names)
}

fn label(findings: &mut [Finding], names: &HashMap<u32, (u32, Vec<u8>)>) -> Result<()> {
    for finding in findings {
        finding.path = finding.inode.and_then(|ino| path(ino, names));
    }
    Ok(())
}

fn path(ino: u32, names: &HashMap<u32, (u32, Vec<u8>)>) -> Option<String> {
    let mut parts = Vec::new();
    let mut at = ino;
    while at != ROOT {
        let (parent, name) = names.get(&at)?;
        parts.push(text(name));
        if parts.len() > MAX_DEPTH {
            return None;
        }
        at = *parent;
    }
    parts.reverse();
    Some(format!("/{}", parts.join("/")))
}

/// Notes the first name of each wanted inode in a directory.
fn look(
    vol: &Vol,
    dir: &Dir,
    wanted: &HashSet<u32>,
    names: &mut HashMap<u32, (u32, Vec<u8>)>,
) -> Result<()> {
    let mut area = |bytes: &[u8], from: usize| {
        let mut at = from;
        while let Some(entry) = entry_at(bytes, at, vol.geo.block_len()) {
            if wanted.contains(&entry.ino) && !matches!(entry.name, b"." | b".." | b"") {
                names.entry(entry.ino).or_insert_with(|| (dir.ino, entry.name.to_vec()));
            }
            at = entry.next;
        }
    };
    match &dir.content {
        DirContent::Inline(bytes) => {
            let (first, second) = bytes.split_at(bytes.len().min(60));
            area(first, 4);
            area(second, 0);
        }
        DirContent::Blocks { runs, .. } => {
            for run in runs {
                for block in run.pblk..run.pblk + run.len {
                    area(&vol.block(block)?, 0);
                }
            }
        }
    }
    Ok(())
}
