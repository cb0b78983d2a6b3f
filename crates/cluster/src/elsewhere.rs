//! What the node hands up: tasks and actors that want a place on another node, and objects that are copied from one.

mod fetchers;
pub(crate) mod jobs;
mod names;
mod places;
pub(crate) mod programs;
mod questions;
mod records;
mod speeds;
mod stand_in;

use crate::host::NodeHost;
use crate::member::Member;
use crate::neighbours::Neighbours;
use aktis_io::{Destination, Endpoint, PullError};
use aktis_logic::machine::node::{NodeEffect, NodeInput};
use aktis_protocol::member::{Question, ToControl};
use aktis_protocol::placement::{Demand, NodeReport, ToPlacer};
use aktis_protocol::{FunctionId, NodeId, ObjectId, ProcessSlot};
use aktis_store::StoreError;
use fetchers::{Fetch, Fetchers};
use jobs::Jobs;
use names::{NAME_PATIENCE, Names, Unreached};
use parking_lot::Mutex;
use places::Places;
use programs::Served;
use questions::{AskedFor, Asker, Questions};
use records::Tables;
use speeds::Speeds;
use stand_in::StandIn;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Connections over which one object is copied.
const STREAMS: usize = 2;

/// The pause before an object is copied again over other connections.
const PULL_AGAIN: Duration = Duration::from_millis(50);

/// How long nothing of an object may come from the node that has it before it is given up.
const PULL_PATIENCE: Duration = Duration::from_secs(30);

/// How many nodes may send an object's reader to the next, one after the other.
const HOPS_MAX: usize = 4;

/// See the module.
pub(crate) struct Elsewhere {
    host: NodeHost,
    me: NodeId,
    neighbours: Arc<Neighbours>,
    member: OnceLock<Weak<Member>>,
    endpoint: OnceLock<Weak<Endpoint>>,
    fetchers: Arc<Fetchers>,
    places: Mutex<Places>,
    names: Mutex<Names>,
    unreached: Arc<Unreached>,
    speeds: Mutex<Speeds>,
    questions: Mutex<Questions>,
    tables: Mutex<Tables>,
    jobs: Mutex<Jobs>,
    served: Mutex<Served>,
    /// While the control process is away.
    stand_in: Mutex<Option<StandIn>>,
}

impl Elsewhere {
    /// Takes what the node hands up from now on.
    pub(crate) fn start(host: NodeHost, me: NodeId, neighbours: Arc<Neighbours>) -> Arc<Self> {
        let elsewhere = Arc::new(Self {
            host,
            me,
            neighbours,
            member: OnceLock::new(),
            endpoint: OnceLock::new(),
            fetchers: Arc::default(),
            places: Mutex::default(),
            names: Mutex::default(),
            unreached: Arc::default(),
            speeds: Mutex::default(),
            questions: Mutex::default(),
            tables: Mutex::default(),
            jobs: Mutex::default(),
            served: Mutex::default(),
            stand_in: Mutex::default(),
        });
        let (effects, handed_up) = channel();
        elsewhere.host.set_elsewhere(Box::new(move |effect| {
            let _ = effects.send(effect);
        }));
        let other = elsewhere.clone();
        let _ = std::thread::Builder::new().name("aktis-elsewhere".into()).spawn(move || {
            while let Ok(first) = handed_up.recv() {
                other.carry_out(first);
                // All that is there, and then what it has changed: so batches make themselves.
                handed_up.try_iter().for_each(|effect| other.carry_out(effect));
                other.flush_tables();
            }
        });
        elsewhere
    }

    pub(crate) fn set_member(&self, member: &Arc<Member>) {
        let _ = self.member.set(Arc::downgrade(member));
    }

    pub(crate) fn set_endpoint(&self, endpoint: &Arc<Endpoint>) {
        let _ = self.endpoint.set(Arc::downgrade(endpoint));
    }

    pub(crate) fn close(&self) {
        self.fetchers.close();
    }

    fn carry_out(self: &Arc<Self>, effect: NodeEffect) {
        match effect {
            NodeEffect::Fetch { entry, object, peer, offset, .. } => {
                let elsewhere = self.clone();
                let carry_out = move |fetch| elsewhere.fetch(fetch);
                if self.fetchers.order(Fetch { entry, object, peer, offset }, carry_out).is_err() {
                    let why = "the node ends, or has no thread for it".to_owned();
                    self.host.feed(NodeInput::Restored { entry, outcome: Err(why) });
                }
            }
            NodeEffect::PlacesDone { shape, peer, count } => self.say_done(shape, peer, count),
            NodeEffect::Place { shape, definition, count, function } => {
                self.place_tasks(shape, definition, count, function);
            }
            NodeEffect::PlaceActor { actor, needs, group, strategy, near, priority } => {
                let (inputs, function) = (self.inputs(near), FunctionId::default());
                let demand = Demand { needs, group, strategy, count: 1, priority, function, inputs };
                self.place_actor(actor, demand);
            }
            NodeEffect::Withdraw { shape } => self.withdraw(shape),
            NodeEffect::WithdrawActor { actor } => self.withdraw_actor(actor),
            NodeEffect::TellPlacer { message } => drop(self.tell_placer(message)),
            NodeEffect::ClaimName { name, found } => self.claim_name(name, found),
            NodeEffect::FreeName { name, actor } => self.free_name(name, actor),
            NodeEffect::SeekName { to, request, name } => {
                let until = Instant::now() + NAME_PATIENCE;
                self.ask_control(Asker::new(AskedFor::Name(until), to, request), Question::Name(name));
            }
            NodeEffect::SeekNames { to, request } => {
                self.ask_control(Asker::new(AskedFor::Names, to, request), Question::Names);
            }
            NodeEffect::JobBegan { process, pid, program } => self.begin_job(process, pid, program),
            NodeEffect::JobEnded { process } => self.end_job(process),
            NodeEffect::ProgramCame { program } => self.put_program(program),
            NodeEffect::ProgramWent { program } => self.delete_program(program),
            NodeEffect::ChangeTables { change } => self.change_tables(change),
            NodeEffect::SeekRecord { object } => self.seek_record(object),
            NodeEffect::AskKey { to, request, question } => {
                self.ask_control(Asker::new(AskedFor::Key, to, request), Question::Key(question));
            }
            _ => {}
        }
    }

