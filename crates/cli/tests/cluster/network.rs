//! Machines with network stacks of their own, which reach each other by one cable: what is said on one loopback is not
//! heard on the other.

use crate::machines::{Machine, PATIENCE, until};
use crate::placement::{here, make, read};
use aktis::NodeId;
use aktis::prelude::*;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Rounds after which both orders of two random ids have been seen, as good as certainly.
const ROUNDS_MAX: usize = 40;
const BYTES: usize = 1 << 20;

/// A network namespace, which goes with the process that holds it; that goes with this one.
struct Namespace(Child);

impl Namespace {
    /// None if this process may not make any.
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.stderr(Stdio::null()).spawn().ok()?;
        let _ = writeln!(holder.stdin.as_ref()?, "there");
        let mut line = String::new();
        let _ = BufReader::new(holder.stdout.take()?).read_line(&mut line);
        let namespace = Self(holder);
        (line == "there\n").then_some(namespace)
    }

    /// A program in here.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.0.id().to_string(), "--net", "--", program]);
        command
    }

    fn ip(&self, arguments: &str) -> Option<()> {
        let status = self.command("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then_some(())
    }

    /// A cable goes from here to another machine; its ends have these addresses.
    fn plug(&self, port: &str, address: &str, other: &Self, other_address: &str) -> Option<()> {
        self.ip(&format!("link add {port} type veth peer name eth0 netns {}", other.0.id()))?;
        for (machine, port, address) in [(self, port, address), (other, "eth0", other_address)] {
            machine.ip("link set lo up")?;
            machine.ip(&format!("address add {address}/24 dev {port}"))?;
            machine.ip(&format!("link set {port} up"))?;
        }
        Some(())
    }

    /// What comes here for others is sent on from now on.
    fn forward(&self) {
        let order = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        assert!(self.command("sh").args(["-c", order]).status().is_ok_and(|status| status.success()));
    }

    fn start(&self, path: PathBuf, arguments: &[&str]) -> (Machine, Vec<String>) {
        Machine::start_by(self.command(env!("CARGO_BIN_EXE_aktis")), path, arguments)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Two machines and a cable; none if this process may not make them.
fn network() -> Option<(Namespace, Namespace)> {
    let (one, other) = (Namespace::new()?, Namespace::new()?);
    one.plug("eth0", "10.78.0.1", &other, "10.78.0.2")?;
    Some((one, other))
}

/// A machine and two others, each with a cable to it: they know of no way to each other.
fn star() -> Option<(Namespace, [Namespace; 2])> {
    let (middle, left, right) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    middle.plug("eth0", "10.78.0.1", &left, "10.78.0.2")?;
    middle.plug("eth1", "10.79.0.1", &right, "10.79.0.2")?;
    right.ip("route add 10.78.0.1 via 10.79.0.1")?;
    Some((middle, [left, right]))
}

/// The command that a head has printed, for a machine with so many CPUs.
fn join(words: &[String], machine: &Namespace, path: PathBuf, cpus: &str) -> Machine {
    let printed = words.iter().find_map(|line| line.trim().strip_prefix("aktis start "));
    let printed = printed.unwrap_or_else(|| panic!("no command in {words:?}"));
    let arguments: Vec<&str> = printed.split(' ').chain(["--cpus", cpus]).collect();
    machine.start(path, &arguments).0
}

fn leave_out() {
    eprintln!("left out: it takes `unshare`, `nsenter` and `ip`, and the right to make network namespaces");
}

fn node_of(machine: &Machine) -> NodeId {
    let session = machine.session();
    let _entered = session.enter();
    aktis::node().expect("a session")
}

/// A driver of one machine has a task run on the other, gives it a large value, and gets one from it.
fn use_from(machine: &Machine, other: NodeId) {
    let session = machine.session();
    let _entered = session.enter();
    assert_eq!(here::options().on_node(other).remote().get_timeout(PATIENCE).unwrap(), other);
    let large = aktis::put(Array::from(vec![7_u8; BYTES])).unwrap();
    assert_eq!(read::options().on_node(other).remote(&large).get_timeout(PATIENCE).unwrap(), other);
    let made = make::options().on_node(other).remote(BYTES).get_timeout(PATIENCE).unwrap();
    assert_eq!(made.len(), BYTES);
}

#[test]
fn the_command_that_the_head_prints_joins_another_machine() {
    let Some((one, other)) = network() else { return leave_out() };
    let mut orders = BTreeSet::new();
    // Of two nodes, the one with the lower id dials.
    for _ in 0..ROUNDS_MAX {
        let directory = tempfile::tempdir().unwrap();
        let (head, words) =
            one.start(directory.path().join("0"), &["--head", "--listen", "10.78.0.1:0", "--cpus", "1"]);
        let member = join(&words, &other, directory.path().join("1"), "1");
        for machine in [&head, &member] {
            until("the nodes have found each other", || machine.alive() == 2);
        }
        let (head_node, member_node) = (node_of(&head), node_of(&member));
        use_from(&head, member_node);
        use_from(&member, head_node);
        orders.insert(head_node < member_node);
        if orders.len() == 2 {
            return;
        }
    }
    panic!("of {ROUNDS_MAX} pairs, all had their ids in the same order");
}

#[test]
fn a_task_for_a_node_that_cannot_be_reached_says_so_and_runs_when_it_can() {
    let Some((middle, [left, right])) = star() else { return leave_out() };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let arguments = ["--head", "--listen", "10.78.0.1:0", "--cpus", "0"];
    let (head, words) = middle.start(path("head"), &arguments);
    let asking = join(&words, &left, path("left"), "0");
    let able = join(&words, &right, path("right"), "2");
    until("both are members", || head.alive() == 3);
    let able_node = node_of(&able);
    let session = asking.session();
    let entered = session.enter();
    let waits = here::remote();
    let would_do = format!("node {able_node} could take it, but node ");
    until("it is said why it waits", || {
        let words = waits.explain();
        words.contains(&would_do) && words.contains(" cannot reach node ")
    });
    // Its work goes on where it can be reached.
    let from_head = head.session();
    let entered_there = from_head.enter();
    assert_eq!(here::remote().get_timeout(PATIENCE).unwrap(), able_node);
    drop((entered_there, entered));
    middle.forward();
    left.ip("route add 10.79.0.0/24 via 10.78.0.1").expect("a way there");
    right.ip("route add 10.78.0.0/24 via 10.79.0.1").expect("and back");
    assert_eq!(waits.get_timeout(PATIENCE).unwrap(), able_node);
}
