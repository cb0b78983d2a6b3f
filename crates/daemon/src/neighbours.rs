//! The other nodes of the cluster, as far as this one has links to them.
//!
//! Of two nodes, the one with the lower id dials. Each link has a process of its own on both nodes, and ends with it.
//!
//! Invariant: links and objects are for members, as the control process has published them (`admission.rs`).

mod admission;

use crate::host::NodeHost;
use crate::inquiries::Inquiries;
use crate::peer::{LinkPoller, Proxy, Wire, gone};
use crate::printing::Printing;
use aktis_io::{
    Endpoint, EndpointEvents, Frames, Link, LinkEnd, LinkEvents, Opened, Role, SendError, Serve, Source,
};
use aktis_logic::machine::node::NodeInput;
use aktis_node::OpenedCopy;
use aktis_node::journal;
use aktis_protocol::control::{decode, encode};
use aktis_protocol::peer::Frame;
use aktis_protocol::placement::{NodeInfo, Unreachable};
use aktis_protocol::{ActorId, Epoch, NodeId, ObjectId, ProcessSlot, limits};
use aktis_runtime::bridge::Bridge;
use aktis_runtime::{Runtime, Value};
use aktis_store::SpilledObject;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The greeting of a link between two nodes; the epoch of the one that dials follows, and that which the other one has as far
/// as the first knows.
const NODE_GREETING: &[u8] = b"node";
/// The pause between two attempts to dial a node.
const DIAL_AGAIN: Duration = Duration::from_millis(100);
/// How long a member may not be reached before that is said: by then it is no member any more if it is dead.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may not be reached before the placer learns: nothing is lost if it is back before.
const REACH_PATIENCE: Duration = Duration::from_secs(1);
/// As much of why a node cannot be reached as the placer learns.
const REASON_CHARACTERS_MAX: usize = 200;
/// How long the control process may take to say where a node is that has dialled this one.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
pub(crate) struct Neighbours {
    host: NodeHost,
    me: NodeId,
    endpoint: OnceLock<Weak<Endpoint>>,
    /// This node's own membership, or the last one: 0 if there was none so far.
    epoch: AtomicU64,
    table: Mutex<Table>,
    changed: Condvar,
    asides: Asides,
}

/// What nodes say to each other besides the work that crosses: it does not pass through the peers.
#[derive(Clone)]
pub(crate) struct Asides {
    pub(crate) inquiries: Arc<Inquiries>,
    pub(crate) printing: Arc<Printing>,
}

#[derive(Default)]
struct Table {
    nodes: BTreeMap<NodeId, Neighbour>,
    /// Whether this node's own membership is over, and it has no other yet: there are no links meanwhile.
    expelled: bool,
    closing: bool,
}

#[derive(Default)]
struct Neighbour {
    /// Where it is reached, if somebody has said so.
    address: Option<SocketAddr>,
    /// Its membership, as the control process has said.
    epoch: Epoch,
    /// Whether it is dialled when there is no link to it.
    is_member: bool,
    /// Whether a thread dials it.
    dialling: bool,
    /// Since when that was in vain, and what came of it last.
    unreached: Option<(Instant, String)>,
    linked: Option<Linked>,
    /// The membership that it had when the last link to it began, if that has ended, and nobody knows whether the membership
    /// has too.
    parted: Option<Epoch>,
}

impl Neighbour {
    /// Its membership is this one now, or none. Whether the one is over in which the last link to it was.
    fn has_left(&mut self, now: Option<Epoch>) -> bool {
        self.parted.take_if(|parted| now.is_none_or(|now| now > *parted)).is_some()
    }
}

impl Table {
    /// Where a node is to be dialled, in which membership. If it is not to be, nobody dials it from now on: who ends a link
    /// while somebody does leaves the next one to that thread.
    fn next_to_dial(&mut self, node: NodeId) -> Option<(SocketAddr, Epoch)> {
        let may_dial = !self.closing && !self.expelled;
        let neighbour = self.nodes.get_mut(&node)?;
        let wanted = neighbour.is_member && neighbour.linked.is_none() && may_dial;
        let address = neighbour.address.filter(|_| wanted);
        neighbour.dialling = address.is_some();
        Some((address?, neighbour.epoch))
    }

