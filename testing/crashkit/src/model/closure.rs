//! The names that a volume with fast commits may show.
//!
//! Without fast commits changes of names become durable in their order, so a volume shows the tree
//! after some number of steps. A fast commit takes some names out of that order: an fsync writes
//! its *closure*, and an older operation that has nothing to do with it may be lost. What may be
//! seen then:
//!
//! There is a *base* `f`, not before the last promised syncfs: what full commits have written is
//! the tree after `f` steps. On top of it lie closures of the syncs that were begun behind it. The
//! closure of a sync, relative to `f`, holds
//!
//! - the inode that was asked for; for a directory every inode that a name in it came to or left
//!   since `f`;
//! - with an inode, every name that came to it or left it since `f`; with a name, every inode that
//!   it led to since `f`.
//!
//! It may also hold the inodes that left a directory in which the closure has a name, with all that
//! belongs to them: room for a new name may come from an old one that went.
//!
//! A closure is written as a whole, so each inode has *all* its names as they were at one moment:
//! at `f`, or at a sync whose closure holds it. It is never between two moments, and never at a
//! moment of a sync that has nothing to do with it. (The file system's closure is smaller: what
//! came and went between is not in it. So this allows a little too much, for inodes that shared a
//! name with what was synced.) Each inode must also have its names as they were at some moment not
//! before its own last promise:
//!
//! | sync | promises |
//! |---|---|
//! | fsync of a file | its names |
//! | fdatasync of a file | the name it was made with, or newer ones |
//! | fsync of a directory | its own name; all names of each inode that came to a name in it and is still there, as of then; and no inode has a name that it lost there. An inode that had the name when the directory was promised the last time, and has it again, just has it |
//! | syncfs | all names |
//!
//! A name that came to a directory and went again between two syncs promises nothing: the directory
//! is as it was, and where the inode came from was never asked about. Nor does one that went and
//! came back, to the same inode, but itself: what became of the inode's names elsewhere was not
//! asked about.
//!
//! The moments of different inodes are chosen on their own; that they fit together needs no rule,
//! because what is compared is a tree: a name leads to one inode. Contents follow the same rules as
//! without fast commits.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{History, Moved};
use super::tree::{Id, Kind, Line};
use super::verify::{Moment, Promised, Rules};
use crate::view::View;

/// An inode that the volume shows, with all its names.
struct Found<'a> {
    kind: &'a Kind,
    paths: Vec<&'a str>,
}

/// Verifies one actor's part of a recovered volume.
///
/// # Errors
/// What is wrong, in lines.
pub(super) fn verify(
    history: &History,
    moment: Moment,
    view: &View,
    rules: Rules,
) -> Result<(), String> {
    let lines = view.lines_of(&history.prefix);
    let found = inodes(&lines)?;
    let begun = moment.begun.min(history.steps.len());
    let demands = Demands::of(history, moment);
    let all = demands.all;
    let promised = Promised::of(history, moment);
    let mut nearest: Option<(usize, String)> = None;
    let mut bases = vec![all];
    bases.extend(history.moves.iter().map(|m| m.steps).filter(|s| (all + 1..=begun).contains(s)));
    bases.dedup();
    for base in bases {
        let moments = moments(history, base, begun);
        let attempt = Attempt { history, view, rules, promised: &promised, found: &found, begun };
        let why = match attempt.fits(base, &moments, &demands) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        if nearest.as_ref().is_none_or(|(least, _)| why.len() < *least) {
            let text = format!("on the base of {base} steps\n  {}", why.join("\n  "));
            nearest = Some((why.len(), text));
        }
    }
    let nearest = nearest.map_or(String::new(), |(_, text)| text);
    Err(format!(
        "names are as no base between {all} and {begun} steps and no closures make them; nearest: \
            {nearest}"
    ))
}

/// Groups names by inode; link counts must be right.
fn inodes<'a>(lines: &'a [Line]) -> Result<Vec<Found<'a>>, String> {
    let mut all: BTreeMap<&str, Found<'_>> = BTreeMap::new();
    for line in lines {
        let found =
            all.entry(&line.first).or_insert_with(|| Found { kind: &line.kind, paths: Vec::new() });
        found.paths.push(&line.path);
    }
    for line in lines {
        let links = match line.kind {
            Kind::Dir => {
                let below = |l: &&Line| {
                    l.kind == Kind::Dir
                        && l.path.rsplit_once('/').is_some_and(|(d, _)| d == line.path)
                };
                2 + lines.iter().filter(below).count()
            }
            _ => all.get(line.first.as_str()).map_or(0, |f| f.paths.len()),
        };
        if links != line.links as usize {
            return Err(format!("{} has {links} links and says {}", line.path, line.links));
        }
    }
    Ok(all.into_values().collect())
}

