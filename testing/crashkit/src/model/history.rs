//! Everything that one actor did, in the order in which it did it.
//!
//! One operation is one *step*. After each step the history holds the tree as it then was; for each
//! file, the versions of its contents with the step that made them; and each sync with what it
//! promised:
//!
//! | sync | names: at least all steps up to | contents |
//! |---|---|---|
//! | fsync of a file | the last that changed its inode or a name of it | as they are |
//! | fdatasync of a file | the one that made it | as they are |
//! | fsync of a directory | the last that changed an entry in it, or a name of it | - |
//! | syncfs | the last | all as they are |
//!
//! (With fast commits "at least all steps up to" is only about the names of that inode, or of those
//! in that directory: see [`closure`](super::closure). For that the history keeps the names of each
//! inode after each step.)
//!
//! A promise holds from the moment that the call returned. syncfs of one actor promises the same to
//! all others, for what they had completed when it began; an fsync of the [common](super::common)
//! file does so for what is theirs in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::common::{self, Common};
use super::content::Content;
use super::tree::{self, Id, Kind, Tree};
use crate::tape::Note;

/// Where zeros are legal though no version has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Zeros {
    /// Nowhere.
    No,
    /// The size grew without a write: what was written behind the last synced end may still be on
    /// its way.
    Grown,
    /// The end was cut off here: the rest of the block may be zeroed before the new size is
    /// durable.
    Cut(usize),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Version {
    pub step: usize,
    pub content: Content,
    pub zeros: Zeros,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub text: String,
    /// The tree behind it.
    pub tree: Arc<Tree>,
    pub hash: u64,
}

/// A promise: from position `from` of the tape on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Promise {
    pub from: usize,
    /// The inode that was asked for; none: all.
    pub of: Option<Id>,
    /// So many steps must be visible in the names.
    pub names: usize,
    /// The contents of these files, or of all, as of so many steps.
    pub files: Files,
    pub steps: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Files {
    None,
    One(Id),
    All,
}

/// What made a file one of fs-verity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seal {
    pub step: usize,
    pub digest: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sync {
    pub step: usize,
    /// As in [`Promise`].
    pub of: Option<Id>,
    pub is_file: bool,
    names: usize,
    files: Files,
}

/// A name that leads elsewhere since a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Moved {
    /// So many steps were done then.
    pub steps: usize,
    pub path: String,
    /// The directory that holds the name.
    pub dir: Option<Id>,
    pub was: Option<Id>,
    pub is: Option<Id>,
}

/// All names of an inode, since so many steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Names {
    pub since: usize,
    pub paths: Vec<String>,
}

/// Everything that one actor did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// What each of the actor's names begins with on the volume: see
    /// [`Place`](crate::actor::Place).
    pub(super) prefix: String,
    /// Its share of the file that all write.
    pub(super) common: Option<Common>,
    pub(super) steps: Vec<Step>,
    pub(super) files: BTreeMap<Id, Vec<Version>>,
    pub(super) seals: BTreeMap<Id, Seal>,
    pub(super) syncs: Vec<Sync>,
    /// Every change of a name, in order.
    pub(super) moves: Vec<Moved>,
    /// What each inode was called, and what it is.
    pub(super) called: BTreeMap<Id, Vec<Names>>,
    pub(super) kinds: BTreeMap<Id, Kind>,
    /// Steps up to the last that changed an inode or its names; up to the one that made it.
    touched: BTreeMap<Id, usize>,
    made: BTreeMap<Id, usize>,
    /// Positions of the tape at which steps began and ended.
    begun: Vec<usize>,
    ended: Vec<usize>,
    pub(super) promises: Vec<Promise>,
    next: Id,
}

