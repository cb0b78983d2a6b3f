//! Where tasks and actors may run: here, on other nodes, or where the placer says.
//!
//! What may run here waits here first. What lacks resources, has waited for `PATIENCE_MICROSECONDS`, prefers another
//! node, or reads much that lies on one, is handed up. The answer is so many leases for the process that stands for the
//! chosen node, or so much *credit*: leases that may be granted here of a shape that runs where the placer says.
//!
//! Invariants:
//! 1. What waits is handed up once at a time: there is no second question before the first is answered.
//! 2. What another node has sent here is not handed up, so that nothing goes in rings. If it waits for too long it is handed
//!    back to that node, which asks again.
//! 3. What runs where the placer says is started here on credit only, or while the placer does not answer.

use super::actors::Ownership;
use super::granting::Claim;
use super::leases::{Held, Lane};
use super::{Node, NodeEffect, Verdict};
use crate::ledger::Allocation;
use crate::{Effects, Time};
use aktis_protocol::actors::ActorSpec;
use aktis_protocol::control::FromNode;
use aktis_protocol::placement::rules_text;
use aktis_protocol::{
    ActorId, Failure, FailureKind, FunctionId, GroupPlace, LabelRule, Labels, LaneId, Near, NodeId,
    ProcessSlot, ShapeId, Strategy,
};
use std::collections::{BTreeMap, BTreeSet};

/// How long something that this node could run waits for it before it is handed up.
pub const PATIENCE_MICROSECONDS: u64 = 20_000;
/// How soon it is handed up again after a part of it was placed.
const AGAIN_MICROSECONDS: u64 = 10_000;
/// How soon it is handed up again if nobody could say where it goes.
const REFUSED_MICROSECONDS: u64 = 200_000;

/// How long as many tasks of another node wait here as before until they are handed back to it.
pub const WELCOME_MICROSECONDS: u64 = 500_000;

/// How long a lease is used that was granted because the placer has said so.
const OUTDATED_MICROSECONDS: u64 = 100_000;

/// What a strategy means on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    /// It may run here, and elsewhere if it has to wait.
    Here,
    /// It runs here, however long it waits.
    Only,
    /// It runs where the placer says, which may be here.
    Ask,
    /// It does not run here.
    Never,
}

/// Something that this node has no place for, or not soon.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HandUp {
    /// It is handed up then.
    Due(Time),
    /// It was handed up, and is not answered yet.
    Asked,
    /// It was handed up, and no node can take it as things are; the text says why. The answer comes when that changes.
    Waits(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Whether somebody answers what is handed up.
    clustered: bool,
    node: NodeId,
    labels: Labels,
    shapes: BTreeMap<ShapeId, HandUp>,
    actors: BTreeMap<ActorId, HandUp>,
    /// The shapes that each proxy of another node knows, with the tasks of the shape that its node can run at a time.
    slots: BTreeMap<(ProcessSlot, ShapeId), u32>,
    /// How many leases of shapes that run where the placer says may be granted here, and since when no more and no fewer.
    credit: BTreeMap<ShapeId, (u32, Time)>,
    /// Shapes for which the last question got no answer: until one comes, any number of their tasks may run here.
    unanswered: BTreeSet<ShapeId>,
    /// Leases for one task that are back since the placer was last asked: by their shape, and by the proxy of the node that
    /// had them, or nothing for this node. The placer learns of them with the next question.
    done: BTreeMap<(ShapeId, Option<ProcessSlot>), u32>,
    /// Lanes of other nodes in which tasks wait: how many, and since when that many.
    waiting_for_others: BTreeMap<LaneId, (u32, Time)>,
    /// Actors of other nodes that wait here, and since when.
    actors_for_others: BTreeMap<ActorId, Time>,
    /// Actors that live where the placer says, and are to live here.
    guests: BTreeSet<ActorId>,
    /// Whether the node takes nothing new.
    pub(super) is_draining: bool,
}

impl Places {
    pub(super) fn new(node: NodeId, labels: Labels) -> Self {
        Self { node, labels, ..Self::default() }
    }

