//! In which order names come and go.
//!
//! Two rules: a name must be free before it is given anew, and no inode may lose its last link in
//! between (Linux's replay deletes it then, whatever follows). Giving a name never hurts, so all
//! that can be given is given first; then names go that another name waits for, and only then the
//! others. If nothing can be done any more, as in an exchange of two files with one name each,
//! records cannot say it.

use super::names::{Change, Name};
use super::{Map, Set};

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step<'a> {
    Link(&'a Name, u32),
    Unlink(&'a Name, u32),
}

/// Orders the changes of `names`. `links`: how many names each inode has before. `None`: there is
/// no order.
pub(super) fn order<'a>(
    names: &'a [(Name, Change)],
    mut links: Map<u32, u32>,
) -> Option<Vec<Step<'a>>> {
    let mut steps = Vec::with_capacity(names.len() * 2);
    let mut give: Vec<(&Name, u32)> = Vec::new();
    let mut take: Vec<(&Name, u32)> = Vec::new();
    for (name, change) in names {
        take.extend(change.recorded.map(|ino| (name, ino)));
        give.extend(change.current.map(|ino| (name, ino)));
    }
    let wanted: Set<&Name> = give.iter().map(|(name, _)| *name).collect();
    let mut taken: Set<&Name> = take.iter().map(|(name, _)| *name).collect();
    // Names that others wait for first.
    take.sort_by_key(|(name, _)| !wanted.contains(name));
    while !give.is_empty() || !take.is_empty() {
        let before = steps.len();
        give.retain(|&(name, ino)| {
            let must_wait = taken.contains(name);
            if !must_wait {
                *links.entry(ino).or_insert(0) += 1;
                steps.push(Step::Link(name, ino));
            }
            must_wait
        });
        if steps.len() == before {
            let may_go = |&(_, ino): &(&Name, u32)| links.get(&ino).is_some_and(|n| *n > 1);
            let (name, ino) = take.remove(take.iter().position(may_go)?);
            links.entry(ino).and_modify(|n| *n -= 1);
            taken.remove(name);
            steps.push(Step::Unlink(name, ino));
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, recorded: Option<u32>, current: Option<u32>) -> (Name, Change) {
        (Name { dir: 2, name: name.as_bytes().into() }, Change { recorded, current })
    }

    fn told(names: &[(Name, Change)], links: &[(u32, u32)]) -> Option<Vec<String>> {
        let steps = order(names, links.iter().copied().collect())?;
        let tell = |step: Step<'_>| match step {
            Step::Link(name, ino) => format!("+{}{ino}", String::from_utf8_lossy(&name.name)),
            Step::Unlink(name, ino) => format!("-{}{ino}", String::from_utf8_lossy(&name.name)),
        };
        Some(steps.into_iter().map(tell).collect())
    }

    #[test]
    fn a_rename_gives_the_new_name_first() {
        let names = [change("a", Some(12), None), change("b", None, Some(12))];
        assert_eq!(told(&names, &[(12, 1)]).unwrap(), ["+b12", "-a12"]);
    }

    #[test]
    fn a_name_is_free_before_it_is_given() {
        let names = [change("a", Some(12), None), change("b", Some(13), Some(12))];
        assert_eq!(told(&names, &[(12, 1), (13, 2)]).unwrap(), ["-b13", "+b12", "-a12"]);
    }

    #[test]
    fn an_exchange_has_no_order_unless_there_are_other_links() {
        let names = [change("a", Some(12), Some(13)), change("b", Some(13), Some(12))];
        assert_eq!(told(&names, &[(12, 1), (13, 1)]), None);
        assert_eq!(told(&names, &[(12, 2), (13, 1)]).unwrap(), ["-a12", "+a13", "-b13", "+b12"]);
    }

    #[test]
    fn names_that_are_waited_for_go_first() {
        // b must go to 13's old place before 12 may lose a.
        let names = [
            change("a", Some(12), None),
            change("b", Some(12), Some(13)),
            change("c", Some(13), Some(12)),
        ];
        assert_eq!(
            told(&names, &[(12, 2), (13, 1)]).unwrap(),
            ["-b12", "+b13", "-c13", "+c12", "-a12"]
        );
    }
}