impl History {
    /// Nothing done yet. `prefix`: what each of the actor's names begins with on the volume.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..Self::default() }
    }

    /// It has a share of the common file, which holds zeros.
    pub fn share(&mut self, common: Common) {
        self.common = Some(common);
        self.contents(common::ID, Content::of(&vec![0; common.own()]), Zeros::No);
    }

    /// The last step wrote these bytes at that place of its own ones in the common file.
    pub fn common_contents(&mut self, at: usize, bytes: &[u8]) {
        let mut content = self.content(common::ID);
        content.write(at, bytes);
        self.contents(common::ID, content, Zeros::No);
    }

    /// The last step was a successful fsync or fdatasync of the common file.
    pub fn common_synced(&mut self, data_only: bool) {
        self.synced(common::ID, true, data_only);
    }

    /// The tree as it is now.
    #[must_use]
    pub fn tree(&self) -> Arc<Tree> {
        self.steps.last().map(|s| Arc::clone(&s.tree)).unwrap_or_default()
    }

    /// Number of steps so far: the number of the next.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// True if nothing was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// A number for a new inode.
    pub fn new_id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    /// Contents of a file as they are now.
    #[must_use]
    pub fn content(&self, id: Id) -> Content {
        self.files.get(&id).and_then(|v| v.last()).map(|v| v.content.clone()).unwrap_or_default()
    }

    /// A step that changed no name.
    pub fn quiet(&mut self, text: String) {
        let (tree, hash) = match self.steps.last() {
            Some(step) => (Arc::clone(&step.tree), step.hash),
            None => (Arc::default(), tree::hash(&[])),
        };
        self.steps.push(Step { text, tree, hash });
    }

    /// A step that changed names: those of the inodes `touched`.
    pub fn names(&mut self, text: String, tree: Tree, touched: &[Option<Id>]) {
        let hash = tree::hash(&tree.lines());
        self.follow(&tree);
        self.steps.push(Step { text, tree: Arc::new(tree), hash });
        let so_far = self.steps.len();
        for id in touched.iter().flatten() {
            self.touched.insert(*id, so_far);
            self.made.entry(*id).or_insert(so_far);
        }
    }

    /// Keeps what the step that is about to be added does to each name and each inode.
    fn follow(&mut self, new: &Tree) {
        let (old, steps) = (self.tree(), self.steps.len() + 1);
        let paths: BTreeSet<&str> = old.names().chain(new.names()).map(|(path, _)| path).collect();
        let mut changed = BTreeSet::new();
        for path in paths {
            let (was, is) = (old.get(path), new.get(path));
            if was != is {
                changed.extend([was, is].into_iter().flatten());
                let dir = new.dir_of(path).or_else(|| old.dir_of(path));
                self.moves.push(Moved { steps, path: path.to_owned(), dir, was, is });
            }
        }
        for id in changed {
            let paths = new
                .names()
                .filter(|(_, other)| *other == id)
                .map(|(path, _)| path.to_owned())
                .collect();
            self.called.entry(id).or_default().push(Names { since: steps, paths });
            if let Some(kind) = new.kind(id) {
                self.kinds.insert(id, kind.clone());
            }
        }
    }

    /// A step that changed contents (called behind [`quiet`](Self::quiet) or
    /// [`names`](Self::names)).
    pub fn contents(&mut self, id: Id, content: Content, zeros: Zeros) {
        let step = self.steps.len().saturating_sub(1);
        self.files.entry(id).or_default().push(Version { step, content, zeros });
    }

    /// The last step made a file one of fs-verity, with this digest: its contents are its last
    /// ones.
    pub fn sealed(&mut self, id: Id, digest: Vec<u8>) {
        let step = self.steps.len().saturating_sub(1);
        self.seals.insert(id, Seal { step, digest });
    }

    /// True if a file is one of fs-verity.
    #[must_use]
    pub fn is_sealed(&self, id: Id) -> bool {
        self.seals.contains_key(&id)
    }

    /// The last step was a successful fsync or fdatasync of an inode.
    pub fn synced(&mut self, id: Id, is_file: bool, data_only: bool) {
        let step = self.steps.len().saturating_sub(1);
        let by = if data_only { &self.made } else { &self.touched };
        let names = by.get(&id).copied().unwrap_or(0);
        let files = if is_file { Files::One(id) } else { Files::None };
        self.syncs.push(Sync { step, of: Some(id), is_file, names, files });
    }

    /// The last step was a successful syncfs.
    pub fn synced_all(&mut self) {
        let step = self.steps.len().saturating_sub(1);
        self.syncs.push(Sync { step, of: None, is_file: false, names: step, files: Files::All });
    }

    /// Links histories with the tape's notes; promises become known.
    pub fn finish(histories: &mut [Self], notes: &[(usize, Note)]) {
        let (mut all, mut open) = (Vec::new(), BTreeMap::new());
        let mut ended = vec![0; histories.len()];
        for (at, note) in notes {
            match *note {
                Note::Begin(actor, step) => {
                    histories[actor].begun.push(*at);
                    open.insert((actor, step), ended.clone());
                }
                Note::End(actor, step) => {
                    histories[actor].ended.push(*at);
                    ended[actor] = step + 1;
                    let history = &histories[actor];
                    let Ok(nr) = history.syncs.binary_search_by_key(&step, |s| s.step) else {
                        continue;
                    };
                    let sync = history.syncs[nr];
                    let before = open.remove(&(actor, step)).unwrap_or_default();
                    let own = Promise {
                        from: *at,
                        of: sync.of,
                        names: sync.names,
                        files: sync.files,
                        steps: step,
                    };
                    all.push((actor, own.clone()));
                    let of_all = match sync.files {
                        Files::All => true,
                        Files::One(common::ID) => false,
                        _ => continue,
                    };
                    let others = before.iter().enumerate().filter(|(other, _)| *other != actor);
                    all.extend(others.map(|(other, steps)| {
                        let names = if of_all { *steps } else { 0 };
                        (other, Promise { from: *at, names, steps: *steps, ..own.clone() })
                    }));
                }
            }
        }
        for (actor, promise) in all {
            histories[actor].promises.push(promise);
        }
    }

    /// Steps begun before a cut.
    #[must_use]
    pub fn begun(&self, cut: usize) -> usize {
        self.begun.partition_point(|at| *at <= cut)
    }

    /// Promises made before a cut.
    #[must_use]
    pub fn promised(&self, cut: usize) -> usize {
        self.promises.partition_point(|p| p.from <= cut)
    }

    /// The last steps begun before a cut, as text.
    #[must_use]
    pub fn story(&self, cut: usize, lines: usize) -> Vec<String> {
        let ended = self.ended.partition_point(|at| *at <= cut);
        let mut story = self.last_begun(self.begun(cut), lines);
        if ended < self.begun(cut)
            && let Some(last) = story.last_mut()
        {
            last.push_str(" (under way)");
        }
        story
    }

    /// The last of so many steps, as text.
    #[must_use]
    pub fn last_begun(&self, begun: usize, lines: usize) -> Vec<String> {
        let begun = begun.min(self.steps.len());
        let first = begun.saturating_sub(lines);
        (first..begun)
            .map(|i| format!("{}step {i}: {}", self.prefix_shown(), self.steps[i].text))
            .collect()
    }

    fn prefix_shown(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("/{}: ", self.prefix) }
    }
}
