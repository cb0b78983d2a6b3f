//! Two nodes in one process, with a wire between them that is no wire.

mod actors;
mod forwarding;
mod one_side;
mod releases;
mod run_times;

use super::{Machine, Programs, Proxy, Wire};
use aktis::prelude::*;
use aktis_logic::Time;
use aktis_logic::machine::node::{NodeEffect, NodeInput, Verdict};
use aktis_logic::machine::remote_node::{LocalEvent, RemoteNode};
use aktis_node::LocalRole;
use aktis_protocol::actors::ActorSpec;
use aktis_protocol::control::{FromNode, SharedValue, ToNode, decode, encode};
use aktis_protocol::peer::{Frame, Inside, PeerArgument, PeerCall, PeerValue, Ticket};
use aktis_protocol::state::{ActorState, StateKind, StateRows};
use aktis_protocol::{
    ActorId, Amount, DeathCause, Failure, FailureKind, FunctionId, NodeId, ProcessSlot, ProgramId,
    ProgramKind, ProgramSpec, Resources, SessionId, Shape, ShapeId, TaskId, limits, resources,
};
use aktis_runtime::bridge::Bridge;
use aktis_runtime::{ActorHandle, Config, Runtime};
use one_side::{NOW, OneSide};
use parking_lot::Mutex;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A wire that ends in the proxy of the other side.
#[derive(Default)]
struct Pipe {
    to: OnceLock<Weak<Proxy>>,
    waiting: Mutex<Vec<Frame>>,
}

impl Wire for Pipe {
    fn send(&self, frame: &Frame) {
        let bytes = encode(frame);
        self.waiting.lock().push(decode(&bytes).expect("frames decode"));
    }

    fn flush(&self) {
        let frames = std::mem::take(&mut *self.waiting.lock());
        if let Some(to) = self.to.get().and_then(Weak::upgrade) {
            to.receive(frames);
        }
    }

    fn has_room(&self) -> bool {
        true
    }
}

/// Both nodes run the program of this test.
struct OneProgram;

impl Programs for OneProgram {
    fn knows(&self, _: ProgramId) -> bool {
        true
    }

    fn find(&self, _: ProgramId) -> Result<(ProgramSpec, Option<File>), String> {
        Err("nobody asks".to_owned())
    }

    fn add(&self, _: ProgramSpec, _: Option<File>) -> Result<(), String> {
        Err("nobody asks".to_owned())
    }
}

struct Side {
    runtime: Runtime,
    slot: ProcessSlot,
    proxy: Arc<Proxy>,
    thread: Option<JoinHandle<()>>,
}

impl Side {
    /// Looks at the machine, once it is there.
    fn with_machine<T>(&self, look: impl FnOnce(&mut Machine) -> T) -> T {
        loop {
            if let Some(machine) = self.proxy.machine.lock().as_mut() {
                return look(machine);
            }
            std::thread::yield_now();
        }
    }
}

/// Two nodes; the first has no CPUs, and hands everything up to the second.
struct Pair {
    here: Side,
    there: Side,
}

impl Pair {
    fn new(cpus_there: u64) -> Self {
        Self::with_programs(cpus_there, Arc::new(OneProgram), Arc::new(OneProgram))
    }

    fn with_programs(
        cpus_there: u64,
        programs_here: Arc<dyn Programs>,
        programs_there: Arc<dyn Programs>,
    ) -> Self {
        let (here, there) = (node(0), node(cpus_there));
        let pipes = [Arc::new(Pipe::default()), Arc::new(Pipe::default())];
        let proxy = |runtime: &Runtime, pipe: &Arc<Pipe>, programs| {
            Proxy::new(Bridge::new(open_peer(runtime)), pipe.clone(), programs)
        };
        let proxies = [proxy(&here, &pipes[0], programs_here), proxy(&there, &pipes[1], programs_there)];
        for (pipe, to) in pipes.iter().zip(proxies.iter().rev()) {
            pipe.to.set(Arc::downgrade(to)).expect("it is set once");
        }
        let [proxy_here, proxy_there] = proxies;
        let [here, there] = [(here, proxy_here), (there, proxy_there)].map(|(runtime, proxy)| {
            let slot = proxy.bridge().runtime().process();
            let (node, running) = (runtime.node().unwrap(), proxy.clone());
            let thread = std::thread::spawn(move || {
                let why = running.run();
                let cause = DeathCause { stderr_tail: vec![why], ..DeathCause::default() };
                node.host().close_local(slot, cause);
            });
            Side { runtime, slot, proxy, thread: Some(thread) }
        });
        hand_up(&here.runtime, here.slot, there.proxy.clone());
        hand_up(&there.runtime, there.slot, here.proxy.clone());
        Self { here, there }
    }
}

