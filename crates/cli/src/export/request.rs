//! What to export, from the command line.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use extol_cli_common::{Failure, Result};
use extol_nfs::{Config, Network};

use crate::args::ExportArgs;
use crate::options::{self, Opening, Part};
use crate::volume::{self, Source, VolumeOptions};
use crate::{metrics, mount};

/// What to export.
#[derive(Debug)]
pub struct Request {
    pub source: PathBuf,
    pub config: Config,
    pub volume: VolumeOptions,
    pub part: Part,
    pub foreground: bool,
    pub verbose: bool,
    pub announce: bool,
    pub no_sandbox: bool,
    /// Another process of this export has started this one.
    pub is_restarted: bool,
    pub metrics: Option<String>,
    pub pid_file: Option<PathBuf>,
    /// The absolute path of the directory that keeps the secret; `None`: there is none.
    pub state_dir: Option<PathBuf>,
    listen: String,
    address: SocketAddr,
    /// Option lists in order.
    lists: Vec<OsString>,
    allow: Vec<String>,
}

impl Request {
    /// From the command line.
    ///
    /// # Errors
    /// Words that are wrong, or do not go together.
    pub fn new(args: &ExportArgs) -> Result<Self> {
        let mut lists = args.options.clone();
        if args.read_only {
            lists.push("ro".into());
        }
        let (mut config, rest) = split(&lists)?;
        let Opening { volume, part } = options::opening(&rest)?;
        config.read_only = volume.access.read_only;
        let networks = args.allow.iter().map(|text| Network::parse(text).map_err(Failure::usage));
        config.allowed = networks.collect::<Result<_>>()?;
        let address = address(&args.listen)?;
        if !address.ip().is_loopback() && config.allowed.is_empty() {
            return Err(Failure::usage(format_args!(
                "{address} can be reached by other machines: say which with --allow (--allow {} \
                 is all)",
                if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" }
            )));
        }
        let name = volume::name(Source { path: &args.source, part })?;
        Ok(Self {
            source: mount::absolute_source(&name)?,
            config,
            volume,
            part,
            foreground: args.foreground,
            verbose: args.verbose,
            announce: args.announce,
            no_sandbox: args.no_sandbox,
            is_restarted: args.clean || args.announce,
            metrics: args.metrics.clone(),
            pid_file: args
                .pid_file
                .as_deref()
                .map(std::path::absolute)
                .transpose()
                .map_err(|error| Failure::system_call("--pid-file", error))?,
            state_dir: args.state_dir.clone(),
            listen: args.listen.clone(),
            address,
            lists,
            allow: args.allow.clone(),
        })
    }

    /// The command line of the process that serves.
    pub fn daemon_words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["export".into(), "-f".into()];
        let flags = [
            (self.announce || !self.foreground, "--announce"),
            (self.verbose, "-v"),
            (self.no_sandbox, "--no-sandbox"),
            (!self.no_sandbox, "--clean"),
        ];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag.into()));
        words.push(format!("--listen={}", self.listen).into());
        words.extend(self.allow.iter().map(|network| format!("--allow={network}").into()));
        words.extend(self.metrics.iter().map(|address| format!("--metrics={address}").into()));
        let paths = [("--pid-file=", &self.pid_file), ("--state-dir=", &self.state_dir)];
        words.extend(paths.iter().filter_map(|(option, path)| {
            let mut word = OsString::from(option);
            word.push(path.as_ref()?);
            Some(word)
        }));
        for list in &self.lists {
            words.push("-o".into());
            words.push(list.clone());
        }
        words.extend(["--".into(), self.source.clone().into()]);
        words
    }

    /// Binds the address.
    pub fn bind(&self) -> Result<TcpListener> {
        TcpListener::bind(self.address).map_err(|error| self.cannot_listen(error))
    }

    /// The failure for an address that cannot be had.
    pub fn cannot_listen(&self, error: std::io::Error) -> Failure {
        let place = format!("NFS on {}", self.address);
        match error.kind() {
            ErrorKind::AddrInUse => {
                Failure::about(place, "the port is in use; choose another, or 0 for any")
            }
            _ => Failure::system_call(place, error),
        }
    }
}

/// The options of the export, and the lists of the others.
fn split(lists: &[OsString]) -> Result<(Config, Vec<OsString>)> {
    let (mut config, mut rest) = (Config::default(), Vec::new());
    for word in lists.iter().flat_map(options::words) {
        let taken = match options::text_of(&word) {
            Some(text) => {
                let (name, value) = options::parts(text);
                config.set(name, value).map_err(Failure::usage)?
            }
            None => false,
        };
        if !taken {
            rest.push(options::quoted(&word));
        }
    }
    Ok((config, rest))
}

/// The address of `--listen`.
fn address(text: &str) -> Result<SocketAddr> {
    metrics::resolve(text).ok_or_else(|| {
        let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Failure::usage(match has_port {
            true => format!("--listen {text}: this host is not found"),
            false => format!(
                "bad address \"{text}\" for --listen: use HOST:PORT, such as 127.0.0.1:2049"
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};
    use std::path::Path;

    fn parsed(line: &str) -> Result<Request> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        match args::parse(&words)? {
            Command::Export(args) => Request::new(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_server_gets_the_same_request() {
        let line = "extol export -v -r -o all_squash,anonuid=7 -o sb=1 --allow 10.0.0.0/8 \
                    --metrics :9184 --state-dir /state --pid-file /pid --listen 127.0.0.1:0 .";
        let request = parsed(line).unwrap();
        assert!(request.config.read_only && request.volume.access.read_only);
        let words = [vec!["extol".into()], request.daemon_words()].concat();
        let Command::Export(args) = args::parse(&words).unwrap() else { panic!("not export") };
        assert!(args.foreground && args.announce && args.verbose && args.clean);
        let again = Request::new(&args).unwrap();
        assert_eq!(again.source, request.source);
        assert_eq!(format!("{:?}", again.config), format!("{:?}", request.config));
        assert_eq!(again.config.anonymous_uid, 7);
        assert_eq!(again.pid_file.as_deref(), Some(Path::new("/pid")));
        assert_eq!(again.state_dir.as_deref(), Some(Path::new("/state")));
        assert_eq!(again.metrics.as_deref(), Some(":9184"));
        assert_eq!(again.address, "127.0.0.1:0".parse().unwrap());
    }

    #[test]
    fn nothing_listens_to_others_unless_told_to() {
        assert!(parsed("extol export .").unwrap().address.ip().is_loopback());
        assert!(parsed("extol export --listen :99 .").unwrap().address.ip().is_loopback());
        for (line, word) in [
            ("extol export --listen 0.0.0.0:2049 .", "--allow 0.0.0.0/0"),
            ("extol export --listen [::]:2049 .", "--allow ::/0"),
            ("extol export --listen frob .", "frob"),
            ("extol export --allow 10.1.1.1/8 .", "10.0.0.0/8"),
            ("extol export -o allow_other .", "allow_other"),
            ("extol export -o anonuid=x .", "anonuid"),
        ] {
            let failure = parsed(line).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE, "{line}");
            assert!(failure.line.contains(word), "{line}: {}", failure.line);
        }
        assert!(parsed("extol export --listen 0.0.0.0:2049 --allow 10.0.0.0/8 .").is_ok());
    }
}
