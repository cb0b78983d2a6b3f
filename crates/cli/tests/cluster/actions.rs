//! What an operator does to a cluster that runs: ends tasks, actors and jobs, looks at placement groups.

use super::machines::{Cluster, Machine, PATIENCE, run, until};
use super::views::{explanation, rows};
use super::{Counter, DRIVER, go, linger, places};
use aktis::prelude::*;
use aktis::{Amount, GroupStrategy, PlacementGroup, Resources};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn tasks_and_actors_end_by_a_command_on_any_machine() {
    let cluster = Cluster::new(0, &[2]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let counter = Counter::options().name("the counter").detached().restarts(3).cpus(1).remote(1);
    assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 2);
    let running = linger::remote(cluster.board(), 0);
    places(&cluster, 0..1);
    let queued = linger::remote(cluster.board(), 1);
    let member = &cluster.machines[1];
    let kill = |id: &str, more: &[&str]| member.json(&[&["kill", id, "--json"], more].concat());
    for (task, id) in [(&running, running.id()), (&queued, queued.id())] {
        let killed = kill(&id.to_string(), &[]);
        assert_eq!(killed["kind"], "task", "{killed}");
        let error = task.get_timeout(PATIENCE).unwrap_err();
        assert!(matches!(error, aktis::Error::Cancelled(..)), "{error:?}");
    }
    let actor = rows(member, &["actors"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(kill(&actor[..20], &["--restart"])["kind"], "actor");
    until("it lives again", || counter.add(1).get_timeout(PATIENCE).ok() == Some(2));
    assert_eq!(kill(&actor[..20], &[])["id"], actor.as_str());
    until("it is dead", || matches!(counter.add(1).get_timeout(PATIENCE), Err(aktis::Error::ActorDied(_))));
    for id in ["0123456789abcdef", &running.id().to_string()] {
        let refused = run(&member.path, &["kill", id]);
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(1) && errors.contains("hint: "), "{id}: {errors}");
    }
    go(&cluster);
}

#[test]
fn a_job_ends_by_a_command_on_any_machine() {
    let cluster = Cluster::new(1, &[1]);
    for (flags, signal) in [(&[][..], Signal::TERM), (&["--force"][..], Signal::KILL)] {
        let mut driver = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "actions::a_driver_that_stays", "--nocapture"])
            .env(DRIVER, &cluster.head().path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it runs");
        let member = &cluster.machines[1];
        let mut id = Value::Null;
        until("the job is listed", || {
            let running = rows(member, &["jobs", "--state", "running"]);
            id = running.first().map_or(Value::Null, |row| row["id"].clone());
            running.first().is_some_and(|row| row["pid"] == driver.id())
        });
        let killed = member.json(&[&["kill", id.as_str().unwrap(), "--json"], flags].concat());
        assert_eq!(killed["kind"], "job");
        assert_eq!(driver.wait().unwrap().signal(), Some(signal.as_raw()));
        until("its end is told", || rows(member, &["jobs", "--state", "running"]).is_empty());
        let again = run(&member.path, &["kill", id.as_str().unwrap()]);
        let errors = String::from_utf8(again.stderr).unwrap();
        assert!(again.status.code() == Some(1) && errors.contains("has ended already"), "{errors}");
    }
}

/// Not a test by itself: the driver of the one before.
#[test]
fn a_driver_that_stays() {
    let Ok(directory) = std::env::var(DRIVER) else { return };
    let session = Session::connect(format!("{directory}/node")).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(session);
}

#[test]
fn placement_groups_are_listed_and_explained_on_every_machine() {
    let cluster = Cluster::new(0, &[1, 1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let bundles = |count: usize| vec![Resources::none().with("CPU", Amount::ONE); count];
    let ready = PlacementGroup::create(bundles(2), GroupStrategy::StrictSpread).unwrap();
    ready.wait(PATIENCE).unwrap();
    let waiting = PlacementGroup::create(bundles(3), GroupStrategy::Spread).unwrap();
    assert!(waiting.wait(Duration::from_millis(1)).is_err(), "there is no room");
    for machine in &cluster.machines {
        let of = |state: &str| rows(machine, &["groups", "--state", state]);
        until("both are told of", || (of("ready").len(), of("pending").len()) == (1, 1));
        let (ready, waiting) = (of("ready").remove(0), of("pending").remove(0));
        assert_eq!((&ready["strategy"], &ready["bundles"][1]["CPU"]), (&"strict-spread".into(), &1.into()));
        assert_eq!(ready["nodes"].as_array().unwrap().len(), 2, "{ready}");
        assert!(!waiting["reason"].as_str().unwrap().is_empty(), "{waiting}");
        let told = explanation(machine, ready["id"].as_str().unwrap());
        assert!(told.contains("placement group of 2 bundles (strict-spread)"), "{told}");
        assert!(told.contains("it is ready, on "), "{told}");
        let told = explanation(machine, &waiting["id"].as_str().unwrap()[..12]);
        assert!(told.contains("it waits: "), "{told}");
    }
}

#[test]
fn a_control_process_that_cannot_write_says_why_in_the_status() {
    let directory = tempfile::tempdir().unwrap();
    // A file that is too large is an error for it, and not its death: as on a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_aktis")]);
    let arguments = ["--head", "--listen", "127.0.0.1:0", "--cpus", "1"];
    let (mut head, _) = Machine::start_by(command, directory.path().join("0"), &arguments);
    let session = head.session();
    let control = std::fs::read_to_string(head.path.join("control/lock")).unwrap();
    let control = Pid::from_raw(control.trim().parse().unwrap()).unwrap();
    let small = Rlimit { current: Some(4096), maximum: getrlimit(Resource::Fsize).maximum };
    prlimit(Some(control), Resource::Fsize, small).unwrap();
    // What the control process writes down of such a group is longer than that.
    let names = (0..200).map(|number| format!("a-resource-with-a-long-name-{number}"));
    let bundle = names.fold(Resources::none(), |all, name| all.with(&name, Amount::ONE));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _entered = session.enter();
            // Whether it is taken depends on when the control process ends.
            drop(PlacementGroup::create(vec![bundle], GroupStrategy::Pack));
        });
        assert_eq!(head.wait().code(), Some(1));
        let mut lost = String::new();
        until("its end is noticed", || {
            let status = head.json(&["status", "--json"]);
            lost = status["head_lost"].as_str().unwrap_or_default().to_owned();
            !lost.is_empty()
        });
        assert!(lost.contains("; its last words: the control process cannot go on: "), "{lost}");
        assert!(lost.contains("File too large"), "{lost}");
        head.start_control();
        until("the cluster is well", || run(&head.path, &["status"]).status.success());
    });
}
