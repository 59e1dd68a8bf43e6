//! Counters of the kernel's requests by kind: they show how many round trips an operation costs,
//! and whether the kernel's caches avoid them. One relaxed counter per kind; `fuse` in the counters
//! of the mount.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::request_name;
use crate::config::Transport;

/// Kinds below this number have a counter each; the rest (there are none yet) share the first.
const KINDS: usize = 64;

/// Requests by kind.
#[derive(Debug)]
pub(crate) struct Counts {
    kinds: [AtomicU64; KINDS],
    /// What the process is confined to, if it says so.
    sandbox: String,
    /// Mount options of this crate that change what is seen, as a list.
    options: String,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            kinds: [const { AtomicU64::new(0) }; KINDS],
            sandbox: String::new(),
            options: String::new(),
        }
    }
}

impl Counts {
    /// Those of a process that is in this sandbox and serves a mount with these options.
    pub(crate) fn of(sandbox: String, options: String) -> Self {
        Self { sandbox, options, ..Self::default() }
    }

    /// Counts one request.
    pub(crate) fn note(&self, opcode: u32) {
        let kind = usize::try_from(opcode).ok().filter(|&kind| kind < KINDS).unwrap_or(0);
        self.kinds[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// The kinds that came, by number, with their names.
    pub(crate) fn by_kind(&self) -> Vec<(String, u64)> {
        let counts = self.kinds.iter().map(|count| count.load(Ordering::Relaxed));
        let named = counts.zip(0..).map(|(count, kind)| (request_name(kind), count));
        named.filter(|(_, count)| *count > 0).collect()
    }

    /// Adds `"fuse":{"transport":…,"sandbox":…,"options":…,"requests":{…}}` to a JSON object; kinds
    /// that never came are left out, and so are a sandbox and options of which nothing is said.
    pub(crate) fn add_to(&self, object: &str, transport: Transport) -> String {
        let Some(inside) = object.trim_end().strip_suffix('}') else { return object.to_owned() };
        let mut text = String::with_capacity(inside.len() + 256);
        text.push_str(inside);
        text.push_str(if inside.trim_start() == "{" { "" } else { "," });
        // Writing to a string cannot fail.
        let _ = write!(text, "\"fuse\":{{\"transport\":\"{}\",", transport.name());
        if !self.sandbox.is_empty() {
            let plain = self.sandbox.replace(['"', '\\'], "'");
            let _ = write!(text, "\"sandbox\":\"{plain}\",");
        }
        if !self.options.is_empty() {
            let _ = write!(text, "\"options\":\"{}\",", self.options);
        }
        text.push_str("\"requests\":{");
        let mut comma = "";
        for (name, count) in self.by_kind() {
            let _ = write!(text, "{comma}\"{name}\":{count}");
            comma = ",";
        }
        text.push_str("}}}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::op;

    #[test]
    fn counts_stand_beside_what_is_there() {
        let counts = Counts::default();
        let nothing = "{\"a\":1,\"fuse\":{\"transport\":\"device\",\"requests\":{}}}";
        assert_eq!(counts.add_to("{\"a\":1}", Transport::Device), nothing);
        counts.note(op::LOOKUP);
        counts.note(op::LOOKUP);
        counts.note(op::STATX);
        counts.note(4096);
        let requests = "\"fuse\":{\"transport\":\"io_uring\",\"requests\":\
            {\"other\":1,\"lookup\":2,\"statx\":1}}}";
        assert_eq!(counts.add_to("{}", Transport::IoUring), format!("{{{requests}"));
        assert_eq!(counts.add_to("none", Transport::Device), "none");
        let sandboxed = Counts { sandbox: "seccomp, \"x\"".into(), ..Counts::default() };
        let text = sandboxed.add_to("{}", Transport::Device);
        assert!(text.contains("\"device\",\"sandbox\":\"seccomp, 'x'\",\"requests"), "{text}");
        let shown = Counts::of(String::new(), "uid=5,fakeroot".into());
        let text = shown.add_to("{}", Transport::Device);
        assert!(text.contains("\"options\":\"uid=5,fakeroot\",\"requests"), "{text}");
    }
}
