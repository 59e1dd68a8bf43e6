//! System calls between marks, in the output of `strace -f`.
//!
//! A mark is a call for a path that is not there, so it is seen in the output and does nothing:
//!
//! ```text
//!   812  statx(AT_FDCWD, "/extol-costs/3/begin", …) = -1 ENOENT
//!   812  pwrite64(4, …) = 4096                                        counted for row 3
//!   812  statx(AT_FDCWD, "/extol-costs/3/end", …) = -1 ENOENT
//! ```

use std::collections::BTreeMap;

/// Calls that are not traced: memory, waits for threads, the clock of machines where the kernel
/// must be asked for it, and what strace itself may cause.
pub const LEFT_OUT: [&str; 12] = [
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "futex",
    "sched_yield",
    "clock_gettime",
    "rt_sigprocmask",
    "rt_sigreturn",
    "restart_syscall",
];

const MARK: &str = "\"/extol-costs/";

/// Marks a moment in the trace.
pub fn mark(row: usize, moment: &str) {
    // The path is not there, and need not be.
    let _ = std::fs::symlink_metadata(format!("/extol-costs/{row}/{moment}"));
}

/// Calls of each row, by name.
#[must_use]
pub fn calls(trace: &str) -> BTreeMap<usize, BTreeMap<String, u64>> {
    let mut rows: BTreeMap<usize, BTreeMap<String, u64>> = BTreeMap::new();
    let mut current = None;
    for line in trace.lines() {
        if let Some((_, path)) = line.split_once(MARK) {
            let mut parts = path.split(['/', '"']);
            let row = parts.next().and_then(|row| row.parse().ok());
            current = row.filter(|_| parts.next() == Some("begin"));
            if let Some(row) = current {
                rows.entry(row).or_default();
            }
            continue;
        }
        let call = line.split_once(char::is_whitespace).map_or("", |(_, call)| call.trim_start());
        // What ends in another line, or is a signal, begins with another character.
        let name = call.split('(').next().unwrap_or_default();
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if let (Some(row), true) = (current, is_name) {
            *rows.entry(row).or_default().entry(name.to_owned()).or_default() += 1;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_marks_are_counted() {
        let trace = r#"
812   execve("/x", ["x"], 0x7ff) = 0
812   statx(AT_FDCWD, "/extol-costs/0/begin", AT_X, 0, 0x1) = -1 ENOENT (No such file)
812   pwrite64(4, "..."..., 4096, 0) = 4096
813   pwritev(4, [{iov_base="a(b", iov_len=3}], 1, 0 <unfinished ...>
812   fdatasync(4)                      = 0
813   <... pwritev resumed>)            = 3
813   --- SIGCHLD {si_signo=SIGCHLD} ---
812   lstat("/extol-costs/0/end", 0x7ffe) = -1 ENOENT (No such file)
812   close(4)                          = 0
812   statx(AT_FDCWD, "/extol-costs/1/begin", AT_X, 0, 0x1) = -1 ENOENT (No such file)
812   statx(AT_FDCWD, "/extol-costs/1/end", AT_X, 0, 0x1) = -1 ENOENT (No such file)
"#;
        let calls = calls(trace);
        let names: Vec<_> = calls[&0].iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(names, [("fdatasync", 1), ("pwrite64", 1), ("pwritev", 1)]);
        assert_eq!((calls.len(), calls[&1].len()), (2, 0));
    }
}