    /// The link to a node is gone. Whether a thread has to be started that dials it, as seen from the node `me`, and whether
    /// the membership is over that it had then.
    fn on_unlinked(&mut self, me: NodeId, node: NodeId) -> (bool, bool) {
        let closing = self.closing;
        let Some(neighbour) = self.nodes.get_mut(&node) else { return (false, false) };
        neighbour.parted = neighbour.linked.take().map(|linked| linked.epoch);
        let has_left = neighbour.has_left(neighbour.is_member.then_some(neighbour.epoch));
        if !neighbour.is_member {
            self.nodes.remove(&node);
            return (false, has_left);
        }
        (!closing && node > me && !std::mem::replace(&mut neighbour.dialling, true), has_left)
    }
}

#[derive(Clone)]
struct Linked {
    slot: ProcessSlot,
    /// The membership of the other node when the link began.
    epoch: Epoch,
    proxy: Arc<Proxy>,
    link: Link,
}

impl Neighbours {
    pub(crate) fn new(host: NodeHost, me: NodeId, asides: Asides) -> Arc<Self> {
        Arc::new(Self {
            host,
            me,
            asides,
            endpoint: OnceLock::new(),
            epoch: AtomicU64::new(0),
            table: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// From now on nodes can be dialled.
    pub(crate) fn set_endpoint(&self, endpoint: &Arc<Endpoint>) {
        let _ = self.endpoint.set(Arc::downgrade(endpoint));
    }

    /// This node is a member.
    pub(crate) fn set_epoch(&self, epoch: Epoch) {
        let mut table = self.table.lock();
        self.epoch.store(epoch.0, Ordering::SeqCst);
        table.expelled = false;
    }

    fn own_epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }

    /// Whether the membership of this node is not over that another one means.
    fn is_meant(&self, epoch: Epoch) -> bool {
        let table = self.table.lock();
        if table.expelled { epoch > self.own_epoch() } else { epoch >= self.own_epoch() }
    }

    /// A node is a member.
    pub(crate) fn on_joined(self: &Arc<Self>, info: &NodeInfo) {
        let mut table = self.table.lock();
        let neighbour = table.nodes.entry(info.node).or_default();
        neighbour.address = Some(info.address);
        neighbour.epoch = info.epoch;
        neighbour.is_member = true;
        self.changed.notify_all();
        let has_left = neighbour.has_left(Some(info.epoch));
        let is_dialled = info.node > self.me
            && neighbour.linked.is_none()
            && !std::mem::replace(&mut neighbour.dialling, true);
        drop(table);
        if has_left {
            self.host.feed(NodeInput::NodeLeft { node: info.node });
        }
        if is_dialled {
            self.start_dialling(info.node);
        }
    }

    /// Has a node dialled for which that was noted.
    fn start_dialling(self: &Arc<Self>, node: NodeId) {
        let neighbours = self.clone();
        let run = move || neighbours.dial(node);
        // Without a thread there is no link; the next word about the node tries again.
        let spawned = std::thread::Builder::new().name("aktis-dial".into()).spawn(run);
        if spawned.is_err()
            && let Some(neighbour) = self.table.lock().nodes.get_mut(&node)
        {
            neighbour.dialling = false;
        }
    }

    /// These are all members that the control process knows. If it has just begun, others are about to join again: a
    /// node that there is a link to is kept until that ends.
    pub(crate) fn on_members(self: &Arc<Self>, members: &[NodeInfo]) {
        let mut table = self.table.lock();
        for neighbour in table.nodes.values_mut() {
            neighbour.is_member = false;
        }
        let gone = table.nodes.extract_if(.., |node, neighbour| {
            neighbour.linked.is_none() && members.iter().all(|info| info.node != *node)
        });
        let gone: Vec<_> = gone.map(|(node, mut gone)| (node, gone.has_left(None))).collect();
        drop(table);
        for (node, _) in gone.into_iter().filter(|(_, has_left)| *has_left) {
            self.host.feed(NodeInput::NodeLeft { node });
        }
        members.iter().for_each(|info| self.on_joined(info));
        self.changed.notify_all();
    }

    /// A membership of a node is over. If that has joined again, and dialled, before this was said, its link stays.
    pub(crate) fn on_left(&self, node: NodeId, epoch: Epoch) {
        let mut table = self.table.lock();
        let Some(neighbour) = table.nodes.get_mut(&node) else { return };
        neighbour.is_member = false;
        if neighbour.linked.as_ref().is_some_and(|linked| linked.epoch > epoch) {
            return;
        }
        if let Some(linked) = &neighbour.linked {
            linked.link.close("the node is no member of the cluster any more");
            linked.proxy.end("it is no member of the cluster any more");
        }
        let has_left = neighbour.has_left(None);
        if neighbour.linked.is_none() {
            table.nodes.remove(&node);
        }
        drop(table);
        if has_left {
            self.host.feed(NodeInput::NodeLeft { node });
        }
        self.changed.notify_all();
    }

    /// This node was no member for a while: all others have given it up.
    pub(crate) fn reset(&self) {
        self.host.feed(NodeInput::Expelled);
        let mut table = self.table.lock();
        table.expelled = true;
        for neighbour in table.nodes.values() {
            if let Some(linked) = &neighbour.linked {
                linked.link.close("this node has to join again");
                linked.proxy.end("this node was taken for dead, and joins again");
            }
        }
    }

    pub(crate) fn close(&self) {
        let mut table = self.table.lock();
        table.closing = true;
        for linked in table.nodes.values().filter_map(|neighbour| neighbour.linked.as_ref()) {
            linked.link.close("the node ends");
            linked.proxy.end("this node ends");
        }
        self.changed.notify_all();
        // Their threads use the node.
        while table.nodes.values().any(|neighbour| neighbour.linked.is_some()) {
            self.changed.wait(&mut table);
        }
    }

    /// The members that were dialled in vain for a while.
    pub(crate) fn unreachable(&self) -> Vec<Unreachable> {
        let table = self.table.lock();
        let row = |(node, neighbour): (&NodeId, &Neighbour)| {
            let (since, problem) = neighbour.unreached.as_ref()?;
            let lasts =
                since.elapsed() >= REACH_PATIENCE && neighbour.is_member && neighbour.linked.is_none();
            let reason = format!("at {}: {problem}", neighbour.address?);
            let reason = reason.chars().take(REASON_CHARACTERS_MAX).collect();
            lasts.then_some(Unreachable { node: *node, reason })
        };
        table.nodes.iter().filter_map(row).take(limits::REPORT_UNREACHABLE_MAX).collect()
    }

    /// How many nodes there are links to.
    pub(crate) fn linked(&self) -> usize {
        self.table.lock().nodes.values().filter(|neighbour| neighbour.linked.is_some()).count()
    }

    /// The links that there are.
    pub(crate) fn links(&self) -> Vec<(NodeId, Link)> {
        let table = self.table.lock();
        let linked =
            table.nodes.iter().filter_map(|(node, neighbour)| Some((*node, neighbour.linked.as_ref()?)));
        linked.map(|(node, linked)| (node, linked.link.clone())).collect()
    }

    /// The runtimes of the processes that stand for other nodes: they know what those have submitted here.
    pub(crate) fn runtimes(&self) -> Vec<Runtime> {
        let table = self.table.lock();
        let linked = table.nodes.values().filter_map(|neighbour| neighbour.linked.as_ref());
        linked.map(|linked| linked.proxy.bridge().runtime().clone()).collect()
    }

    /// The process that stands for a node, if there is a link to it.
    pub(crate) fn slot_of(&self, node: NodeId) -> Option<ProcessSlot> {
        Some(self.table.lock().nodes.get(&node)?.linked.as_ref()?.slot)
    }

    /// The node that a process stands for.
    pub(crate) fn known_node_of(&self, slot: ProcessSlot) -> Option<NodeId> {
        let table = self.table.lock();
        let is_it =
            |neighbour: &Neighbour| neighbour.linked.as_ref().is_some_and(|linked| linked.slot == slot);
        table.nodes.iter().find(|(_, neighbour)| is_it(neighbour)).map(|(node, _)| *node)
    }

    /// Where a node is reached, if somebody has said so.
    pub(crate) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        self.table.lock().nodes.get(&node)?.address
    }

    /// The node that a process stands for, and where it is reached. A node may have dialled this one before the control
    /// process has said where it is: that is waited for.
    pub(crate) fn node_of(&self, slot: ProcessSlot) -> Option<(NodeId, SocketAddr)> {
        let is_it =
            |neighbour: &Neighbour| neighbour.linked.as_ref().is_some_and(|linked| linked.slot == slot);
        let deadline = Instant::now() + ADDRESS_PATIENCE;
        let mut table = self.table.lock();
        loop {
            let (node, neighbour) = table.nodes.iter().find(|(_, neighbour)| is_it(neighbour))?;
            if let Some(address) = neighbour.address {
                return Some((*node, address));
            }
            if self.changed.wait_until(&mut table, deadline).timed_out() {
                return None;
            }
        }
    }

    /// Has an actor of another node known here, and then does something; false if there is no link to that node.
    pub(crate) fn seek_actor(&self, node: NodeId, actor: ActorId, then: Box<dyn FnOnce() + Send>) -> bool {
        let linked = self.table.lock().nodes.get(&node).and_then(|neighbour| neighbour.linked.clone());
        linked.map(|linked| linked.proxy.seek_actor(actor, then)).is_some()
    }

    /// An object that a node copies. It is served as it lies here, in memory or on disk; of one that only yet another node
    /// has, it is said who. Whoever insists gets it from here all the same, when it has come.
    fn open(&self, node: NodeId, object: ObjectId, insists: bool) -> Result<Opened, String> {
        self.admit_to_objects(node)?;
        let unknown = || format!("object {object} is not known to node {}", self.me);
        match self.host.host().open_copy(object).ok_or_else(unknown)? {
            OpenedCopy::InMemory(pin) => Ok(Opened::Here(Box::new(pin))),
            OpenedCopy::OnDisk(spilled) => Ok(Opened::Here(Box::new(OnDisk(spilled)))),
            OpenedCopy::Elsewhere(_) if insists => {
                let value = self.open_held(node, object)?;
                Ok(Opened::Here(Box::new(Bytes(value))))
            }
            OpenedCopy::Elsewhere(peer) => {
                self.known_node_of(peer).map(Opened::Elsewhere).ok_or_else(unknown)
            }
        }
    }

    /// The value of an object that was named to a node, in memory: it is waited for until it is.
    fn open_held(&self, node: NodeId, object: ObjectId) -> Result<Value, String> {
        let linked = self.table.lock().nodes.get(&node).and_then(|neighbour| neighbour.linked.clone());
        let Some(linked) = linked else { return Err(format!("there is no link to node {node}")) };
        let handle = linked
            .proxy
            .exported(object)
            .ok_or_else(|| format!("object {object} is not known to node {node}"))?;
        linked.proxy.bridge().open(&handle).map_err(|error| error.to_string())
    }

    fn dial(self: &Arc<Self>, node: NodeId) {
        let mut patience = Some(Instant::now() + DIAL_PATIENCE);
        loop {
            let mut table = self.table.lock();
            let (own, next) = (self.own_epoch(), table.next_to_dial(node));
            drop(table);
            let Some((address, epoch)) = next else { return };
            let Some(endpoint) = self.endpoint.get().and_then(Weak::upgrade) else { return };
            let mut events = None;
            let greeting = greeting(own, epoch);
            let dialled = endpoint.dial(node, address, greeting, |link| {
                self.begin(node, epoch, link).unwrap_or_else(|problem| {
                    events = Some(problem.clone());
                    Box::new(Refused)
                })
            });
            drop(endpoint);
            let problem = match &dialled {
                Ok(_) => events,
                Err(error) => Some(error.to_string()),
            };
            // A node may be away for a moment: nothing is said about each attempt that fails.
            if let Some(problem) = &problem
                && patience.take_if(|until| Instant::now() >= *until).is_some()
            {
                journal::warn(format_args!(
                    "node {node}, a member of the cluster, cannot be reached at {address}: {problem}\n\
                     hint: can this machine reach that address? `--listen` tells a node where others reach it"
                ));
            }
            let mut table = self.table.lock();
            if let Some(neighbour) = table.nodes.get_mut(&node) {
                let since = neighbour.unreached.take().map_or_else(Instant::now, |(since, _)| since);
                neighbour.unreached = problem.clone().map(|problem| (since, problem));
            }
            let Some(problem) = problem else { continue };
            if let Ok(link) = dialled {
                link.close(&problem);
            }
            self.changed.wait_for(&mut table, DIAL_AGAIN);
        }
    }

    /// There is a link to a node: it becomes a process of this one.
    fn begin(
        self: &Arc<Self>,
        node: NodeId,
        epoch: Epoch,
        link: &Link,
    ) -> Result<Box<dyn LinkEvents>, String> {
        let runtime = self.host.open_peer(node).map_err(|error| error.to_string())?;
        let slot = runtime.process();
        let (wire, programs) = (Arc::new(LinkWire(link.clone())), Arc::new(self.host.clone()));
        let proxy = Proxy::new(Bridge::new(runtime), wire, programs);
        let linked = Linked { slot, epoch, proxy: proxy.clone(), link: link.clone() };
        let mut table = self.table.lock();
        if table.closing {
            drop(table);
            self.host.close_peer(slot, gone("this node ends"));
            return Err("the node ends".to_owned());
        }
        let neighbour = table.nodes.entry(node).or_default();
        if neighbour.linked.is_some() {
            drop(table);
            self.host.close_peer(slot, gone("there is a link already"));
            return Err("there is a link between these nodes already".to_owned());
        }
        neighbour.linked = Some(linked);
        let has_left = neighbour.has_left(Some(epoch));
        let is_back = neighbour.parted.take().is_some();
        drop(table);
        if has_left {
            self.host.feed(NodeInput::NodeLeft { node });
        } else if is_back {
            self.host.feed(NodeInput::NodeBack { node });
        }
        self.asides.printing.on_linked(link);
        let poller = LinkPoller::new(proxy.clone());
        let (neighbours, running, link_of_proxy) = (self.clone(), proxy.clone(), link.clone());
        let run = move || {
            // If it panics, the node goes on without this link, as if the other node had died.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.run()));
            let why = ended.unwrap_or_else(|_| "its thread on this node panicked".to_owned());
            link_of_proxy.close(&why);
            neighbours.host.close_peer(slot, gone(&why));
            running.bridge().runtime().shutdown();
            drop(running);
            neighbours.forget(node);
        };
        let spawned = std::thread::Builder::new().name("aktis-peer".into()).spawn(run);
        if let Err(error) = spawned {
            self.host.close_peer(slot, gone("there was no thread for it"));
            self.forget(node);
            return Err(format!("a thread could not be started: {error}"));
        }
        Ok(Box::new(PeerLink { node, poller, proxy, link: link.clone(), asides: self.asides.clone() }))
    }

    /// The link to a node, and the process that stood for it, are gone. A member is dialled again.
    fn forget(self: &Arc<Self>, node: NodeId) {
        let (again, has_left) = self.table.lock().on_unlinked(self.me, node);
        if has_left {
            self.host.feed(NodeInput::NodeLeft { node });
        }
        self.asides.inquiries.on_unlinked(node);
        self.asides.printing.on_unlinked(node);
        self.changed.notify_all();
        if again {
            self.start_dialling(node);
        }
    }
}

/// What a node says that dials another one.
fn greeting(own: Epoch, meant: Epoch) -> Vec<u8> {
    [NODE_GREETING, &own.0.to_le_bytes(), &meant.0.to_le_bytes()].concat()
}

/// The membership of whoever says this, if it is a node, and the one that it means.
fn epochs_in(greeting: &[u8]) -> Option<(Epoch, Epoch)> {
    let (own, meant) = greeting.strip_prefix(NODE_GREETING)?.split_at_checked(size_of::<u64>())?;
    let epoch = |bytes: &[u8]| Some(Epoch(u64::from_le_bytes(bytes.try_into().ok()?)));
    Some((epoch(own)?, epoch(meant)?))
}

/// Objects that other nodes copy.
pub(crate) struct Serving(pub(crate) Arc<Neighbours>);

impl Serve for Serving {
    fn admit(&self, peer: NodeId) -> Result<(), String> {
        self.0.admit_to_objects(peer)
    }

