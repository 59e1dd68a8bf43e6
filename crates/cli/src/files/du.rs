//! `extol du`: the space that files use, of a directory with all that is below it.
//!
//! A file with several names counts once, as with du(1).

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::IsTerminal as _;

use extol_cli_common::{FORMAT_VERSION, Result, write};
use extol_vfs::{Attr, FileKind, bytes_text, plain_json};
use serde_json::json;

use super::Reading;
use super::text::{human, put_name};
use super::visit::{Visited, Visitor, visit};
use crate::args::DuArgs;

/// Adds up.
pub fn du(args: &DuArgs) -> Result<()> {
    let tree = Reading::open(&args.volume, "du")?;
    let root = [OsString::from("/")];
    let paths = tree.expanded(if args.paths.is_empty() { &root } else { &args.paths });
    let mut adder = Adder {
        args,
        plain: std::io::stdout().is_terminal(),
        seen: HashSet::new(),
        open: Vec::new(),
        total: Use::default(),
        any: false,
    };
    let outcome = adder.begin().and_then(|()| {
        for path in &paths {
            visit(&tree, path, false, &mut adder)?;
            // (An interrupted walk leaves directories open.)
            adder.open.clear();
        }
        adder.end()
    });
    tree.close(outcome)
}

/// What files use.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Use {
    /// Bytes on the volume.
    used: u64,
    /// Bytes of the contents.
    apparent: u64,
    inodes: u64,
}

impl Use {
    fn of(attr: &Attr) -> Self {
        // (As du(1): directories have no contents of their own.)
        let has_contents = matches!(attr.kind, FileKind::Regular | FileKind::Symlink);
        let apparent = if has_contents { attr.size } else { 0 };
        Self { used: attr.blocks.saturating_mul(512), apparent, inodes: 1 }
    }

    fn add(&mut self, other: Self) {
        self.used = self.used.saturating_add(other.used);
        self.apparent = self.apparent.saturating_add(other.apparent);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// A sum under way.
struct Adder<'a> {
    args: &'a DuArgs,
    plain: bool,
    /// Files with several names that were counted.
    seen: HashSet<u32>,
    /// The directories from the start to the current one.
    open: Vec<Use>,
    total: Use,
    /// Something was printed.
    any: bool,
}

impl Adder<'_> {
    fn begin(&self) -> Result<()> {
        match self.args.json {
            true => {
                write(format!("{{\"format_version\":{FORMAT_VERSION},\"entries\":[").as_bytes())
            }
            false => Ok(()),
        }
    }

    fn end(&mut self) -> Result<()> {
        let Use { used, apparent, inodes } = self.total;
        if self.args.json {
            let total = json!({"used": used, "apparent": apparent, "inodes": inodes});
            return write(format!("\n],\"total\":{total}}}\n").as_bytes());
        }
        if self.args.total { self.line(self.total, b"total") } else { Ok(()) }
    }

    fn line(&mut self, of: Use, path: &[u8]) -> Result<()> {
        if self.args.json {
            let Use { used, apparent, inodes } = of;
            let object = json!({
                "path": bytes_text(path), "used": used, "apparent": apparent, "inodes": inodes,
            });
            let comma = if std::mem::replace(&mut self.any, true) { ",\n" } else { "\n" };
            return write(format!("{comma}{}", plain_json(&object.to_string())).as_bytes());
        }
        let a = self.args;
        let bytes = if a.apparent_size || a.bytes { of.apparent } else { of.used };
        let number = match (a.inodes, a.human_readable, a.bytes) {
            (true, ..) => of.inodes.to_string(),
            (_, true, _) => human(bytes),
            (_, _, true) => bytes.to_string(),
            _ => bytes.div_ceil(1024).to_string(),
        };
        let mut text = format!("{number}\t").into_bytes();
        put_name(&mut text, path, self.plain);
        text.push(b'\n');
        write(&text)
    }

    /// True if a line is printed for what lies so deep.
    fn is_shown(&self, depth: usize) -> bool {
        let most = if self.args.summarize { Some(0) } else { self.args.max_depth };
        most.is_none_or(|most| depth <= most as usize)
    }

    fn add(&mut self, used: Use) {
        match self.open.last_mut() {
            Some(dir) => dir.add(used),
            None => self.total.add(used),
        }
    }
}

impl Visitor for Adder<'_> {
    fn file(&mut self, file: &Visited<'_, '_>) -> Result<bool> {
        let attr = file.attr;
        let used = Use::of(attr);
        if attr.kind == FileKind::Directory {
            self.open.truncate(file.depth);
            self.open.push(used);
            return Ok(true);
        }
        self.open.truncate(file.depth);
        if attr.nlink > 1 && !self.args.count_links && !self.seen.insert(attr.id.ino) {
            return Ok(false);
        }
        self.add(used);
        if file.depth == 0 || (self.args.all && self.is_shown(file.depth)) {
            self.line(used, file.path)?;
        }
        Ok(false)
    }

    fn left(&mut self, dir: &Visited<'_, '_>) -> Result<()> {
        let Some(used) = self.open.pop() else { return Ok(()) };
        self.add(used);
        if self.is_shown(dir.depth) { self.line(used, dir.path) } else { Ok(()) }
    }
}