    /// This node.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// What its operator says about it.
    pub(super) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Whether there may be other nodes.
    pub(super) fn is_clustered(&self) -> bool {
        self.clustered
    }

    /// How long tasks and actors of other nodes may wait here.
    fn welcome_microseconds(&self) -> u64 {
        if self.is_draining { AGAIN_MICROSECONDS } else { WELCOME_MICROSECONDS }
    }

    /// When something is handed up.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Time> {
        let waiting = self.waiting_for_others.values().map(|(_, since)| since);
        let waiting = waiting.chain(self.actors_for_others.values());
        let handed_back = waiting.map(|since| Time(since.0 + self.welcome_microseconds()));
        let handed_up =
            self.shapes.values().chain(self.actors.values()).filter_map(|hand_up| match hand_up {
                HandUp::Due(at) => Some(*at),
                HandUp::Asked | HandUp::Waits(_) => None,
            });
        handed_up.chain(handed_back)
    }

    pub(super) fn forget_process(&mut self, dead: ProcessSlot) {
        self.slots.retain(|(peer, _), _| *peer != dead);
        self.done.retain(|(_, peer), _| *peer != Some(dead));
    }

    /// Whether somebody has yet to say where tasks of the shape can run. The answer will name its number.
    pub(super) fn is_asked_for(&self, shape: ShapeId) -> bool {
        matches!(self.shapes.get(&shape), Some(HandUp::Asked | HandUp::Waits(_)))
    }

    /// The number of the shape is used for another from now on.
    pub(super) fn forget_shape(&mut self, shape: ShapeId) {
        self.slots.retain(|(_, told), _| *told != shape);
        self.done.retain(|(done, _), _| *done != shape);
        self.shapes.remove(&shape);
        self.expire(shape);
    }

    /// A lease of this shape was granted here.
    pub(super) fn spend(&mut self, now: Time, shape: ShapeId) {
        if let Some((credit, since)) = self.credit.get_mut(&shape) {
            (*credit, *since) = (credit.saturating_sub(1), now);
        }
    }

    /// A lease of this shape came back unused, and its task still waits here.
    pub(super) fn refund(&mut self, now: Time, shape: ShapeId) {
        // Without an answer, the lease cost no credit.
        if !self.unanswered.contains(&shape) {
            let (credit, since) = self.credit.entry(shape).or_default();
            (*credit, *since) = (credit.saturating_add(1), now);
        }
    }

    /// So many tasks of this shape, for which the placer had chosen the node of this proxy, or this node, are done, or do
    /// not run there.
    pub(super) fn note_done(&mut self, shape: ShapeId, peer: Option<ProcessSlot>, count: u32) {
        if count > 0 {
            let done = self.done.entry((shape, peer)).or_default();
            *done = done.saturating_add(count);
        }
    }

    /// How many tasks of a shape that runs where the placer says may start here, of so many that wait.
    pub(super) fn welcome(&self, shape: ShapeId, waiting: u32) -> u32 {
        if self.unanswered.contains(&shape) { waiting } else { waiting.min(self.credit(shape)) }
    }

    /// How many leases of such a shape may be granted here because the placer has said so.
    fn credit(&self, shape: ShapeId) -> u32 {
        self.credit.get(&shape).map_or(0, |(credit, _)| *credit)
    }

    /// Nothing of this shape waits: what was said of it is old by the time something does.
    pub(super) fn expire(&mut self, shape: ShapeId) {
        self.credit.remove(&shape);
        self.unanswered.remove(&shape);
    }

    fn stance(&self, strategy: &Strategy) -> Stance {
        let all = |rules: &[LabelRule]| rules.iter().all(|rule| rule.holds(&self.labels));
        let stance = match strategy {
            Strategy::Default => Stance::Here,
            Strategy::Spread => Stance::Ask,
            Strategy::Node { node, soft: false } if *node == self.node => Stance::Only,
            Strategy::Node { soft: false, .. } => Stance::Never,
            Strategy::Node { node, .. } if *node == self.node => Stance::Here,
            Strategy::Node { .. } => Stance::Ask,
            Strategy::Labels { hard, .. } if !all(hard) => Stance::Never,
            Strategy::Labels { soft, .. } if !all(soft) => Stance::Ask,
            Strategy::Labels { .. } => Stance::Here,
        };
        match stance {
            // There is nobody to ask.
            Stance::Ask if !self.clustered => Stance::Here,
            stance => stance,
        }
    }
}

