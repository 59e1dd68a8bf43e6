//! Compares what a recovered volume shows with what the load did.
//!
//! Names: the tree equals the tree after the first `k` steps, for a `k` that is at least what was
//! promised and at most the number of steps begun. (Changes of metadata become durable in their
//! order.)
//!
//! Contents of each file of that tree: a byte is one that some version since the last promise had
//! at this place, and the size is between the smallest and the largest of their sizes. Zeros are
//! also legal
//! - behind the smallest end since the promise, once the size grew without a write (what was
//!   written behind that end may be lost while both changes of the size are durable);
//! - in the rest of the block in which the end was cut off.
//!
//! With [`Rules::fast_commits`] names may also be older and newer ones together, as
//! [`closure`](super::closure) has it.
//!
//! A file of fs-verity has the contents that it had when it became one, and their digest; once that
//! is promised, it is one.
//!
//! With [`Rules::stale_unsynced`] (the log's record may overtake file data: asynchronous commits) a
//! byte may be anything unless all versions since the promise agree on the whole block. With
//! [`Rules::missing_data`] it may be zero there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::history::{Files, History, Version, Zeros};
use super::tree::{self, Id, Line, Tree};
use crate::view::View;

/// What a variant does not promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Bytes that were never synced may be anything.
    pub stale_unsynced: bool,
    /// The recovery does not compare the file data of the last fast commit, which was not
    /// acknowledged.
    pub missing_data: bool,
    /// The volume has fast commits: an fsync may leave behind what has nothing to do with it.
    pub fast_commits: bool,
    /// Block size of the volume.
    pub block: usize,
}

/// A cut, as a history sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// Steps begun.
    pub begun: usize,
    /// Promises made.
    pub promised: usize,
}

/// Verifies one actor's part of a recovered volume.
///
/// # Errors
/// What is wrong, in lines.
pub fn verify(history: &History, moment: Moment, view: &View, rules: Rules) -> Result<(), String> {
    if let Some(common) = history.common {
        super::common::verify(history, common, moment, view, rules)?;
    }
    let strict = verify_in_order(history, moment, view, rules);
    if strict.is_err() && rules.fast_commits {
        return super::closure::verify(history, moment, view, rules);
    }
    strict
}

fn verify_in_order(
    history: &History,
    moment: Moment,
    view: &View,
    rules: Rules,
) -> Result<(), String> {
    let promises = &history.promises[..moment.promised];
    let least = promises.iter().map(|p| p.names).max().unwrap_or(0);
    let lines = view.lines_of(&history.prefix);
    let hash = tree::hash(&lines);
    let begun = moment.begun.min(history.steps.len());
    let empty = Tree::default();
    let tree_at = |k: usize| if k == 0 { &empty } else { &*history.steps[k - 1].tree };
    let hash_at = |k: usize| if k == 0 { tree::hash(&[]) } else { history.steps[k - 1].hash };
    let mut problem = None;
    let mut seen: Option<*const Tree> = None;
    for k in (least..=begun).filter(|k| hash_at(*k) == hash) {
        let tree = tree_at(k);
        if seen.replace(tree) == Some(std::ptr::from_ref(tree)) {
            continue;
        }
        match contents(history, moment, tree, view, rules) {
            Ok(()) => return Ok(()),
            Err(why) => problem = Some(format!("names are as after {k} steps, but {why}")),
        }
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    let distance = |k: &usize| differences(&tree_at(*k).lines(), &lines).len();
    let nearest = (least..=begun).min_by_key(distance).unwrap_or(least);
    let mut text = match (0..least).rfind(|k| hash_at(*k) == hash) {
        Some(k) => {
            format!(
                "promised operations are lost: names are as after {k} steps, {least} were promised"
            )
        }
        None => {
            format!(
                "names are as they never were between steps {least} and {begun}; nearest is \
                    {nearest}"
            )
        }
    };
    for line in differences(&tree_at(nearest).lines(), &lines).into_iter().take(8) {
        text.push_str("\n  ");
        text.push_str(&line);
    }
    Err(text)
}

fn contents(
    history: &History,
    moment: Moment,
    tree: &Tree,
    view: &View,
    rules: Rules,
) -> Result<(), String> {
    let promised = Promised::of(history, moment);
    for (path, id) in tree.names() {
        let Some(found) = view.content_of(&history.prefix, path) else { continue };
        let digest = view.digest_of(&history.prefix, path);
        promised
            .content(id, found, rules)
            .and_then(|()| promised.seal(id, found, digest))
            .map_err(|why| format!("file {path}: {why}"))?;
    }
    Ok(())
}

/// What the contents of files must be.
pub(super) struct Promised<'a> {
    history: &'a History,
    moment: Moment,
    /// The contents as of so many steps.
    lowest: BTreeMap<Id, usize>,
    all: usize,
}

