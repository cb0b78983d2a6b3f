//! Who is let in, and who is put out: real daemons, and commands on the head's machine.

use crate::add;
use crate::machines::{Cluster, Machine, PATIENCE, run, until};
use aktis::prelude::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command on the head's machine that must succeed, and what it prints as JSON.
fn order(cluster: &Cluster, line: &str) -> serde_json::Value {
    let words: Vec<&str> = line.split(' ').chain(["--json"]).collect();
    cluster.head().json(&words)
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().expect("text")
}

/// Why a machine with this token does not get in.
fn refusal(cluster: &Cluster, (address, token): (&str, &str)) -> String {
    let path = cluster.directory.path().join("stranger");
    let output = run(&path, &["start", "--address", address, "--token", token]);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).expect("text")
}

/// What the audit log has of this kind: what each is about, and what happened.
fn audited(cluster: &Cluster, kind: &str) -> Vec<(String, String)> {
    let log = order(cluster, "audit");
    let events = log["events"].as_array().expect("a list");
    let of_kind = events.iter().filter(|event| event["kind"] == kind);
    of_kind.map(|event| (text(&event["subject"]).to_owned(), text(&event["text"]).to_owned())).collect()
}

#[test]
fn a_token_lets_in_as_many_machines_as_it_says_and_none_after_it_is_revoked() {
    let mut cluster = Cluster::new(1, &[]);
    let once = order(&cluster, "token --ttl 10m --uses 1");
    let (address, token) = (text(&once["address"]).to_owned(), text(&once["token"]).to_owned());
    let joined = ["--address", &address, "--token", &token, "--cpus", "1"];
    let path = cluster.directory.path().join("once");
    cluster.machines.push(Machine::start(path, &joined));
    cluster.wait_for_links();
    let told = refusal(&cluster, (&address, &token));
    assert!(told.contains("used up") && told.contains("hint: "), "{told}");

    let often = order(&cluster, "token --uses 5");
    order(&cluster, &format!("token revoke {}", text(&often["id"])));
    // A control process that is killed has forgotten neither.
    cluster.machines[0].kill_control();
    cluster.machines[0].start_control();
    let told = refusal(&cluster, (&address, text(&often["token"])));
    assert!(told.contains("revoked"), "{told}");
    let told = refusal(&cluster, (&address, &token));
    assert!(told.contains("used up"), "{told}");

    let listed = order(&cluster, "token list");
    let state = |id: &serde_json::Value| {
        let all = listed["tokens"].as_array().expect("a list");
        let row = all.iter().find(|row| row["id"] == *id).expect("it is listed");
        (text(&row["state"]).to_owned(), row["uses"].as_u64())
    };
    assert_eq!(state(&once["id"]), ("used up".to_owned(), Some(1)));
    assert_eq!(state(&often["id"]), ("revoked".to_owned(), Some(0)));
    let subject = |id: &serde_json::Value| format!("token {}", text(id));
    assert!(audited(&cluster, "token used").iter().any(|(about, _)| *about == subject(&once["id"])));
    assert_eq!(audited(&cluster, "token revoked")[0].0, subject(&often["id"]));
    let refused = audited(&cluster, "refused");
    assert!(
        refused.iter().any(|(_, what)| what.contains("127.0.0.1") && what.contains("used up")),
        "{refused:?}"
    );
    assert_eq!(audited(&cluster, "started").len(), 2, "both lives of the control process");

    let (_, good) = cluster.invitation();
    order(&cluster, "token rotate");
    let told = refusal(&cluster, (&address, &good));
    assert!(told.contains("wrong token"), "{told}");
    cluster.join(1);
    cluster.wait_for_links();
}

#[test]
fn nodes_that_are_put_out_end_and_come_back_by_a_token_only() {
    let mut cluster = Cluster::new(1, &[1, 1]);
    cluster.wait_for_links();
    let (address, token) = cluster.invitation();
    let session = cluster.head().session();
    let _entered = session.enter();
    for kind in ["expel", "revoke"] {
        let mut put_out = cluster.machines.pop().expect("a member");
        let own = put_out.json(&["status", "--json"]);
        let node = text(&own["node"]).to_owned();
        order(&cluster, &format!("nodes {kind} {node}"));
        until("its daemon ends", || put_out.has_ended());
        until("it is no member", || cluster.head().members() == cluster.machines.len());
        let path = put_out.path.clone();
        drop(put_out);
        let output = run(&path, &["start", "--address", &address]);
        let told = String::from_utf8(output.stderr).expect("text");
        let word = if kind == "expel" { "expelled" } else { "revoked" };
        assert!(told.contains(&format!("node {node} was {word}")) && told.contains("hint: "), "{told}");
        assert_eq!(audited(&cluster, word)[0].0, node);
        let left = audited(&cluster, "left");
        assert!(left.iter().any(|(about, what)| *about == node && what.contains(word)), "{left:?}");
        assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3, "service goes on");
    }
    let path = cluster.next_path();
    let again = ["--address", &address, "--token", &token, "--cpus", "1"];
    cluster.machines.push(Machine::start(path, &again));
    cluster.wait_for_links();
}

