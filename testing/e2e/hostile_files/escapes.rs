//! What a volume is called does nothing to a terminal.

use super::{LIMIT, NEEDS, extol, extol_path, made_by, run_extol, text};
use extol_testkit::{Need, Scratch, require, run, tool};

const EVIL: &str = "\u{1b}]0;evil\u{7}\u{9b}2J";

/// True if something would be done.
fn acts(output: &str) -> bool {
    output.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
}

#[test]
fn nothing_printed_acts() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let payload = scratch.join("payload");
    std::fs::write(&payload, "x").unwrap();
    let image = made_by(
        &scratch,
        &["-O", "^metadata_csum"],
        &[
            format!("mkdir \"d{EVIL}\""),
            format!("write {} \"d{EVIL}/f{EVIL}\"", payload.display()),
            format!("write {} \"clear{EVIL}\"", payload.display()),
            format!("symlink \"link{EVIL}\" \"{EVIL}\""),
            format!("clri \"clear{EVIL}\""),
            format!("ea_set \"d{EVIL}\" \"user.{EVIL}\" x"),
        ],
    );
    // Label (16 bytes) and path of the last mount (64), which no tool would write.
    image.write_at(1024 + 0x78, "\u{1b}[31m\nState x\u{9b}".as_bytes());
    image.write_at(1024 + 0x88, format!("/m{EVIL}\0").as_bytes());
    let path = text(&image.path);
    let dest = scratch.dir("dest");
    for args in [
        &["info", path][..],
        &["info", "--json", path],
        &["log", path],
        &["log", "--json", path],
        &["check", path],
        &["check", "--json", path],
        &["mkfs", path],
        &["cp", path, "/", text(&dest)],
        &["rm", path, &format!("/clear{EVIL}"), &format!("/{EVIL}")],
        &["cat", path, &format!("/link{EVIL}")],
        &["replay", path],
        &["mount", "-f", path, &format!("/nowhere/{EVIL}")],
        &["stat", &format!("/nowhere/{EVIL}")],
    ] {
        let done = run_extol(args);
        assert!(!acts(&done.output), "{}: {:?}", done.command, done.output);
        assert!(!done.output.is_empty(), "{}", done.command);
    }
    let info = run_extol(&["info", path]).output;
    assert!(info.contains("Label                  \\u{1b}[31m\\nState"), "{info}");
    assert_eq!(info.lines().filter(|line| line.starts_with("State")).count(), 1, "{info}");
    let json: serde_json::Value =
        serde_json::from_str(&run_extol(&["info", "--json", path]).output).unwrap();
    assert_eq!(json["last_mounted"], format!("/m{EVIL}"));

    // A list of names is bytes for programs, and shows itself to a terminal.
    let piped = run_extol(&["ls", "-l", path]);
    assert!(piped.output.contains(EVIL) && !acts(&piped.stderr), "{}", piped.output);
    if require(&[Need::Tool("script")]) {
        let line = format!("{} ls -lR '{path}' 2>&1", extol_path().display());
        let shown = run(tool("script").args(["-qec", &line, "/dev/null"]), LIMIT);
        assert!(shown.output.contains("d?]0;evil??2J:"), "{}", shown.output);
        assert!(!acts(&shown.output.replace("\r\n", "\n")), "{:?}", shown.output);
    }
    let mut completions = extol();
    let done = run(completions.args([&format!("no-such-{EVIL}")]), LIMIT);
    assert!(!acts(&done.output), "{:?}", done.output);
}
