//! `extol stat IMAGE FILE`: what an inode says, as stat(1) shows it.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol_cli_common::{Result, write};
use extol_vfs::{Attr, FileKind, Timestamp};

use super::objects::Objects;
use super::text::{exact_time, mode_text, put_name};
use super::{Files, Reading, show};
use crate::args::{StatArgs, VolumeArgs};

/// Shows files of a volume, or of a mount.
pub fn stat(args: &StatArgs) -> Result<()> {
    show_files(args, &args.volume(), &args.paths)
}

/// Shows a file of a mount that was named by its path.
pub fn stat_on_mount(args: &StatArgs, file: &Path) -> Result<()> {
    let dir = file.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    let volume = VolumeArgs { source: dir.to_owned(), ..args.volume() };
    let name = file.file_name().unwrap_or_default().to_owned();
    show_files(args, &volume, &[name])
}

fn show_files(args: &StatArgs, volume: &VolumeArgs, paths: &[OsString]) -> Result<()> {
    let tree = Reading::open(volume, "stat")?;
    let paths = tree.expanded(paths);
    let mut objects = args.json.then(Objects::default);
    let plain = std::io::stdout().is_terminal();
    let begun = if args.json { write(Objects::begin().as_bytes()) } else { Ok(()) };
    let shown = begun.and_then(|()| {
        paths.iter().try_for_each(|path| match one(&tree, path, args.dereference) {
            Ok((attr, target)) => match &mut objects {
                Some(objects) => {
                    let path = path.as_bytes();
                    write(&objects.file(&attr, target.as_deref(), path, path))
                }
                None => write(&text(path.as_bytes(), &attr, target.as_deref(), plain)),
            },
            Err(error) => {
                tree.report(show(path), error);
                Ok(())
            }
        })
    });
    let ended = if args.json { write(Objects::END.as_bytes()) } else { Ok(()) };
    tree.close(shown.and(ended))
}

/// The attributes of a file, and where a link leads.
fn one(files: &Files, path: &OsString, follow: bool) -> extol_vfs::Result<(Attr, Option<Vec<u8>>)> {
    let inode = files.find(path, follow)?;
    let attr = inode.attr()?;
    let is_link = attr.kind == FileKind::Symlink;
    let target = is_link.then(|| inode.fs.readlink(inode.ino)).transpose()?;
    Ok((attr, target))
}

fn text(path: &[u8], attr: &Attr, target: Option<&[u8]>, plain: bool) -> Vec<u8> {
    let mut text = b"  File: ".to_vec();
    put_name(&mut text, path, plain);
    if let Some(target) = target {
        text.extend_from_slice(b" -> ");
        put_name(&mut text, target, plain);
    }
    let kind = match attr.kind {
        FileKind::Regular if attr.size == 0 => "regular empty file",
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    };
    let device = match attr.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("     Device type: {},{}", attr.rdev.major, attr.rdev.minor)
        }
        _ => String::new(),
    };
    let birth = match attr.crtime {
        // (Small inodes have no place for it.)
        Timestamp { sec: 0, nsec: 0 } => "-".to_owned(),
        time => exact_time(time),
    };
    let Attr { size, blocks, blksize, nlink, perm, uid, gid, .. } = attr;
    let (ino, mode) = (attr.id.ino, mode_text(attr));
    let [access, modify, change] = [attr.atime, attr.mtime, attr.ctime].map(exact_time);
    let lines = format!(
        "\n  Size: {size:<10}\tBlocks: {blocks:<10} IO Block: {blksize:<6} {kind}\n \
         Inode: {ino:<10}\tLinks: {nlink}{device}\nAccess: ({perm:04o}/{mode})  Uid: {uid:<6}  \
         Gid: {gid}\nAccess: {access}\nModify: {modify}\nChange: {change}\n Birth: {birth}\n"
    );
    text.extend_from_slice(lines.as_bytes());
    text
}
