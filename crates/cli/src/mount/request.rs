//! What to mount, from the command line of `extol mount` or of a mount helper.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind::PermissionDenied;
use std::path::{Path, PathBuf};

use extol_block::open::OpenName;
use extol_cli_common::{Failure, Result};
use extol_fuse::MountError;
use extol_proc::Shown as _;

use crate::args::MountArgs;
use crate::as_typed::as_typed;
use crate::{mounted, options};

/// What to mount.
#[derive(Debug, Default)]
pub struct Request {
    pub source: PathBuf,
    pub dir: PathBuf,
    /// Option lists in order.
    pub options: Vec<OsString>,
    pub foreground: bool,
    pub verbose: bool,
    /// Fail where the source is write-protected.
    pub read_write: bool,
    /// Unknown options pass.
    pub sloppy: bool,
    /// Do everything but mount.
    pub fake: bool,
    /// This is the child that serves in the background.
    pub announce: bool,
    /// The device of a mount that another process has made.
    pub fd: Option<i32>,
    /// The daemon keeps all rights of its caller.
    pub no_sandbox: bool,
    /// The environment is clean.
    pub clean: bool,
    /// The source for messages, where it is not what is opened.
    pub named: Option<String>,
    /// The directory for messages: as it was typed.
    pub named_dir: Option<OsString>,
}

/// Types that `-t` may name.
const TYPES: [&str; 9] =
    ["ext2", "ext3", "ext4", "extol", "auto", "fuse", "fuseblk", "fuse.extol", "fuseblk.extol"];

impl Request {
    /// From the command line of `extol mount`.
    ///
    /// # Errors
    /// Words that do not go together.
    pub fn from_args(args: MountArgs) -> Result<Self> {
        args.refused.check()?;
        if let Some(kind) = &args.kind
            && !kind.split(',').all(|kind| TYPES.contains(&kind))
        {
            return Err(Failure::usage(format_args!(
                "-t {kind}: Extol mounts ext2, ext3 and ext4 only"
            )));
        }
        let (source, dir) = source_and_dir(&args)?;
        let mut options = args.options;
        if args.single_thread {
            options.push("max_threads=1,noio_uring".into());
        }
        if args.read_only {
            options.push("ro".into());
        }
        if let Some(address) = args.metrics {
            options.push(format!("{}{address}", options::METRICS).into());
        }
        if args.read_write {
            options.push("rw".into());
        }
        Ok(Self {
            source,
            dir,
            options,
            foreground: args.foreground || args.debug,
            verbose: args.verbose || args.debug,
            read_write: args.read_write,
            announce: args.announce,
            fd: args.fd.map(u32::cast_signed),
            no_sandbox: args.no_sandbox,
            clean: args.clean,
            named: args.named,
            named_dir: args.named_dir,
            ..Self::default()
        })
    }

    /// A failure of the start, with the source and the directory as they were typed.
    pub(super) fn as_typed(&self, mut failure: Failure) -> Failure {
        if let Some(typed) = &self.named_dir {
            failure.line = as_typed(&failure.line, &self.dir, Path::new(typed));
        }
        let opened = format!("{}: ", self.source.shown());
        if let Some(named) = &self.named
            && let Some(rest) = failure.line.strip_prefix(&opened)
        {
            failure.line = format!("{named}: {rest}");
            // (The advice names a partition of the same.)
            let part = format!("say {}:", self.source.shown());
            failure.line = failure.line.replace(&part, &format!("say {named}:"));
        }
        failure
    }

    /// The command line of the process that serves. Unknown options are left out by now.
    pub(super) fn daemon_words(&self, options: &[OsString]) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["mount", "-f"].map(OsString::from).into();
        let background = self.announce || !self.foreground;
        let flags = [
            (background, "--announce"),
            (self.verbose, "-v"),
            (self.read_write, "-w"),
            (self.no_sandbox, "--no-sandbox"),
            (!self.no_sandbox, "--clean"),
        ];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag.into()));
        words.extend(self.fd.map(|number| format!("--fd={number}").into()));
        let names = [
            ("--named=", self.named.as_ref().map(AsRef::as_ref)),
            ("--named-dir=", self.named_dir.as_deref()),
        ];
        words.extend(names.into_iter().filter_map(|(option, name): (_, Option<&OsStr>)| {
            let mut word = OsString::from(option);
            word.push(name?);
            Some(word)
        }));
        for list in options {
            words.push("-o".into());
            words.push(list.into());
        }
        words.extend(["--".into(), self.source.clone().into()]);
        words.extend(self.fd.is_none().then(|| self.dir.clone().into()));
        words
    }

    /// Resolves the place to mount on. `/dev/fd/N` stands for a mount that is there already, as
    /// with libfuse.
    pub(super) fn resolve_target(&mut self) -> Result<()> {
        let number = self.dir.strip_prefix("/dev/fd").ok();
        let number = number.map(|name| extol_proc::number(name.as_os_str().as_encoded_bytes()));
        match (self.fd, number) {
            (None, None) => {
                let typed = std::mem::take(&mut self.dir);
                self.dir = absolute(&typed)?;
                extol_fuse::check(&self.dir).map_err(|error| match error {
                    MountError::Dir { source, .. } if source.kind() == PermissionDenied => {
                        mounted::holder_of(&self.dir).map_or_else(
                            || Failure::system_call(typed.shown(), source),
                            |holder| Failure::about(typed.shown(), holder),
                        )
                    }
                    error => error.into(),
                })?;
                self.named_dir.get_or_insert(typed.into());
                Ok(())
            }
            (None, Some(Some(number))) => {
                (self.fd, self.dir) = (Some(number), PathBuf::new());
                Ok(())
            }
            (Some(_), None) => Ok(()),
            _ => Err(Failure::usage("bad descriptor: use --fd N or /dev/fd/N")),
        }
    }

    /// The mount point as an argument in a message. Where another process has mounted it is not
    /// known.
    pub(super) fn shown_dir(&self) -> String {
        if self.fd.is_some() { "DIR".to_owned() } else { self.typed_dir() }
    }

    /// The place, for messages.
    pub(super) fn place(&self) -> String {
        match self.fd {
            Some(number) => format!("descriptor {number}"),
            None => self.typed_dir(),
        }
    }

    fn typed_dir(&self) -> String {
        let typed = self.named_dir.as_ref().map_or(self.dir.as_path(), Path::new);
        typed.shown().to_string()
    }

    /// The source, for messages of the start.
    pub(super) fn shown_source(&self) -> String {
        self.named.clone().unwrap_or_else(|| self.source.shown().to_string())
    }
}

