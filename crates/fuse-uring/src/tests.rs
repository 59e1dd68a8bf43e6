use super::*;
use std::fs::File;
use std::os::fd::AsFd;

const ROOM: usize = 64 << 10;

/// An entry, or a line that says why not.
fn entry() -> Option<Entry> {
    Entry::new(ROOM).inspect_err(|e| println!("SKIP: no such io_uring here ({e})")).ok()
}

/// One that `/dev/null` has taken: it takes commands, and completes them at once, in Linux 6.1 and
/// later.
fn registered() -> Option<Entry> {
    let mut entry = entry()?;
    if let Err(error) = entry.register(File::open("/dev/null").unwrap().as_fd(), 1) {
        println!("SKIP: /dev/null takes no commands here ({error:?})");
        return None;
    }
    Some(entry)
}

#[test]
fn a_file_that_takes_no_commands_refuses_entries() {
    let Some(mut entry) = entry() else { return };
    let file = File::open("/proc/self/stat").unwrap();
    assert!(matches!(entry.register(file.as_fd(), 3), Err(RegisterError::Refused(_))));
    assert_eq!(entry.memory().len(), PAYLOAD + ROOM, "the command is over");
    assert_eq!(entry.memory()[PAYLOAD..].as_ptr().addr() % 4096, 0);
}

#[test]
fn to_and_fro() {
    let Some(mut entry) = registered() else { return };
    for round in 0..100_u8 {
        assert!(entry.next((round % 2 == 0).then_some(Duration::from_secs(5))).unwrap());
        entry.memory()[PAYLOAD..].fill(round);
        entry.commit(ROOM as u32).unwrap();
        assert!(entry.memory().is_empty(), "the kernel's");
        assert!(entry.commit(0).is_err(), "once");
        entry.discard();
    }
    assert!(entry.next(None).unwrap());
    assert!(
        entry.memory()[PAYLOAD..].iter().all(|&byte| byte == 99),
        "not submitted when it was to be discarded"
    );
}

/// The memory of an entry that goes with a command on its way is left alone.
#[test]
fn an_entry_may_go_before_its_request_comes() {
    for _ in 0..20 {
        let Some(mut entry) = registered() else { return };
        assert!(entry.next(None).unwrap());
        entry.commit(0).unwrap();
    }
}