impl Node {
    /// From now on there may be other nodes, and what is handed up is answered.
    pub fn join_cluster(&mut self) {
        self.places.clustered = true;
    }

    fn stance(&self, strategy: &Strategy, near: Option<Near>) -> Stance {
        let stance = self.places.stance(strategy);
        let elsewhere = near.and_then(|near| near.peer).is_some_and(|peer| {
            // Unless that node is gone, and what it had with it.
            self.process_table.is_live(peer) && self.is_peer(peer)
        });
        match elsewhere && stance == Stance::Here && *strategy == Strategy::Default {
            true => Stance::Ask,
            false => stance,
        }
    }

    /// Why nothing with this strategy can run, if that is plain: without others, no other node can be the one.
    pub(super) fn place_refusal(&self, strategy: &Strategy) -> Option<Failure> {
        match strategy {
            Strategy::Node { node, soft: false } if !self.places.clustered && *node != self.places.node => {
                let text = format!("there is no node {node}, and it may run nowhere else");
                Some(Failure::new(FailureKind::Unschedulable, text))
            }
            _ => None,
        }
    }

    pub(super) fn stance_of_shape(&self, shape: ShapeId) -> Stance {
        let definition = self.leases.shape(shape);
        match self.stance(&definition.strategy, definition.near) {
            // Bundles of groups are where they are.
            Stance::Here if self.places.is_draining && definition.group.is_none() => Stance::Ask,
            stance => stance,
        }
    }

    /// Whether leases of this shape may be granted here now, as far as its strategy goes.
    pub(super) fn may_run_here(&self, shape: ShapeId) -> bool {
        match self.stance_of_shape(shape) {
            Stance::Here | Stance::Only => true,
            Stance::Ask => self.places.welcome(shape, 1) > 0,
            Stance::Never => false,
        }
    }

    fn stance_of_actor(&self, spec: &ActorSpec) -> Stance {
        match self.stance(&spec.strategy, spec.near) {
            Stance::Here if self.places.is_draining && spec.group.is_none() => Stance::Ask,
            stance => stance,
        }
    }

    /// Whether an actor may live here, as far as its strategy goes.
    pub(super) fn may_live_here(&self, actor: ActorId) -> bool {
        let Some(known) = self.actors.table.get(&actor) else { return false };
        let is_for_others = matches!(known.ownership, Ownership::ForPeer(_));
        match self.stance_of_actor(&known.spec) {
            Stance::Here | Stance::Only => !(self.places.is_draining && is_for_others),
            Stance::Ask => self.places.guests.contains(&actor),
            Stance::Never => false,
        }
    }

    /// Why tasks of a shape get no place, if that has been said or is plain.
    pub(super) fn place_text(&self, shape: ShapeId) -> Option<String> {
        let definition = self.leases.shape(shape);
        self.waiting_text(self.places.shapes.get(&shape), &definition.strategy, definition.near)
    }

    /// Why an actor gets no place, if that has been said or is plain.
    pub(super) fn actor_place_text(&self, actor: ActorId) -> Option<String> {
        let spec = &self.actors.table.get(&actor)?.spec;
        self.waiting_text(self.places.actors.get(&actor), &spec.strategy, spec.near)
    }

    fn waiting_text(
        &self,
        hand_up: Option<&HandUp>,
        strategy: &Strategy,
        near: Option<Near>,
    ) -> Option<String> {
        if let Some(HandUp::Waits(reason)) = hand_up {
            return Some(reason.clone());
        }
        match (self.stance(strategy, near), strategy) {
            (Stance::Ask, _) => Some("a node is being chosen".to_owned()),
            (Stance::Never, _) if self.places.clustered => Some("a node is being chosen".to_owned()),
            (Stance::Never, Strategy::Node { node, .. }) => Some(format!("there is no node {node}")),
            (Stance::Never, Strategy::Labels { hard, .. }) => {
                Some(format!("there is no node with {}", rules_text(hard)))
            }
            _ => None,
        }
    }