impl Pair {
    /// Waits until no object is left on either node: what one holds for the other has been given back.
    fn expect_empty_stores(&self) {
        let deadline = Instant::now() + PATIENCE;
        for side in [&self.here, &self.there] {
            while objects(&side.runtime) > 0 {
                assert!(Instant::now() < deadline, "{} objects are left", objects(&side.runtime));
                std::thread::yield_now();
            }
        }
    }
}

/// How many objects are in the store of a node.
fn objects(runtime: &Runtime) -> u64 {
    match runtime.state(StateKind::Store).unwrap().0 {
        StateRows::Store(row) => row.objects,
        other => panic!("asked for the store, told {other:?}"),
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for side in [&mut self.here, &mut self.there] {
            side.proxy.end("the test is over");
            if let Some(thread) = side.thread.take() {
                thread.join().unwrap();
            }
        }
        self.here.runtime.shutdown();
        self.there.runtime.shutdown();
    }
}

fn open_peer(runtime: &Runtime) -> Runtime {
    Runtime::start_local(
        runtime.node().unwrap().host(),
        LocalRole::Peer(NodeId::default()),
        ProgramId::default(),
    )
    .unwrap()
}

fn node(cpus: u64) -> Runtime {
    let resources = Resources::none()
        .with(resources::CPU, Amount::units(cpus))
        .with(resources::MEMORY, Amount::units(1 << 30));
    let config = Config { resources, store_bytes: 256 << 20, ..Config::default() };
    Runtime::start(config).unwrap()
}

/// Whatever this node has no place for goes to the other one.
fn hand_up(runtime: &Runtime, peer: ProcessSlot, other: Arc<Proxy>) {
    let node = runtime.node().unwrap();
    let (effects, orders) = channel();
    node.host().set_elsewhere(Box::new(move |effect| {
        let _ = effects.send(effect);
    }));
    let weak = Arc::downgrade(&node);
    std::thread::spawn(move || {
        for effect in orders {
            let Some(node) = weak.upgrade() else { return };
            match effect {
                NodeEffect::Place { shape, count, .. } => {
                    node.host().feed(NodeInput::Placed {
                        shape,
                        verdict: Verdict::There(peer),
                        count,
                        slots: 1,
                    });
                }
                NodeEffect::PlaceActor { actor, .. } => {
                    node.host().feed(NodeInput::ActorPlaced { actor, verdict: Verdict::There(peer) });
                }
                NodeEffect::Fetch { entry, object, offset, .. } => {
                    let outcome = copy(&node, &other, entry, object, offset);
                    node.host().feed(NodeInput::Restored { entry, outcome });
                }
                _ => {}
            }
        }
    });
}

/// Nothing is copied while a test has this.
static COPYING: Mutex<()> = Mutex::new(());

/// Copies an object from one node's arena into the other's.
fn copy(
    to: &aktis_node::EmbeddedNode,
    from: &Proxy,
    entry: aktis_protocol::EntryRef,
    object: aktis_protocol::ObjectId,
    offset: u64,
) -> Result<(), String> {
    let _copying = COPYING.lock();
    let handle = from.exported(object).ok_or("it is not known there")?;
    let source = from.bridge().open(&handle).map_err(|error| error.to_string())?;
    to.host()
        .arena()
        .refill(entry, offset, |place| {
            place.copy_from_slice(source.bytes());
            Ok(())
        })
        .map_err(|error| error.to_string())
}

