//! Which modules a guest needs, and in which order they are loaded.
//!
//! A module states in its section `.modinfo` what it depends on (`depends=a,b`), as `modinfo`
//! shows. So nothing of the package's installation is needed, which would run `depmod`.

use crate::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules of a kernel, by name.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    paths: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// The name of a module as the kernel has it: `dm-flakey.ko` is `dm_flakey`.
fn name_of(file: &str) -> String {
    file.trim_end_matches(".ko").replace('-', "_")
}

impl Modules {
    /// All modules below a directory, and those that its `modules.builtin` names.
    pub(crate) fn of(tree: &Path) -> Self {
        let mut all = Self::default();
        let builtin = std::fs::read_to_string(tree.join("modules.builtin")).unwrap_or_default();
        let name = |line: &str| name_of(line.rsplit('/').next().unwrap_or(line));
        all.builtin = builtin.lines().map(name).collect();
        all.walk(tree);
        all
    }

    fn walk(&mut self, dir: &Path) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let (path, file) = (entry.path(), entry.file_name().display().to_string());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.walk(&path);
            } else if file.ends_with(".ko") {
                self.paths.insert(name_of(&file), path);
            }
        }
    }

    /// The files of these modules and of all that they depend on, each once and behind those that
    /// it depends on.
    pub(crate) fn in_order(&self, names: &[String]) -> Result<Vec<PathBuf>, Failed> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            self.add(&name_of(name), &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn add(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<PathBuf>,
    ) -> Result<(), Failed> {
        if self.builtin.contains(name) || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.paths.get(name) else {
            return Err(Failed::new(format!("has no module {name} (see scripts/guest.sh)")));
        };
        let module = std::fs::read(path)
            .map_err(|e| Failed::new(format!("cannot have {}: {e}", path.display())))?;
        for other in depends(&module) {
            self.add(&other, seen, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

/// What a module depends on.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let list = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_testkit::Scratch;

    #[test]
    fn what_is_depended_on_comes_first_and_once() {
        let scratch = Scratch::new();
        let module = |file: &str, depends: &str| {
            let text = format!("ELF\0license=GPL\0depends={depends}\0name=x\0");
            std::fs::write(scratch.join(file), text).unwrap();
        };
        module("a.ko", "b_1,c");
        module("b-1.ko", "c,built_in");
        module("c.ko", "");
        std::fs::write(scratch.join("modules.builtin"), "kernel/lib/built-in.ko\n").unwrap();
        let all = Modules::of(scratch.path());
        let order = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            let files = all.in_order(&names)?;
            Ok::<_, Failed>(
                files.iter().map(|p| p.file_name().unwrap().display().to_string()).collect(),
            )
        };
        let found: Vec<String> = order(&["b-1", "a", "built-in"]).unwrap();
        assert_eq!(found, ["c.ko", "b-1.ko", "a.ko"]);
        assert!(order(&["nothing"]).unwrap_err().what.contains("no module nothing"));
    }
}