    /// What waits here for too long, or for ever, is handed up.
    pub(super) fn hand_up(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        if !self.places.clustered {
            return;
        }
        self.hand_back_tasks(now, out);
        let mut shapes = std::mem::take(&mut self.places.shapes);
        let mut actors = std::mem::take(&mut self.places.actors);
        for claim in self.claims.clone() {
            match claim {
                Claim::Shape(shape) => self.hand_up_shape(now, shape, &mut shapes, out),
                Claim::Actor(actor) => self.hand_up_actor(now, actor, &mut actors, out),
                Claim::Group(_) => {}
            }
        }
        // Those that were asked for and are not waited for now may be again, before the answer comes. Those for which
        // the answer may take for ever are asked for no longer.
        for (shape, hand_up) in shapes {
            match hand_up {
                HandUp::Due(_) => {}
                HandUp::Asked => drop(self.places.shapes.insert(shape, hand_up)),
                HandUp::Waits(_) => out.push(NodeEffect::Withdraw { shape }),
            }
        }
        for (actor, hand_up) in actors {
            match hand_up {
                HandUp::Due(_) => {}
                HandUp::Asked => drop(self.places.actors.insert(actor, hand_up)),
                HandUp::Waits(_) => out.push(NodeEffect::WithdrawActor { actor }),
            }
        }
    }

    /// What other nodes have sent here, and what waits here for too long, goes back to them: the placer knew less when it
    /// chose this node, and something else may have taken what there was. Bundles of groups are where they are.
    fn hand_back_tasks(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let before = std::mem::take(&mut self.places.waiting_for_others);
        let mut waiting = BTreeMap::new();
        for claim in &self.claims {
            let Claim::Shape(shape) = *claim else { continue };
            if self.leases.shape(shape).group.is_some() {
                continue;
            }
            let waits =
                |lane: &Lane| lane.wanted > 0 && lane.removal.is_none() && self.is_peer(lane.submitter);
            for (id, lane) in self.leases.lanes_of(shape).filter(|(_, lane)| waits(lane)) {
                let since = match before.get(&id) {
                    Some((queued, since)) if *queued == lane.queued => *since,
                    _ => now,
                };
                let is_due = now.0 >= since.0 + self.places.welcome_microseconds();
                if is_due {
                    self.send(lane.submitter, FromNode::HandBack { shape }, out);
                }
                waiting.insert(id, (lane.queued, if is_due { now } else { since }));
            }
        }
        self.places.waiting_for_others = waiting;
        let actors = self.claims.iter().filter_map(|claim| match *claim {
            Claim::Actor(actor) if self.is_guest_without_group(actor) => Some(actor),
            _ => None,
        });
        let since = |actor| (actor, *self.places.actors_for_others.get(&actor).unwrap_or(&now));
        self.places.actors_for_others = actors.map(since).collect();
    }

    /// Whether the actor shall live here for another node, wherever there is room.
    fn is_guest_without_group(&self, actor: ActorId) -> bool {
        let known = self.actors.table.get(&actor);
        known.is_some_and(|known| {
            matches!(known.ownership, Ownership::ForPeer(_)) && known.spec.group.is_none()
        })
    }

    /// The same with actors.
    pub(super) fn hand_back_actors(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let welcome = self.places.welcome_microseconds();
        let waiting = self.places.actors_for_others.iter();
        let due = waiting.filter(|(_, since)| now.0 >= since.0 + welcome).map(|(actor, _)| *actor);
        for actor in due.collect::<Vec<_>>() {
            self.places.actors_for_others.remove(&actor);
            let Some(Ownership::ForPeer(peer)) = self.actors.table.get(&actor).map(|known| known.ownership)
            else {
                continue;
            };
            if self.actors.is_waiting(actor) {
                self.claims.retain(|claim| *claim != Claim::Actor(actor));
                self.send(peer, FromNode::ActorLost { actor, cause: None }, out);
                self.hand_back(now, actor, "a node is being chosen".to_owned(), false, out);
            }
        }
    }

