//! The shell of this node's [`ControlClient`](machine::ControlClient): it gives the machine what the node, its drivers and the
//! control process say, and carries out what the machine orders.
//!
//! Any thread may step the machine. The effects of all steps are carried out in their order, by one thread at a time, and
//! without the machine's lock: a thread that finds another at it leaves its effects to that one.

mod copying;
mod fetchers;
mod orders;
mod speeds;
mod tables;

use crate::host::NodeHost;
use crate::member::Member;
use crate::neighbours::Neighbours;
use aktis_io::Endpoint;
use aktis_logic::machine::control_client::{self as machine, ControlClientEffect, ControlClientInput};
use aktis_logic::machine::node::{NodeEffect, NodeInput, Verdict};
use aktis_logic::{Machine, Time};
use aktis_node::journal;
use aktis_protocol::actors::FoundActor;
use aktis_protocol::control::RequestId;
use aktis_protocol::placement::{NodeInfo, NodeReport};
use aktis_protocol::tables::Answer;
use aktis_protocol::{NodeId, ProcessSlot};
use fetchers::Fetchers;
use parking_lot::{Mutex, MutexGuard};
use speeds::Speeds;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The invariants of the machine are checked after one of so many steps.
const STEPS_PER_CHECK: u64 = if cfg!(debug_assertions) { 64 } else { 4096 };

/// See the module.
pub(crate) struct ControlClient {
    host: NodeHost,
    me: NodeId,
    neighbours: Arc<Neighbours>,
    member: OnceLock<Weak<Member>>,
    endpoint: Weak<Endpoint>,
    fetchers: Arc<Fetchers>,
    speeds: Mutex<Speeds>,
    began: Instant,
    core: Mutex<Core>,
    orders: Sender<Order>,
    askers: Mutex<Askers>,
}

/// The machine, and what it has ordered.
struct Core {
    client: machine::ControlClient,
    steps: u64,
    effects: VecDeque<ControlClientEffect>,
    /// Whether a thread carries out the effects.
    is_carrying_out: bool,
}

/// What the client's own thread does, in order.
enum Order {
    /// Something that the node has ordered.
    Node(NodeEffect),
    /// Something that has happened where the machine must not be stepped.
    Input(ControlClientInput),
}

/// Threads that wait for answers of the tables.
#[derive(Default)]
struct Askers {
    answers_by_asker: BTreeMap<u64, Sender<Answer>>,
    last: u64,
}

impl ControlClient {
    /// Takes what the node orders of the cluster from now on. `own` is this node, without its epoch.
    pub(crate) fn start(
        host: NodeHost,
        own: NodeInfo,
        neighbours: Arc<Neighbours>,
        endpoint: &Arc<Endpoint>,
    ) -> Arc<Self> {
        let (orders, ordered) = channel();
        let me = own.node;
        let client = machine::ControlClient::new(own, host.own().process());
        let core = Core { client, steps: 0, effects: VecDeque::new(), is_carrying_out: false };
        let client = Arc::new(Self {
            host,
            me,
            neighbours,
            member: OnceLock::new(),
            endpoint: Arc::downgrade(endpoint),
            fetchers: Arc::default(),
            speeds: Mutex::default(),
            began: Instant::now(),
            core: Mutex::new(core),
            orders: orders.clone(),
            askers: Mutex::default(),
        });
        client.host.set_elsewhere(Box::new(move |effect| {
            let _ = orders.send(Order::Node(effect));
        }));
        let other = Arc::downgrade(&client);
        let _ = std::thread::Builder::new().name("aktis-orders".into()).spawn(move || {
            while let Ok(first) = ordered.recv() {
                let Some(client) = other.upgrade() else { return };
                client.on_order(first);
                // All that is there, and then what it has changed: so batches make themselves.
                ordered.try_iter().for_each(|order| client.on_order(order));
                client.step(ControlClientInput::OrdersEnded);
            }
        });
        client
    }

    pub(crate) fn set_member(&self, member: &Arc<Member>) {
        let _ = self.member.set(Arc::downgrade(member));
    }

    pub(crate) fn close(&self) {
        self.fetchers.close();
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }

