//! What the node hands up: tasks and actors that want a place on another node, and objects that are copied from one.

mod names;
mod questions;

use crate::host::NodeHost;
use crate::member::Member;
use crate::neighbours::Neighbours;
use aktis_io::{Endpoint, PullError};
use aktis_logic::machine::node::{NodeEffect, NodeInput};
use aktis_protocol::control::RequestId;
use aktis_protocol::member::{Question, ToControl};
use aktis_protocol::placement::{Demand, FromPlacer, ToPlacer};
use aktis_protocol::{ActorId, EntryRef, NodeId, ObjectId, ProcessSlot, Resources, ShapeId};
use aktis_store::StoreError;
use names::Names;
use parking_lot::Mutex;
use questions::{AskedFor, Asker, Questions};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Objects that are copied at the same time.
const FETCHERS: usize = 4;

/// Connections over which one object is copied.
const STREAMS: usize = 2;

/// The pause before an object is copied again over other connections.
const PULL_AGAIN: Duration = Duration::from_millis(50);

/// Requests of the placer with this bit are about actors, others about shapes.
const ACTOR_REQUEST: RequestId = 1 << 31;

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
    questions: Mutex<Questions>,
}

#[derive(Default)]
struct Places {
    actors: HashMap<RequestId, ActorId>,
    next_actor: RequestId,
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
            questions: Mutex::default(),
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
            NodeEffect::Place { shape, definition, count } => {
                let demand = Demand {
                    needs: definition.resources,
                    group: definition.group,
                    count,
                    ..Demand::default()
                };
                if !self.ask(shape.0, demand) {
                    self.host.feed(NodeInput::Placed { shape, peer: None, count: 0 });
                }
            }
            NodeEffect::PlaceActor { actor, needs } => self.place_actor(actor, needs),
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

    fn place_actor(&self, actor: ActorId, needs: Resources) {
        let mut places = self.places.lock();
        places.next_actor = places.next_actor.wrapping_add(1) & !ACTOR_REQUEST;
        let request = places.next_actor | ACTOR_REQUEST;
        places.actors.insert(request, actor);
        drop(places);
        let demand = Demand { needs, count: 1, ..Demand::default() };
        if !self.ask(request, demand) {
            self.on_no_place(request);
        }
    }

    fn ask(&self, request: RequestId, demand: Demand) -> bool {
        self.tell_placer(ToPlacer::PlaceWanted { request, demand })
    }

    fn tell_placer(&self, message: ToPlacer) -> bool {
        let member = self.member.get().and_then(Weak::upgrade);
        member.is_some_and(|member| member.send_placer(message))
    }

    /// Says something to the control process; false if it is away.
    fn say(&self, message: &ToControl) -> bool {
        self.member.get().and_then(Weak::upgrade).is_some_and(|member| member.send(message))
    }

    /// The placer has said something.
    pub(crate) fn on_placer(&self, message: FromPlacer) {
        match message {
            FromPlacer::Placed { request, node, count, .. } => {
                let peer = self.neighbours.slot_of(node).filter(|_| node != self.me);
                if request & ACTOR_REQUEST == 0 {
                    let count = if peer.is_some() { count } else { 0 };
                    return self.host.feed(NodeInput::Placed { shape: ShapeId(request), peer, count });
                }
                let Some(actor) = self.places.lock().actors.remove(&request) else {
                    // It was withdrawn meanwhile; if that cannot be said, the placer has forgotten it anyway.
                    self.tell_placer(ToPlacer::PlaceUnused { request, node, count });
                    return;
                };
                self.host.feed(NodeInput::ActorPlaced { actor, peer });
            }
            FromPlacer::Waiting { request, .. } | FromPlacer::Refused { request, .. } => {
                if request & ACTOR_REQUEST != 0 {
                    // It is asked for anew, as another request.
                    self.tell_placer(ToPlacer::PlaceWithdrawn { request });
                }
                self.on_no_place(request);
            }
            FromPlacer::GroupChanged { .. }
            | FromPlacer::Reserve { .. }
            | FromPlacer::Commit { .. }
            | FromPlacer::Return { .. } => {}
        }
    }

    fn on_no_place(&self, request: RequestId) {
        if request & ACTOR_REQUEST == 0 {
            return self.host.feed(NodeInput::Placed { shape: ShapeId(request), peer: None, count: 0 });
        }
        if let Some(actor) = self.places.lock().actors.remove(&request) {
            self.host.feed(NodeInput::ActorPlaced { actor, peer: None });
        }
    }

    /// The control process is back, or there for the first time: what was asked of the placer is forgotten there.
    pub(crate) fn on_control_back(&self) {
        self.on_control_away();
        self.ask_again();
    }

    /// The control process is away: the placer will not answer what it was asked.
    pub(crate) fn on_control_away(&self) {
        let actors: Vec<ActorId> = self.places.lock().actors.drain().map(|(_, actor)| actor).collect();
        for actor in actors {
            self.host.feed(NodeInput::ActorPlaced { actor, peer: None });
        }
        self.host.feed(NodeInput::PlacesLost);
        self.stop_asking();
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
            match endpoint.pull(node, address, object, place, STREAMS) {
                Err(PullError::PeerGone(_)) => std::thread::sleep(PULL_AGAIN),
                outcome => return outcome.map_err(|error| error.to_string()),
            }
        }
    }
}
