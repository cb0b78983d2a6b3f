//! What a daemon does for commands, and what the placer learns from the tasks that run on a node.

use super::{Daemon, DaemonConfig, HideControl, Role};
use crate::admin::Client;
use aktis::prelude::*;
use aktis_protocol::limits::{FRAME_BYTES_MAX, KEY_VALUE_BYTES_MAX};
use aktis_protocol::{Amount, FunctionId, resources};
use aktis_runtime::registry::FUNCTIONS;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(30);

#[remote]
fn nap() {
    std::thread::sleep(NAP);
}

#[remote]
fn blink() {}

fn function(name: &str) -> FunctionId {
    FUNCTIONS.iter().find(|function| function.name.ends_with(name)).expect("it is a remote function").id
}

/// A daemon with a control process in this process, and what is removed at the end.
fn daemon() -> (tempfile::TempDir, Daemon) {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(DaemonConfig {
        directory: directory.path().join("head"),
        role: Role::Head,
        listen: None,
        resources: [(resources::CPU.to_owned(), Amount::ONE)].into(),
        labels: Default::default(),
        store_bytes: Some(64 << 20),
        spill_directory: None,
        spill_bytes_max: None,
        hide_control: HideControl::Auto,
    })
    .expect("a daemon");
    (directory, daemon)
}

#[test]
fn commands_list_read_and_delete_keys_of_programs() {
    let (directory, daemon) = daemon();
    let program = daemon.parts.host.own();
    for number in 0..5 {
        let key = format!("user/0//key-{number}");
        assert!(program.key_put(key.as_bytes(), &[7; 100], false).expect("kept"));
    }
    let mut client = Client::connect(&directory.path().join("head")).expect("connected");
    let (keys, more) = client.keys(b"user/", 3).expect("keys");
    assert_eq!((keys.len(), more, keys[0].bytes), (3, true, 100));
    assert_eq!(client.key_value(b"user/0//key-2").expect("answered"), Some(vec![7; 100]));
    assert!(client.delete_key(b"user/0//key-2").expect("answered"));
    assert!(!client.delete_key(b"user/0//key-2").expect("answered"), "it is gone");
    assert_eq!(program.key_get(b"user/0//key-2").expect("answered"), None);
    let (keys, more) = client.keys(b"user/", 100).expect("keys");
    assert_eq!((keys.len(), more), (4, false));
}

#[test]
fn more_values_than_one_message_holds_can_be_listed_and_deleted() {
    const KEYS: usize = FRAME_BYTES_MAX / KEY_VALUE_BYTES_MAX + 10;
    let (directory, daemon) = daemon();
    let program = daemon.parts.host.own();
    for number in 0..KEYS {
        let key = format!("user/0//key-{number:04}");
        assert!(program.key_put(key.as_bytes(), &vec![7; KEY_VALUE_BYTES_MAX], false).expect("kept"));
    }
    let mut client = Client::connect(&directory.path().join("head")).expect("connected");
    let (keys, more) = client.keys(b"user/", 1000).expect("keys");
    assert_eq!((keys.len(), more), (KEYS, false));
    assert!(keys.iter().all(|row| row.bytes == KEY_VALUE_BYTES_MAX as u64));
    assert!(client.delete_key(&keys[KEYS - 1].key).expect("answered"));
    let (keys, more) = client.keys(b"user/", KEYS as u32 - 2).expect("keys");
    assert_eq!((keys.len(), more), (KEYS - 2, true));
}

#[test]
fn the_placer_learns_how_long_each_function_runs() {
    let (_directory, daemon) = daemon();
    let address = daemon.attach_directory();
    let session = Session::connect(address.to_str().expect("text")).expect("a session");
    let _entered = session.enter();
    let expected =
        |name| daemon.control.lock().as_ref().and_then(|control| control.expectation(function(name)));
    let deadline = Instant::now() + PATIENCE;
    // Of short tasks, some are measured.
    while expected("nap").is_none() || expected("blink").is_none() {
        assert!(Instant::now() < deadline, "nap: {:?}, blink: {:?}", expected("nap"), expected("blink"));
        nap::remote().get_timeout(PATIENCE).expect("it runs");
        (0..32).for_each(|_| blink::remote().get_timeout(PATIENCE).expect("it runs"));
    }
    let (long, short) = (expected("nap").expect("known"), expected("blink").expect("known"));
    assert!(long > NAP.as_micros() as u64 * 3 / 4 && long > short, "nap: {long}, blink: {short}");
}