    fn hand_up_shape(
        &mut self,
        now: Time,
        shape: ShapeId,
        before: &mut BTreeMap<ShapeId, HandUp>,
        out: &mut Effects<NodeEffect>,
    ) {
        self.drop_old_credit(now, shape);
        let wanted = self.wanted_elsewhere(shape, |lane| !self.is_peer(lane.submitter));
        let definition = self.leases.shape(shape);
        let want = self.leases.want(shape);
        let Some(first) = self.first_try(now, self.stance_of_shape(shape), definition.group, &want) else {
            return;
        };
        if wanted == 0 {
            return;
        }
        let hand_up = before.remove(&shape).unwrap_or(HandUp::Due(first));
        let is_due = matches!(hand_up, HandUp::Due(at) if at <= now);
        if is_due {
            let done = self.places.done.extract_if(.., |(done, _), _| *done == shape);
            out.extend(done.map(|((shape, peer), count)| NodeEffect::PlacesDone { shape, peer, count }));
            let count = wanted.min(u64::from(u32::MAX)) as u32;
            let (definition, function) = (definition.clone(), FunctionId::default());
            out.push(NodeEffect::Place { shape, definition, count, function });
        }
        self.places.shapes.insert(shape, if is_due { HandUp::Asked } else { hand_up });
    }

    fn hand_up_actor(
        &mut self,
        now: Time,
        actor: ActorId,
        before: &mut BTreeMap<ActorId, HandUp>,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(want) = self.waiting_actor(actor) else { return };
        let spec = &self.actors.table[&actor].spec;
        let (strategy, near, priority) = (spec.strategy.clone(), spec.near, spec.priority);
        let Some(first) = self.first_try(now, self.stance_of_actor(spec), want.group, &want) else {
            return;
        };
        let hand_up = before.remove(&actor).unwrap_or(HandUp::Due(first));
        let is_due = matches!(hand_up, HandUp::Due(at) if at <= now);
        if is_due {
            let (needs, group) = (want.resources, want.group);
            out.push(NodeEffect::PlaceActor { actor, needs, group, strategy, near, priority });
        }
        self.places.actors.insert(actor, if is_due { HandUp::Asked } else { hand_up });
    }

    /// How many tasks of these lanes have no place. A lease for one task, or credit for it, is a place.
    fn wanted_elsewhere(&self, shape: ShapeId, counts: impl Fn(&Lane) -> bool) -> u64 {
        let credit = if self.is_leased_once(shape) { self.places.credit(shape) } else { 0 };
        self.leases.wanted_in(shape, counts).saturating_sub(u64::from(credit))
    }

    /// Tasks that the placer has sent here, and that this node cannot start for a while, get another place.
    fn drop_old_credit(&mut self, now: Time, shape: ShapeId) {
        let is_old = |(_, since): &mut (u32, Time)| now.0 >= since.0 + WELCOME_MICROSECONDS;
        if self.is_leased_once(shape)
            && let Some(credit) = self.places.credit.get_mut(&shape)
            && is_old(credit)
        {
            let dropped = std::mem::take(&mut credit.0);
            self.places.note_done(shape, None, dropped);
        }
    }

    /// When something that has just begun to wait is handed up, if ever.
    fn first_try(
        &self,
        now: Time,
        stance: Stance,
        group: Option<GroupPlace>,
        want: &super::resources::Want,
    ) -> Option<Time> {
        let feasible = self.resources.is_feasible(want);
        let nowhere_else = group.is_some_and(|place| self.is_group_whole_here(place.group));
        match stance {
            Stance::Only => None,
            Stance::Here if nowhere_else => None,
            Stance::Here if feasible => Some(Time(now.0 + PATIENCE_MICROSECONDS)),
            Stance::Here | Stance::Ask | Stance::Never => Some(now),
        }
    }

