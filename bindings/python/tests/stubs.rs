//! What Rust gives to Python is what the stubs say, name by name.

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// The names behind a word, up to what is no part of a name.
fn names<'t>(text: &'t str, word: &str) -> BTreeSet<&'t str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let behind = text.lines().filter_map(|line| line.trim_start().strip_prefix(word));
    behind.filter_map(|rest| rest.split(|c| !is_part(c)).next()).collect()
}

/// The functions in blocks for Python.
fn given(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for block in text.split("#[pymethods]").skip(1) {
        let end = block.find("\n}\n").expect("the end of a block");
        found.extend(names(&block[..end], "fn ").into_iter().map(str::to_owned));
    }
    for function in text.split("#[pyfunction]").skip(1) {
        let name = names(function, "pub(crate) fn ");
        let first = function.lines().find_map(|line| line.strip_prefix("pub(crate) fn "));
        let first = first.and_then(|rest| rest.split('(').next()).expect("a function");
        found.extend(name.get(first).map(|name| (*name).to_owned()));
    }
    found
}

#[test]
fn stubs_have_what_there_is() {
    let sources = ["file", "images", "volume"].map(|name| read(&format!("src/{name}.rs")));
    let given: BTreeSet<String> = sources.iter().flat_map(|text| given(text)).collect();
    let stubs = read("python/extol/_extol.pyi");
    let told: BTreeSet<String> = names(&stubs, "def ").into_iter().map(str::to_owned).collect();
    assert!(given.len() > 30, "{given:?}");
    assert_eq!(given, told);
}