const PATIENCE: Duration = Duration::from_secs(20);

#[remote]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[remote]
fn process() -> u32 {
    std::process::id()
}

#[remote]
fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|number| number as u8).collect()
}

#[remote]
fn sum(bytes: Vec<u8>) -> u64 {
    bytes.into_iter().map(u64::from).sum()
}

#[remote]
fn fails() -> Result<u64, String> {
    Err("as it was told to".to_owned())
}

#[test]
fn a_task_runs_on_the_other_node() {
    let pair = Pair::new(2);
    let _entered = pair.here.runtime.enter();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
    let pid = process::remote().get_timeout(PATIENCE).unwrap();
    let there = pair.there.runtime.node().unwrap().processes();
    assert!(there.iter().any(|(_, there)| *there == pid), "{pid} is not among {there:?}");
}

#[test]
fn many_tasks_come_back_and_chains_find_their_inputs() {
    let pair = Pair::new(2);
    let _entered = pair.here.runtime.enter();
    let refs: Vec<_> = (0..2000).map(|number| add::remote(number, 1)).collect();
    for (number, object) in refs.into_iter().enumerate() {
        assert_eq!(object.get_timeout(PATIENCE).unwrap(), number as u64 + 1);
    }
    let mut last = add::remote(0, 0);
    for _ in 0..20 {
        last = add::remote(last, 1);
    }
    assert_eq!(last.get_timeout(PATIENCE).unwrap(), 20);
}

#[test]
fn large_values_cross_in_both_directions() {
    let pair = Pair::new(2);
    let _entered = pair.here.runtime.enter();
    let bytes = 3 << 20;
    let made_there = numbers::remote(bytes);
    let expected: u64 = (0..bytes).map(|number| u64::from(number as u8)).sum();
    // It stays there, and is used there.
    assert_eq!(sum::remote(made_there.clone()).get_timeout(PATIENCE).unwrap(), expected);
    assert_eq!(made_there.get_timeout(PATIENCE).unwrap().len(), bytes);
    let made_here = aktis::put(vec![2_u8; bytes]).unwrap();
    assert_eq!(sum::remote(made_here.clone()).get_timeout(PATIENCE).unwrap(), 2 * bytes as u64);
    assert_eq!(sum::remote(made_here).get_timeout(PATIENCE).unwrap(), 2 * bytes as u64);
    drop(made_there);
    pair.expect_empty_stores();
}

#[test]
fn an_error_comes_back_as_itself() {
    let pair = Pair::new(1);
    let _entered = pair.here.runtime.enter();
    let error = fails::remote().get_timeout(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("as it was told to"), "{error}");
}

#[remote]
fn words(length: usize) -> Vec<u8> {
    vec![7; length]
}

#[test]
fn answers_that_nobody_read_before_the_link_ended_are_lost_and_not_waited_for() {
    let mut pair = Pair::new(2);
    let _entered = pair.here.runtime.enter();
    // More than a channel holds, and nothing that makes the driver read: it is busy with something else.
    let refs: Vec<_> = (0..300).map(|_| words::options().retries(0).remote(15_000_usize)).collect();
    let deadline = Instant::now() + PATIENCE;
    let all_are_answered = || {
        let counts = pair.here.with_machine(|machine| machine.counts());
        counts.backlogged > 0 && counts.sent == 0 && counts.tickets == 300
    };
    while !all_are_answered() {
        assert!(Instant::now() < deadline, "the tasks have not run");
        std::thread::yield_now();
    }
    pair.here.proxy.end("the test cuts it");
    pair.here.thread.take().expect("it runs").join().expect("no panic");
    let outcomes: Vec<_> = refs.into_iter().map(|object| object.get_timeout(PATIENCE)).collect();
    let lost = outcomes.iter().filter(|outcome| match outcome {
        Ok(_) => false,
        Err(error) => {
            assert!(error.to_string().contains("the node is gone"), "{error}");
            true
        }
    });
    assert!((1..300).contains(&lost.count()), "some were read, some were not");
}

