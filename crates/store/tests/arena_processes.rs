//! The object store when its processes are killed and its disk is full. Each test that needs another process starts
//! its own program again, which then plays the part that an environment variable names.

use aktis_protocol::{EntryRef, ObjectId, ProcessSlot, SessionId, TaskId};
use aktis_store::{Arena, EntryState, SpillFile, StoreError};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const PART: &str = "AKTIS_TEST_PART";
const PAGE: u64 = 4096;
const OBJECTS: u32 = 8;

fn entry(index: u32, generation: u32) -> EntryRef {
    EntryRef { index, generation }
}

fn object() -> ObjectId {
    TaskId::root(SessionId(1)).child(1).returns(0)
}

/// What this process is to do instead of the test, if it was started by one.
fn part() -> Option<String> {
    std::env::var(PART).ok()
}

fn start(test: &str, arena: &Arena) -> Child {
    let path = |fd: BorrowedFd<'_>| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(PART, format!("{} {}", path(arena.index_fd()), path(arena.arena_fd())))
        .stdout(Stdio::piped())
        .spawn()
        .expect("started again")
}

fn open_as_part(part: &str) -> Arc<Arena> {
    let open = |path: &str| -> OwnedFd {
        std::fs::OpenOptions::new().read(true).write(true).open(path).expect("memfd").into()
    };
    let (index, arena) = part.split_once(' ').expect("two paths");
    Arc::new(Arena::open(open(index), open(arena), ProcessSlot(1), None).expect("open"))
}

/// Says that it is at work, and then works until it is killed.
fn work_until_killed(mut work: impl FnMut()) -> ! {
    println!("\nat work");
    loop {
        work();
    }
}

fn wait_until_at_work(child: &mut Child) {
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "at work"), "the other process has started");
}

fn kill(mut child: Child) {
    child.kill().expect("killed");
    child.wait().expect("reaped");
}

