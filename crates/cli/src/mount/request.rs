//! What to mount, from the command line of `extol mount` or of a mount helper.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extol_cli_common::{Failure, Result};
use extol_fuse::MountError;

use crate::args::MountArgs;
use crate::options;

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
}

impl Request {
    pub fn from_args(args: MountArgs) -> Self {
        let mut options = args.options;
        if args.read_only {
            options.push("ro".into());
        }
        if let Some(address) = args.metrics {
            options.push(format!("{}{address}", options::METRICS).into());
        }
        if args.read_write {
            options.push("rw".into());
        }
        Self {
            source: args.source,
            dir: args.dir.unwrap_or_default(),
            options,
            foreground: args.foreground,
            verbose: args.verbose,
            read_write: args.read_write,
            announce: args.announce,
            fd: args.fd,
            no_sandbox: args.no_sandbox,
            clean: args.clean,
            ..Self::default()
        }
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
                self.dir = absolute(&self.dir)?;
                Ok(extol_fuse::check(&self.dir)?)
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
        if self.fd.is_some() { "DIR".to_owned() } else { self.dir.display().to_string() }
    }

    /// The place, for messages.
    pub(super) fn place(&self) -> String {
        match self.fd {
            Some(number) => format!("descriptor {number}"),
            None => self.dir.display().to_string(),
        }
    }
}

/// A path without links. It is an error where it leads to nothing.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(errno) if extol_fuse::is_dead(errno) => {
            MountError::Dead { dir: path.to_owned() }.into()
        }
        _ => Failure::about(path.display(), error),
    })
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
        assert_eq!((args.source, args.dir), ("/a b".into(), Some("-d".into())));
    }

    #[test]
    fn flags_become_options() {
        let words = "extol mount -r img dir".split(' ').map(OsString::from).collect::<Vec<_>>();
        let crate::args::Command::Mount(args) = crate::args::parse(&words).unwrap() else {
            panic!("not mount")
        };
        assert_eq!(Request::from_args(args).options, ["ro"]);
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