/// What was promised about names.
#[derive(Default)]
struct Demands {
    /// The steps that all names must show.
    all: usize,
    /// Those that the names of some inodes must show.
    lowest: BTreeMap<Id, usize>,
    /// The moments, from and before, at which an inode had a name that a synced directory no longer
    /// has.
    gone: BTreeMap<Id, Vec<(usize, usize)>>,
    /// Names that an inode had when they were promised, went without, and had again at a sync after
    /// so many steps.
    kept: BTreeMap<Id, Vec<(String, usize)>>,
}

impl Demands {
    fn of(history: &History, moment: Moment) -> Self {
        let mut demands = Self::default();
        let promises = &history.promises[..moment.promised];
        for (nr, promise) in promises.iter().enumerate() {
            let Some(id) = promise.of else {
                demands.all = demands.all.max(promise.names);
                continue;
            };
            demands.least(id, promise.names);
            // The last moment at which all names of the directory were promised before.
            let before = promises[..nr].iter().filter(|p| p.of.is_none_or(|of| of == id));
            let known = before.map(|p| p.steps).max().unwrap_or(0);
            let inside = |m: &&Moved| m.dir == Some(id) && m.steps <= promise.steps;
            // Which inode has each name, and since when; which had it, and from when to when.
            let mut has: BTreeMap<&str, (Id, usize)> = BTreeMap::new();
            let mut had: BTreeMap<&str, Vec<(Id, usize, usize)>> = BTreeMap::new();
            for moved in history.moves.iter().filter(inside) {
                let path = moved.path.as_str();
                if let Some((lost, since)) = has.remove(path) {
                    had.entry(path).or_default().push((lost, since, moved.steps));
                }
                has.extend(moved.is.map(|id| (path, (id, moved.steps))));
            }
            // The inode that had it then and has it again.
            let back = |path: &str| {
                let (id, _) = has.get(path)?;
                let had = had.get(path)?.iter();
                had.copied()
                    .find(|(had, since, until)| had == id && (*since..*until).contains(&known))
            };
            for (path, (id, since)) in &has {
                match back(path) {
                    Some(_) => demands
                        .kept
                        .entry(*id)
                        .or_default()
                        .push(((*path).to_owned(), promise.steps)),
                    None => demands.least(*id, *since),
                }
            }
            for (path, lost) in &had {
                for (lost, since, until) in lost.iter().filter(|l| back(path) != Some(**l)) {
                    demands.gone.entry(*lost).or_default().push((*since, *until));
                }
            }
        }
        demands
    }

    fn least(&mut self, id: Id, steps: usize) {
        let old = self.lowest.entry(id).or_default();
        *old = steps.max(*old);
    }

    fn is_gone(&self, id: Id, time: usize) -> bool {
        self.gone
            .get(&id)
            .into_iter()
            .flatten()
            .any(|(since, until)| (*since..*until).contains(&time))
    }

    /// True if an inode with these names at this moment lacks one that it must have kept.
    fn is_missing(&self, id: Id, time: usize, names: &[String]) -> bool {
        self.kept
            .get(&id)
            .into_iter()
            .flatten()
            .any(|(path, steps)| time <= *steps && !names.contains(path))
    }
}

/// For each inode the moments of the syncs behind `base` whose closures hold it.
fn moments(history: &History, base: usize, begun: usize) -> BTreeMap<Id, Vec<usize>> {
    let mut groups = Groups::default();
    let mut moments: BTreeMap<Id, Vec<usize>> = BTreeMap::new();
    let mut moves = history.moves.iter().filter(|m| m.steps > base).peekable();
    let mut led: BTreeMap<&str, Id> = BTreeMap::new();
    let mut inside: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut left: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    for sync in history.syncs.iter().filter(|s| (base..begun).contains(&s.step)) {
        while let Some(moved) = moves.next_if(|m| m.steps <= sync.step) {
            for id in [moved.was, moved.is].into_iter().flatten() {
                groups.join(id, *led.entry(&moved.path).or_insert(id));
                if let Some(dir) = moved.dir {
                    inside.entry(dir).or_default().insert(id);
                }
            }
            if let (Some(dir), Some(id)) = (moved.dir, moved.was) {
                left.entry(dir).or_default().insert(id);
            }
        }
        let Some(asked) = sync.of else { continue };
        let mut closure = BTreeSet::from([groups.of(asked)]);
        if !sync.is_file {
            closure.extend(inside.get(&asked).into_iter().flatten().map(|id| groups.of(*id)));
        }
        loop {
            let before = closure.len();
            for (dir, ids) in &inside {
                if ids.iter().any(|id| closure.contains(&groups.of(*id))) {
                    closure.extend(left.get(dir).into_iter().flatten().map(|id| groups.of(*id)));
                }
            }
            if closure.len() == before {
                break;
            }
        }
        for id in groups.all().filter(|id| closure.contains(&groups.of(*id))) {
            moments.entry(id).or_default().push(sync.step);
        }
    }
    moments
}