/// The source, perhaps by its label or UUID, and the directory.
fn source_and_dir(args: &MountArgs) -> Result<(PathBuf, PathBuf)> {
    let tagged = |tag: &str, value: &OsString| {
        let mut source = OsString::from(tag);
        source.push(value);
        PathBuf::from(source)
    };
    let by_tag = args.label.as_ref().map(|label| tagged("LABEL=", label));
    let by_tag = by_tag.or_else(|| args.uuid.as_ref().map(|uuid| tagged("UUID=", uuid)));
    match (by_tag, &args.dir) {
        (None, dir) => Ok((args.source.clone(), dir.clone().unwrap_or_default())),
        (Some(source), None) if args.fd.is_none() => Ok((source, args.source.clone())),
        (Some(source), _) => Err(Failure::usage(format_args!(
            "{} is given twice: leave out {}",
            source.shown(),
            args.source.shown()
        ))),
    }
}

/// A path without links. It is an error where it leads to nothing.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| unresolved(path, error))
}

/// The name of a volume without links.
pub fn absolute_source(name: &OpenName) -> Result<PathBuf> {
    name.absolute().map_err(|error| unresolved(&name.path, error))
}

fn unresolved(path: &Path, error: std::io::Error) -> Failure {
    match rustix::io::Errno::from_io_error(&error) {
        Some(errno) if extol_fuse::is_dead(errno) => {
            MountError::Dead { dir: path.to_owned() }.into()
        }
        _ => Failure::system_call(path.shown(), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_the_same_request() {
        let request = Request {
            source: "/a b".into(),
            dir: "-d".into(),
            verbose: true,
            named: Some("b.img".into()),
            named_dir: Some("./-d".into()),
            ..Request::default()
        };
        let words = request.daemon_words(&["ro".into(), "commit=3".into()]);
        let crate::args::Command::Mount(args) =
            crate::args::parse(&[vec!["extol".into()], words].concat()).unwrap()
        else {
            panic!("not mount");
        };
        assert!(args.foreground && args.announce && args.verbose);
        assert_eq!(args.options, ["ro", "commit=3"]);
        assert!(args.clean && !args.no_sandbox);
        assert_eq!(args.named.as_deref(), Some("b.img"));
        assert_eq!(args.named_dir.as_deref(), Some("./-d".as_ref()));
        assert_eq!((args.source, args.dir), ("/a b".into(), Some("-d".into())));
    }

    fn parsed(line: &str) -> Result<Request> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        match crate::args::parse(&words)? {
            crate::args::Command::Mount(args) => Request::from_args(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_options() {
        assert_eq!(parsed("extol mount -r img dir").unwrap().options, ["ro"]);
        let request = parsed("extol mount -n -s -d -t ext4 img dir").unwrap();
        assert_eq!(request.options, ["max_threads=1,noio_uring"]);
        assert!(request.foreground && request.verbose);
        let request = parsed("extol mount -L data -o ro dir").unwrap();
        assert_eq!((request.source, request.dir), ("LABEL=data".into(), "dir".into()));
        let request = parsed("extol mount dir -U 1-2").unwrap();
        assert_eq!((request.source, request.dir), ("UUID=1-2".into(), "dir".into()));
        for (line, word) in [
            ("extol mount -t xfs img dir", "xfs"),
            ("extol mount -L a img dir", "img"),
            ("extol mount -L a --fd 3 img", "img"),
            ("extol mount -a img dir", "-a"),
            ("extol mount -B img dir", "-B"),
            ("extol mount -m img dir", "-m"),
            ("extol mount -N 1 img dir", "-N"),
            ("extol mount img", "<DIR>"),
        ] {
            let failure = parsed(line).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{line}");
            assert!(failure.line.contains(word), "{line}: {}", failure.line);
        }
    }

    #[test]
    fn failures_name_what_was_typed() {
        let request = Request {
            source: "/dev/loop0".into(),
            named: Some("a.img".into()),
            ..Request::default()
        };
        let line = |line: &str| request.as_typed(Failure::new(line)).line;
        assert_eq!(line("/dev/loop0: bad"), "a.img: bad");
        assert_eq!(line("other: /dev/loop0: bad"), "other: /dev/loop0: bad");
        let mut request = Request { dir: ".".into(), ..Request::default() };
        let here = Path::new(".").canonicalize().unwrap();
        request.dir = here.clone();
        request.named_dir = Some("here".into());
        let failure = request.as_typed(Failure::about(here.shown(), "bad"));
        assert_eq!(failure.line, "here: bad");
    }

    #[test]
    fn messages_name_no_empty_directory() {
        let mut request = Request { dir: "/dev/fd/3".into(), ..Request::default() };
        request.resolve_target().unwrap();
        assert_eq!(request.shown_dir(), "DIR");
        let request = Request { dir: "/mnt".into(), ..Request::default() };
        assert_eq!(request.shown_dir(), "/mnt");
    }
}
