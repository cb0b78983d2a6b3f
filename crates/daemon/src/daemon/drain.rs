//! A node that is drained: the thread that hands its objects over and has it leave, and what the other nodes do for it.
//!
//! The node's machine decides what is left and when the drain is over; see `aktis_logic::machine::node::DrainProgress`.

use super::Parts;
use super::answers::{Answers, unclear_node};
use crate::admin::Refusal;
use aktis_logic::machine::node::NodeInput;
use aktis_node::journal;
use aktis_protocol::admin::{DrainOrder, NodeAnswer, NodeQuestion};
use aktis_protocol::{NodeId, ObjectId, ProcessSlot};
use aktis_runtime::{Handle, Runtime};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The pause between two looks at what is left.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long an object of a leaving node is wanted here after that node has last named it.
const WANTED_FOR: Duration = Duration::from_secs(10);
/// How long an object may take to come before it is asked for anew.
const ASKED_ANEW: Duration = Duration::from_secs(10);

impl Answers {
    /// Has the node drained that the order means.
    pub(super) fn have_drained(&self, order: &DrainOrder) -> Result<NodeId, Refusal> {
        let parts = &self.0;
        let members = parts.client.nodes().into_iter().map(|info| info.node).chain([parts.node]);
        let mut meant: Vec<NodeId> = members.filter(|node| order.node.is_start_of(node)).collect();
        meant.sort_unstable();
        meant.dedup();
        let [node] = meant[..] else { return Err(unclear_node(&order.node, &meant)) };
        let patience_milliseconds = order.patience_milliseconds;
        if node == parts.node {
            return parts.drain(patience_milliseconds.map(Duration::from_millis)).map(|()| node);
        }
        let links = parts.links_of(&[node]);
        let mut answers = parts.inquiries.ask(&links, |_| NodeQuestion::Drain { patience_milliseconds });
        match answers.remove(&node) {
            Some(NodeAnswer::Draining) => Ok(node),
            Some(NodeAnswer::Refused(reason)) => Err(Refusal::new(reason)),
            _ => Err(Refusal::new(format!("node {node} does not answer"))
                .with_hint("`aktis status` shows which nodes answer")),
        }
    }
}

impl Parts {
    /// Takes nothing new from now on, and leaves as soon as nothing is lost by that; after `patience` in any case.
    pub(super) fn drain(self: &Arc<Self>, patience: Option<Duration>) -> Result<(), Refusal> {
        if self.is_head {
            return Err(Refusal::new("the node on the machine of the control process cannot be drained")
                .with_hint("`aktis stop --cluster` on that machine ends the whole cluster"));
        }
        if self.client.nodes().iter().all(|info| info.node == self.node) {
            return Err(Refusal::new("the cluster has no other node that could take what this one has")
                .with_hint("let another node join first, or end this one with `aktis stop`"));
        }
        let patience_microseconds = patience.map(|patience| patience.as_micros() as u64);
        self.host.feed(NodeInput::Drain { patience_microseconds });
        if self.is_draining.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let parts = self.clone();
        let run = move || parts.leave_when_drained();
        let spawned = std::thread::Builder::new().name("aktis-drain".into()).spawn(run);
        spawned.map_err(|error| Refusal::new(format!("there is no thread for it: {error}")))?;
        Ok(())
    }

    fn leave_when_drained(&self) {
        while !self.wait_for_stop(LOOK_AGAIN) {
            let Some(progress) = self.host.drain_progress() else { return };
            if progress.is_over {
                if !progress.left.is_nothing() {
                    journal::warn(format_args!("the drain is over by its deadline: {}", progress.left));
                }
                return self.stop();
            }
            self.hand_objects_over();
        }
    }

    /// Asks the nodes that hold objects from here to have copies of them.
    fn hand_objects_over(&self) {
        let mut objects_by_peer = BTreeMap::<ProcessSlot, Vec<ObjectId>>::new();
        for (peer, object) in self.host.host().objects_to_hand_over() {
            objects_by_peer.entry(peer).or_default().push(object);
        }
        let node_of = |peer: ProcessSlot| self.neighbours.known_node_of(peer);
        let asked: BTreeMap<NodeId, (ProcessSlot, Vec<ObjectId>)> = objects_by_peer
            .into_iter()
            .filter_map(|(peer, objects)| Some((node_of(peer)?, (peer, objects))))
            .collect();
        let nodes: Vec<NodeId> = asked.keys().copied().collect();
        let question = |node: NodeId| NodeQuestion::TakeObjects { objects: asked[&node].1.clone() };
        for (node, answer) in self.inquiries.ask(&self.links_of(&nodes), question) {
            if let NodeAnswer::Taken { objects } = answer {
                let peer = asked[&node].0;
                self.host.feed(NodeInput::ObjectsHandedOver { peer, objects });
            }
        }
    }
}

/// Objects that this daemon brings to its node, since the node that has them is about to leave.
///
/// Bounded by what leaving nodes name at a time; what they name no more is dropped after [`WANTED_FOR`].
#[derive(Default)]
pub(super) struct Taking(Mutex<BTreeMap<ObjectId, Wanted>>);

struct Wanted {
    handle: Handle,
    asked_at: Instant,
    named_at: Instant,
    is_fetched: bool,
}

impl Taking {
    /// Gives those of the objects that are here by now, and has the others brought.
    pub(super) fn take(&self, own: &Runtime, objects: Vec<ObjectId>) -> Vec<ObjectId> {
        let now = Instant::now();
        self.forget(now);
        let mut wanted = self.0.lock();
        let (mut here, mut done) = (Vec::new(), Vec::new());
        for object in objects {
            let fresh = || {
                let handle = own.adopt_object(object);
                Wanted { handle, asked_at: now, named_at: now, is_fetched: false }
            };
            let known = wanted.entry(object).or_insert_with(fresh);
            known.named_at = now;
            if !known.handle.is_ready() {
                continue;
            }
            if known.handle.is_here() {
                here.push(object);
                done.extend(wanted.remove(&object));
            } else if !std::mem::replace(&mut known.is_fetched, true) {
                known.handle.fetch();
            }
        }
        drop(wanted);
        // The handles go where no lock is held.
        drop(done);
        here
    }

    /// Drops what is named no more, and what has not come for long: it is asked for anew.
    fn forget(&self, now: Instant) {
        let mut wanted = self.0.lock();
        let is_old = |wanted: &Wanted| {
            now.saturating_duration_since(wanted.named_at) > WANTED_FOR
                || now.saturating_duration_since(wanted.asked_at) > ASKED_ANEW
        };
        let old: Vec<Wanted> =
            wanted.extract_if(.., |_, wanted| is_old(wanted)).map(|(_, wanted)| wanted).collect();
        drop(wanted);
        drop(old);
    }
}