/// One node has the program, as an executable; the other takes as long to copy it as the test wants.
struct Travelling {
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
    added: AtomicBool,
}

impl Programs for Travelling {
    fn knows(&self, _: ProgramId) -> bool {
        self.added.load(Ordering::SeqCst)
    }

    fn find(&self, program: ProgramId) -> Result<(ProgramSpec, Option<File>), String> {
        let executable = tempfile::tempfile().expect("a file");
        Ok((ProgramSpec::here(program, ProgramKind::Rust { bytes: 0 }), Some(executable)))
    }

    fn add(&self, _: ProgramSpec, _: Option<File>) -> Result<(), String> {
        self.begun.lock().send(()).expect("the test is there");
        self.go_on.lock().recv().expect("the test is there");
        self.added.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn nothing_waits_while_an_executable_is_copied() {
    let ((begun, has_begun), (go, go_on)) = (channel(), channel());
    let (begun, go_on, added) = (Mutex::new(begun), Mutex::new(go_on), AtomicBool::new(false));
    let programs = Arc::new(Travelling { begun, go_on, added });
    let pair = Pair::with_programs(2, programs.clone(), programs);
    let _entered = pair.here.runtime.enter();
    let sum = add::remote(1, 2);
    has_begun.recv_timeout(PATIENCE).expect("the program has come");
    // The thread that steps the machine is not the one that copies.
    assert!(pair.there.proxy.machine.try_lock_for(PATIENCE).is_some());
    go.send(()).expect("it waits");
    assert_eq!(sum.get_timeout(PATIENCE).unwrap(), 3);
}

/// Runs until it is cancelled, and leaves word of that.
#[remote]
fn linger(board: String) {
    std::fs::write(Path::new(&board).join("begun"), "").expect("written");
    while !aktis::is_cancelled() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::write(Path::new(&board).join("cancelled"), "").expect("written");
}

#[test]
fn a_task_that_nothing_shows_to_be_on_the_other_node_is_cancelled_there() {
    let pair = Pair::new(1);
    let board = tempfile::tempdir().expect("a directory");
    let _entered = pair.here.runtime.enter();
    // As if it had sent more tasks than others can see.
    pair.here.with_machine(|machine| machine.0 = RemoteNode::new(pair.here.proxy.local(), 0));
    let lingering = linger::remote(board.path().to_str().expect("text"));
    for (file, cancels) in [("begun", true), ("cancelled", false)] {
        let deadline = Instant::now() + PATIENCE;
        while !board.path().join(file).exists() {
            assert!(Instant::now() < deadline, "not {file}");
            std::thread::sleep(Duration::from_millis(1));
        }
        if cancels {
            lingering.cancel().expect("the session is there");
        }
    }
}

fn some_task() -> TaskId {
    TaskId::root(SessionId(1)).child(1)
}

#[test]
fn who_waits_for_a_value_is_not_told_of_a_copy_that_is_gone_by_then() {
    let mut side = OneSide::new();
    let (holder, second) = (Bridge::new(open_peer(&side.runtime)), Bridge::new(open_peer(&side.runtime)));
    let object = some_task().returns(0);
    // The object is on another node, and the one that the proxy stands for waits for it.
    let process = holder.runtime().process();
    holder.send(ToNode::Promised { object, holder: process, found: false });
    holder.runtime().state(StateKind::Store).expect("the node answers");
    side.export(&Inside { objects: vec![object], actors: Vec::new() });
    side.frame(Frame::ValueWanted { object });
    side.step(|machine| while machine.on_room(NOW) {});
    let entry = holder.import(object, 1 << 20, process, false).unwrap();
    holder.send(ToNode::Resolved { object, value: SharedValue::Stored { entry, contains: false } });
    let deadline = Instant::now() + PATIENCE;
    let ready = loop {
        let is_ready = |event: &LocalEvent| matches!(event, LocalEvent::Ready { .. });
        if let Some(ready) = side.proxy.bridge().take().into_iter().find(is_ready) {
            break ready;
        }
        assert!(Instant::now() < deadline, "it has no value");
        std::thread::yield_now();
    };
    // That node dies; another one will say the value.
    let cause = DeathCause::default();
    second.send(ToNode::Promised { object, holder: second.runtime().process(), found: false });
    side.runtime.node().unwrap().host().close_local(holder.runtime().process(), cause);
    side.event(ready);
    let told = |frame: &Frame| matches!(frame, Frame::Value { .. });
    assert!(!side.wire.0.lock().iter().any(told), "{:?}", side.wire.0.lock());
    side.runtime.shutdown();
}

#[test]
fn an_actor_that_is_named_before_it_can_be_constructed_is_known_and_its_holders_hear_of_its_end() {
    let mut side = OneSide::new();
    let (input, spec) = (some_task().returns(1), side.spec());
    side.host(spec, input);
    let held = side.hear_of_it();
    assert_eq!(
        side.state(),
        Some(ActorState::Pending),
        "the other side has not said yet whether it takes calls"
    );
    side.frame(Frame::ActorBack { actor: side.actor });
    assert_eq!(side.state(), Some(ActorState::Alive), "on the other side");
    // Its input cannot be made: nothing is constructed, and the other side decides what that means.
    let failure = Failure::new(FailureKind::Lost, "nobody has it");
    side.frame(Frame::Value { object: input, value: PeerValue::Failed(failure.clone()) });
    side.until("refused", OneSide::has_said_that_it_ended);
    assert_eq!(side.released(), 0, "those who hold it here have yet to hear of its end");
    side.frame(Frame::ActorGone { actor: side.actor, failure });
    assert_eq!(side.state(), Some(ActorState::Dead));
    side.until("let go of", |side| side.released() == 1);
    drop(held);
    side.until("forgotten", |side| side.state().is_none());
    assert_eq!(side.released(), 1, "once only");
    side.runtime.shutdown();
}

#[test]
fn an_actor_that_lives_here_for_the_other_side_need_not_be_held_there() {
    let mut side = OneSide::new();
    let (input, spec) = (some_task().returns(1), side.spec());
    side.host(spec, input);
    let held = side.hear_of_it();
    let value = PeerValue::Inline { object: input, bytes: vec![7], inside: Inside::default() };
    side.frame(Frame::Value { object: input, value });
    side.until("let go of", |side| side.released() == 1);
    assert_eq!(side.state(), Some(ActorState::Pending), "here");
    // The other side may not have heard of that when it names it again.
    drop(side.hear_of_it());
    assert_eq!((side.released(), side.held().2), (2, 0));
    side.frame(Frame::EndActor { actor: side.actor, now: false });
    drop(held);
    side.until("forgotten", |side| side.state().is_none());
    assert!(side.has_said_that_it_ended());
    side.runtime.shutdown();
}

#[test]
fn an_actor_that_lives_on_the_other_side_is_held_until_that_has_let_go_of_it_as_often() {
    let mut side = OneSide::new();
    let creator = Bridge::new(open_peer(&side.runtime));
    let (actor, inside, spec) = (side.actor, side.inside(), Box::new(side.spec()));
    creator.send(ToNode::ActorEscaped { actor, host: creator.runtime().process() });
    creator.runtime().state(StateKind::Actors).expect("the node answers");
    let host = FromNode::HostActor { spec, incarnation: 0, gpus: Vec::new() };
    side.event(LocalEvent::Order(host));
    side.export(&inside);
    side.frame(Frame::ActorStarted { actor, incarnation: 0 });
    // This one may come when the actor's life there is over already.
    side.export(&inside);
    // The other side names it, too.
    side.step(|machine| machine.import_inside(&inside));
    assert_eq!(side.released(), 1, "it is reached there anyway");
    side.frame(Frame::ActorReleased { actor, count: 1 });
    side.frame(Frame::ActorLost { actor, incarnation: 0, cause: None });
    creator.send(ToNode::ActorReleased { actor });
    creator.runtime().state(StateKind::Actors).expect("the node answers");
    assert!(side.state().is_some(), "the other side has been told of it once more");
    side.frame(Frame::ActorReleased { actor, count: 1 });
    creator.runtime().state(StateKind::Actors).expect("the node answers");
    side.until("forgotten", |side| side.state().is_none_or(|state| state == ActorState::Dead));
    assert_eq!(side.held().1, 0);
    side.runtime.shutdown();
}

#[test]
fn a_task_that_finds_no_queue_here_goes_back_after_a_while() {
    let mut side = OneSide::new();
    let shapes = 1..=limits::SHAPES_MAX as u64 + 2;
    // All wait for CPUs, of which there are none.
    for number in shapes.clone() {
        let resources = Resources::none().with(resources::CPU, Amount::units(number));
        let shape = ShapeId(number as u32);
        let definition = Shape { resources, ..Shape::default() };
        let task = TaskId::root(SessionId(1)).child(number);
        let function = FunctionId(1);
        let (attempt, stream_ahead, returns, kind, arguments) = (0, 0, 1, 0, Vec::new());
        let call = PeerCall { task, function, attempt, stream_ahead, returns, kind, arguments };
        side.frame(Frame::Shape { shape, definition });
        side.frame(Frame::Task { ticket: Ticket(number), shape, call });
    }
    let (first, second) = (Ticket(shapes.end() - 1), Ticket(*shapes.end()));
    assert_eq!(side.machine.counts().unqueued, 2);
    side.frame(Frame::Cancel { ticket: first, recursive: false, force: false });
    let answered = |frame: &Frame| match frame {
        Frame::Returned { ticket, .. } => Some((*ticket, false)),
        Frame::TaskLost { ticket, cause: None } => Some((*ticket, true)),
        _ => None,
    };
    let answers = |side: &OneSide| side.wire.0.lock().iter().filter_map(answered).collect::<Vec<_>>();
    assert_eq!(answers(&side), [(first, false)], "one was cancelled");
    let due = side.machine.next_wakeup().expect("the other waits");
    side.step(|machine| machine.on_time(Time(due.0 - 1)));
    assert_eq!(answers(&side).len(), 1, "not yet");
    side.step(|machine| machine.on_time(due));
    assert_eq!(answers(&side), [(first, false), (second, true)], "the other goes back");
    side.machine.check();
    side.runtime.shutdown();
}

struct Counter(u64);

#[actor]
impl Counter {
    fn new(start: u64) -> Self {
        Counter(start)
    }

    fn add(&mut self, more: u64) -> u64 {
        self.0 += more;
        self.0
    }
}

#[remote]
fn pass_on(counters: Vec<CounterHandle>) -> Vec<CounterHandle> {
    counters
}

#[test]
fn nothing_is_kept_of_actors_whose_handles_have_crossed() {
    let pair = Pair::new(2);
    let entered = pair.here.runtime.enter();
    // They are named to the other node before, while and after they are constructed there.
    let counters: Vec<_> = (0..20).map(|number| Counter::remote(add::remote(number, 1))).collect();
    let passed_on: Vec<_> = (0..20).map(|_| pass_on::remote(counters.clone())).collect();
    let totals: Vec<_> = counters.iter().map(|counter| counter.add(1)).collect();
    for (number, total) in totals.iter().enumerate() {
        assert_eq!(total.get_timeout(PATIENCE).unwrap(), number as u64 + 2);
    }
    for handles in &passed_on {
        let handles = handles.get_timeout(PATIENCE).unwrap();
        assert_eq!(handles[3].add(0).get_timeout(PATIENCE).unwrap(), 5);
    }
    drop((counters, passed_on, totals, entered));
    let deadline = Instant::now() + PATIENCE;
    for side in [&pair.here, &pair.there] {
        let kept = || side.with_machine(|machine| machine.counts());
        while (kept().exported_actors, kept().imported_actors) != (0, 0) {
            assert!(Instant::now() < deadline, "{:?} are kept", kept());
            std::thread::yield_now();
        }
    }
}
