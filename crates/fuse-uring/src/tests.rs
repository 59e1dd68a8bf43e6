use super::*;
use std::fs::File;
use std::os::fd::AsFd;

const ROOM: usize = 64 << 10;

/// A ring, or a line that says why not.
fn ring() -> Option<Ring> {
    Ring::new(ROOM).inspect_err(|e| println!("SKIP: no such io_uring here ({e})")).ok()
}

/// One with `many` entries that `/dev/null` has taken: it takes commands, and completes them at
/// once, in Linux 6.1 and later.
fn fed(many: usize) -> Option<Ring> {
    let mut ring = ring()?;
    ring.serve(File::open("/dev/null").unwrap().as_fd(), 1).unwrap();
    for _ in 0..many {
        if let Err(error) = ring.add() {
            println!("SKIP: /dev/null takes no commands here ({error})");
            return None;
        }
    }
    Some(ring)
}

#[test]
fn a_file_that_takes_no_commands_refuses_entries() {
    let Some(mut ring) = ring() else { return };
    ring.serve(File::open("/proc/self/stat").unwrap().as_fd(), 3).unwrap();
    assert!(ring.add().is_err());
    assert_eq!((ring.memory(0).len(), ring.open()), (PAYLOAD + ROOM, 0), "the command is over");
    assert_eq!(ring.memory(0)[PAYLOAD..].as_ptr().addr() % 4096, 0);
}

#[test]
fn to_and_fro() {
    let Some(mut ring) = fed(1) else { return };
    for round in 0..100_u8 {
        let event = ring.next((round % 2 == 0).then_some(Duration::from_secs(5))).unwrap();
        assert_eq!((event, ring.open()), (Event::Request(0), 0));
        ring.memory(0)[PAYLOAD..].fill(round);
        ring.commit(0, ROOM as u32).unwrap();
        assert!(ring.memory(0).is_empty() && ring.lend(0).is_none(), "the kernel's");
        assert!(ring.commit(0, 0).is_err(), "once");
        ring.discard();
    }
    assert_eq!(ring.next(None).unwrap(), Event::Request(0));
    assert!(
        ring.memory(0)[PAYLOAD..].iter().all(|&byte| byte == 99),
        "not submitted when it was to be discarded"
    );
}

/// More entries than are submitted at once; each comes back once.
#[test]
fn many_entries() {
    let Some(mut ring) = fed(MOST) else { return };
    assert!(ring.add().is_err(), "no more than that");
    for _ in 0..10 {
        let mut seen = [0; MOST];
        for _ in 0..MOST {
            let Event::Request(number) = ring.next(None).unwrap() else {
                panic!("nobody wakes it")
            };
            seen[number] += 1;
        }
        assert_eq!(seen, [1; MOST]);
        assert_eq!(ring.open(), 0);
        (0..MOST).for_each(|number| ring.commit(number, 0).unwrap());
        assert_eq!(ring.open(), MOST);
        ring.send().unwrap();
    }
}

#[test]
fn memory_is_lent() {
    let Some(mut ring) = fed(2) else { return };
    assert_eq!(ring.next(None).unwrap(), Event::Request(0));
    let mut lent = ring.lend(0).unwrap();
    assert!(ring.lend(0).is_none() && ring.memory(0).is_empty() && ring.commit(0, 0).is_err());
    let waker = ring.waker();
    let other = std::thread::spawn(move || {
        lent.bytes()[PAYLOAD] = 7;
        waker.wake();
        lent
    });
    assert_eq!(ring.next(None).unwrap(), Event::Request(1));
    assert_eq!(ring.next(None).unwrap(), Event::Woken);
    assert_eq!(ring.give_back(other.join().unwrap()).unwrap(), 0);
    assert_eq!(ring.memory(0)[PAYLOAD], 7);
    ring.commit(0, 0).unwrap();
    assert_eq!(ring.next(None).unwrap(), Event::Request(0));
}

/// Two that are swapped come back to their own entries all the same, and another ring does not take
/// them: the kernel knows each memory by its entry.
#[test]
fn what_is_lent_comes_back_to_its_own_entry() {
    let (Some(mut ring), Some(mut other)) = (fed(2), fed(2)) else { return };
    for ring in [&mut ring, &mut other] {
        assert_eq!(ring.next(None).unwrap(), Event::Request(0));
        assert_eq!(ring.next(None).unwrap(), Event::Request(1));
    }
    let places = [ring.memory(0).as_ptr().addr(), ring.memory(1).as_ptr().addr()];
    let (mut a, mut b) = (ring.lend(0).unwrap(), ring.lend(1).unwrap());
    std::mem::swap(&mut a, &mut b);
    assert_eq!(ring.give_back(a).unwrap(), 1);
    let foreign = other.lend(0).unwrap();
    let foreign = ring.give_back(foreign).unwrap_err();
    assert!(ring.memory(0).is_empty(), "it has lent that itself");
    assert_eq!(ring.give_back(b).unwrap(), 0);
    assert_eq!(other.give_back(foreign).unwrap(), 0);
    assert_eq!([ring.memory(0).as_ptr().addr(), ring.memory(1).as_ptr().addr()], places);
}