/// Inodes that names connect.
#[derive(Default)]
struct Groups(BTreeMap<Id, Id>);

impl Groups {
    fn of(&self, id: Id) -> Id {
        let mut at = id;
        while let Some(next) = self.0.get(&at).filter(|next| **next != at) {
            at = *next;
        }
        at
    }

    fn join(&mut self, a: Id, b: Id) {
        let (a, b) = (self.of(a), self.of(b));
        self.0.insert(a, a);
        self.0.insert(b, a);
    }

    fn all(&self) -> impl Iterator<Item = Id> {
        self.0.keys().copied()
    }
}

/// One way to explain what is there.
struct Attempt<'a> {
    history: &'a History,
    view: &'a View,
    rules: Rules,
    promised: &'a Promised<'a>,
    found: &'a [Found<'a>],
    begun: usize,
}

impl Attempt<'_> {
    /// The names of an inode after so many steps.
    fn names(&self, id: Id, steps: usize) -> &[String] {
        let Some(called) = self.history.called.get(&id) else { return &[] };
        match called.partition_point(|n| n.since <= steps) {
            0 => &[],
            n => &called[n - 1].paths,
        }
    }

    /// `Ok` if every inode of the model can be at one of its moments, so that they make up all that
    /// was found.
    fn fits(
        &self,
        base: usize,
        moments: &BTreeMap<Id, Vec<usize>>,
        demands: &Demands,
    ) -> Result<(), Vec<String>> {
        // For each thing found, the inodes that it can be; and those that must be found.
        let mut can: Vec<Vec<Id>> = vec![Vec::new(); self.found.len()];
        let mut cannot: Vec<Vec<String>> = vec![Vec::new(); self.found.len()];
        let mut must = BTreeSet::new();
        let mut why = Vec::new();
        for id in self.history.called.keys().copied() {
            let least = demands.lowest.get(&id).copied().unwrap_or(0).max(demands.all);
            let promised = |names: &[String]| {
                let later = self.history.called.get(&id).into_iter().flatten();
                let mut later = later.filter(|n| (least + 1..=self.begun).contains(&n.since));
                names == self.names(id, least) || later.any(|n| n.paths == names)
            };
            let times = moments.get(&id).into_iter().flatten().copied().chain([base]);
            let times = times.filter(|time| !demands.is_gone(id, *time));
            let times = times.filter(|time| !demands.is_missing(id, *time, self.names(id, *time)));
            let states: BTreeSet<&[String]> =
                times.map(|t| self.names(id, t)).filter(|n| promised(n)).collect();
            let mut absent = false;
            let mut reasons = Vec::new();
            let before = can.iter().map(Vec::len).sum::<usize>();
            for names in &states {
                if names.is_empty() {
                    absent = true;
                } else if let Some(nr) = self.found.iter().position(|f| f.paths == *names) {
                    match self.same(id, &self.found[nr]) {
                        Ok(()) => can[nr].push(id),
                        Err(e) => {
                            cannot[nr].push(e.clone());
                            reasons.push(e);
                        }
                    }
                }
            }
            let found = can.iter().map(Vec::len).sum::<usize>() > before;
            if !absent {
                must.insert(id);
                if !found {
                    let last = self.names(id, least);
                    why.push(format!(
                        "inode {id} must have names, as {last:?} or in {states:?}: {reasons:?}"
                    ));
                }
            }
        }
        for (nr, found) in self.found.iter().enumerate().filter(|(nr, _)| can[*nr].is_empty()) {
            why.push(format!("{:?} is what no inode can be: {:?}", found.paths, cannot[nr]));
        }
        if !why.is_empty() {
            return Err(why);
        }
        let mut order: Vec<&Vec<Id>> = can.iter().collect();
        order.sort_by_key(|ids| ids.len());
        let mut used = BTreeSet::new();
        if assign(&order, &must, &mut used) {
            return Ok(());
        }
        Err(vec![format!(
            "each of the names found can be explained, but not together: {can:?}, and {must:?} \
                must be there"
        )])
    }

    fn same(&self, id: Id, found: &Found<'_>) -> Result<(), String> {
        let Some(kind) = self.history.kinds.get(&id).filter(|k| *k == found.kind) else {
            return Err(format!("{:?} is a {:?}", found.paths, found.kind));
        };
        let path = found.paths.first().copied().unwrap_or_default();
        match self.view.content_of(&self.history.prefix, path) {
            Some(bytes) if *kind == Kind::File => self
                .promised
                .content(id, bytes, self.rules)
                .and_then(|()| {
                    let digest = self.view.digest_of(&self.history.prefix, path);
                    self.promised.seal(id, bytes, digest)
                })
                .map_err(|e| format!("file {path}: {e}")),
            _ => Ok(()),
        }
    }
}

