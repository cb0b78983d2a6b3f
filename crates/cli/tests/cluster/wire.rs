//! What passes between machines: nothing that can be read, and no more connections than machines need.

use super::machines::{Cluster, Machine, PATIENCE, aktis, until};
use super::{Counter, ancestors};
use aktis::prelude::*;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// All protocols, as the system counts them (`ETH_P_ALL`, in the order of the network).
const ALL_PACKETS: u32 = 0x0003_u16.to_be() as u32;
/// More than a packet on the loopback interface.
const PACKET_BYTES_MAX: usize = 70_000;

#[remote]
fn keep_secret(words: String, large: Vec<u8>) -> (String, usize) {
    (words.chars().rev().collect(), large.len())
}

/// Looks for words in all packets of this machine.
struct Sniffer {
    found: Arc<Mutex<BTreeSet<String>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sniffer {
    /// Nothing if this user may not see packets.
    fn start(words: &[&str]) -> Option<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let protocol = Protocol::from_raw(rustix::net::RawProtocol::new(ALL_PACKETS)?);
        let socket = rustix::net::socket_with(AddressFamily::PACKET, kind, flags, Some(protocol)).ok()?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20);
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (found, ended) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<AtomicBool>::default());
        let (into, over) = (found.clone(), ended.clone());
        let thread = std::thread::spawn(move || sniff(&socket, &words, &into, &over));
        Some(Self { found, ended, thread: Some(thread) })
    }

    fn has(&self, word: &str) -> bool {
        self.found.lock().expect("no panic").contains(word)
    }

    fn finish(mut self) -> BTreeSet<String> {
        self.ended.store(true, Ordering::Release);
        self.thread.take().expect("it runs").join().expect("no panic");
        self.found.lock().expect("no panic").clone()
    }
}

fn sniff(socket: &OwnedFd, words: &[String], found: &Mutex<BTreeSet<String>>, ended: &AtomicBool) {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    loop {
        // What was sent before the end is seen before it.
        let over = ended.load(Ordering::Acquire);
        let Ok((length, _)) = rustix::net::recv(socket, &mut packet[..], RecvFlags::empty()) else {
            if over {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            continue;
        };
        for word in words {
            let inside = packet[..length].windows(word.len()).any(|window| window == word.as_bytes());
            if inside {
                found.lock().expect("no panic").insert(word.clone());
            }
        }
    }
}

#[test]
fn nothing_can_be_read_on_the_wire() {
    let words = ["an argument that nobody reads", "large values too: nobody reads them", "nameless counter"];
    let plain = "words that everybody may read";
    let turned: String = words[0].chars().rev().collect();
    let all = [&words[..], &[plain, &turned, "keep_secret", "aktis1."]].concat();
    let Some(sniffer) = Sniffer::start(&all) else {
        eprintln!("this user may not see packets: nothing was tested");
        return;
    };
    // So that it is known that anything would be found.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.write_all(plain.as_bytes()).unwrap();
    until("what is plain is found", || sniffer.has(plain));

    let cluster = Cluster::new(0, &[2]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let large = session.put(words[1].repeat(4096).into_bytes()).unwrap();
    let (told, length) = keep_secret::remote(words[0], large).get_timeout(PATIENCE).unwrap();
    assert_eq!((told, length), (turned, words[1].len() * 4096));
    let counter = Counter::options().name(words[2]).cpus(1).remote(1);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 2);
    let listed = cluster.machines[1].json(&["list", "actors", "--json"]);
    assert!(listed.to_string().contains(words[2]), "{listed}");
    drop(cluster);
    assert_eq!(sniffer.finish(), BTreeSet::from([plain.to_owned()]), "and nothing else");
}

/// The connections over TCP that a process has.
fn connections(pid: u32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let sockets: BTreeSet<String> = targets
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    table
        .lines()
        .filter(|line| line.split_whitespace().nth(9).is_some_and(|inode| sockets.contains(inode)))
        .count()
}

#[test]
fn connections_are_as_many_as_machines_however_many_workers_there_are() {
    let cluster = Cluster::new(0, &[16]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let idle: Vec<usize> = cluster.machines.iter().map(|machine| connections(machine.pid())).collect();
    let counters: Vec<_> = (0..12).map(|number| Counter::options().cpus(1).remote(number)).collect();
    let mut workers = BTreeSet::new();
    for (number, counter) in counters.iter().enumerate() {
        assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), number as u64 + 1);
        let place = counter.ancestors().get_timeout(PATIENCE).unwrap();
        assert_eq!(cluster.machine_of(&place), 1);
    }
    let listed = cluster.head().json(&["list", "workers", "--filter", "role=actor", "--json"]);
    workers
        .extend(listed["workers"].as_array().unwrap().iter().map(|row| row["pid"].as_u64().unwrap() as u32));
    assert_eq!(workers.len(), 12, "{listed:#}");
    assert!(workers.iter().all(|pid| connections(*pid) == 0), "workers have no connections of their own");
    for (machine, idle) in cluster.machines.iter().zip(idle) {
        let busy = connections(machine.pid());
        assert!(busy <= idle + 2, "{idle} connections became {busy}");
    }
    assert!(connections(std::process::id()) == 0 && !ancestors().is_empty(), "nor has the driver");
}

#[test]
fn the_limit_on_open_files_is_raised_or_complained_about() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_aktis");
    let start = |limits: &str, cpus: u32, place: &str| {
        let command = format!(
            "{limits}; exec {program} start --head --listen 127.0.0.1:0 --cpus {cpus} --store-bytes 64MiB"
        );
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &command])
            .env("AKTIS_DIRECTORY", directory.path().join(place))
            .stdin(Stdio::null());
        shell
    };
    let output = start("ulimit -n 100", 64, "low").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("may have 100 files open") && errors.contains("hint: raise the limit"),
        "{errors}"
    );

    let path = directory.path().join("raised");
    let mut child = start("ulimit -Sn 100", 2, "raised").stdout(Stdio::null()).spawn().unwrap();
    until("it runs", || aktis(&path).arg("status").output().is_ok_and(|output| output.status.success()));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let [soft, hard] = [3, 4].map(|column| line.split_whitespace().nth(column).expect("a number").to_owned());
    assert!(aktis(&path).arg("stop").status().unwrap().success());
    child.wait().unwrap();
    assert_eq!(soft, hard, "{line}");
}

#[test]
fn strangers_leave_nothing_behind_and_service_goes_on() {
    let cluster = Cluster::new(1, &[]);
    let token = cluster.head().json(&["token", "--json"]);
    let address = token["address"].as_str().unwrap().to_owned();
    let files = |machine: &Machine| std::fs::read_dir(format!("/proc/{}/fd", machine.pid())).unwrap().count();
    let before = files(cluster.head());
    for round in 0..100 {
        let mut stream = TcpStream::connect(&address).unwrap();
        // It may be closed before all is written.
        let _ = stream.write_all(if round % 2 == 0 { b"GET / HTTP/1.1\r\n\r\n" } else { &[0xff; 5000] });
    }
    until("all of them are gone", || files(cluster.head()) <= before);
    let session = cluster.head().session();
    let _entered = session.enter();
    assert_eq!(super::add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3, "service goes on");
}
