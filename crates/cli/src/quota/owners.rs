//! Names and numbers of owners.

use extol::quotas::Kind;
use extol_cli_common::{Failure, Result};
use nix::unistd::{Group, User};

/// Names of projects, a `name:number` on each line.
const PROJECTS: &str = "/etc/projid";

/// The numbers of owners.
pub(super) fn ids(kind: Kind, owners: &[String]) -> Result<Vec<u32>> {
    owners.iter().map(|owner| id(kind, owner)).collect()
}

fn id(kind: Kind, owner: &str) -> Result<u32> {
    let named = match kind {
        Kind::User => User::from_name(owner).ok().flatten().map(|user| user.uid.as_raw()),
        Kind::Group => Group::from_name(owner).ok().flatten().map(|group| group.gid.as_raw()),
        Kind::Project => projects().and_then(|text| project_id(&text, owner)),
    };
    // (The greatest number is none: it stands for "no owner".)
    let number = || owner.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    named.or_else(number).ok_or_else(|| {
        let kind = kind.name();
        Failure::usage(match !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_digit()) {
            true => format!("bad {kind} {owner}: it must be from 0 to {}", u32::MAX - 1),
            false => format!("unknown {kind} \"{owner}\": use the number"),
        })
    })
}

/// The name of an owner on this system.
pub(super) fn name(kind: Kind, id: u32) -> Option<String> {
    match kind {
        Kind::User => User::from_uid(id.into()).ok().flatten().map(|user| user.name),
        Kind::Group => Group::from_gid(id.into()).ok().flatten().map(|group| group.name),
        Kind::Project => project_name(&projects()?, id),
    }
}

fn projects() -> Option<String> {
    std::fs::read(PROJECTS).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Lines of names and numbers.
fn pairs(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let (name, number) = line.trim().split_once(':')?;
        Some((name.trim(), number.trim().parse().ok()?)).filter(|_| !line.starts_with('#'))
    })
}

fn project_id(text: &str, name: &str) -> Option<u32> {
    pairs(text).find(|(known, _)| *known == name).map(|(_, id)| id)
}

fn project_name(text: &str, id: u32) -> Option<String> {
    pairs(text).find(|(_, known)| *known == id).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_have_names() {
        let text = "# projects\n#no:1\nweb:42\n bad\nmail : 43\nx:y\n";
        assert_eq!((project_id(text, "web"), project_id(text, "mail")), (Some(42), Some(43)));
        assert_eq!((project_id(text, "#no"), project_id(text, "x")), (None, None));
        assert_eq!((project_name(text, 42).as_deref(), project_name(text, 1)), (Some("web"), None));
    }

    #[test]
    fn owners_are_names_or_numbers() {
        assert_eq!(ids(Kind::User, &["root".into(), "7".into()]).ok(), Some(vec![0, 7]));
        for bad in ["no such user", "-1", "4294967295", ""] {
            let failure = ids(Kind::User, &[bad.into()]).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE);
            let says = if bad == "4294967295" { "from 0 to 4294967294" } else { "unknown user" };
            assert!(failure.line.contains(says), "{}", failure.line);
        }
        assert_eq!(name(Kind::User, 0).as_deref(), Some("root"));
    }
}
