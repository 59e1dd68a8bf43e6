use super::*;
use crate::target::recorder::Recorder;
use crate::workload::{Dbench, Limits, Workload as _};

const SESSION: &str = r#"# comment
Deltree "\clients\client1" NT_STATUS_OK
Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 16385 NT_STATUS_OK
Close 16385 NT_STATUS_OK
NTCreateX "\clients\client1\mixfile" 0x40 0x1 9935 NT_STATUS_OBJECT_NAME_NOT_FOUND
QUERY_PATH_INFORMATION "\clients\client1\~dmtmp" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
0.500 FIND_FIRST "\clients\client1\FILLER.*" 260 1366 0 NT_STATUS_NO_SUCH_FILE
NTCreateX "\clients\client1\a b" 0x40 0x2 9938 NT_STATUS_OK
QUERY_FS_INFORMATION 1 NT_STATUS_OK
WriteX 9938 65534 1 1 NT_STATUS_OK
LockX 9938 2147483538 1 NT_STATUS_OK
Flush 9938 NT_STATUS_OK
ReadX 9938 0 4096 4096 NT_STATUS_OK
QUERY_FILE_INFORMATION 9938 258 NT_STATUS_OK
SET_FILE_INFORMATION 9938 1004 NT_STATUS_OK
Close 9938 NT_STATUS_OK
Rename "\clients\client1\a b" "\clients\client1\C" NT_STATUS_OK
NTCreateX "\clients\client1\C" 0x40 0x1 1 NT_STATUS_OK
Close 1 NT_STATUS_OK
Unlink "\clients\client1\C" 0x6 NT_STATUS_OK
Deltree "\clients\client1" NT_STATUS_OK
"#;

fn play(text: &str, clients: u32, times: u64) -> (Recorder, io::Result<crate::workload::Outcome>) {
    let target = Recorder::default();
    let load = Dbench {
        clients,
        decks: times,
        loadfile: Some(Arc::new(LoadFile::parse(text).unwrap())),
        ..Dbench::default()
    };
    let outcome = load.run(&target, &Limits::default());
    (target, outcome)
}

#[test]
fn a_session_is_played_by_each_client() {
    let (target, outcome) = play(SESSION, 2, 3);
    let outcome = outcome.unwrap();
    let counts = [
        ("create", 6),
        ("open", 12),
        ("write", 6),
        ("fsync", 6),
        ("read", 6),
        ("rename", 6),
        ("utimes", 6),
    ];
    for (call, want) in counts {
        assert_eq!(target.count(call), want, "{call}");
    }
    assert_eq!((target.count("stat"), target.count("list"), target.files()), (6, 6, 0));
    // Of a recorder's file of 65535 bytes 4096 can be read.
    assert_eq!((outcome.written, outcome.read), (6, 6 * 4096));
    let mut first: Vec<String> = target.calls();
    first.retain(|c| c.contains("client1"));
    assert!(
        first.contains(&"rename clients/client1/a b clients/client1/C".to_owned()),
        "{first:?}"
    );
    assert!(target.calls().contains(&"create clients/client0/a b".to_owned()));
}

#[test]
fn mistakes_have_a_line_number() {
    let bad = [
        "Close 1 NT_STATUS_OK\nFrobnicate 1 NT_STATUS_OK\n",
        "\nWriteX 1 0 4096 NT_STATUS_OK\n",
        "\nUnlink \"\\a 0x6 NT_STATUS_OK\n",
        "\nClose x NT_STATUS_OK\n",
        "\nClose 1\n",
        "\nReadX 1 0 99999999999 1 NT_STATUS_OK\n",
    ];
    for text in bad {
        let error = LoadFile::parse(text).unwrap_err();
        assert!(error.starts_with("line 2 ") && !error.contains('\n'), "{error}");
    }
    assert!(LoadFile::parse("# nothing\n").is_err());
}

#[test]
fn what_went_well_must_go_well() {
    let (_, outcome) =
        play("Mkdir \"\\a\" NT_STATUS_OK\nUnlink \"\\a\\b\" 0x6 NT_STATUS_OK\n", 1, 1);
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("line 2 of the load file"), "{error}");
}