    fn tell_placer(&self, message: ToPlacer) -> bool {
        let Some(member) = self.member.get().and_then(Weak::upgrade) else { return false };
        member.send_placer(message.clone()) || self.tell_stand_in(&member, message)
    }

    /// How the node stands, for the placer.
    pub(crate) fn report(&self) -> NodeReport {
        let (links, unreachable) = (self.speeds.lock().rows(), self.neighbours.unreachable());
        NodeReport { links, unreachable, ..self.host.report() }
    }

    /// Says something to the control process; false if it is away.
    fn say(&self, message: &ToControl) -> bool {
        self.member.get().and_then(Weak::upgrade).is_some_and(|member| member.send(message))
    }

    /// The control process is away: the placer will not answer what it was asked.
    pub(crate) fn on_control_away(&self) {
        self.forget_places();
        self.stop_asking();
    }

    /// The control process is there, and may know nothing of what this node has told it before.
    pub(crate) fn on_control_back(&self) {
        self.stand_in.lock().take();
        self.on_control_away();
        self.say_unsaid_names();
        self.ask_again();
        self.host.feed(NodeInput::PlacerCame);
    }

    /// The cluster has given this node up, and it has joined anew.
    pub(crate) fn on_membership_lost(&self) {
        self.put_jobs_again();
        self.put_programs_again();
        self.host.feed(NodeInput::MembershipLost);
    }

    /// Time has passed.
    pub(crate) fn on_time(&self) {
        self.give_up_waiting();
        self.seek_names_again();
    }

    /// Time has passed while the control process is away.
    pub(crate) fn on_time_alone(&self) {
        self.wake_stand_in();
    }

    fn fetch(&self, Fetch { entry, object, peer, offset }: Fetch) {
        let filled = self
            .host
            .arena()
            .refill(entry, offset, |place| self.pull(object, peer, place).map_err(StoreError::Elsewhere));
        let outcome = filled.map_err(|error| error.to_string());
        self.host.feed(NodeInput::Restored { entry, outcome });
    }

    /// Copies an object. Connections come and go: the node has it for as long as there is a link to that. But one that
    /// sends nothing for long is as good as gone.
    fn pull(&self, object: ObjectId, peer: ProcessSlot, place: &mut [u8]) -> Result<(), String> {
        let mut destination = Destination::new(place);
        let mut progress = Instant::now();
        loop {
            let left = destination.parts_left();
            let why = match self.pull_from(object, peer, &mut destination) {
                Ok(()) => return Ok(()),
                Err(Failed::ForGood(why)) => return Err(why),
                Err(Failed::ForNow(why)) => why,
            };
            if destination.parts_left() < left {
                progress = Instant::now();
            }
            if progress.elapsed() >= PULL_PATIENCE {
                let text = format!("nothing of it has come for {} s: {why}", PULL_PATIENCE.as_secs());
                eprintln!("aktis: object {object} could not be copied from another node: {text}");
                return Err(text);
            }
            std::thread::sleep(PULL_AGAIN);
        }
    }

    /// Copies what is missing of an object from the node that a process stands for, or from whoever that says has it.
    fn pull_from(
        &self,
        object: ObjectId,
        peer: ProcessSlot,
        destination: &mut Destination<'_>,
    ) -> Result<(), Failed> {
        let gone = || Failed::ForGood("the node that had it is gone".to_owned());
        let (first, mut address) = self.neighbours.node_of(peer).ok_or_else(gone)?;
        let mut node = first;
        for _ in 0..HOPS_MAX {
            let endpoint = self.endpoint.get().and_then(Weak::upgrade);
            let endpoint = endpoint.ok_or_else(|| Failed::ForGood("this node ends".to_owned()))?;
            let (began, bytes) = (Instant::now(), destination.bytes_left());
            match endpoint.pull_rest(node, address, object, destination, STREAMS) {
                Ok(()) => {
                    self.speeds.lock().note(node, bytes, began.elapsed());
                    return Ok(());
                }
                Err(PullError::Elsewhere(next)) if next != self.me => {
                    match self.neighbours.address_of(next) {
                        Some(there) => (node, address) = (next, there),
                        None => return Err(insist(destination, format!("node {next} is not known here"))),
                    }
                }
                // The first knows how to get it, or will find out that nobody can.
                Err(error) if node != first => return Err(insist(destination, error.to_string())),
                Err(error) if error.passes() => return Err(Failed::ForNow(error.to_string())),
                Err(error) => return Err(Failed::ForGood(error.to_string())),
            }
        }
        Err(insist(destination, "each node says that the next has it".to_owned()))
    }
}

/// Why an object was not copied.
enum Failed {
    /// It may be otherwise in a moment.
    ForNow(String),
    /// It will not.
    ForGood(String),
}

/// Whoever was said to have an object cannot give it: the one who said so shall get it from there.
fn insist(destination: &mut Destination<'_>, why: String) -> Failed {
    destination.insist();
    Failed::ForNow(why)
}