    /// Nobody will answer what was handed up.
    pub(super) fn on_places_lost(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        self.leases.tidy_due |= !self.leases.spare.is_empty();
        let asked = |hand_up: &HandUp| !matches!(hand_up, HandUp::Due(_));
        let shapes = self.places.shapes.iter().filter(|(_, hand_up)| asked(hand_up));
        for shape in shapes.map(|(shape, _)| *shape).collect::<Vec<_>>() {
            self.on_placed(now, shape, Verdict::Unknown, (0, 0), out);
        }
        let actors = self.places.actors.iter().filter(|(_, hand_up)| asked(hand_up));
        for actor in actors.map(|(actor, _)| *actor).collect::<Vec<_>>() {
            self.on_actor_placed(now, actor, Verdict::Unknown, out);
        }
    }

    pub(super) fn on_placed(
        &mut self,
        now: Time,
        shape: ShapeId,
        verdict: Verdict,
        (count, slots): (u32, u32),
        out: &mut Effects<NodeEffect>,
    ) {
        self.leases.tidy_due |= !self.leases.spare.is_empty();
        if self.leases.find_shape(shape).is_none() {
            return;
        }
        if self.places.is_asked_for(shape) {
            let next = match &verdict {
                Verdict::Here | Verdict::There(_) => HandUp::Due(Time(now.0 + AGAIN_MICROSECONDS)),
                Verdict::Later { reason, .. } => HandUp::Waits(reason.clone()),
                Verdict::Never(_) | Verdict::Unlinked | Verdict::Unknown => {
                    HandUp::Due(Time(now.0 + REFUSED_MICROSECONDS))
                }
            };
            self.places.shapes.insert(shape, next);
        }
        if verdict != Verdict::Unknown {
            self.places.unanswered.remove(&shape);
        }
        match verdict {
            Verdict::There(peer) => self.lend_to_peer(now, shape, peer, (count, slots), out),
            Verdict::Here => self.credit(now, shape, count, out),
            Verdict::Later { reason, lasting: true } => self.warn_submitters(shape, &reason, out),
            Verdict::Never(reason) => self.fail_shape(now, shape, &reason, out),
            // While nobody says where, here is as good as anywhere.
            Verdict::Unknown if self.stance_of_shape(shape) == Stance::Ask => {
                self.places.unanswered.insert(shape);
                self.serve(now, out);
            }
            Verdict::Later { .. } | Verdict::Unlinked | Verdict::Unknown => {}
        }
    }

    /// Tasks of the shape can run nowhere: they fail.
    fn fail_shape(&mut self, now: Time, shape: ShapeId, reason: &str, out: &mut Effects<NodeEffect>) {
        self.places.shapes.remove(&shape);
        let failure = Failure::new(FailureKind::Unschedulable, reason);
        self.remove_lanes(now, shape, &failure, out);
    }

    fn credit(&mut self, now: Time, shape: ShapeId, count: u32, out: &mut Effects<NodeEffect>) {
        if self.stance_of_shape(shape) == Stance::Ask {
            let room = self.wanted_elsewhere(shape, |_| true).min(u64::from(u32::MAX)) as u32;
            let used = if self.is_leased_once(shape) { count.min(room) } else { count };
            self.places.note_done(shape, None, count - used);
            let (credit, since) = self.places.credit.entry(shape).or_default();
            (*credit, *since) = (credit.saturating_add(used), now);
            self.serve(now, out);
        }
    }

    /// Whether leases of the shape are for one task each: tasks that spread go round the nodes, however short they are.
    pub(super) fn is_leased_once(&self, shape: ShapeId) -> bool {
        self.leases.shape(shape).strategy == Strategy::Spread && self.stance_of_shape(shape) == Stance::Ask
    }

    /// The placer's answer does not hold for ever. The node asks for leases back that are old, or that would bring the next
    /// tasks to one node though others are free.
    pub(super) fn revoke_outdated(&mut self, now: Time, shape: ShapeId, out: &mut Effects<NodeEffect>) {
        let is_empty = self.leases.queued(shape) == 0;
        if self.stance_of_shape(shape) != Stance::Ask {
            if is_empty {
                self.revoke_surplus(now, shape, out);
            }
            return;
        }
        if self.is_leased_once(shape) {
            if is_empty {
                self.revoke_unused(now, shape, out);
            }
            return;
        }
        let is_outdated =
            |lease: &&Held| lease.shape == shape && now.0 >= lease.granted_at.0 + OUTDATED_MICROSECONDS;
        let outdated = self.leases.leases.values().filter(is_outdated);
        let holders: BTreeSet<ProcessSlot> = outdated.map(|lease| lease.holder).collect();
        for holder in holders {
            if self.process_table.is_live(holder) {
                self.revoke_all(now, holder, shape, out);
            }
        }
    }

