//! Few names in a casefolded directory, each in many spellings, and some that are malformed: made
//! in one, asked for in another, gone and there again in a third.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::model::Kind;
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct Spellings;

/// Spellings of one name in each line. The malformed ones (U+E0xx is the byte xx) are what they
/// are.
const NAMES: &[&[&str]] = &[
    &["Straße", "STRASSE", "strasse", "straSSe"],
    &["Café", "CAFE\u{301}", "cafe\u{301}"],
    &["Ωmega", "ωMEGA", "\u{2126}mega"],
    &["data", "DATA", "da\u{200D}ta"],
    &["ﬃx", "FFIX", "ffix"],
    &["\u{212B}ngström", "ÅNGSTRÖM", "a\u{30A}ngstro\u{308}m"],
    &["plain", "Plain", "PLAIN"],
    &["\u{E0FF}Ab"],
    &["\u{E0FF}ab"],
    &["cut\u{E0C3}"],
];

const DIRS: [&str; 2] = ["", "Sub/"];

impl Workload for Spellings {
    fn name(&self) -> &'static str {
        "spellings"
    }

    fn about(&self) -> &'static str {
        "few names in many spellings, some of them synced"
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.has_spellings()
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        actor.mkdir("Sub")?;
        actor.syncfs()?;
        (0..rounds).try_for_each(|_| any(actor))
    }

    fn quick(&self) -> usize {
        220
    }
}

/// A name as its entry has it, if it is there, or a spelling of it.
fn some_name(actor: &mut Actor) -> (String, bool) {
    let dir = DIRS[actor.rng().random_range(0..DIRS.len())];
    let spellings = NAMES[actor.rng().random_range(0..NAMES.len())];
    let tree = actor.tree();
    let there = spellings.iter().map(|name| format!("{dir}{name}"));
    match there.into_iter().find(|path| tree.get(path).is_some()) {
        Some(path) => (path, true),
        None => (format!("{dir}{}", spellings.choose(actor.rng()).unwrap_or(&"plain")), false),
    }
}

/// Another spelling of a name that is gone.
fn another(actor: &mut Actor, path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').map_or(("", path), |(_, name)| ("Sub/", name));
    let spellings = NAMES.iter().find(|all| all.contains(&name)).copied().unwrap_or_default();
    format!("{dir}{}", spellings.choose(actor.rng()).unwrap_or(&name))
}

fn any(actor: &mut Actor) -> Done {
    let files = actor.tree().paths(|kind| *kind == Kind::File);
    let (name, is_there) = some_name(actor);
    let Some(file) = files.choose(actor.rng()).cloned() else { return make(actor, &name) };
    match actor.rng().random_range(0..100) {
        0..=19 if !is_there => make(actor, &name),
        0..=9 => actor.append(&name, 700).map(drop),
        10..=24 => actor.rename(&file, &name).map(drop),
        // To another spelling of itself: nothing changes; by another name it does.
        25..=29 => actor.rename(&file, &file).map(drop),
        30..=39 => {
            actor.rename(&file, "between")?;
            let to = another(actor, &file);
            actor.rename("between", &to).map(drop)
        }
        40..=49 => {
            actor.unlink(&file)?;
            if actor.rng().random_bool(0.5) {
                let again = another(actor, &file);
                make(actor, &again)?;
            }
            Ok(())
        }
        50..=59 if !is_there => actor.link(&file, &name).map(drop),
        50..=64 => actor.append(&file, 300).map(drop),
        65..=69 => {
            let dir = if actor.rng().random_bool(0.5) { "" } else { "Sub" };
            actor.fsync(dir)
        }
        70..=72 => actor.syncfs(),
        _ => actor.fsync(&file),
    }
}

fn make(actor: &mut Actor, name: &str) -> Done {
    if actor.create(name)? && actor.rng().random_bool(0.6) {
        actor.append(name, 900)?;
    }
    Ok(())
}
