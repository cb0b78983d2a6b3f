//! Stories of workers that are forked from a template.

use crate::TEMPLATE;
use crate::stories::{Driver, PATIENCE, Test, driver, exists, kill, options, pidfd, tell};
use crate::worker::sign_of_place;
use aktis_node::{NodeOptions, WorkerProgram};
use aktis_protocol::actors::ActorSpec;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::state::{ActorState, ResourceRow, StateKind, StateRows, WorkerRole, WorkerState};
use aktis_protocol::{
    ActorId, Amount, DeathCause, GroupId, GroupSpec, GroupState, ProcessSlot, Resources, TaskId,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("forked_workers_come_up_and_their_deaths_are_told_exactly", || tell("forked deaths", "")),
    ("a_forked_worker_that_exits_is_reported_with_its_code", || tell("forked exits", "exits")),
    ("a_killed_template_is_replaced_and_explains_the_death_of_its_workers", || tell("template dies", "")),
    ("a_template_that_cannot_fork_is_told_from_a_dead_one", || tell("no fork", "cannot fork")),
    ("a_template_that_dies_again_and_again_is_given_up_for_the_moment", || {
        tell("deadly fork", "dies of the fork");
    }),
    ("a_template_that_cannot_be_started_is_explained", || tell("no template", "")),
    ("forks_leave_no_descriptors_behind", || tell("many forks", "")),
    ("forked_workers_that_do_not_listen_end_with_the_session", || tell("forked shutdown", "deaf")),
    ("a_session_with_forked_workers_ends_at_once", || tell("forked shutdown", "")),
    ("the_state_is_told_in_rows", || tell("state", "")),
    ("forked_workers_print_through_the_driver", forked_workers_print_through_the_driver),
    ("what_several_workers_print_is_printed_once", what_several_workers_print_is_printed_once),
    ("forked_workers_are_told_their_environment_and_gpus", forked_workers_are_told_their_environment),
    ("forked_workers_leak_no_descriptor_and_have_no_input", forked_workers_leak_no_descriptor),
    ("template_and_workers_die_with_a_killed_driver", template_and_workers_die_with_a_killed_driver),
];

/// Plays the driver's part, if the story is one of these.
pub(crate) fn play(story: &str) -> bool {
    match story {
        "forked deaths" => forked_deaths(),
        "forked exits" => forked_exits(),
        "template dies" => template_dies(),
        "no fork" => no_fork(),
        "deadly fork" => deadly_fork(),
        "no template" => no_template(),
        "many forks" => many_forks(),
        "forked shutdown" => forked_shutdown(),
        "forked actor" => forked_actor(),
        "state" => state(),
        "forked print" => drop(with_workers()),
        "forked sit" => forked_sit(),
        _ => return false,
    }
    true
}

const PLACES: [ProcessSlot; 2] = [ProcessSlot(1), ProcessSlot(2)];

fn forking() -> NodeOptions {
    let command = vec![std::env::current_exe().expect("this program").into()];
    let environment = vec![(TEMPLATE.into(), "1".into())];
    let workers = WorkerProgram::Template { command, environment, version: String::new() };
    NodeOptions { workers, ..options() }
}

/// A driver with a worker in each place, and their process ids.
fn with_workers() -> (Driver, [u32; 2]) {
    let driver = Driver::start(forking());
    driver.node.wait_for_template(PATIENCE).expect("ready");
    let pids = PLACES.map(|place| worker_in(&driver, place));
    (driver, pids)
}

fn worker_in(driver: &Driver, place: ProcessSlot) -> u32 {
    let object = sign_of_place(driver.node.session(), place);
    let pid = driver.pid_in(object);
    driver.node.send(ToNode::Released { object });
    pid
}

/// The driver has dealt with a death: the place is used again.
fn handle(driver: &Driver, process: ProcessSlot) {
    driver.node.send(ToNode::DeathHandled { process });
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    line.trim().parse().expect("a process id")
}

fn descriptors_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
}

fn forked_deaths() {
    let (driver, pids) = with_workers();
    assert_eq!(driver.node.processes(), [(PLACES[0], pids[0]), (PLACES[1], pids[1])]);
    let template = driver.node.template_pid().expect("ready");
    assert!(pids.iter().all(|pid| parent_of(*pid) == template));
    // The place of a dead worker is free only after its death was dealt with: the next one is in another.
    let victims = [(1, pids[0], Signal::KILL, 3), (2, pids[1], Signal::TERM, 1)];
    for (place, pid, signal, next) in victims {
        let process = ProcessSlot(place);
        rustix::process::pidfd_send_signal(pidfd(pid), signal).expect("sent");
        let (died, cause) = driver.death();
        let stderr_tail = vec!["these are my words".to_owned()];
        let signal = Some(signal.as_raw());
        let expected = DeathCause { pid, signal, stderr_tail, isolated: true, ..DeathCause::default() };
        assert_eq!((died, cause), (process, expected));
        assert!(!exists(pid), "it was reaped");
        assert_ne!(worker_in(&driver, ProcessSlot(next)), pid);
        handle(&driver, process);
    }
    assert_eq!(driver.node.template_pid(), Some(template));
}