impl<'a> Promised<'a> {
    pub fn of(history: &'a History, moment: Moment) -> Self {
        let mut lowest: BTreeMap<Id, usize> = BTreeMap::new();
        let mut all = 0;
        for promise in &history.promises[..moment.promised] {
            match promise.files {
                Files::None => {}
                Files::All => all = all.max(promise.steps),
                Files::One(id) => {
                    let least = lowest.entry(id).or_default();
                    *least = promise.steps.max(*least);
                }
            }
        }
        Self { history, moment, lowest, all }
    }

    /// The contents of a file as of so many steps are promised.
    fn least(&self, id: Id) -> usize {
        self.lowest.get(&id).copied().unwrap_or(0).max(self.all)
    }

    /// Verifies that a file is one of fs-verity, with all its contents and its digest, or is none
    /// at all. (That it could be read shows that its tree fits its digest.)
    pub fn seal(&self, id: Id, found: &[u8], digest: Option<&[u8]>) -> Result<(), String> {
        let seal = self.history.seals.get(&id);
        let Some(digest) = digest else {
            return match seal {
                Some(seal) if seal.step < self.least(id) => {
                    Err("is none of fs-verity, which was promised".into())
                }
                _ => Ok(()),
            };
        };
        let Some(seal) = seal.filter(|seal| seal.step < self.moment.begun) else {
            return Err("is one of fs-verity, which was not asked for".into());
        };
        let contents = self.history.content(id);
        if contents.len() != found.len() || !contents.has(0, found) {
            return Err("is one of fs-verity with other contents".into());
        }
        if seal.digest == digest { Ok(()) } else { Err("has another digest".into()) }
    }

    /// Verifies what a file holds.
    pub fn content(&self, id: Id, found: &[u8], rules: Rules) -> Result<(), String> {
        let Some(versions) = self.history.files.get(&id) else { return Ok(()) };
        let least = self.least(id);
        let first = versions.partition_point(|v| v.step < least).saturating_sub(1);
        let end = versions.partition_point(|v| v.step < self.moment.begun);
        verify_file(&versions[first.min(end)..end], found, rules)
    }
}

/// Bytes compared at once.
const PIECE: usize = 512;

fn verify_file(versions: &[Version], found: &[u8], rules: Rules) -> Result<(), String> {
    let Some(first) = versions.first() else { return Ok(()) };
    let least = versions.iter().map(|v| v.content.len()).min().unwrap_or(0);
    let most = versions.iter().map(|v| v.content.len()).max().unwrap_or(0);
    if found.len() < least || found.len() > most {
        return Err(format!("has {} bytes, not {least} to {most}", found.len()));
    }
    let grown = versions.iter().rposition(|v| v.zeros == Zeros::Grown).unwrap_or(0);
    let hole_from = versions[..grown].iter().map(|v| v.content.len()).min().unwrap_or(usize::MAX);
    let zero_is_legal = |at: usize| {
        let cut = |v: &Version| match v.zeros {
            Zeros::Cut(end) => (end..end.next_multiple_of(rules.block)).contains(&at),
            _ => false,
        };
        at >= hole_from || versions.iter().skip(1).any(cut)
    };
    for (nr, piece) in found.chunks(PIECE).enumerate() {
        let start = nr * PIECE;
        if versions.iter().rev().any(|v| v.content.has(start, piece)) {
            continue;
        }
        for (at, byte) in (start..).zip(piece) {
            let had = |v: &Version| v.content.byte(at) == Some(*byte);
            if versions.iter().any(had) || (*byte == 0 && zero_is_legal(at)) {
                continue;
            }
            let lax = rules.stale_unsynced || (rules.missing_data && *byte == 0);
            if lax && !same_block(versions, at - at % rules.block, rules.block) {
                continue;
            }
            let agreed = first.content.byte(at);
            return Err(format!(
                "byte {at} of {} is {byte:#04x}, which it never was since the last sync ({} \
                    versions, the synced one has {})",
                found.len(),
                versions.len(),
                agreed.map_or("none there".to_owned(), |b| format!("{b:#04x}")),
            ));
        }
    }
    Ok(())
}

