//! What each shell completes, asked of the shell itself: names of commands, also behind `help`,
//! long options, values of options, and files.

use extol_testkit::{Need, Scratch, extol_path, require, run, run_extol, tool};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What is typed, and what has to be among the answers.
const TYPED: [(&str, &str); 10] = [
    ("extol mkd", "mkdir"),
    ("extol umount --ti", "--timeout"),
    ("extol help umo", "umount"),
    ("extol info vol", "volume.img"),
    ("extol completions zs", "zsh"),
    ("extol mount -o noat", "noatime"),
    ("extol mkfs -O inl", "inline_data"),
    ("extol mkfs -t ext", "ext3"),
    ("extol mount vol", "volume.img"),
    ("extol mount -r volume.img m", "mnt"),
];

/// A directory with the shell's completions, the command and a file to find.
fn rig(shell: &str, name: &str) -> Scratch {
    let scratch = Scratch::new();
    let done = run_extol(&["completions", shell]);
    assert!(done.success(), "{}", done.output);
    std::fs::write(scratch.join(name), done.output).expect("completions");
    std::fs::write(scratch.join("volume.img"), "").expect("a file");
    std::fs::create_dir(scratch.join("mnt")).expect("a directory");
    scratch
}

/// What the shell's program says of each line that is typed.
fn answers(shell: &str, dir: &Path, program: impl Fn(&str) -> String) {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", extol_path().parent().expect("a directory").display());
    for (typed, wanted) in TYPED {
        let words = if shell == "zsh" { &["-f", "-c"][..] } else { &["-c"] };
        let mut command = tool(shell);
        command.args(words).arg(program(typed)).current_dir(dir);
        command.env("PATH", &path).env("HOME", dir).env("TERM", "dumb");
        let done = run(&mut command, LIMIT);
        assert!(done.output.contains(wanted), "{shell}: {typed:?}: {}", done.output);
    }
}

#[test]
fn bash_completes() {
    if !require(&[Need::Tool("bash")]) {
        return;
    }
    let scratch = rig("bash", "extol.bash");
    answers("bash", scratch.path(), |typed| {
        format!(
            "source ./extol.bash; COMP_LINE='{typed}'; COMP_POINT=${{#COMP_LINE}}
             COMP_WORDS=($COMP_LINE); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
             _extol extol \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"
             # Bash itself completes files, where the function has no answer.
             [[ ${{COMPREPLY[*]}} || $(complete -p extol) != *'-o default'* ]] || COMPREPLY=(*)
             echo \"${{COMPREPLY[@]}}\""
        )
    });
}

/// Where an argument is to come, Bash itself offers files, and no option is put there; a label is
/// no file.
#[test]
fn bash_offers_no_options_for_arguments() {
    if !require(&[Need::Tool("bash")]) {
        return;
    }
    let scratch = rig("bash", "extol.bash");
    for (words, number, before) in [
        ("extol mount ''", 2, "mount"),
        ("extol mkfs -L ''", 3, "-L"),
        ("extol cat vol ''", 3, "vol"),
    ] {
        let program = format!(
            "source ./extol.bash; COMP_WORDS=({words}); COMP_CWORD={number}
             _extol extol '' {before} 2>/dev/null; echo \"<${{COMPREPLY[*]}}>\""
        );
        let done = run(tool("bash").args(["-c", &program]).current_dir(scratch.path()), LIMIT);
        assert_eq!(done.output.trim(), "<>", "{words}");
    }
}

#[test]
fn fish_completes() {
    if !require(&[Need::Tool("fish")]) {
        return;
    }
    let scratch = rig("fish", "extol.fish");
    answers("fish", scratch.path(), |typed| {
        format!("source ./extol.fish; complete --do-complete '{typed}'")
    });
}

/// Zsh completes only on a terminal, so it gets one, and what it writes there is searched: a name
/// stands as a whole where the only answer was filled in. (What is typed may be echoed, so words
/// that are waited for are typed with quotes in them.)
#[test]
fn zsh_completes() {
    if !require(&[Need::Tool("zsh")]) {
        return;
    }
    let scratch = rig("zsh", "_extol");
    answers("zsh", scratch.path(), |typed| {
        format!(
            "zmodload zsh/zpty; zpty shell zsh -f -i
             zpty -w shell 'PS1=\"> \"; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D'
             zpty -w shell \"print rea''dy\"
             zpty -r -m shell line '*ready*'
             zpty -n -w shell '{typed}'$'\\t'
             zpty -n -w shell $'\\x01print -r -- \\x27<\\x05>\\x27\\n'
             zpty -w shell \"print do''ne\"
             zpty -r -m shell line '*done*'; print -r -- $line; zpty -d shell"
        )
    });
}