fn forked_exits() {
    let driver = Driver::start(forking());
    let (_, cause) = driver.death();
    assert_eq!((cause.signal, cause.exit_code), (None, Some(3)));
    assert_eq!(cause.stderr_tail, ["these are my words"]);
}

fn template_dies() {
    let (driver, pids) = with_workers();
    let template = driver.node.template_pid().expect("ready");
    kill(template);
    for _ in PLACES {
        let (process, cause) = driver.death();
        assert_eq!(cause.pid, pids[process.0 as usize - 1]);
        let text = cause.to_string();
        let how = format!("the template process {template} was killed by signal 9");
        assert!(text.contains(&how) && text.contains("a template's words"), "{text}");
    }
    let next = [3, 4].map(|place| worker_in(&driver, ProcessSlot(place)));
    assert!(next.iter().all(|pid| !pids.contains(pid)));
    assert!(driver.node.template_pid().is_some_and(|pid| pid != template));
    driver.node.shutdown();
    assert!(next.into_iter().all(|pid| !exists(pid)));
}

fn no_fork() {
    let driver = Driver::start(forking());
    let (_, cause) = driver.death();
    assert_eq!(cause.pid, 0);
    assert_eq!(cause.stderr_tail, ["it could not be started: there is no fork today"]);
    driver.node.wait_for_template(PATIENCE).expect("it is ready nevertheless");
}

/// No worker dies of it as long as there is hope.
fn deadly_fork() {
    let driver = Driver::start(forking());
    let (_, cause) = driver.death();
    let text = cause.to_string();
    assert!(text.contains("the template process") && text.contains("exited with code 7"), "{text}");
}

fn no_template() {
    for (program, expected) in
        [("/nowhere/at-all", "could not be started"), ("/bin/false", "exited with code 1")]
    {
        let (command, environment) = (vec![program.into()], Vec::new());
        let workers = WorkerProgram::Template { command, environment, version: String::new() };
        let driver = Driver::start(NodeOptions { workers, ..options() });
        let error = driver.node.wait_for_template(PATIENCE).expect_err("it is not there");
        assert!(error.contains(expected), "{error}");
        assert!(driver.death().1.to_string().contains(expected));
        driver.node.shutdown();
    }
}

fn many_forks() {
    // With one worker at a time, nobody but the driver has to deal with its death.
    let resources = Resources::none().with(CPU, Amount::ONE);
    let driver = Driver::start(NodeOptions { resources, ..forking() });
    let (mut pid, mut place) = (worker_in(&driver, PLACES[0]), PLACES[0]);
    let template = driver.node.template_pid().expect("ready");
    let count = || (descriptors_of(std::process::id()), descriptors_of(template));
    let mut before = (0, 0);
    for round in 0..60 {
        if round == 10 {
            before = count();
        }
        kill(pid);
        assert_eq!(driver.death().0, place);
        let next = ProcessSlot(3 - place.0);
        pid = worker_in(&driver, next);
        handle(&driver, place);
        place = next;
    }
    assert_eq!(count(), before, "as many descriptors as long ago");
}

fn forked_shutdown() {
    let (driver, pids) = with_workers();
    let template = driver.node.template_pid().expect("ready");
    let began = Instant::now();
    driver.node.shutdown();
    assert!(began.elapsed() < Duration::from_millis(300), "{:?}", began.elapsed());
    assert!(
        !exists(template) && pids.iter().all(|pid| !exists(*pid)),
        "nobody is left, not even as a zombie"
    );
}

fn forked_actor() {
    let resources = options().resources.with(GPU, Amount::units(2));
    let driver = Driver::start(NodeOptions { resources, ..forking() });
    let actor = ActorId::created_by(TaskId::root(driver.node.session()).child(1));
    let resources = Resources::none().with(GPU, Amount::units(2));
    let environment = "just so".to_owned();
    let spec = ActorSpec { actor, resources, environment, ..ActorSpec::default() };
    driver.node.send(ToNode::ActorWanted { spec: Box::new(spec) });
    worker_in(&driver, ProcessSlot(3));
}

fn ask(driver: &Driver, what: StateKind) -> StateRows {
    driver.node.send(ToNode::StateWanted { request: 5, what });
    driver.wait_for(|answer| match answer {
        FromNode::StateTold { request: 5, rows, left_out: 0 } => Some(rows),
        _ => None,
    })
}

