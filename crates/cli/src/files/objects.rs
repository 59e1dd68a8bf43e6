//! `extol ls --json`: an object for each file, written as it is read, so that a list of any length
//! needs no memory.

use extol_cli_common::FORMAT_VERSION;
use extol_vfs::{Attr, FileKind, FsError, Timestamp, bytes_text, plain_json};
use serde_json::{Value, json};

/// The objects of a list.
#[derive(Default)]
pub struct Objects {
    /// One was written.
    any: bool,
}

impl Objects {
    pub const END: &str = "\n]}\n";

    /// What is before the first object.
    pub fn begin() -> String {
        format!("{{\"format_version\":{FORMAT_VERSION},\"entries\":[")
    }

    /// A file.
    pub fn file(
        &mut self,
        attr: &Attr,
        target: Option<&[u8]>,
        name: &[u8],
        path: &[u8],
    ) -> Vec<u8> {
        let mut object = json!({
            "path": bytes_text(path),
            "name": bytes_text(name),
            "inode": attr.id.ino,
            "kind": kind(attr.kind),
            "mode": format!("{:04o}", attr.perm),
            "links": attr.nlink,
            "uid": attr.uid,
            "gid": attr.gid,
            "size": attr.size,
            "used": attr.blocks.saturating_mul(512),
            "atime": when(attr.atime),
            "mtime": when(attr.mtime),
            "ctime": when(attr.ctime),
        });
        if let Some(target) = target {
            object["target"] = bytes_text(target).into();
        }
        if matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            object["device"] = json!({"major": attr.rdev.major, "minor": attr.rdev.minor});
        }
        self.written(&object)
    }

    /// A name whose inode cannot be read.
    pub fn unknown(&mut self, name: &[u8], path: &[u8], error: &FsError) -> Vec<u8> {
        let error = error.to_string();
        self.written(&json!({"path": bytes_text(path), "name": bytes_text(name), "error": error}))
    }

    fn written(&mut self, object: &Value) -> Vec<u8> {
        let comma = if std::mem::replace(&mut self.any, true) { ",\n" } else { "\n" };
        format!("{comma}{}", plain_json(&object.to_string())).into_bytes()
    }
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::CharDevice => "char_device",
        FileKind::BlockDevice => "block_device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

fn when(time: Timestamp) -> Value {
    json!({"sec": time.sec, "nsec": time.nsec})
}
