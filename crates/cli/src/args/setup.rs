//! Arguments of the commands that help to install the command: completions, man.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use extol_cli_common::manual;

/// Print the completions for a shell.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol completions bash >/etc/bash_completion.d/extol",
        "extol completions zsh >/usr/local/share/zsh/site-functions/_extol",
        "extol completions fish >~/.config/fish/completions/extol.fish",
    ),
    long_about = "Print the completions for a shell.\n\n\
        The Debian package and `make install` have put them in place already."
)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// Shells that have completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// GNU Bash, with bash-completion
    Bash,
    /// fish
    Fish,
    /// Zsh
    Zsh,
}

/// Write the manual pages into a directory.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol man /usr/local/share/man && man extol-mount",
        "extol man ~/.local/share/man",
    ),
    long_about = "Write the manual pages into a directory.\n\n\
        There is a page for each command, such as extol-mount(1), and mount.extol(8) for mount \
        helpers. The directories man1 and man8 are made if need be.\n\n\
        The Debian package and `make install` have put the pages in place already."
)]
pub struct ManArgs {
    /// A directory of manual pages, as in MANPATH.
    pub dir: PathBuf,
}