fn state() {
    let (driver, pids) = with_workers();
    let StateRows::Workers(workers) = ask(&driver, StateKind::Workers) else { panic!("workers") };
    let rows: Vec<_> = workers.iter().map(|row| (row.process, row.pid, row.role, row.state)).collect();
    let idle = |place: usize| (PLACES[place], pids[place], WorkerRole::Tasks, WorkerState::Idle);
    assert_eq!(rows, [idle(0), idle(1)]);

    let entry = driver.put(1, 1, 4096).expect("there is room");
    for pinned in [true, false] {
        let pin = pinned.then(|| driver.node.arena().pin(entry).expect("in memory"));
        let StateRows::Objects(objects) = ask(&driver, StateKind::Objects) else { panic!("objects") };
        let [row] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!((row.entry, row.bytes, row.pinned, row.spilled), (entry, 4096, pinned, false));
        assert_eq!(row.holders, [ProcessSlot(0)]);
        drop(pin);
    }
    let StateRows::Store(store) = ask(&driver, StateKind::Store) else { panic!("the store") };
    assert_eq!((store.capacity, store.used, store.objects), (1 << 20, 4096, 1));

    let group = GroupId::created_by(TaskId::root(driver.node.session()).child(1));
    let bundles = vec![Resources::none().with(CPU, Amount::ONE)];
    let spec = GroupSpec { group, bundles: bundles.clone(), ..GroupSpec::default() };
    driver.node.send(ToNode::GroupWanted { spec });
    let StateRows::Groups(groups) = ask(&driver, StateKind::Groups) else { panic!("groups") };
    assert_eq!((&groups[0].state, &groups[0].available), (&GroupState::Ready, &bundles));
    let StateRows::Resources(resources) = ask(&driver, StateKind::Resources) else { panic!("resources") };
    let cpu = ResourceRow { name: CPU.to_owned(), total: Amount::units(2), available: Amount::ONE };
    assert_eq!(resources, [cpu]);

    let actor = ActorId::created_by(TaskId::root(driver.node.session()).child(2));
    let (type_name, name) = ("Counter".to_owned(), Some("mine".to_owned()));
    let spec = ActorSpec { actor, type_name, name: name.clone(), ..ActorSpec::default() };
    driver.node.send(ToNode::ActorWanted { spec: Box::new(spec) });
    let pid = worker_in(&driver, ProcessSlot(3));
    let StateRows::Actors(actors) = ask(&driver, StateKind::Actors) else { panic!("actors") };
    let [row] = &actors[..] else { panic!("{actors:?}") };
    assert_eq!((row.actor, &row.name, row.state, row.pid), (actor, &name, ActorState::Pending, pid));
}

fn forked_sit() {
    let (driver, pids) = with_workers();
    println!("pids {} {} {}", driver.node.template_pid().expect("ready"), pids[0], pids[1]);
    loop {
        std::thread::park();
    }
}

// From outside.

fn forked_workers_print_through_the_driver() {
    let output = driver("forked print", "").env("AKTIS_DEDUP_LOGS", "0").output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let greetings = stdout.lines().filter(|line| line.ends_with("hello from a worker"));
    assert_eq!(greetings.filter(|line| line.starts_with("(worker pid=")).count(), 2, "{stdout}");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = stderr.lines().find(|line| line.ends_with("a template's words")).expect("forwarded");
    assert!(words.starts_with("(template pid="), "{words}");
}

fn what_several_workers_print_is_printed_once() {
    let output = driver("forked print", "").output().expect("started");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let greetings: Vec<&str> = stdout.lines().filter(|line| line.contains("hello from a worker")).collect();
    let [first, second] = greetings[..] else { panic!("{stdout}") };
    assert!(first.ends_with("hello from a worker"), "{first}");
    assert!(second.ends_with("hello from a worker [printed once more, by another worker]"), "{second}");
}

fn forked_workers_are_told_their_environment() {
    let output = driver("forked actor", "").env("CUDA_VISIBLE_DEVICES", "4,7").output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = r#"set up as "just so" with [("CUDA_VISIBLE_DEVICES", "4,7")]"#;
    assert!(text.lines().any(|line| line.ends_with(expected)), "{text}");
    assert!(text.lines().any(|line| line.ends_with(r#"set up as "" with []"#)), "{text}");
}

fn forked_workers_leak_no_descriptor() {
    let output = driver("forked print", "starts processes").output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("a child process has {} descriptors", crate::worker::inherited_descriptors());
    assert!(text.contains(&expected), "as many as a child of this process: {text}");
    assert!(text.contains("the input holds 0 bytes"), "{text}");
}

fn template_and_workers_die_with_a_killed_driver() {
    let mut child = driver("forked sit", "deaf").stdout(Stdio::piped()).spawn().expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.strip_prefix("pids ").map(str::to_owned)).expect("process ids");
    let pidfds: Vec<_> = line.split(' ').map(|pid| pidfd(pid.parse().expect("a process id"))).collect();
    child.kill().expect("killed");
    child.wait().expect("reaped");
    for process in &pidfds {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let ended = rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&second));
        assert_eq!(ended, Ok(1), "it is gone within a second");
    }
}