/// True if all versions have the same bytes in this block, and no zeros that may be a hole: nothing
/// wrote it, then.
fn same_block(versions: &[Version], start: usize, len: usize) -> bool {
    let bytes = |v: &Version| -> Vec<Option<u8>> {
        (start..start + len).map(|at| v.content.byte(at)).collect()
    };
    let Some(first) = versions.first().map(bytes) else { return true };
    first.iter().any(|b| b.is_some_and(|b| b != 0)) && versions.iter().all(|v| bytes(v) == first)
}

fn differences(wanted: &[Line], seen: &[Line]) -> Vec<String> {
    let find = |list: &[Line], path: &str| list.iter().find(|l| l.path == path).cloned();
    let mut out = Vec::new();
    for line in wanted {
        match find(seen, &line.path) {
            None => out.push(format!("missing {}", line.path)),
            Some(other) if other != *line => out.push(format!("{other:?} instead of {line:?}")),
            Some(_) => {}
        }
    }
    out.extend(
        seen.iter()
            .filter(|l| find(wanted, &l.path).is_none())
            .map(|l| format!("extra {}", l.path)),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Content, Kind};
    use super::*;

    const RULES: Rules =
        Rules { stale_unsynced: false, missing_data: false, fast_commits: false, block: 1024 };

    fn version(step: usize, bytes: &[u8], zeros: Zeros) -> Version {
        Version { step, content: Content::of(bytes), zeros }
    }

    #[test]
    fn bytes_must_have_been_there_since_the_sync() {
        let versions = [version(0, &[1; 3000], Zeros::No), version(1, &[2; 3000], Zeros::No)];
        assert!(verify_file(&versions, &[[1; 1500], [2; 1500]].concat(), RULES).is_ok());
        assert!(
            verify_file(&versions, &[[1; 1500], [3; 1500]].concat(), RULES).is_err(),
            "foreign"
        );
        assert!(verify_file(&versions, &[1; 2999], RULES).is_err(), "too short");
        assert!(verify_file(&versions, &[1; 3001], RULES).is_err(), "too long");
        assert!(verify_file(&versions, &[0; 3000], RULES).is_err(), "zeros");
        let lax = Rules { stale_unsynced: true, ..RULES };
        assert!(verify_file(&versions, &[3; 3000], lax).is_ok());
        assert!(verify_file(&versions[..1], &[3; 3000], lax).is_err(), "synced is synced");
        let zeros = Rules { missing_data: true, ..RULES };
        assert!(
            verify_file(&versions, &[0; 3000], zeros).is_ok()
                && verify_file(&versions, &[3; 3000], zeros).is_err()
        );
        assert!(verify_file(&versions[..1], &[0; 3000], zeros).is_err(), "synced is synced");
    }

    #[test]
    fn zeros_are_legal_where_the_end_moved_without_a_write() {
        let long = [&[1; 2000][..], &[0; 2000]].concat();
        let grown = [
            version(0, &[1; 500], Zeros::No),
            version(1, &[1; 2000], Zeros::No),
            version(2, &long, Zeros::Grown),
        ];
        let found = [&[1; 500][..], &[0; 3500]].concat();
        assert!(verify_file(&grown, &found, RULES).is_ok());
        assert!(
            verify_file(&grown, &[0; 4000], RULES).is_err(),
            "not in front of the promised end"
        );
        let emptied = [
            version(0, &[1; 2000], Zeros::No),
            version(1, &[], Zeros::Cut(0)),
            version(2, &[2; 1500], Zeros::No),
            version(3, &[&[2; 1500][..], &[0; 500]].concat(), Zeros::Grown),
        ];
        assert!(
            verify_file(&emptied, &[0; 2000], RULES).is_ok(),
            "both ends are durable, the write is not"
        );
        assert!(verify_file(&emptied[..3], &[0; 2000], RULES).is_err(), "nothing grew");
        let cut = [version(0, &[1; 4000], Zeros::No), version(1, &[1; 1500], Zeros::Cut(1500))];
        let found = [&[1; 1500][..], &[0; 548], &[1; 1952]].concat();
        assert!(verify_file(&cut, &found, RULES).is_ok(), "the rest of the block");
        assert!(
            verify_file(&cut, &[&[1; 1500][..], &[0; 2500]].concat(), RULES).is_err(),
            "not more"
        );
    }

    /// Two files made one after the other, and a sync of the first.
    fn history() -> History {
        let mut history = History::new("");
        let mut tree = Tree::default();
        for (id, name) in [(1, "a"), (2, "b")] {
            tree.add(name, id, Kind::File);
            history.names(format!("create {name}"), tree.clone(), &[Some(id), Some(Tree::TOP)]);
            history.contents(id, Content::default(), Zeros::No);
        }
        history.quiet("fsync a".to_owned());
        history.synced(1, true, false);
        let mut all = [history];
        let notes: Vec<_> = (0..3)
            .flat_map(|step| {
                use crate::tape::Note;
                [(step * 10, Note::Begin(0, step)), (step * 10 + 5, Note::End(0, step))]
            })
            .collect();
        History::finish(&mut all, &notes);
        let [history] = all;
        history
    }

    /// It is one of fs-verity since step 1, which the sync of step 3 promises.
    #[test]
    fn a_file_of_verity_is_whole_or_none() {
        let mut history = History::new("");
        let mut tree = Tree::default();
        tree.add("a", 1, Kind::File);
        history.names("create a".to_owned(), tree, &[Some(1), Some(Tree::TOP)]);
        history.contents(1, Content::of(b"contents"), Zeros::No);
        history.quiet("enable".to_owned());
        history.sealed(1, vec![7; 32]);
        let seal = |begun, least, found: &[u8], digest: Option<&[u8]>| {
            let moment = Moment { begun, promised: 0 };
            Promised { history: &history, moment, lowest: BTreeMap::new(), all: least }
                .seal(1, found, digest)
        };
        let (right, other) = ([7; 32], [8; 32]);
        assert!(seal(2, 0, b"contents", Some(&right)).is_ok());
        assert!(seal(2, 1, b"contents", None).is_ok(), "not promised");
        assert!(seal(3, 2, b"contents", None).is_err(), "promised");
        assert!(seal(1, 0, b"contents", Some(&right)).is_err(), "not begun");
        assert!(seal(2, 0, b"contents", Some(&other)).is_err(), "another digest");
        assert!(seal(2, 0, b"content", Some(&right)).is_err(), "cut short");
        assert!(seal(2, 0, b"contentz", Some(&right)).is_err(), "other contents");
    }

    #[test]
    fn names_are_a_prefix_that_holds_what_was_promised() {
        let history = history();
        let moment = |cut| Moment { begun: history.begun(cut), promised: history.promised(cut) };
        let verify = |cut, names: &[&str]| {
            verify(&history, moment(cut), &View::of_empty_files(names), RULES)
        };
        assert!(verify(0, &[]).is_ok() && verify(0, &["a"]).is_ok());
        assert!(verify(0, &["a", "b"]).is_err(), "not begun");
        assert!(verify(12, &["a", "b"]).is_ok() && verify(12, &[]).is_ok());
        assert!(verify(12, &["b"]).is_err(), "out of order");
        assert!(verify(24, &[]).is_ok(), "the sync has not returned");
        assert!(verify(25, &["a"]).is_ok());
        assert!(verify(25, &[]).is_err(), "promised");
        assert!(verify(25, &["a", "b", "c"]).is_err(), "never made");
    }
}
