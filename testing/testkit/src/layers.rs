//! The layers of a crate: a module uses only modules that stand before it, in an order that its
//! test gives and its `src/lib.rs` draws.
//!
//! Every file of `src` belongs to the longest entry that begins its path. Tests are left out. A
//! module is used where it is named by a path (`use crate::…`, `crate::…`, `super::…`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Layers, lowest first. Modules of one line do not use each other.
type Layers<'a> = &'a [&'a [&'a str]];

/// The modules of the crate with their text, without tests and comments.
fn modules(root: &Path) -> BTreeMap<String, String> {
    fn add(dir: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_dir() {
                if name != "tests" {
                    add(&entry.path(), &format!("{prefix}{name}/"), found);
                }
            } else if let Some(stem) = name.strip_suffix(".rs") {
                let module = match stem {
                    "mod" => prefix.trim_end_matches('/').to_owned(),
                    stem => format!("{prefix}{stem}"),
                };
                found.insert(module, code(&std::fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    let mut found = BTreeMap::new();
    add(&root.join("src"), "", &mut found);
    // Files that are modules for tests only.
    let only: Vec<String> = found
        .iter()
        .flat_map(|(module, text)| {
            let names = text.split("#[cfg(").skip(1).filter_map(|rest| {
                let (_, rest) = rest.split_once(']').filter(|(when, _)| when.contains("test"))?;
                let rest = rest.trim_start().trim_start_matches("pub(crate) ");
                Some(rest.strip_prefix("mod ")?.split_once(';')?.0.to_owned())
            });
            names.map(move |name| child(module, &name)).collect::<Vec<_>>()
        })
        .collect();
    found.retain(|module, _| !only.iter().any(|test| module == test || is_below(module, test)));
    found
}

fn child(module: &str, name: &str) -> String {
    if module.is_empty() || module == "lib" { name.to_owned() } else { format!("{module}/{name}") }
}

fn is_below(module: &str, top: &str) -> bool {
    module.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

/// Without comments, and without the tests in a file.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let lines: Vec<&str> = lines.map(|line| line.split(" // ").next().unwrap_or(line)).collect();
    let tests = lines.windows(2).position(|two| {
        two[0].starts_with("#[cfg(")
            && two[0].contains("test")
            && two[1].starts_with("mod ")
            && two[1].ends_with('{')
    });
    lines[..tests.unwrap_or(lines.len())].join("\n")
}

/// Paths of a `use`, groups taken apart.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let (mut parts, mut part, mut depth) = (Vec::new(), String::new(), 0);
    for c in body.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
    }
    parts.push(part);
    parts
        .iter()
        .filter(|part| !part.trim().is_empty())
        .flat_map(|part| expand(&format!("{}{}", head.trim(), part.trim())))
        .collect()
}

/// All paths of a text that begin in this crate.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for statement in text.split(';') {
        let start = statement.rfind("use ").filter(|at| {
            let before = statement[..*at].trim_end();
            before.is_empty() || before.ends_with(['\n', '}', ')', '{', ']', 'b'])
        });
        if let Some(at) = start {
            found.extend(expand(&statement[at + 4..].replace('\n', " ")));
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let path: String = text[at..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':')
                .collect();
            // (A group is taken apart above.)
            if !path.ends_with("::") {
                found.push(path);
            }
        }
    }
    found
}

/// The module that a path in `module` leads to.
fn resolve(modules: &BTreeMap<String, String>, module: &str, path: &str) -> Option<String> {
    let mut at = module.to_owned();
    let mut segments = path.split("::").map(str::trim).peekable();
    match segments.peek()? {
        &"crate" => {
            at.clear();
            segments.next();
        }
        &"super" | &"self" => {
            while let Some(step) = segments.next_if(|s| *s == "super" || *s == "self") {
                if step == "super" {
                    at = at.rsplit_once('/').map_or(String::new(), |(up, _)| up.to_owned());
                }
            }
        }
        name if modules.contains_key(&child(module, name)) => {}
        _ => return None,
    }
    for segment in segments {
        let name = segment.split(' ').next().unwrap_or_default();
        let next = child(&at, name);
        if !modules.contains_key(&next) {
            break;
        }
        at = next;
    }
    Some(if at.is_empty() { "lib".to_owned() } else { at })
}

/// Layer and entry of a module.
fn place<'a>(layers: Layers<'a>, module: &str) -> (usize, &'a str) {
    let entries = layers.iter().enumerate().flat_map(|(n, l)| l.iter().map(move |e| (n, *e)));
    let entry = entries
        .filter(|(_, entry)| module == *entry || is_below(module, entry))
        .max_by_key(|(_, entry)| entry.len());
    entry.unwrap_or_else(|| panic!("{module} has no layer: enter it in LAYERS"))
}

/// Panics unless the modules of the crate in the directory `root` use lower ones only.
pub fn assert_layers(root: &str, layers: Layers<'_>) {
    let modules = modules(Path::new(root));
    let mut wrong = Vec::new();
    for (module, text) in modules.iter().filter(|(module, _)| *module != "lib") {
        let (layer, entry) = place(layers, module);
        let used: BTreeSet<String> =
            paths(text).iter().filter_map(|path| resolve(&modules, module, path)).collect();
        for other in used.iter().filter(|other| *other != module) {
            let (below, other_entry) = place(layers, other);
            if entry == other_entry || below < layer {
                continue;
            }
            // A directory's module declares its parts, and may name them.
            if !is_below(other, module) {
                wrong.push(format!("{module} uses {other}, which does not stand below it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Panics unless the head of the crate's `src/lib.rs` names every layer.
pub fn assert_drawing(root: &str, layers: Layers<'_>) {
    let lib = std::fs::read_to_string(Path::new(root).join("src/lib.rs")).unwrap();
    let head: String = lib.lines().take_while(|line| line.starts_with("//!")).collect();
    let words: BTreeSet<&str> = head.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    for entry in layers.iter().copied().flatten().filter(|entry| **entry != "lib") {
        let name = entry.split('/').next().unwrap_or_default();
        assert!(words.contains(name), "src/lib.rs does not name {name}");
    }
}
