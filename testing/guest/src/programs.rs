//! Programs of the host in the guest, with the libraries that they are linked with.

use crate::Failed;
use crate::archive::Archive;
use extol_testkit::{find_tool, run, tool};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Puts programs into `/bin`.
pub(crate) fn put(archive: &mut Archive, names: &[String]) -> Result<(), Failed> {
    for name in names {
        let Some(path) = find_tool(name) else {
            return Err(Failed::new(format!("has no program {name}: the host has none")));
        };
        archive.host_file(&format!("bin/{name}"), &path)?;
        for library in libraries(&path) {
            // At the place where the program looks for it.
            let to = library.display().to_string();
            let to = to.trim_start_matches('/');
            if !archive.has(to) {
                archive.host_file(to, &library)?;
            }
        }
    }
    Ok(())
}

/// The libraries and the loader of a program; none if it is linked statically.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let said = run(tool("ldd").arg(program), Duration::from_secs(10));
    named(&said.output)
}

/// What `ldd` names: `libc.so.6 => /lib/libc.so.6 (0x7f..)`, and `/lib64/ld.so (0x7f..)`.
fn named(said: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let right = line.split_once("=>").map_or(line, |(_, right)| right).trim();
        let path = right.rsplit_once(" (").map_or(right, |(path, _)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    said.lines().filter(|line| line.contains(" (0x")).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_what_ldd_says() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibe2p.so.2 => /lib/libe2p.so.2 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f3)\n";
        let found = named(said);
        assert_eq!(
            found,
            [Path::new("/lib/libe2p.so.2"), Path::new("/lib64/ld-linux-x86-64.so.2")]
        );
        assert!(named("\tnot a dynamic executable\n").is_empty());
    }
}