#[test]
fn the_audit_log_tells_of_drivers_and_survives_the_control_process() {
    let mut cluster = Cluster::new(1, &[]);
    let session = cluster.head().session();
    let this = format!("process {}", std::process::id());
    let is_told =
        |cluster: &Cluster, kind| audited(cluster, kind).iter().any(|(_, what)| what.contains(&this));
    until("it is told that this driver has attached", || is_told(&cluster, "attached"));
    session.shutdown();
    until("it is told that this driver has left", || is_told(&cluster, "detached"));
    let before = audited(&cluster, "joined");
    cluster.machines[0].kill_control();
    cluster.machines[0].start_control();
    assert_eq!(audited(&cluster, "joined")[..before.len()], before);
    assert!(is_told(&cluster, "attached") && is_told(&cluster, "detached"));
    let none = order(&cluster, "audit --since 2100-01-01T00:00Z");
    assert_eq!(none["events"].as_array().map(Vec::len), Some(0));
}

/// Which of these files somebody can read.
fn readable(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter(|path| std::fs::read(path).is_ok()).collect()
}

#[remote]
fn readable_here(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    readable(paths)
}

#[remote]
fn readable_by_a_child(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_read = |path: &PathBuf| {
        let mut command = Command::new("cat");
        command
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    paths.into_iter().filter(is_read).collect()
}

#[remote]
fn makes_a_token(program: PathBuf, directory: PathBuf) -> String {
    let output =
        Command::new(program).arg("token").env("AKTIS_DIRECTORY", directory).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether this user may make the namespaces that the daemon hides the keys by.
fn can_hide() -> bool {
    let user = if rustix::process::geteuid().is_root() { "-m" } else { "-Um" };
    let mut command = Command::new("unshare");
    command.args([user, "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn tasks_on_the_heads_machine_cannot_read_the_keys_of_the_cluster_or_make_tokens() {
    if !can_hide() {
        eprintln!("not tried: this user may make no mount namespaces");
        return;
    }
    let tried = |when: &str| {
        let cluster = Cluster::new_with(1, &[], &["--hide-control", when]);
        let keys: Vec<PathBuf> = ["authority/authority.key", "authority/token.key", "identity/identity.key"]
            .map(|file| cluster.head().path.join("control").join(file))
            .into();
        assert_eq!(readable(keys.clone()), keys, "the user who has started the head can read them");
        let pids = [cluster.head().pid(), std::process::id()];
        let around = |pid: u32| {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            keys.iter()
                .map(move |key| root.join(key.strip_prefix("/").expect("absolute")))
                .collect::<Vec<_>>()
        };
        let paths = [keys.clone(), around(pids[0]), around(pids[1])].concat();
        let session = cluster.head().session();
        let _entered = session.enter();
        let by_task = readable_here::remote(paths.clone()).get_timeout(PATIENCE).unwrap();
        let by_child = readable_by_a_child::remote(paths).get_timeout(PATIENCE).unwrap();
        let (program, directory) =
            (Path::new(env!("CARGO_BIN_EXE_aktis")).to_owned(), cluster.head().path.clone());
        let token = makes_a_token::remote(program, directory).get_timeout(PATIENCE).unwrap();
        (by_task.len(), by_child.len(), token.contains("aktis1."))
    };
    assert_eq!(tried("always"), (0, 0, false));
    let (by_task, by_child, has_token) = tried("never");
    assert!(by_task >= 3 && by_child >= 3 && has_token, "else the attack shows nothing");
}

#[test]
fn the_keys_are_rotated_by_a_command_and_that_is_on_record() {
    let mut cluster = Cluster::new(1, &[1]);
    let (address, token) = cluster.invitation();
    let rotated = order(&cluster, "rotate");
    assert_eq!(rotated["nodes"], 2);
    let told = refusal(&cluster, (&address, &token));
    assert!(told.contains("not the head of the cluster that the token is for"), "{told}");
    let events = audited(&cluster, "rotated");
    assert!(
        events.iter().any(|(about, what)| about == "authority" && what.contains("2 nodes")),
        "{events:?}"
    );
    // The next life of the control process has the other key.
    cluster.machines[0].kill_control();
    cluster.machines[0].start_control();
    cluster.join(1);
    cluster.wait_for_links();
    let session = cluster.head().session();
    let _entered = session.enter();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}
