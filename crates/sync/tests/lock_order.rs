//! The table of docs/design/lock-order.md is the enum `Rank`: the same names in the same order,
//! each with a file that takes a lock of this rank.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/design/lock-order.md");
const CODE: &str = include_str!("../src/rank.rs");

/// The variants of `Rank`, in their order.
fn variants() -> Vec<&'static str> {
    let body = CODE.split("\nranks! {").nth(1).unwrap().split("\n}").next().unwrap();
    body.lines().map(str::trim).filter_map(|line| line.strip_suffix(',')).collect()
}

/// The rows of the page's table whose first two cells are a number and a name in code style: both,
/// and the file of the last cell.
fn rows() -> Vec<(usize, &'static str, &'static str)> {
    let cells = |line: &'static str| {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`'))
    };
    PAGE.lines()
        .filter_map(|line| {
            let mut cells = cells(line.strip_prefix("| ")?);
            let number = cells.next()?.parse().ok()?;
            Some((number, cells.next()?, cells.last()?))
        })
        .collect()
}

#[test]
fn the_page_lists_the_ranks_in_order() {
    let variants = variants();
    assert!(variants.len() > 15, "the enum was not found: {variants:?}");
    let listed: Vec<_> = rows().into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(listed, variants);
    for (at, (number, name, _)) in rows().into_iter().enumerate() {
        assert_eq!(number, at, "{name}");
    }
}

#[test]
fn each_rank_is_taken_where_the_page_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (_, name, file) in rows() {
        let code = fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(code.contains(&format!("Rank::{name}")), "{file} takes no lock of {name}");
    }
}

/// The rules within a rank, as `may_follow` has them.
#[test]
fn the_page_states_the_rules_within_a_rank() {
    let chapter = PAGE.split("## Within one rank").nth(1).unwrap().split("\n## ").next().unwrap();
    let rules: BTreeMap<_, _> = chapter
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(name, rule)| (name, rule.trim_end_matches(" |")))
        .collect();
    let code = CODE.split("fn may_follow").nth(1).unwrap().split("\n}").next().unwrap();
    for name in variants() {
        let twice = format!("(Rank::{name}, Rank::{name})");
        assert_eq!(rules.contains_key(name), code.contains(&twice), "{name}");
    }
    assert!(rules["File"].starts_with("ascending") && rules["Group"].starts_with("ascending"));
    assert!(rules["Directory"].contains("only under `Rename`"));
}