    /// When the machine wants to be stepped next.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let due = self.core.lock().client.next_wakeup()?;
        Some(self.began + Duration::from_micros(due.0))
    }

    /// Whether the control process has welcomed this node, and is there.
    pub(crate) fn is_member(&self) -> bool {
        self.core.lock().client.is_member()
    }

    /// The other members, as far as this node was told.
    pub(crate) fn nodes(&self) -> Vec<NodeInfo> {
        self.core.lock().client.nodes().cloned().collect()
    }

    /// How long the control process has been away, if it is.
    pub(crate) fn away(&self) -> Option<Duration> {
        let now = self.now();
        self.core.lock().client.away_microseconds(now).map(Duration::from_micros)
    }

    /// Something has happened.
    pub(crate) fn step(self: &Arc<Self>, input: ControlClientInput) {
        // Dropped after the lock.
        let _after_panic = AfterPanic(self);
        let mut core = self.core.lock();
        let (now, mut effects) = (self.now(), Vec::new());
        core.client.step(now, input, &mut effects);
        core.effects.extend(effects);
        core.steps += 1;
        if core.steps.is_multiple_of(STEPS_PER_CHECK) {
            core.client.check();
        }
        if std::mem::replace(&mut core.is_carrying_out, true) {
            return;
        }
        while let Some(effect) = core.effects.pop_front() {
            MutexGuard::unlocked(&mut core, || self.carry_out(effect));
        }
        core.is_carrying_out = false;
    }

    fn carry_out(self: &Arc<Self>, effect: ControlClientEffect) {
        use ControlClientEffect as Effect;
        match effect {
            Effect::Dial => self.with_member(|member| member.order_dial()),
            Effect::Send { link, message } => self.with_member(|member| member.send(link, &message)),
            Effect::ToNode(input) => self.host.feed(input),
            Effect::PlaceTasks { shape, node, count, slots } => {
                let verdict = self.verdict(node);
                self.host.feed(NodeInput::Placed { shape, verdict, count, slots });
            }
            Effect::PlaceActor { actor, node } => {
                self.host.feed(NodeInput::ActorPlaced { actor, verdict: self.verdict(node) });
            }
            Effect::ReachActor { search, node, to, request, found } => {
                self.reach_actor(search, node, (to, request), found);
            }
            Effect::End { why } => self.with_member(|member| member.dismiss(&why)),
            Effect::ResetNeighbours => self.neighbours.reset(),
            Effect::SetMembers { epoch, nodes } => {
                self.neighbours.set_epoch(epoch);
                self.neighbours.on_members(&nodes);
            }
            Effect::AddMember { info } => self.neighbours.on_joined(&info),
            Effect::RemoveMember { node, epoch } => self.neighbours.on_left(node, epoch),
            Effect::LookAtLinks => {
                let nodes = self.neighbours.links().into_iter().map(|(node, _)| node).collect();
                self.step(ControlClientInput::LinksSeen { nodes });
            }
            Effect::LookAtNode => self.step(ControlClientInput::NodeSeen { report: self.report() }),
            Effect::Renew { certificate, lifetime_milliseconds, authorities, serial } => {
                let mut is_used = false;
                self.with_member(|member| {
                    is_used = member.renew(certificate, authorities, lifetime_milliseconds);
                });
                if is_used {
                    self.step(ControlClientInput::CertificateUsed { serial });
                }
            }
            Effect::RenewNow => self.with_member(|member| member.renew_now()),
            Effect::Answer { asker, answer } => self.answer(asker, answer),
            Effect::Log { text } => journal::warn(text),
        }
    }

    fn with_member(&self, act: impl FnOnce(&Arc<Member>)) {
        if let Some(member) = self.member.get().and_then(Weak::upgrade) {
            act(&member);
        }
    }

    /// A place on another node, as this node knows it.
    fn verdict(&self, node: NodeId) -> Verdict {
        self.neighbours.slot_of(node).map_or(Verdict::Unlinked, Verdict::There)
    }

    /// How the node stands, for the placer.
    fn report(&self) -> NodeReport {
        let (links, unreachable) = (self.speeds.lock().rows(), self.neighbours.unreachable());
        NodeReport { links, unreachable, ..self.host.report() }
    }

    fn reach_actor(
        &self,
        search: u64,
        node: NodeId,
        (to, request): (ProcessSlot, RequestId),
        found: FoundActor,
    ) {
        let search = ActorSearch { orders: self.orders.clone(), search, is_reached: false };
        let Some(proxy) = self.neighbours.slot_of(node) else { return };
        let (host, actor) = (self.host.clone(), found.actor);
        let then = move || {
            host.feed(NodeInput::NameFound { to, request, found: Some((proxy, found)) });
            search.succeed();
        };
        self.neighbours.seek_actor(node, actor, Box::new(then));
    }
}

/// Gives the effects back to the next thread if this one has panicked while it carried them out.
struct AfterPanic<'a>(&'a ControlClient);

impl Drop for AfterPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.core.lock().is_carrying_out = false;
        }
    }
}

/// A search for an actor on another node, which is answered in any case: when this is dropped. It may be dropped under locks
/// of the link, so the client's thread passes the answer on.
struct ActorSearch {
    orders: Sender<Order>,
    search: u64,
    is_reached: bool,
}

impl ActorSearch {
    fn succeed(mut self) {
        self.is_reached = true;
    }
}

impl Drop for ActorSearch {
    fn drop(&mut self) {
        let Self { search, is_reached, .. } = *self;
        let _ = self.orders.send(Order::Input(ControlClientInput::ActorReached { search, is_reached }));
    }
}