/// Some pseudo-random work, so that the kill comes at another instant each time.
fn dawdle(round: u32) {
    let until = std::time::Instant::now() + std::time::Duration::from_micros(u64::from(round * 7919 % 900));
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn readers_killed_at_any_instant_do_not_keep_objects_in_memory() {
    if let Some(part) = part() {
        let arena = open_as_part(&part);
        let mut held = Vec::new();
        work_until_killed(|| {
            for index in 0..OBJECTS {
                held.extend(arena.pin(entry(index, 1)));
            }
            held.truncate(held.len() / 2);
        });
    }
    let arena = Arc::new(Arena::create(1 << 20, OBJECTS).expect("arena"));
    let closing = Arc::new(AtomicBool::new(false));
    let file = SpillFile::create(Path::new(env!("CARGO_TARGET_TMPDIR")), closing).expect("spill file");
    for index in 0..OBJECTS {
        let offset = PAGE * u64::from(index);
        arena.write_entry(entry(index, 1), object(), EntryState::Writing, offset, PAGE);
        let mut writer = arena.write(entry(index, 1)).expect("granted");
        writer.fill(index as u8);
        writer.seal();
    }
    for round in 0..30 {
        let mut child = start("readers_killed_at_any_instant_do_not_keep_objects_in_memory", &arena);
        wait_until_at_work(&mut child);
        dawdle(round);
        kill(child);
        arena.clear_pins(ProcessSlot(1));
        for index in 0..OBJECTS {
            let offset = PAGE * u64::from(index);
            arena.spill(entry(index, 1), &file, offset).expect("nobody alive reads it");
            arena.restore(entry(index, 1), &file, offset, offset).expect("restored");
            let pin = arena.pin(entry(index, 1)).expect("resident");
            assert!(pin.iter().all(|byte| *byte == index as u8));
        }
    }
}

#[test]
fn a_writer_killed_half_way_leaves_the_entry_to_the_node() {
    if let Some(part) = part() {
        let arena = open_as_part(&part);
        let mut writer = arena.write(entry(0, 1)).expect("granted");
        let mut byte = 0;
        work_until_killed(|| {
            writer.fill(byte);
            byte = byte.wrapping_add(1);
        });
    }
    let arena = Arc::new(Arena::create(1 << 20, OBJECTS).expect("arena"));
    arena.write_entry(entry(0, 1), object(), EntryState::Writing, 0, 64 * PAGE);
    let mut child = start("a_writer_killed_half_way_leaves_the_entry_to_the_node", &arena);
    wait_until_at_work(&mut child);
    assert!(matches!(arena.write(entry(0, 1)), Err(StoreError::NotWritable { .. })));
    kill(child);
    arena.clear_pins(ProcessSlot(1));
    arena.write_entry(entry(0, 2), object(), EntryState::Writing, 0, 64 * PAGE);
    let mut writer = arena.write(entry(0, 2)).expect("granted to the next");
    writer.fill(5);
    assert_eq!(arena.pin(writer.seal()).expect("sealed").len(), 64 * PAGE as usize);
}

/// Spills more than `directory` takes and says what happened.
fn spill_too_much(directory: &str) {
    let arena = Arc::new(Arena::create(1 << 20, OBJECTS).expect("arena"));
    arena.write_entry(entry(0, 1), object(), EntryState::Writing, 0, 512 * 1024);
    arena.write(entry(0, 1)).expect("granted").seal();
    let closing = Arc::new(AtomicBool::new(false));
    let file = SpillFile::create(Path::new(directory), closing).expect("spill file");
    match arena.spill(entry(0, 1), &file, 0) {
        Ok(()) => println!("\nit fitted"),
        Err(error) => println!("\nrefused: {error}"),
    }
    assert!(arena.pin(entry(0, 1)).is_ok(), "what could not be spilled stays readable");
    match file.reserve(0, 512 * 1024) {
        Ok(()) => println!("there was room"),
        Err(error) => println!("no room: {error}"),
    }
}

fn output_of_shell(test: &str, script: &str, directory: &Path) -> (bool, String) {
    let output = Command::new("sh")
        .args(["-c", &format!("{script} exec \"$0\" --exact {test} --nocapture")])
        .arg(std::env::current_exe().expect("this program"))
        .env(PART, directory)
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_not_a_death() {
    let test = "a_limit_on_file_sizes_is_an_error_and_not_a_death";
    if let Some(part) = part() {
        // The limit is for the whole process, so it cannot be set in the one that runs the other tests.
        let files = rustix::process::Resource::Fsize;
        let limit =
            rustix::process::Rlimit { current: Some(700 * 1024), ..rustix::process::getrlimit(files) };
        let arena = Arena::create(1 << 20, OBJECTS);
        rustix::process::setrlimit(files, limit).expect("limit");
        assert!(arena.is_ok());
        assert!(matches!(Arena::create(1 << 20, OBJECTS), Err(StoreError::FileLimit { .. })));
        let file = SpillFile::create(Path::new(&part), Arc::default()).expect("spill file");
        file.write(0, &[1; 4096]).expect("below the limit");
        let refused = file.write(700 * 1024, b"x").expect_err("above the limit");
        assert!(matches!(refused, StoreError::DiskFull { .. }), "{refused}");
        file.reserve(0, 600 * 1024).expect("below the limit");
        let refused = file.reserve(600 * 1024, 200 * 1024).expect_err("above the limit");
        assert!(matches!(refused, StoreError::DiskFull { .. }), "{refused}");
        return;
    }
    let (ok, text) = output_of_shell(test, "", Path::new(env!("CARGO_TARGET_TMPDIR")));
    assert!(ok && text.contains("1 passed"), "{text}");
}

#[test]
fn a_full_disk_is_an_error_that_names_the_directory() {
    if let Some(part) = part() {
        return spill_too_much(&part);
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("full-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("directory");
    // A disk of its own needs a namespace of its own; where those are forbidden, the test above must do.
    let mounted = |then: &str| {
        let namespace = "unshare --user --map-root-user --mount sh -c";
        format!("{namespace} 'mount -t tmpfs -o size=64k none \"${PART}\" && {then}' \"$0\"; exit $?;")
    };
    let possible = Command::new("sh")
        .args(["-c", &mounted("true")])
        .env(PART, &directory)
        .status()
        .is_ok_and(|status| status.success());
    if possible {
        let run = "exec \"$0\" --exact a_full_disk_is_an_error_that_names_the_directory --nocapture";
        let (ok, text) = output_of_shell("", &mounted(run), &directory);
        assert!(ok && text.contains("refused: the disk is full"), "{text}");
        assert!(text.contains("no room: the disk is full"), "{text}");
        assert!(text.contains(directory.to_str().expect("text")), "{text}");
    }
    std::fs::remove_dir(&directory).expect("empty");
}