/// Each time, whether it waits already or not, and no more often than somebody does.
#[test]
fn a_ring_is_woken() {
    let Some(mut ring) = ring() else { return };
    ring.serve(File::open("/dev/null").unwrap().as_fd(), 0).unwrap();
    for round in 0..20 {
        let waker = ring.waker();
        let pause = Duration::from_millis(round % 3);
        let other = std::thread::spawn(move || {
            std::thread::sleep(pause);
            waker.wake();
        });
        assert_eq!(ring.next(None).unwrap(), Event::Woken);
        other.join().unwrap();
        assert_eq!(ring.next(Some(Duration::from_millis(1))).unwrap(), Event::Nothing);
    }
}

/// Pieces of a file come into the memory of an entry, which is not to be had until all of them are
/// there.
#[test]
fn pieces_of_a_file() {
    let Some(mut ring) = fed(2) else { return };
    let file = std::env::temp_dir().join(format!("extol-ring-{}", std::process::id()));
    let content: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let open = File::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let piece = |offset: u64, at, len| Piece { offset, at, len };
    let mut requests = [ring.next(None).unwrap(), ring.next(None).unwrap()];
    requests.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(requests, [Event::Request(0), Event::Request(1)]);

    ring.memory(0)[PAYLOAD..].fill(0xEE);
    ring.read(
        0,
        open.as_fd(),
        &[piece(100, 4096, 5000), piece(9000, 0, 4000), piece(0, 20_000, 1)],
    )
    .unwrap();
    assert_eq!((ring.reading(), ring.open()), (1, 0));
    assert!(
        ring.memory(0).is_empty() && ring.lend(0).is_none() && ring.commit(0, 0).is_err(),
        "being read"
    );
    assert!(ring.read(0, open.as_fd(), &[piece(0, 0, 10)]).is_err(), "once at a time");
    assert_eq!(ring.next(None).unwrap(), Event::Read { entry: 0, good: true });
    assert_eq!(ring.reading(), 0);
    let memory = &ring.memory(0)[PAYLOAD..];
    assert!(memory[..4000] == content[9000..13_000] && memory[4096..9096] == content[100..5100]);
    assert!(
        memory[4000..4096].iter().chain(&memory[9096..20_000]).all(|byte| *byte == 0xEE)
            && memory[20_000] == 0
    );

    // The end of the file comes too soon for one piece, and it must not go unnoticed because of the
    // others.
    ring.read(
        1,
        open.as_fd(),
        &[piece(0, 0, 4096), piece(19_000, 4096, 1001), piece(0, 8192, 4096)],
    )
    .unwrap();
    assert_eq!(ring.next(None).unwrap(), Event::Read { entry: 1, good: false });
    assert!(ring.memory(1)[PAYLOAD..PAYLOAD + 4096] == content[..4096], "the entry is here again");

    for bad in [&[][..], &[piece(0, 0, 0)], &[piece(0, ROOM - 1, 2)], &[piece(0, usize::MAX, 2)]] {
        assert!(ring.read(0, open.as_fd(), bad).is_err(), "{bad:?}");
    }
    assert!(!ring.memory(0).is_empty() && ring.reading() == 0, "nothing has happened");
    for number in 0..2 {
        ring.commit(number, 0).unwrap();
        assert_eq!(ring.next(None).unwrap(), Event::Request(number));
    }
}

/// A ring that goes while a read is on its way leaves the memory alone.
#[test]
fn a_ring_may_go_before_its_reads() {
    for _ in 0..20 {
        let Some(mut ring) = fed(1) else { return };
        assert_eq!(ring.next(None).unwrap(), Event::Request(0));
        let (pipe, _writer) = std::io::pipe().unwrap();
        ring.read(0, pipe.as_fd(), &[Piece { offset: u64::MAX, at: 0, len: 100 }]).unwrap();
        ring.send().unwrap();
        assert_eq!(ring.next(Some(Duration::from_millis(1))).unwrap(), Event::Nothing);
    }
}