    /// No task of the shape waits. A proxy keeps as many leases as its node can run tasks at a time; with more of them, it
    /// would take what comes next, to wait there.
    fn revoke_surplus(&mut self, now: Time, shape: ShapeId, out: &mut Effects<NodeEffect>) {
        let leases = self.leases.leases.values().filter(|lease| lease.shape == shape);
        let mut held = BTreeMap::<ProcessSlot, u32>::new();
        leases.for_each(|lease| *held.entry(lease.holder).or_default() += 1);
        for (holder, held) in held {
            if let Some(&slots) = self.places.slots.get(&(holder, shape)) {
                let coming = self.leases.asked(holder, shape);
                for _ in coming..held.saturating_sub(slots) {
                    self.leases.ask_back(now, holder, shape);
                    self.send(holder, FromNode::LeaseRevoked { shape }, out);
                }
            }
        }
    }

    /// So many tasks of the shape may go to the node that this process stands for.
    fn lend_to_peer(
        &mut self,
        now: Time,
        shape: ShapeId,
        peer: ProcessSlot,
        (count, slots): (u32, u32),
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.process_table.is_live(peer) || !self.is_peer(peer) {
            return;
        }
        let definition = self.leases.shape(shape).clone();
        if self.places.slots.insert((peer, shape), slots).is_none() {
            self.send(peer, FromNode::ShapeTold { shape, definition }, out);
        }
        let wanted = self.wanted_elsewhere(shape, |lane| lane.submitter != peer).min(u64::from(u32::MAX));
        let used = count.min(wanted as u32);
        if self.is_leased_once(shape) {
            self.places.note_done(shape, Some(peer), count - used);
        }
        for _ in 0..used {
            self.grant(now, shape, peer, Allocation::default(), out);
        }
    }

    pub(super) fn on_actor_placed(
        &mut self,
        now: Time,
        actor: ActorId,
        verdict: Verdict,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.actors.is_waiting(actor) {
            self.places.actors.remove(&actor);
            return;
        }
        let again = HandUp::Due(Time(now.0 + REFUSED_MICROSECONDS));
        match verdict {
            Verdict::There(peer) if self.process_table.is_live(peer) && self.is_peer(peer) => {
                self.places.actors.remove(&actor);
                self.place_on_peer(actor, peer, out);
            }
            Verdict::Later { reason, lasting } => {
                if lasting {
                    self.warn_creator(actor, &reason, out);
                }
                self.places.actors.insert(actor, HandUp::Waits(reason));
                self.serve(now, out);
            }
            Verdict::Never(reason) => {
                self.places.actors.remove(&actor);
                let failure = Failure::new(FailureKind::ActorUnschedulable, reason);
                self.kill_actor(now, actor, false, failure, out);
            }
            Verdict::There(_) | Verdict::Unlinked => drop(self.places.actors.insert(actor, again)),
            Verdict::Here | Verdict::Unknown => {
                self.places.actors.insert(actor, again);
                self.places.guests.insert(actor);
                self.serve(now, out);
            }
        }
    }

    /// The actor has a host, or is gone.
    pub(super) fn forget_place(&mut self, actor: ActorId) {
        self.places.guests.remove(&actor);
    }

    pub(super) fn check_places(&self) {
        for shape in self.places.credit.keys().chain(&self.places.unanswered) {
            assert!(self.leases.find_shape(*shape).is_some(), "{shape} may run here and is not known");
        }
        for actor in &self.places.guests {
            assert!(self.actors.is_waiting(*actor), "{actor} is to live here and does not wait");
        }
    }
}
