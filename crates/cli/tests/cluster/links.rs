//! Links between machines whose connections are cut under them, or that have much to carry: nobody notices.
#![allow(clippy::too_many_arguments, reason = "one call has as many as it takes to fill a message")]

use super::machines::{Cluster, PATIENCE, until};
use aktis::prelude::*;
use rustix::net::Shutdown;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;

/// How often connections are cut.
const CUTS: u64 = 15;
/// Calls between two cuts, and as many after each.
const CALLS: u64 = 50;

/// Writes down what it is told.
struct Notes {
    numbers: Vec<u64>,
}

#[actor(isolated)]
impl Notes {
    fn new() -> Self {
        Notes { numbers: Vec::new() }
    }

    fn add(&mut self, number: u64) -> usize {
        self.numbers.push(number);
        self.numbers.len()
    }

    fn all(&self) -> Vec<u64> {
        self.numbers.clone()
    }
}

/// As much as travels inside a message.
#[remote]
fn words(length: usize) -> Vec<u8> {
    vec![7; length]
}

#[remote]
fn count(
    a: Vec<u8>,
    b: Vec<u8>,
    c: Vec<u8>,
    d: Vec<u8>,
    e: Vec<u8>,
    f: Vec<u8>,
    g: Vec<u8>,
    h: Vec<u8>,
    i: Vec<u8>,
    j: Vec<u8>,
    k: Vec<u8>,
    l: Vec<u8>,
    m: Vec<u8>,
    n: Vec<u8>,
    o: Vec<u8>,
    p: Vec<u8>,
) -> usize {
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p].concat().len()
}

/// The ends of a connection, as the system writes them.
type Ends = (String, String);

/// The connections over TCP that a process has, by their ends, with their numbers there.
fn connections(pid: u32) -> BTreeMap<Ends, i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let sockets: BTreeMap<String, i32> = entries
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
            Some((inode, entry.file_name().to_str()?.parse().ok()?))
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let socket = sockets.get(*fields.get(9)?)?;
            // Established ones.
            (fields[3] == "01").then(|| ((fields[1].to_owned(), fields[2].to_owned()), *socket))
        })
        .collect()
}

/// Cuts the connections between two processes, as they may be cut at any moment; gives how many there were.
fn cut(one: u32, other: u32) -> std::io::Result<usize> {
    let process = pidfd_open(Pid::from_raw(one as i32).expect("a process"), PidfdFlags::empty())?;
    let others = connections(other);
    let mut count = 0;
    for ((here, there), socket) in connections(one) {
        if !others.contains_key(&(there, here)) {
            continue;
        }
        // It may have been closed by now.
        match pidfd_getfd(&process, socket, PidfdGetfdFlags::empty()) {
            Ok(socket) => count += usize::from(rustix::net::shutdown(&socket, Shutdown::Both).is_ok()),
            Err(rustix::io::Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

#[test]
fn calls_of_an_actor_keep_their_order_and_run_once_though_connections_are_cut() {
    let cluster = Cluster::new(0, &[1]);
    let [head, member] = [0, 1].map(|number| cluster.machines[number].pid());
    let session = cluster.head().session();
    let _entered = session.enter();
    let notes = Notes::options().cpus(1).remote();
    assert!(notes.all().get_timeout(PATIENCE).unwrap().is_empty());
    match cut(head, member) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("this user may not touch what its children have open: nothing was tested");
            return;
        }
        cut => assert!(cut.unwrap() > 0, "there is a link"),
    }
    let mut calls = Vec::new();
    let mut call = |count: u64| {
        for _ in 0..count {
            calls.push(notes.add(calls.len() as u64));
        }
    };
    for number in 0..CUTS {
        call(CALLS);
        // Now from the one side, now from the other, as soon as there is a connection again.
        let (one, other) = if number % 2 == 0 { (head, member) } else { (member, head) };
        until("the machines have found each other again", || cut(one, other).unwrap() > 0);
        call(CALLS);
    }
    let expected: Vec<u64> = (0..2 * CUTS * CALLS).collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.get_timeout(PATIENCE).unwrap(), number + 1);
    }
    assert_eq!(notes.all().get_timeout(PATIENCE).unwrap(), expected);
}

#[test]
fn arguments_as_large_as_they_may_be_reach_another_machine() {
    let cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let witness = Notes::options().cpus(0).remote();
    assert_eq!(witness.add(1).get_timeout(PATIENCE).unwrap(), 1);
    // All of them together, with what is said about each, are nearly as large as arguments may be.
    let large =
        |length: usize| -> [ObjectRef<Vec<u8>>; 16] { std::array::from_fn(|_| words::remote(length)) };
    let length = 16_340;
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = large(length);
    let counted = count::options().retries(0).remote(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
    assert_eq!(counted.get_timeout(PATIENCE).unwrap(), 16 * length);
    // The link is the same as before: an actor of the other machine has lived through it.
    assert_eq!(witness.add(2).get_timeout(PATIENCE).unwrap(), 2);
}
