//! Nothing that was withdrawn is built in. Licences, sources and duplicates are `cargo deny`'s
//! (`deny.toml`), which would look for yanked crates only with a network: this looks into the index
//! that cargo keeps here.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that a workspace is built from on this machine; `None` if some were never
/// downloaded.
fn packages(manifest: &Path) -> Option<Vec<Value>> {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc tells its host");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--locked",
        "--offline",
        "--format-version",
        "1",
        "--filter-platform",
        host,
    ]);
    let done = command.arg("--manifest-path").arg(manifest).output().expect("cargo");
    if !done.status.success() {
        println!("SKIP: {}: {}", manifest.display(), String::from_utf8_lossy(&done.stderr));
        return None;
    }
    let metadata: Value = serde_json::from_slice(&done.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().cloned()
}

/// What cargo's copy of the index says about a version. `None` if it has none.
fn is_yanked(name: &str, version: &str) -> Option<bool> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let lower = name.to_lowercase();
    let shelf = match lower.len() {
        1 | 2 => lower.len().to_string(),
        3 => format!("3/{}", &lower[..1]),
        _ => format!("{}/{}", &lower[..2], &lower[2..4]),
    };
    for index in std::fs::read_dir(home.join("registry/index")).ok()?.flatten() {
        let Ok(bytes) = std::fs::read(index.path().join(".cache").join(&shelf).join(&lower)) else {
            continue;
        };
        let entries = bytes.split(|&byte| byte == 0).filter(|part| part.starts_with(b"{"));
        for entry in entries.filter_map(|part| serde_json::from_slice::<Value>(part).ok()) {
            if entry["vers"] == version {
                return entry["yanked"].as_bool();
            }
        }
    }
    None
}

#[test]
fn nothing_was_yanked() {
    let mut yanked = Vec::new();
    let mut known = 0;
    for name in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        for package in packages(&manifest).unwrap_or_default() {
            let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
            if text("source").is_empty() {
                continue;
            }
            match is_yanked(&text("name"), &text("version")) {
                Some(true) => yanked.push(format!("{} {}", text("name"), text("version"))),
                Some(false) => known += 1,
                None => {}
            }
        }
    }
    println!("{known} crates are known not to be yanked");
    assert!(yanked.is_empty(), "yanked, take other versions (cargo update): {}", yanked.join(", "));
}
