//! The command, and the tools of libnfs.

use extol_testkit::{
    ExtolExport, Image, Need, Scratch, e2fsck, extol_ok, metric_samples, metrics_of, refused,
    require, run, run_ok, text, tool,
};
use std::time::Duration;

const NEEDS: [Need; 2] = [Need::Tool("nfs-ls"), Need::Tool("mke2fs")];

fn image(scratch: &Scratch) -> Image {
    Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-O", "fast_commit"])
}

/// Copies in, lists, copies out; and the same after a crash, and after an end.
#[test]
fn tools_of_libnfs_copy_in_and_out() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let (data, back) = (scratch.join("data"), scratch.join("back"));
    let bytes: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
    std::fs::write(&data, &bytes).expect("write");
    // (The root directory belongs to root, and these tools say which user they are. A path without
    // a name before the last slash confuses them.)
    let options = ["-o", "no_root_squash"];
    let server = ExtolExport::start(&image.path, 0, &options);
    let port = server.address.port();
    run_ok(tool("nfs-cp").arg(&data).arg(server.url("//file")));
    let same = |server: &ExtolExport| {
        let listed = run_ok(tool("nfs-ls").arg(server.url("/")));
        assert!(listed.contains("5000000 file"), "{listed}");
        run_ok(tool("nfs-cp").arg(server.url("//file")).arg(&back));
        assert!(std::fs::read(&back).expect("read") == bytes);
        // (The tool makes files, and opens none.)
        std::fs::remove_file(&back).expect("unlink");
    };
    same(&server);
    server.kill9();
    let read_only = ["-r", "-o", "no_root_squash"];
    let server = ExtolExport::start(&image.path, port, &read_only);
    same(&server);
    let refused =
        run(tool("nfs-cp").arg(&data).arg(server.url("//other")), Duration::from_secs(60));
    assert!(!refused.success(), "{}", refused.output);
    let ended = server.end();
    assert!(ended.success(), "{ended}");
    // Root of a client is nothing special unless that is said.
    let server = ExtolExport::start(&image.path, port, &[]);
    let url = server.url("//file");
    let squashed = run(tool("nfs-cp").arg(url).arg(&back), Duration::from_secs(60));
    assert!(squashed.output.contains("ACCESS denied"), "{}", squashed.output);
    let log = server.log();
    assert!(server.end().success(), "{log}");
    e2fsck(&image).assert_clean("after an export");
    let listed = extol_ok(&["ls", text(&image.path), "/"]);
    assert!(listed.contains("file") && !listed.contains("other"), "{listed}");
}

/// In the background it returns when it answers, and says how to end it.
#[test]
fn an_export_goes_to_the_background() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let state = scratch.join("state");
    let said =
        extol_ok(&["export", "--listen", ":0", "--state-dir", text(&state), text(&image.path)]);
    let word = |before: &str| {
        let rest = said.split(before).nth(1).expect("a line").trim_start();
        rest.split([' ', '\n']).next().expect("a word").to_owned()
    };
    let (address, pid) = (word("exported at"), word("by process"));
    let port = address.rsplit(':').next().expect("a port");
    let url = format!("nfs://127.0.0.1/?nfsport={port}&mountport={port}");
    let listed = run(tool("nfs-ls").arg(url), Duration::from_secs(60));
    run_ok(tool("kill").arg(&pid));
    assert!(listed.output.contains("lost+found"), "{}", listed.output);
    let alive = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    for _ in 0..2000 {
        if !alive() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!alive(), "{said}");
    e2fsck(&image).assert_clean("after SIGTERM");
}

