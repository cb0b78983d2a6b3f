//! The command `aktis` as its users see it: whole commands, and all that they print.
//!
//! What they print is compared with the files in `tests/snapshots`; `AKTIS_UPDATE_SNAPSHOTS=1` in the environment writes
//! those anew instead.

mod fixed;
mod hostile;
mod life;
mod snapshot;

use aktis_protocol::admin::{NodeState, ObjectPlace, TaskState};
use aktis_protocol::state::{ActorState, WorkerState};
use fixed::Fixed;
use snapshot::Transcript;

const COMMANDS: &[&str] = &[
    "start",
    "status",
    "explain",
    "logs",
    "kv",
    "kill",
    "drain",
    "debug",
    "token",
    "nodes",
    "rotate",
    "audit",
    "stop",
    "backup",
    "restore",
    "completions",
];

#[test]
fn help() {
    let mut transcript = Transcript::without_daemon();
    transcript.run(&["--help"]);
    for command in COMMANDS {
        transcript.run(&[command, "--help"]);
    }
    for command in ["list", "get", "delete", "clear"] {
        transcript.run(&["kv", command, "--help"]);
    }
    for line in
        [["token", "list"], ["token", "revoke"], ["token", "rotate"], ["nodes", "expel"], ["nodes", "revoke"]]
    {
        transcript.run(&[line[0], line[1], "--help"]);
    }
    let list = transcript.run(&["list", "--help"]);
    let states =
        [TaskState::WORDS, ActorState::WORDS, ObjectPlace::WORDS, NodeState::WORDS, WorkerState::WORDS];
    for word in states.into_iter().flatten() {
        assert!(list.contains(word), "the help does not name the state {word}");
    }
    transcript.compare("help");
}

#[test]
fn command_lines_that_make_no_sense() {
    let mut transcript = Transcript::without_daemon();
    for line in [
        "",
        "strat",
        "status --jsn",
        "start",
        "start --head --address 10.0.0.1:6380 --token T",
        "start --address 10.0.0.1:6380",
        "start --address 10.0.0.1 --token T",
        "start --address 10.0.0.1:6380 --token -",
        "start --head --listen here",
        "start --head --listen 0.0.0.0:6380",
        "start --head --cpus -1",
        "start --head --cpus 0.00001",
        "start --head --gpus 1.5",
        "start --head --memory 2000TiB",
        "start --head --resource licence",
        "start --head --resource CPU=4",
        "start --head --label =a",
        "start --head --resource licence=1 --resource licence=2",
        "start --head --label zone=a --label zone=b",
        "start --head --store-bytes 4G",
        "start --head --spill-directory /no/such/place",
        "start --head --spill-directory /proc",
        "start --head --spill-bytes much",
        "token --lifetime 30",
        "token --lifetime 99999999999d",
        "token --uses 0",
        "token revoke",
        "token --uses 1 list",
        "nodes",
        "nodes expel xyz",
        "audit --since yesterday",
        "audit --limit 0",
        "explain xyz",
        "list",
        "list things",
        "list actors --state running",
        "list objects --name x",
        "list tasks --limit 0",
        "list tasks --filter running",
        "list tasks --filter colour=red",
        "kv get %zz",
        "kv delete",
        "stop --timeout soon",
        "completions tcsh",
        "kill xyz",
        "start --config /no/such/file",
    ] {
        transcript.run(&line.split_whitespace().collect::<Vec<_>>());
    }
    assert!(transcript.exit_codes().iter().all(|code| *code == 2), "a mistake of the user");
    transcript.compare("mistakes");
}

#[test]
fn without_a_daemon() {
    let mut transcript = Transcript::without_daemon();
    for line in
        ["status", "list nodes", "explain abcd", "logs", "kv list", "kill abcd", "token", "audit", "stop"]
    {
        transcript.run(&line.split_whitespace().collect::<Vec<_>>());
    }
    assert!(transcript.exit_codes().iter().all(|code| *code == 1), "it failed");
    transcript.compare("without_a_daemon");
}

#[test]
fn tables_for_people() {
    let mut transcript = Transcript::with(Fixed::cluster());
    for line in [
        "status",
        "list nodes",
        "list nodes --state dead",
        "list tasks",
        "list tasks --limit 2",
        "list tasks --name shard --state failed",
        "list tasks --node ffff",
        "list actors",
        "list objects",
        "list workers",
        "list workers --filter role=actor",
        "list jobs",
        "list programs",
        "list programs --filter language=python",
        "list jobs --state running",
        "list groups",
        "list groups --state ready",
        "explain 5a5a",
        "kill 5a5a",
        "kv list",
        "kv list aktis/",
        "kv get user/4/shop/best%20price",
        "kv get user/0//none",
        "kv delete user/4/shop/best%20price",
        "kv delete user/0//none",
        "kv clear --yes",
        "kv clear",
        "token --lifetime 1h30m",
        "token --ttl 10m --uses 1",
        "token --uses 5",
        "token list",
        "token revoke 0123",
        "token rotate",
        "rotate",
        "nodes expel 9999",
        "nodes revoke 9999",
        "audit",
        "audit --since 2026-01-01T00:00Z --limit 5",
        "logs",
        "logs --tail 1",
    ] {
        transcript.run(&line.split_whitespace().collect::<Vec<_>>());
    }
    transcript.compare("tables");
}

#[test]
fn json_for_programs() {
    let mut transcript = Transcript::with(Fixed::cluster());
    for line in [
        "status --json",
        "list nodes --json",
        "list tasks --json",
        "list actors --json",
        "list objects --json",
        "list workers --json",
        "list jobs --json",
        "list programs --json",
        "list groups --json",
        "kill 5a5a --force --json",
        "explain 5a5a --json",
        "kv list --json",
        "kv get user/4/shop/best%20price --json",
        "kv clear --yes --json",
        "token --json",
        "token list --json",
        "token revoke 0123 --json",
        "token rotate --json",
        "rotate --json",
        "nodes expel 9999 --json",
        "nodes revoke 9999 --json",
        "audit --json",
        "logs --json",
    ] {
        let printed = transcript.run(&line.split_whitespace().collect::<Vec<_>>());
        for document in serde_json::Deserializer::from_str(&printed).into_iter::<serde_json::Value>() {
            document.expect("JSON, and nothing else");
        }
    }
    transcript.compare("json");
}

#[test]
fn a_daemon_that_refuses() {
    let mut transcript = Transcript::with(Fixed::refusing());
    for line in [
        "status",
        "list tasks",
        "explain abcd",
        "logs",
        "kv list",
        "kill abcd",
        "token",
        "audit",
        "stop",
        "stop --cluster",
    ] {
        transcript.run(&line.split_whitespace().collect::<Vec<_>>());
    }
    assert!(transcript.exit_codes().iter().all(|code| *code == 1), "it failed");
    transcript.compare("refusals");
}

#[test]
fn a_node_that_has_lost_its_head() {
    let mut transcript = Transcript::with(Fixed::alone());
    transcript.run(&["status"]);
    transcript.run(&["list", "actors"]);
    transcript.run(&["stop", "--timeout", "1s", "--json"]);
    transcript.compare("alone");
}

#[test]
fn completions_name_the_commands() {
    let mut transcript = Transcript::without_daemon();
    for shell in ["bash", "zsh", "fish"] {
        let script = transcript.run(&["completions", shell]);
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}: {script}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let transcript = Transcript::with(Fixed::cluster());
    for line in ["status", "list tasks --json", "logs", "token"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = transcript.command().args(line.split(' ')).stdout(writer).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("error"), "{line}: {errors}");
    }
}