    fn open(&self, peer: NodeId, object: ObjectId, insists: bool) -> Result<Opened, String> {
        self.0.open(peer, object, insists)
    }
}

struct Bytes(Value);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// An object on disk. When it is there no more, it is in memory, or freed.
struct OnDisk(Arc<SpilledObject>);

impl Source for OnDisk {
    fn size(&self) -> u64 {
        self.0.bytes()
    }

    fn part<'a>(&'a self, offset: u64, length: usize, room: &'a mut Vec<u8>) -> Result<&'a [u8], String> {
        room.resize(length, 0);
        match self.0.read(offset, room) {
            Ok(true) => Ok(room),
            Ok(false) => Err("it is not on disk any more".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Links that other nodes dial.
pub(crate) struct Accepting(pub(crate) Arc<Neighbours>);

impl EndpointEvents for Accepting {
    fn on_link(
        &self,
        peer: &aktis_io::Peer,
        greeting: &[u8],
        link: &Link,
    ) -> Result<Box<dyn LinkEvents>, String> {
        let epochs = epochs_in(greeting).filter(|_| peer.role == Role::Node);
        let (epoch, meant) = epochs.ok_or("this is a node, and talks to nodes only")?;
        if !self.0.is_meant(meant) {
            return Err("this node was taken for dead, and joins again".to_owned());
        }
        self.0.admit_to_link(peer.node, epoch)?;
        self.0.begin(peer.node, epoch, link)
    }
}

struct LinkWire(Link);

impl Wire for LinkWire {
    fn send(&self, frame: &Frame) {
        // Who sends has seen that there is room, for much more than what one event leads to.
        if let Err(error @ (SendError::Full(_) | SendError::TooLong(_))) = self.0.queue(encode(frame)) {
            journal::warn(format_args!("a message to another node was not sent: {error}"));
            self.0.close("a message could not be sent");
        }
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }
}

struct PeerLink {
    node: NodeId,
    poller: LinkPoller,
    proxy: Arc<Proxy>,
    link: Link,
    asides: Asides,
}

impl LinkEvents for PeerLink {
    fn on_frames(&mut self, frames: Frames<'_>) {
        let mut decoded = Vec::with_capacity(frames.len());
        for frame in frames {
            let Asides { inquiries, printing } = &self.asides;
            let frame = decode::<Frame>(frame).map_err(|error| format!("it could not be decoded: {error}"));
            match frame.and_then(|frame| frame.check().map(|()| frame).map_err(str::to_owned)) {
                Ok(Frame::Asked { question, what }) => inquiries.on_asked(&self.link, question, what),
                Ok(Frame::Told { question, answer }) => inquiries.on_told(self.node, question, answer),
                Ok(Frame::Listening { programs }) => printing.on_listening(self.node, programs),
                Ok(Frame::Printed { program, lines, missed }) => {
                    printing.on_printed_there(self.node, program, lines, missed);
                }
                Ok(frame) => decoded.push(frame),
                Err(problem) => {
                    self.link.close(&format!("a message was refused: {problem}"));
                    break;
                }
            }
        }
        self.poller.on_frames(decoded);
    }

    fn on_quiet(&mut self) -> bool {
        self.poller.on_quiet()
    }

    fn on_closed(&mut self, end: &LinkEnd) {
        self.proxy.end(&end.to_string());
    }
}

impl Drop for PeerLink {
    /// Also if the link's thread panicked, which then says nothing else.
    fn drop(&mut self) {
        self.proxy.end("its link's thread on this node panicked");
    }
}

/// A link that is about to be closed.
struct Refused;

impl LinkEvents for Refused {
    fn on_frames(&mut self, _frames: Frames<'_>) {}

    fn on_closed(&mut self, _end: &LinkEnd) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_ends_before_its_dialler_is_done_is_dialled_again_by_that() {
        let (me, node) = (NodeId::from_words([0, 1]), NodeId::from_words([0, 2]));
        let address = SocketAddr::from(([127, 0, 0, 1], 7000));
        let mut table = Table::default();
        let member = || Neighbour { address: Some(address), is_member: true, ..Neighbour::default() };
        table.nodes.insert(node, Neighbour { dialling: true, ..member() });
        assert_eq!(table.on_unlinked(me, node), (false, false), "somebody dials it");
        assert_eq!(table.next_to_dial(node), Some((address, Epoch::default())), "and does so again");
        table.closing = true;
        assert_eq!(table.next_to_dial(node), None);
        table.closing = false;
        assert_eq!(table.on_unlinked(me, node), (true, false), "nobody dials it any more");
        assert!(table.nodes[&node].dialling);
    }

    #[test]
    fn a_node_that_was_out_of_reach_has_left_if_it_is_no_member_or_another_one() {
        let parted = || Neighbour { parted: Some(Epoch(3)), ..Neighbour::default() };
        assert!(!parted().has_left(Some(Epoch(3))) && !Neighbour::default().has_left(None));
        assert!(parted().has_left(Some(Epoch(4))) && parted().has_left(None));
        let mut neighbour = parted();
        assert!(neighbour.has_left(None) && !neighbour.has_left(None), "that is said once");
    }

    #[test]
    fn a_greeting_says_which_memberships_it_is_of() {
        assert_eq!(epochs_in(&greeting(Epoch(7), Epoch(8))), Some((Epoch(7), Epoch(8))));
        assert_eq!(epochs_in(NODE_GREETING), None);
        assert_eq!(epochs_in(b"member"), None);
    }
}
