//! What the node hands up: tasks and actors that want a place on another node, and objects that are copied from one.

mod names;
mod places;
mod questions;
mod speeds;
mod stand_in;

use crate::host::NodeHost;
use crate::member::Member;
use crate::neighbours::Neighbours;
use aktis_io::{Endpoint, PullError};
use aktis_logic::machine::node::{NodeEffect, NodeInput};
use aktis_protocol::member::{Question, ToControl};
use aktis_protocol::placement::{Demand, NodeReport, ToPlacer};
use aktis_protocol::{EntryRef, FunctionId, NodeId, ObjectId, ProcessSlot};
use aktis_store::StoreError;
use names::Names;
use parking_lot::Mutex;
use places::Places;
use questions::{AskedFor, Asker, Questions};
use speeds::Speeds;
use stand_in::StandIn;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Objects that are copied at the same time.
const FETCHERS: usize = 4;

/// Connections over which one object is copied.
const STREAMS: usize = 2;

/// The pause before an object is copied again over other connections.
const PULL_AGAIN: Duration = Duration::from_millis(50);

/// An object to be copied from another node.
struct Fetch {
    entry: EntryRef,
    object: ObjectId,
    peer: ProcessSlot,
    offset: u64,
}

/// See the module.
pub(crate) struct Elsewhere {
    host: NodeHost,
    me: NodeId,
    neighbours: Arc<Neighbours>,
    member: OnceLock<Weak<Member>>,
    endpoint: OnceLock<Weak<Endpoint>>,
    fetches: Mutex<Option<Sender<Fetch>>>,
    places: Mutex<Places>,
    names: Mutex<Names>,
    speeds: Mutex<Speeds>,
    questions: Mutex<Questions>,
    /// While the control process is away.
    stand_in: Mutex<Option<StandIn>>,
}

impl Elsewhere {
    /// Takes what the node hands up from now on.
    pub(crate) fn start(host: NodeHost, me: NodeId, neighbours: Arc<Neighbours>) -> Arc<Self> {
        let (fetches, orders) = channel();
        let elsewhere = Arc::new(Self {
            host,
            me,
            neighbours,
            member: OnceLock::new(),
            endpoint: OnceLock::new(),
            fetches: Mutex::new(Some(fetches)),
            places: Mutex::default(),
            names: Mutex::default(),
            speeds: Mutex::default(),
            questions: Mutex::default(),
            stand_in: Mutex::default(),
        });
        let orders = Arc::new(Mutex::new(orders));
        for _ in 0..FETCHERS {
            let (elsewhere, orders) = (elsewhere.clone(), orders.clone());
            let _ = std::thread::Builder::new()
                .name("aktis-fetch".into())
                .spawn(move || elsewhere.fetch_all(&orders));
        }
        let (effects, handed_up) = channel();
        elsewhere.host.set_elsewhere(Box::new(move |effect| {
            let _ = effects.send(effect);
        }));
        let other = elsewhere.clone();
        let _ = std::thread::Builder::new().name("aktis-elsewhere".into()).spawn(move || {
            for effect in handed_up {
                other.carry_out(effect);
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
        self.fetches.lock().take();
    }

    fn carry_out(&self, effect: NodeEffect) {
        match effect {
            NodeEffect::Fetch { entry, object, peer, offset, .. } => {
                let sent = match &*self.fetches.lock() {
                    Some(fetches) => fetches.send(Fetch { entry, object, peer, offset }).is_ok(),
                    None => false,
                };
                if !sent {
                    self.host.feed(NodeInput::Restored { entry, outcome: Err("the node ends".to_owned()) });
                }
            }
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
                self.ask_control(Asker::new(AskedFor::Name, to, request), Question::Name(name));
            }
            NodeEffect::SeekNames { to, request } => {
                self.ask_control(Asker::new(AskedFor::Names, to, request), Question::Names);
            }
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
        NodeReport { links: self.speeds.lock().rows(), ..self.host.report() }
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

    /// Time has passed.
    pub(crate) fn on_time(&self) {
        self.give_up_waiting();
    }

    /// Time has passed while the control process is away.
    pub(crate) fn on_time_alone(&self) {
        self.wake_stand_in();
    }

    fn fetch_all(&self, orders: &Mutex<Receiver<Fetch>>) {
        loop {
            let order = orders.lock().recv();
            let Ok(Fetch { entry, object, peer, offset }) = order else { return };
            let outcome = self.fetch(entry, object, peer, offset);
            self.host.feed(NodeInput::Restored { entry, outcome });
        }
    }

    fn fetch(&self, entry: EntryRef, object: ObjectId, peer: ProcessSlot, offset: u64) -> Result<(), String> {
        let filled = self
            .host
            .arena()
            .refill(entry, offset, |place| self.pull(object, peer, place).map_err(StoreError::Elsewhere));
        filled.map_err(|error| error.to_string())
    }

    /// Copies an object. Connections come and go: the node has it for as long as there is a link to that.
    fn pull(&self, object: ObjectId, peer: ProcessSlot, place: &mut [u8]) -> Result<(), String> {
        loop {
            let (node, address) = self.neighbours.node_of(peer).ok_or("the node that had it is gone")?;
            let endpoint = self.endpoint.get().and_then(Weak::upgrade).ok_or("this node ends")?;
            let began = Instant::now();
            match endpoint.pull(node, address, object, place, STREAMS) {
                Err(PullError::PeerGone(_)) => std::thread::sleep(PULL_AGAIN),
                Ok(()) => {
                    self.speeds.lock().note(node, place.len() as u64, began.elapsed());
                    return Ok(());
                }
                outcome => return outcome.map_err(|error| error.to_string()),
            }
        }
    }
}
