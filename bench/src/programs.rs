//! The programs that a benchmark starts.

use std::path::{Path, PathBuf};

use crate::contender::Contender;
use crate::subject::SubjectKind;
use crate::{BenchError, Result};

/// The builds of the `extol` command that take part, and this program.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The `extol` command, for mounts and checks.
    pub extol: PathBuf,
    /// Another build of it, for targets called `before`.
    pub before: Option<PathBuf>,
    /// This program: emulated media and `noop` are served by processes of their own.
    pub bench: PathBuf,
}

impl Programs {
    /// The programs named on the command line. Without a name, the `extol` beside this program,
    /// else the one in PATH.
    ///
    /// # Errors
    /// If a named program is not there.
    pub fn find(extol: Option<&Path>, before: Option<&Path>) -> Result<Self> {
        let bench = std::env::current_exe()
            .map_err(|e| BenchError(format!("cannot find this program: {e}")))?;
        let extol = match extol {
            Some(path) => existing("--extol", path)?,
            None => Some(bench.with_file_name("extol"))
                .filter(|beside| beside.exists())
                .unwrap_or_else(|| "extol".into()),
        };
        let before = before.map(|path| existing("--extol-before", path)).transpose()?;
        Ok(Self { extol, before, bench })
    }

    /// Another build takes part, which `option` names.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn set_before(&mut self, option: &str, path: &Path) -> Result<()> {
        self.before = Some(existing(option, path)?);
        Ok(())
    }

    /// The program that mounts Extol as `kind`.
    ///
    /// # Errors
    /// If that is another build, and none was named.
    pub(crate) fn mounts(&self, kind: SubjectKind) -> Result<&Path> {
        match kind {
            SubjectKind::Before => self.before.as_deref().ok_or_else(|| {
                BenchError("target \"before\": name its program with --extol-before".into())
            }),
            _ => Ok(&self.extol),
        }
    }

    /// These targets, and behind each `mount` the same of the other build, if one was named and
    /// the targets do not have it already.
    ///
    /// # Errors
    /// If one is `before`, and no other build was named.
    pub fn with_before(&self, contenders: Vec<Contender>) -> Result<Vec<Contender>> {
        let mut all = Vec::new();
        for contender in &contenders {
            all.push(contender.clone());
            let Contender::Mounted(kind, options) = contender else { continue };
            self.mounts(*kind)?;
            let before = Contender::Mounted(SubjectKind::Before, options.clone());
            if *kind == SubjectKind::Extol && self.before.is_some() && !contenders.contains(&before)
            {
                all.push(before);
            }
        }
        Ok(all)
    }
}

impl Default for Programs {
    /// Those in PATH.
    fn default() -> Self {
        Self { extol: "extol".into(), before: None, bench: "extol-bench".into() }
    }
}

fn existing(option: &str, path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| BenchError(format!("{option} {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_programs_must_be_there() {
        let error = Programs::find(Some("/none/extol".as_ref()), None).unwrap_err().to_string();
        assert!(error.starts_with("--extol /none/extol: "), "{error}");
        let error = Programs::find(None, Some("/none/old".as_ref())).unwrap_err().to_string();
        assert!(error.starts_with("--extol-before /none/old: "), "{error}");
    }

    #[test]
    fn each_mount_has_the_other_build_behind_it() {
        let mut programs = Programs::default();
        let parse = |list: [&str; 4]| list.map(|t| Contender::parse(t).unwrap()).to_vec();
        let named = parse(["mount:sync", "kernel", "mount", "before"]);
        assert!(programs.with_before(named.clone()).is_err());
        programs.before = Some("/old/extol".into());
        let names: Vec<_> =
            programs.with_before(named).unwrap().iter().map(Contender::name).collect();
        assert_eq!(names, ["mount:sync", "before:sync", "kernel", "mount", "before"]);
    }

    #[test]
    fn a_target_before_needs_its_program() {
        let mut programs = Programs::default();
        assert!(programs.mounts(SubjectKind::Before).is_err());
        programs.before = Some("/old/extol".into());
        assert_eq!(programs.mounts(SubjectKind::Before).unwrap(), Path::new("/old/extol"));
        assert_eq!(programs.mounts(SubjectKind::Extol).unwrap(), Path::new("extol"));
    }
}
