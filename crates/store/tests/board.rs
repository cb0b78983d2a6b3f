//! Boards: stages, mailboxes, failures, and memory that is none.

use aktis_store::{Board, Presence};

const SLOT: usize = 4096;

/// Runs `member` on a thread for each member of one board.
fn run(members: usize, member: impl Fn(Board) + Sync) {
    let first = Board::create(members, 0, SLOT).expect("a board");
    let fds: Vec<_> = (1..members).map(|_| first.fd().try_clone_to_owned().expect("a descriptor")).collect();
    std::thread::scope(|scope| {
        let member = &member;
        scope.spawn(move || member(first));
        for (index, fd) in fds.into_iter().enumerate() {
            scope.spawn(move || member(Board::open(fd, index + 1).expect("a place")));
        }
    });
}

fn complete(board: &mut Board) {
    board.publish();
    while !board.wait_for_stage() {}
}

#[test]
fn no_slot_changes_while_others_read_it() {
    run(3, |mut board| {
        for stage in 1..2000_u64 {
            let own = board.own() as u64;
            let prepared = board.prepare();
            prepared.slot[..8].copy_from_slice(&(stage * 10 + own).to_le_bytes());
            if stage > 1 {
                let before = prepared.previous.slot((own as usize + 1) % 3)[..8].to_vec();
                assert_eq!(before, ((stage - 1) * 10 + (own + 1) % 3).to_le_bytes());
            }
            board.write_note([stage, own, 0, 0]);
            complete(&mut board);
            for member in 0..3 {
                assert_eq!(board.slot(member)[..8], (stage * 10 + member as u64).to_le_bytes());
                assert_eq!(board.note(member), [stage, member as u64, 0, 0]);
            }
        }
        complete(&mut board);
    });
}

#[test]
fn mailboxes_keep_order_across_their_end() {
    const BYTES: usize = 3_000_000;
    let byte = |index: usize| (index % 251) as u8;
    run(2, |mut board| {
        if board.own() == 0 {
            let sent: Vec<u8> = (0..BYTES).map(byte).collect();
            let mut at = 0;
            while at < BYTES {
                at += board.post(1, &sent[at..(at + 70_001).min(BYTES)]);
                board.wait_for_room(1);
            }
        } else {
            let mut received = vec![0; BYTES];
            let mut at = 0;
            while at < BYTES {
                at += board.collect(0, &mut received[at..]);
                board.wait_for_post(0);
            }
            assert!(received.iter().enumerate().all(|(index, found)| *found == byte(index)));
        }
        complete(&mut board);
    });
}

#[test]
fn the_first_failure_stays_and_all_see_it() {
    run(2, |mut board| {
        while !board.wait_for_members() {}
        board.alarm().fail(b"first");
        let long = vec![7; 5000];
        board.alarm().fail(&long);
        complete(&mut board);
        assert_eq!(board.alarm().failure().expect("it failed"), b"first");
    });
}

#[test]
fn a_dropped_member_has_left() {
    let board = Board::create(2, 0, SLOT).expect("a board");
    let fd = board.fd().try_clone_to_owned().expect("a descriptor");
    assert_eq!(board.presence(1), Presence::Absent);
    let other = Board::open(fd.try_clone().expect("a descriptor"), 1).expect("a place");
    assert_eq!(board.presence(1), Presence::Present);
    assert!(Board::open(fd.try_clone().expect("a descriptor"), 1).is_err(), "the place is taken");
    drop(other);
    assert_eq!(board.presence(1), Presence::Left);
    assert!(board.alarm().has_left(1) && !board.alarm().has_left(0));
}

#[test]
fn memory_that_is_no_board_is_refused() {
    for bytes in [0, 100, 4096, 1 << 20] {
        let fd = rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&fd, bytes).expect("its size");
        assert!(Board::open(fd, 0).is_err(), "{bytes} bytes");
    }
}