/// Scripts and service managers find an export: its process, its counters, and how to end it.
#[test]
fn an_export_is_found_by_its_image() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let (pid_file, state) = (scratch.join("pid"), scratch.join("state"));
    let path = text(&image.path);
    let start = ["export", "--listen", ":0", "--pid-file", text(&pid_file)];
    let start = [&start[..], &["--state-dir", text(&state), path]].concat();
    refused(&["export", "--stop", path], 32, &["no process of this user exports it"]);
    refused(&["stat", path], 32, &["not on a volume that extol has mounted"]);
    extol_ok(&start);
    let pid = std::fs::read_to_string(&pid_file).expect("read").trim().to_owned();
    let link = scratch.join("link");
    std::os::unix::fs::symlink(&image.path, &link).expect("a link");
    let shown = extol_ok(&["stat", text(&link)]);
    assert!(shown.contains("over NFS") && shown.contains("read-write"), "{shown}");
    let json = extol_ok(&["stat", "--json", path]);
    let word = |name: &str| {
        let rest = json.split(&format!("\"{name}\": ")).nth(1).unwrap_or_else(|| panic!("{json}"));
        rest.split([',', '\n']).next().expect("a value").trim_matches('"').to_owned()
    };
    assert_eq!((word("process"), word("connections")), (pid.clone(), "0".to_owned()));
    let port = word("address").rsplit(':').next().expect("a port").to_owned();
    run_ok(tool("nfs-ls").arg(format!("nfs://127.0.0.1/?nfsport={port}&mountport={port}")));
    let json = extol_ok(&["stat", "--json", path]);
    assert!(json.contains("\"readdirplus\": 1"), "{json}");
    refused(&start, 32, &["pid file"]);
    extol_ok(&["export", "--stop", path]);
    // (Its parent may not have waited for it yet.)
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    assert!(status.is_empty() || status.contains("Z (zombie)"), "{status}");
    assert_eq!(std::fs::read_to_string(&pid_file).expect("read"), "");
    refused(&["export", "--stop", path], 32, &["no process of this user exports it"]);
    e2fsck(&image).assert_clean("after export --stop");
}

/// Handles outlive a server that is killed, if their secret is kept; and a secret that others may
/// know is refused.
#[test]
fn the_secret_of_handles_is_kept() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let server = ExtolExport::start(&image.path, 0, &[]);
    let secret = image.path.with_extension("state").join("handles.key");
    let bytes = std::fs::read(&secret).expect("a secret");
    server.kill9();
    let server = ExtolExport::start(&image.path, 0, &[]);
    assert_eq!(std::fs::read(&secret).expect("a secret"), bytes);
    assert!(server.end().success());
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .expect("chmod");
    let state = image.path.with_extension("state");
    let args = ["export", "-f", "--listen", ":0", "--state-dir", text(&state), text(&image.path)];
    refused(&args, 32, &["handles.key", "remove it"]);
}

/// What clients ask is counted, beside what the volume does.
#[test]
fn counters_of_an_export() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let server = ExtolExport::start(&image.path, 0, &["--metrics", ":0"]);
    let log = server.log();
    let address = log.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{log}"));
    let sample = |name: &str| {
        let samples = metric_samples(&metrics_of(address).1);
        samples.iter().find(|(sample, _)| sample == name).map(|(_, number)| *number)
    };
    assert_eq!(sample("extol_nfs_connections"), Some(0.0));
    assert_eq!(sample("extol_nfs_calls_total{procedure=\"readdirplus\"}"), None);
    run_ok(tool("nfs-ls").arg(server.url("/")));
    assert_eq!(sample("extol_nfs_calls_total{procedure=\"readdirplus\"}"), Some(1.0));
    assert!(sample("extol_size_bytes").is_some_and(|bytes| bytes > 0.0));
    let ended = server.end();
    assert!(ended.success(), "{ended}");
}

#[test]
fn mistakes_are_refused_in_one_line() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let path = text(&image.path);
    refused(&["export", "--listen", "0.0.0.0:0", path], 1, &["--allow"]);
    refused(&["export", "-f", "-o", "subtree=/none", "--listen", ":0", path], 32, &["subtree"]);
    let server = ExtolExport::start(&image.path, 0, &[]);
    let other = Image::mke2fs(scratch.path(), "b.img", 16 << 20, &["-t", "ext4"]);
    let address = server.address.to_string();
    let args = ["export", "-f", "--listen", &address, text(&other.path)];
    refused(&args, 32, &["in use"]);
}