/// Gives everything found an inode of its own, so that none of those that must be there is left.
fn assign(order: &[&Vec<Id>], must: &BTreeSet<Id>, used: &mut BTreeSet<Id>) -> bool {
    let Some((first, rest)) = order.split_first() else { return must.is_subset(used) };
    for id in *first {
        if used.insert(*id) {
            if assign(rest, must, used) {
                return true;
            }
            used.remove(id);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::{Content, Tree, Zeros};
    use super::*;
    use crate::tape::Note;

    /// A history in short: `+a` makes a file, `+a/` a directory, `a>b` renames, `a=b` links, `-a`
    /// unlinks, `!a` is an fsync, `!` of the directory, `*` a syncfs. Step `n` begins at position
    /// `10 n` of the tape and ends at `10 n + 5`.
    fn history(steps: &[&str]) -> History {
        let mut history = History::new("");
        for step in steps {
            let mut tree = Tree::clone(&history.tree());
            let touched = |ids: [Option<Id>; 2]| [ids[0], ids[1], Some(Tree::TOP)];
            if let Some(name) = step.strip_prefix('+') {
                let id = history.new_id();
                let (name, kind) = match name.strip_suffix('/') {
                    Some(dir) => (dir, Kind::Dir),
                    None => (name, Kind::File),
                };
                tree.add(name, id, kind);
                history.names((*step).to_owned(), tree, &touched([Some(id), None]));
                history.contents(id, Content::default(), Zeros::No);
            } else if let Some(name) = step.strip_prefix('-') {
                let id = tree.remove(name);
                history.names((*step).to_owned(), tree, &touched([id, None]));
            } else if let Some((from, to)) = step.split_once('>') {
                let ids = [tree.get(from), tree.get(to)];
                tree.rename(from, to);
                history.names((*step).to_owned(), tree, &touched(ids));
            } else if let Some((from, to)) = step.split_once('=') {
                let id = tree.get(from);
                tree.add(to, id.unwrap_or_default(), Kind::File);
                history.names((*step).to_owned(), tree, &touched([id, None]));
            } else {
                history.quiet((*step).to_owned());
                match step.strip_prefix('!') {
                    Some("") => history.synced(Tree::TOP, false, false),
                    Some(name) => history.synced(tree.get(name).unwrap_or_default(), true, false),
                    None => history.synced_all(),
                }
            }
        }
        let notes: Vec<_> = (0..steps.len())
            .flat_map(|n| [(n * 10, Note::Begin(0, n)), (n * 10 + 5, Note::End(0, n))])
            .collect();
        let mut all = [history];
        History::finish(&mut all, &notes);
        let [history] = all;
        history
    }

    /// Verifies names in groups (hard links of one file) behind all steps.
    fn at_end(steps: &[&str], groups: &[&[&str]]) -> Result<(), String> {
        let history = history(steps);
        let cut = steps.len() * 10;
        let moment = Moment { begun: history.begun(cut), promised: history.promised(cut) };
        let rules =
            Rules { stale_unsynced: false, missing_data: false, fast_commits: true, block: 1024 };
        super::super::verify(&history, moment, &View::of_empty_inodes(groups), rules)
    }

    #[test]
    fn an_older_unsynced_operation_may_be_lost() {
        let steps = ["+a", "+b", "!b"];
        assert!(at_end(&steps, &[&["b"]]).is_ok(), "b alone");
        assert!(at_end(&steps, &[&["a"], &["b"]]).is_ok(), "in order");
        assert!(at_end(&steps, &[&["a"]]).is_err(), "b was promised");
        assert!(at_end(&["+a", "+b", "+c"], &[&["b"]]).is_err(), "nothing took b out of the order");
        assert!(at_end(&["+a", "+b", "*", "!b"], &[&["b"]]).is_err(), "syncfs promised both");
        assert!(
            at_end(&["+a", "+b", "+c", "!c"], &[&["b"], &["c"]]).is_err(),
            "b is in no closure"
        );
    }

    #[test]
    fn all_names_of_an_inode_come_together() {
        let steps = ["+a", "*", "a=b", "a=c", "+x", "!a"];
        assert!(at_end(&steps, &[&["a", "b", "c"]]).is_ok());
        assert!(at_end(&steps, &[&["a", "b"]]).is_err(), "a name was forgotten");
        let steps = ["+a", "+x", "*", "+y", "a=b", "a=c", "!x"];
        assert!(at_end(&steps, &[&["a"], &["x"]]).is_ok());
        assert!(at_end(&steps, &[&["a", "b"], &["x"], &["y"]]).is_ok(), "a full commit in between");
        assert!(at_end(&steps, &[&["a", "b"], &["x"]]).is_err());
    }

    #[test]
    fn renames_happen_as_a_whole() {
        let steps = ["+a", "+b", "*", "+z", "a>b", "!b"];
        assert!(at_end(&steps, &[&["b"]]).is_ok());
        assert!(at_end(&steps, &[&["a"], &["b"]]).is_err(), "promised");
        let swap = ["+a", "+b", "*", "+z", "a>t", "b>a", "t>b", "!a"];
        assert!(at_end(&swap, &[&["a"], &["b"]]).is_ok());
        assert!(at_end(&swap, &[&["a"], &["t"]]).is_err(), "half of it");
        assert!(at_end(&swap, &[&["a"]]).is_err(), "one is lost");
        let links = ["+a", "+b", "b=c", "*", "+z", "a>b", "!c"];
        assert!(at_end(&links, &[&["b"], &["c"]]).is_ok());
        assert!(at_end(&links, &[&["c"]]).is_err(), "what took the place of a name");
    }

    #[test]
    fn a_directory_promises_the_names_in_it() {
        let steps = ["+a", "+b", "*", "-a", "b>c", "+d", "!"];
        assert!(at_end(&steps, &[&["c"], &["d"]]).is_ok());
        assert!(at_end(&steps, &[&["a"], &["c"], &["d"]]).is_err());
        assert!(at_end(&steps, &[&["b"], &["d"]]).is_err());
        let made_and_cut = ["+a", "+b", "-b", "!", "+x", "!x"];
        assert!(at_end(&made_and_cut, &[&["a"], &["x"]]).is_ok());
        assert!(at_end(&made_and_cut, &[&["a"], &["b"], &["x"]]).is_err(), "gone");
    }

    /// A name that went and came back: the directory is as it was, and has to be.
    #[test]
    fn a_directory_promises_no_more_of_what_came_back_than_its_name() {
        let steps = ["+d/", "+a", "a=b", "+x", "*", "b>d/c", "a=b", "!"];
        assert!(at_end(&steps, &[&["d/"], &["a", "b"], &["x"]]).is_ok(), "d was not synced");
        assert!(at_end(&steps, &[&["d/"], &["a", "b", "d/c"], &["x"]]).is_ok());
        assert!(at_end(&steps, &[&["d/"], &["a", "d/c"], &["x"]]).is_err(), "b was there and is");
        assert!(at_end(&steps, &[&["d/"], &["a"], &["x"]]).is_err());
        // Its loss was made durable in between.
        let steps = ["+a", "a=b", "+x", "*", "-b", "!a", "a=b", "!"];
        assert!(at_end(&steps, &[&["a", "b"], &["x"]]).is_ok());
        assert!(at_end(&steps, &[&["a"], &["x"]]).is_err());
        // Another inode had it in between.
        let steps = ["+a", "a=b", "+x", "*", "x>b", "!b", "-b", "a=b", "!"];
        assert!(at_end(&steps, &[&["a", "b"]]).is_ok());
        assert!(at_end(&steps, &[&["a"], &["b"]]).is_err());
        assert!(at_end(&steps, &[&["a"]]).is_err());
    }
}
