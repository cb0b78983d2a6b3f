//! Stories of the placer: what it is told, and what it says.

mod groups;

use super::*;
use crate::estimate;
use aktis_protocol::control::RequestId;
use aktis_protocol::placement::{
    Demand, Input, LabelRule, LabelTest, Labels, LinkRow, NodeReport, QueueRow, RunTimes, Strategy,
    Unreachable,
};
use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::{
    Amount, FunctionId, GroupId, GroupPlace, GroupSpec, GroupState, GroupStrategy, Resources, SessionId,
    TaskId, limits,
};
use std::collections::BTreeMap;

const SHORT: FunctionId = FunctionId(1);
const LONG: FunctionId = FunctionId(2);
const TINY: FunctionId = FunctionId(3);

/// After so long, all who wait have been looked at again.
const LOOK: u64 = 2 * SWEEP_MICROSECONDS;

/// After so long, nodes have said what they have kept.
const KEPT_FOR: u64 = super::groups::KEPT_MICROSECONDS_MAX + LOOK;

/// A placer with whom one speaks.
#[derive(Default)]
struct Talk {
    placer: Placer,
    now: u64,
    /// What was said and not yet looked at.
    said: Vec<(u64, FromPlacer)>,
    /// The rows of groups that are on disk.
    rows: BTreeMap<GroupId, GroupRow>,
    /// While the disk is slow: what is still to be written.
    unwritten: Vec<(GroupId, Option<GroupRow>, u64)>,
    is_disk_slow: bool,
}

fn node(number: u64) -> NodeId {
    NodeId::from_words([0, number])
}

fn cpus(units: u64) -> Resources {
    Resources::none().with(CPU, Amount::units(units))
}

fn group_id(number: u64) -> GroupId {
    GroupId::created_by(TaskId::root(SessionId(1)).child(number))
}

impl Talk {
    fn with(nodes: &[Resources]) -> Self {
        let mut talk = Self::default();
        for (resources, number) in nodes.iter().zip(1..) {
            talk.join(number, resources.clone(), Labels::new());
        }
        talk
    }

    fn step(&mut self, input: PlacerInput) {
        let mut out = Vec::new();
        self.placer.step(Time(self.now), input, &mut out);
        self.placer.check();
        for effect in out {
            match effect {
                PlacerEffect::Send { to, message } => self.said.push((to.to_words()[1], message)),
                PlacerEffect::WriteGroup { group, row, write } => self.unwritten.push((group, row, write)),
            }
        }
        if !self.is_disk_slow {
            self.write();
        }
    }

    /// All that is to be written is on disk.
    fn write(&mut self) {
        for (group, row, write) in std::mem::take(&mut self.unwritten) {
            match row {
                Some(row) => drop(self.rows.insert(group, row)),
                None => drop(self.rows.remove(&group)),
            }
            self.step(PlacerInput::GroupWritten { group, write, outcome: Ok(()) });
        }
    }

    /// The control process dies, with what is not on disk, and is started again when these were members.
    fn restart(&mut self, members: &[u64]) {
        let rows = self.rows.clone();
        *self = Self { rows: rows.clone(), now: self.now, ..Self::default() };
        members.iter().for_each(|number| self.step(PlacerInput::NodeAwaited { node: node(*number) }));
        rows.into_values().for_each(|row| self.step(PlacerInput::GroupRestored { row }));
    }

    fn kept(&mut self, from: u64, number: u64, bundles: &[u32]) {
        self.say(from, ToPlacer::GroupKept { group: group_id(number), bundles: bundles.to_vec() });
    }

    fn join(&mut self, number: u64, resources: Resources, labels: Labels) {
        let epoch = Epoch(number + 100 * self.now);
        let address = "10.0.0.1:7000".parse().unwrap();
        let info = NodeInfo { node: node(number), epoch, address, labels, resources };
        self.step(PlacerInput::NodeJoined { info });
    }

    fn say(&mut self, number: u64, message: ToPlacer) {
        let epoch = self.placer.nodes.get(node(number)).map_or(Epoch(0), |known| known.info.epoch);
        self.step(PlacerInput::Received { from: node(number), epoch, message });
    }

    fn pass(&mut self, microseconds: u64) {
        self.now += microseconds;
        self.step(PlacerInput::Ticked);
    }

    fn want(&mut self, from: u64, request: RequestId, demand: Demand) -> Vec<(u64, u32)> {
        self.say(from, ToPlacer::PlaceWanted { request, demand });
        self.placed(request)
    }

    /// Which nodes got how many tasks of a demand.
    fn placed(&mut self, wanted: RequestId) -> Vec<(u64, u32)> {
        let mut places = Vec::new();
        self.said.retain(|(_, message)| match message {
            FromPlacer::Placed { request, node, count, .. } if *request == wanted => {
                places.push((node.to_words()[1], *count));
                false
            }
            _ => true,
        });
        places
    }

    fn reasons(&mut self) -> Vec<String> {
        let reason = |message| match message {
            FromPlacer::Waiting { reason, .. }
            | FromPlacer::Impossible { reason, .. }
            | FromPlacer::Refused { reason, .. } => Some(reason),
            _ => None,
        };
        std::mem::take(&mut self.said).into_iter().filter_map(|(_, message)| reason(message)).collect()
    }

    fn report(&mut self, number: u64, available: Resources, queues: Vec<QueueRow>) {
        let known = self.placer.nodes.get(node(number)).expect("it is known");
        let usable = known.info.resources.clone();
        let report = NodeReport { available, usable, queues, ..NodeReport::default() };
        self.say(number, ToPlacer::Reported { report });
    }

    /// A long task runs a second, a short one a millisecond, and a tiny one nearly always a microsecond.
    fn learn(&mut self) {
        let runs = |function, time| RunTimes { function, buckets: vec![(estimate::bucket(time), 100)] };
        let mut tiny = runs(TINY, 1);
        tiny.buckets.push((estimate::bucket(2_000), 1));
        let run_times = vec![runs(SHORT, 1_000), runs(LONG, 1_000_000), tiny];
        let resources = self.placer.nodes.get(node(1)).unwrap().info.resources.clone();
        let (available, usable) = (resources.clone(), resources);
        let report = NodeReport { available, usable, run_times, ..NodeReport::default() };
        self.say(1, ToPlacer::Reported { report });
    }

    fn want_group(&mut self, from: u64, number: u64, strategy: GroupStrategy, bundles: &[u64]) {
        let bundles = bundles.iter().map(|units| cpus(*units)).collect();
        let spec = GroupSpec { group: group_id(number), bundles, strategy, ..GroupSpec::default() };
        self.say(from, ToPlacer::GroupWanted { spec });
        self.pass(LOOK);
    }

    /// What was said, in short.
    fn heard(&mut self) -> Vec<String> {
        let text = |(to, message): (u64, FromPlacer)| match message {
            FromPlacer::Reserve { bundles, .. } => {
                format!("{to} reserve {:?}", bundles.iter().map(|(index, _)| *index).collect::<Vec<_>>())
            }
            FromPlacer::Commit { .. } => format!("{to} commit"),
            FromPlacer::Return { bundles, .. } => format!("{to} return {bundles:?}"),
            FromPlacer::GroupChanged { state, nodes, .. } => {
                let nodes: Vec<u64> = nodes.iter().map(|node| node.to_words()[1]).collect();
                match state {
                    GroupState::Ready => format!("{to} ready {nodes:?}"),
                    GroupState::Pending(why) => format!("{to} pending: {why}"),
                    GroupState::Removed(why) => format!("{to} removed: {why}"),
                }
            }
            other => format!("{to} {other:?}"),
        };
        std::mem::take(&mut self.said).into_iter().map(text).collect()
    }

    fn reserved(&mut self, from: u64, number: u64, attempt: u32, outcome: Result<(), String>) {
        self.say(from, ToPlacer::Reserved { group: group_id(number), attempt, outcome });
    }
}

fn demand(count: u32) -> Demand {
    Demand { needs: cpus(1), count, function: SHORT, ..Demand::default() }
}

fn busy(function: FunctionId, queued: u32, running: u32) -> Vec<QueueRow> {
    vec![QueueRow { needs: cpus(1), group: None, function, priority: 0, queued, running }]
}

#[test]
fn tasks_go_to_free_nodes_one_after_the_other() {
    let mut talk = Talk::with(&[cpus(0), cpus(4), cpus(4), cpus(4)]);
    assert_eq!(talk.want(1, 7, demand(6)), [(2, 2), (3, 2), (4, 2)]);
    assert_eq!(talk.want(1, 8, demand(1)), [(2, 1)], "what was placed is remembered, all have the same");
    assert_eq!(talk.want(1, 9, demand(2)), [(3, 1), (4, 1)]);
}

#[test]
fn what_was_assumed_is_corrected_by_a_report_that_is_new_enough() {
    let mut talk = Talk::with(&[cpus(0), cpus(1), cpus(1)]);
    talk.learn();
    assert_eq!(talk.want(1, 1, Demand { function: LONG, ..demand(2) }), [(2, 1), (3, 1)]);
    assert_eq!(talk.want(1, 2, Demand { function: LONG, ..demand(1) }), [], "both are taken for a second");
    let why = "1 task waits for 1 CPU; all nodes that could take more have enough to do";
    assert_eq!(talk.placer.explain_demand(node(1), 2).as_deref(), Some(why));
    assert_eq!(talk.placer.explain_demand(node(1), 1), None);
    talk.now += SETTLE_MICROSECONDS - 1;
    talk.report(2, cpus(1), Vec::new());
    talk.pass(LOOK);
    assert_eq!(talk.placed(2), [], "that report was sent before the task came");
    talk.report(2, cpus(1), Vec::new());
    talk.pass(LOOK);
    assert_eq!(talk.placed(2), [(2, 1)], "the task is over, or never came");
}

#[test]
fn a_place_that_nobody_came_to_is_free_again_though_its_node_has_nothing_to_report() {
    let mut talk = Talk::with(&[cpus(0), cpus(1)]);
    talk.learn();
    assert_eq!(talk.want(1, 1, Demand { function: LONG, ..demand(1) }), [(2, 1)]);
    talk.now += CREDIT_MICROSECONDS + SETTLE_MICROSECONDS - 1;
    assert_eq!(talk.want(1, 2, Demand { function: LONG, ..demand(1) }), []);
    talk.say(1, ToPlacer::PlaceWithdrawn { request: 2 });
    talk.now += 1;
    assert_eq!(talk.want(1, 3, Demand { function: LONG, ..demand(1) }), [(2, 1)]);
}

#[test]
fn a_demand_that_is_replaced_by_a_smaller_one_is_looked_at_again() {
    let mut talk = Talk::with(&[cpus(1)]);
    assert_eq!(talk.want(1, 1, Demand { needs: cpus(2), ..demand(1) }), []);
    assert_eq!(talk.want(1, 1, demand(1)), [(1, 1)]);
    assert_eq!(talk.placer.waiting(), 0);
}

#[test]
fn places_that_are_not_used_are_free_again() {
    let mut talk = Talk::with(&[cpus(0), cpus(1)]);
    talk.learn();
    assert_eq!(talk.want(1, 1, Demand { function: LONG, ..demand(1) }), [(2, 1)]);
    assert_eq!(talk.want(1, 2, Demand { function: LONG, ..demand(1) }), []);
    talk.say(1, ToPlacer::PlaceUnused { request: 1, node: node(2), count: 1 });
    talk.pass(LOOK);
    assert_eq!(talk.placed(2), [(2, 1)]);
}

#[test]
fn a_queue_of_short_tasks_is_shorter_than_one_long_task() {
    let mut talk = Talk::with(&[cpus(0), cpus(1), cpus(1)]);
    talk.learn();
    talk.report(2, cpus(0), busy(LONG, 1, 1));
    talk.report(3, cpus(0), busy(SHORT, 50, 1));
    assert_eq!(talk.want(1, 1, demand(1)), [(3, 1)]);
}

#[test]
fn nothing_is_bound_further_ahead_than_the_horizon_until_it_has_waited() {
    let mut talk = Talk::with(&[cpus(0), cpus(1)]);
    talk.learn();
    let placed: u32 = talk.want(1, 1, demand(1000)).iter().map(|(_, count)| count).sum();
    let fit = (HORIZON_MICROSECONDS / 1_000) as u32;
    assert!((fit * 8 / 10..=fit * 12 / 10).contains(&placed), "{placed} of about {fit}");
    talk.say(1, ToPlacer::PlaceWithdrawn { request: 1 });
    assert_eq!(talk.want(1, 2, Demand { function: LONG, ..demand(1) }), []);
    talk.pass(HORIZON_MICROSECONDS);
    assert_eq!(talk.placed(2), [(2, 1)], "placer invariant 3");
}

#[test]
fn home_is_best_if_it_is_no_worse() {
    let mut talk = Talk::with(&[cpus(1), cpus(1)]);
    talk.learn();
    talk.report(1, cpus(0), busy(SHORT, 10, 1));
    talk.report(2, cpus(0), busy(SHORT, 10, 1));
    let places = talk.want(1, 1, demand(10));
    assert_eq!(places, [(1, 10)], "they are not ahead of themselves");
    talk.report(1, cpus(0), busy(LONG, 10, 1));
    assert_eq!(talk.want(1, 2, demand(1)), [(2, 1)]);
}

#[test]
fn what_must_be_over_by_now_is_not_in_the_way_though_nobody_has_said_so() {
    let mut talk = Talk::with(&[cpus(0), cpus(1), cpus(1)]);
    talk.learn();
    // It takes ten milliseconds to go elsewhere, and a task one; there is one every five.
    let input = Input { bytes: 10 << 20, holders: vec![node(3)] };
    for request in 1..=18 {
        let local = Demand { inputs: vec![input.clone()], ..demand(1) };
        assert_eq!(talk.want(1, request, local), [(3, 1)], "task {request}");
        talk.now += 5_000;
    }
}

#[test]
fn what_takes_less_to_run_than_to_send_stays_at_home_however_much_it_is() {
    let mut talk = Talk::with(&[cpus(1), cpus(1)]);
    talk.learn();
    let tiny = |count| Demand { function: TINY, ..demand(count) };
    talk.report(1, cpus(0), busy(TINY, 4000, 1));
    assert_eq!(talk.want(1, 1, tiny(4000)), [(1, 4000)]);
    assert_eq!(talk.want(1, 1, tiny(4000)), [(1, 4000)], "they are not ahead of themselves");
    assert_eq!(talk.want(1, 1, tiny(100)), [(1, 100)], "nor are those which the report still tells of");
    talk.report(1, cpus(0), busy(SHORT, 100, 1));
    let halves = talk.want(1, 2, demand(100));
    assert_eq!(halves.iter().filter(|(_, count)| (45..=55).contains(count)).count(), 2, "{halves:?}");
    talk.report(1, cpus(0), busy(LONG, 1, 1));
    talk.report(2, cpus(1), Vec::new());
    assert_eq!(talk.want(1, 3, tiny(1)), [(2, 1)], "others keep the node busy");
}

#[test]
fn what_is_short_and_of_others_does_not_stand_for_what_is_its_own() {
    let mut talk = Talk::with(&[cpus(2), cpus(2)]);
    talk.learn();
    let row = |needs, function, queued, running| QueueRow {
        needs,
        group: None,
        function,
        priority: 0,
        queued,
        running,
    };
    // Which of the tasks of a shape are the demand's is known in part: all of them may be.
    talk.report(
        1,
        cpus(0),
        vec![row(cpus(2), TINY, 500, 0), row(cpus(1), SHORT, 60, 0), row(cpus(1), TINY, 0, 2)],
    );
    assert_eq!(talk.want(1, 1, Demand { function: TINY, ..demand(100) }), [(1, 100)]);
}

#[test]
fn large_inputs_draw_tasks_to_them_until_the_queue_there_is_longer_than_the_way() {
    let mut talk = Talk::with(&[cpus(0), cpus(4), cpus(4)]);
    talk.learn();
    let input = Input { bytes: 100 << 20, holders: vec![node(3), node(99)] };
    let local = |count| Demand { inputs: vec![input.clone()], ..demand(count) };
    assert_eq!(talk.want(1, 1, local(4)), [(3, 4)]);
    assert_eq!(talk.want(1, 2, local(40)), [(3, 40)], "10 ms of queue against 100 ms of copying");
    talk.report(3, cpus(0), busy(LONG, 4, 4));
    assert_eq!(talk.want(1, 3, local(1)), [(2, 1)], "a second of queue against that");
    let report = NodeReport {
        available: cpus(4),
        usable: cpus(4),
        links: vec![LinkRow { from: node(3), bytes_per_second: 1 << 20 }],
        ..NodeReport::default()
    };
    talk.say(2, ToPlacer::Reported { report });
    assert_eq!(talk.want(1, 4, local(1)), [], "the link is slow: to wait is better");
}

#[test]
fn what_cannot_be_sent_to_a_node_goes_to_another_or_says_why_until_it_can() {
    // The first has no CPUs of its own; of two nodes, one dials.
    let mut talk = Talk::with(&[cpus(0), cpus(8), cpus(1)]);
    let row = |number| Unreachable { node: node(number), reason: "at 10.0.0.1:7000: no route".to_owned() };
    let four = || Demand { needs: cpus(4), ..demand(1) };
    let cut_off = |units, numbers: &[u64]| NodeReport {
        available: cpus(units),
        usable: cpus(units),
        unreachable: numbers.iter().map(|number| row(*number)).collect(),
        ..NodeReport::default()
    };
    talk.say(2, ToPlacer::Reported { report: cut_off(8, &[1]) });
    assert_eq!(talk.want(1, 1, demand(1)), [(3, 1)], "the larger one is out of reach");
    talk.want(1, 2, four());
    let (first, second) = (node(1), node(2));
    let why = format!("node {second} cannot reach node {first} at 10.0.0.1:7000: no route");
    assert_eq!(talk.reasons(), [format!("node {second} could take it, but {why}")]);
    assert_eq!(talk.want(3, 3, four()), [(2, 1)], "others can reach it");
    talk.say(2, ToPlacer::Reported { report: cut_off(8, &[]) });
    talk.pass(limits::NODE_REPORT_MICROSECONDS + LOOK);
    assert_eq!(talk.placed(2), [(2, 1)]);
}

#[test]
fn who_cannot_reach_a_node_keeps_nobody_else_from_it() {
    let mut talk = Talk::with(&[cpus(0), cpus(1), cpus(0), cpus(4)]);
    let unreachable = vec![Unreachable { node: node(4), reason: String::new() }];
    talk.learn();
    talk.report(2, cpus(0), busy(LONG, 100, 1));
    talk.say(1, ToPlacer::Reported { report: NodeReport { unreachable, ..NodeReport::default() } });
    talk.report(4, cpus(0), busy(LONG, 100, 4));
    assert_eq!((talk.want(1, 1, demand(1)), talk.want(3, 1, demand(1))), (vec![], vec![]));
    talk.report(4, cpus(4), Vec::new());
    talk.pass(LOOK);
    assert_eq!(talk.placed(1), [(4, 1)]);
}

#[test]
fn an_infeasible_demand_is_explained_once_and_placed_when_a_node_joins() {
    let mut talk = Talk::with(&[cpus(4), cpus(8).with(GPU, Amount::units(2))]);
    let wanted = Demand { needs: cpus(1).with(GPU, Amount::units(4)), ..demand(1) };
    assert_eq!(talk.want(1, 1, wanted), []);
    assert_eq!(talk.reasons(), ["no node has 4 GPU; the largest has 2 GPU"]);
    let why = "1 task waits for 1 CPU, 4 GPU; no node has 4 GPU; the largest has 2 GPU";
    assert_eq!(talk.placer.explain_demand(node(1), 1).as_deref(), Some(why));
    talk.report(2, cpus(8), Vec::new());
    talk.pass(10 * limits::NODE_REPORT_MICROSECONDS);
    assert_eq!(talk.reasons(), [""; 0]);
    talk.join(3, cpus(1).with(GPU, Amount::units(8)), Labels::new());
    talk.pass(LOOK);
    assert_eq!(talk.placed(1), [(3, 1)]);

    let both = Demand { needs: cpus(8).with(GPU, Amount::units(8)), ..demand(1) };
    talk.want(1, 2, both);
    assert_eq!(talk.reasons(), ["no node has 8 CPU, 8 GPU together; the nearest has 8 CPU, 2 GPU"]);
    let report = NodeReport { available: cpus(1), usable: cpus(1), ..NodeReport::default() };
    talk.say(3, ToPlacer::Reported { report });
    talk.want(1, 3, Demand { needs: Resources::none().with(GPU, Amount::units(3)), ..demand(1) });
    assert_eq!(talk.reasons(), ["actors and placement groups have so much that no node can free 3 GPU"]);
}

#[test]
fn all_who_have_waited_for_a_node_are_served_by_it_in_turn() {
    let mut talk = Talk::with(&[cpus(1)]);
    for (request, count) in [(1, 100), (2, 1)] {
        talk.want(1, request, Demand { needs: cpus(2), ..demand(count) });
        assert_eq!(talk.reasons(), ["no node has 2 CPU; the largest has 1 CPU"]);
    }
    talk.join(2, cpus(2), Labels::new());
    talk.pass(LOOK);
    assert!(matches!(talk.placed(1)[..], [(2, 1..100)]) && talk.placed(2).is_empty());
    assert_eq!(
        talk.reasons(),
        ["all nodes that could take more have enough to do"],
        "it is not what it was told"
    );
    // What was placed is done.
    talk.pass(CREDIT_MICROSECONDS);
    talk.report(2, cpus(2), Vec::new());
    talk.pass(LOOK);
    assert_eq!(talk.placed(2), [(2, 1)]);
}

#[test]
fn what_actors_have_taken_is_looked_at_again_though_its_return_is_reported_only_once() {
    let mut talk = Talk::with(&[cpus(1)]);
    let report = |units| NodeReport { available: cpus(units), usable: cpus(units), ..NodeReport::default() };
    talk.say(1, ToPlacer::Reported { report: report(0) });
    assert_eq!(talk.want(1, 1, demand(1)), []);
    assert_eq!(talk.reasons(), ["actors and placement groups have so much that no node can free 1 CPU"]);
    talk.pass(limits::NODE_REPORT_MICROSECONDS);
    talk.now += 1;
    talk.say(1, ToPlacer::Reported { report: report(1) });
    for _ in 0..200 {
        let wakeup = talk.placer.next_wakeup().expect("somebody waits");
        talk.pass(wakeup.0 - talk.now);
        if talk.placed(1) == [(1, 1)] {
            return assert_eq!(talk.placer.waiting(), 0);
        }
    }
    panic!("it was forgotten");
}

#[test]
fn tasks_that_spread_go_home_in_their_turn_and_as_often_as_elsewhere() {
    let mut talk = Talk::with(&[cpus(2), cpus(2), cpus(2)]);
    talk.learn();
    let spread = |count| Demand { strategy: Strategy::Spread, ..demand(count) };
    let asked_for = 30_000;
    let first = talk.want(1, 1, spread(asked_for));
    let count = first[0].1;
    assert!(count >= 2 && first == [(1, count), (2, count), (3, count)], "{first:?}");
    // What it has sent home is ahead of what it sends next, there as elsewhere.
    assert_eq!(talk.want(1, 1, spread(asked_for)), []);
    for number in 1..=3 {
        talk.say(1, ToPlacer::PlaceUnused { request: 1, node: node(number), count });
    }
    talk.pass(LOOK);
    let counts: Vec<u32> = talk.placed(1).into_iter().map(|(_, count)| count).collect();
    assert!(counts.len() == 3 && counts.iter().all(|more| more.abs_diff(count) <= count / 10), "{counts:?}");
}

#[test]
fn strategies_choose_nodes() {
    let mut talk = Talk::with(&[cpus(0), cpus(2), cpus(2)]);
    talk.join(4, cpus(2), Labels::from([("zone".into(), "b".into())]));
    talk.learn();
    let with = |strategy, count| Demand { strategy, ..demand(count) };
    let zone = |test| vec![LabelRule { name: "zone".into(), test }];
    assert_eq!(talk.want(1, 1, with(Strategy::Spread, 3)), [(1 + 1, 1), (3, 1), (4, 1)]);
    assert_eq!(talk.want(1, 2, with(Strategy::Spread, 2)), [(2, 1), (3, 1)], "turns go on");
    assert_eq!(talk.want(1, 3, with(Strategy::Spread, 1)), [(4, 1)]);
    assert_eq!(talk.want(1, 4, with(Strategy::Node { node: node(3), soft: false }, 5)), [(3, 5)]);
    let only_b = Strategy::Labels { hard: zone(LabelTest::In(vec!["b".into()])), soft: Vec::new() };
    assert_eq!(talk.want(1, 5, with(only_b, 3)), [(4, 3)]);
    let rather_b = Strategy::Labels { hard: Vec::new(), soft: zone(LabelTest::Exists) };
    assert_eq!(talk.want(1, 6, with(rather_b.clone(), 1)), [(4, 1)]);
    talk.report(4, cpus(0), busy(LONG, 2, 2));
    assert_eq!(talk.want(1, 7, with(rather_b, 1)), [(2, 1)], "what is preferred has no room");
    let gone = |soft| Strategy::Node { node: node(9), soft };
    assert_eq!(talk.want(1, 8, with(gone(true), 1)), [(2, 1)]);
    assert_eq!(talk.want(1, 9, with(gone(false), 1)), []);
    let only_c = Strategy::Labels { hard: zone(LabelTest::In(vec!["c".into()])), soft: Vec::new() };
    assert_eq!(talk.want(1, 10, with(only_c, 1)), []);
    let reasons = talk.reasons();
    assert!(reasons[0].starts_with("the cluster has no node that is 0"), "{reasons:?}");
    assert_eq!(reasons[1..], ["the cluster has no node with zone in (c)"]);
}

#[test]
fn a_node_that_left_gets_nothing_and_what_it_says_late_is_ignored() {
    let mut talk = Talk::with(&[cpus(0), cpus(4), cpus(1)]);
    talk.step(PlacerInput::NodeLeft { node: node(2) });
    assert_eq!(talk.want(1, 1, demand(2)).iter().map(|(node, _)| *node).collect::<Vec<_>>(), [3]);
    let report = NodeReport { available: cpus(64), usable: cpus(64), ..NodeReport::default() };
    talk.step(PlacerInput::Received {
        from: node(2),
        epoch: Epoch(2),
        message: ToPlacer::Reported { report: report.clone() },
    });
    talk.now += 1;
    talk.join(2, cpus(4), Labels::new());
    talk.step(PlacerInput::Received {
        from: node(2),
        epoch: Epoch(2),
        message: ToPlacer::Reported { report },
    });
    assert_eq!(talk.placer.nodes.get(node(2)).unwrap().free(), &cpus(4), "placer invariant 2");
    talk.say(2, ToPlacer::PlaceWanted { request: 5, demand: Demand { needs: cpus(99), ..demand(1) } });
    assert_eq!(talk.placer.waiting(), 1);
    talk.step(PlacerInput::NodeLeft { node: node(2) });
    assert_eq!(talk.placer.waiting(), 0, "what it wanted goes with it");
}

#[test]
fn too_many_demands_are_refused() {
    let mut talk = Talk::with(&[cpus(1)]);
    for request in 0..limits::DEMANDS_MAX as u32 {
        talk.want(1, request, Demand { needs: cpus(2), ..demand(1) });
    }
    talk.said.clear();
    talk.want(1, u32::MAX, Demand { needs: cpus(2), ..demand(1) });
    assert_eq!(talk.reasons(), ["1024 demands of this node wait already, which is the limit"]);
    talk.say(1, ToPlacer::PlaceWithdrawn { request: 0 });
    talk.want(1, u32::MAX, Demand { needs: cpus(2), ..demand(1) });
    assert_eq!(talk.reasons(), ["no node has 2 CPU; the largest has 1 CPU"]);
}

#[test]
fn what_may_go_to_one_node_only_is_impossible_without_it() {
    let mut talk = Talk::with(&[cpus(1), cpus(1)]);
    let bound = |number| Demand { strategy: Strategy::Node { node: node(number), soft: false }, ..demand(1) };
    let impossible = |talk: &mut Talk| {
        let is_it = |(_, message): &(u64, FromPlacer)| matches!(message, FromPlacer::Impossible { .. });
        std::mem::take(&mut talk.said).iter().filter(|said| is_it(said)).count()
    };
    talk.step(PlacerInput::NodeAwaited { node: node(3) });
    assert_eq!(talk.want(1, 1, bound(3)), []);
    assert_eq!(impossible(&mut talk), 0, "it may join again");
    assert_eq!(talk.want(1, 2, bound(4)), []);
    assert_eq!((impossible(&mut talk), talk.placer.waiting()), (1, 1), "nobody waits for that one");
    talk.step(PlacerInput::NodeLeft { node: node(3) });
    talk.pass(LOOK);
    assert_eq!((impossible(&mut talk), talk.placer.waiting()), (1, 0), "it did not");
    talk.report(2, cpus(0), busy(LONG, 900, 1));
    assert_eq!(talk.want(1, 5, bound(2)), []);
    assert_eq!((impossible(&mut talk), talk.placer.waiting()), (0, 1), "it waits for room");
    talk.step(PlacerInput::NodeLeft { node: node(2) });
    talk.pass(LOOK);
    assert_eq!((impossible(&mut talk), talk.placer.waiting()), (1, 0), "the node is gone");
}

#[test]
fn the_urgent_are_next_and_overtake_what_waits_on_a_node() {
    let mut talk = Talk::with(&[cpus(0), cpus(1)]);
    talk.learn();
    let long = |priority| Demand { function: LONG, priority, ..demand(1) };
    talk.report(2, cpus(0), busy(LONG, 0, 1));
    for (request, priority) in [(1, 0), (2, 3), (3, 7)] {
        assert_eq!(talk.want(1, request, long(priority)), [], "the node is taken for a second");
    }
    talk.report(2, cpus(1), Vec::new());
    talk.pass(LOOK);
    assert_eq!([3, 2, 1].map(|request| talk.placed(request).len()), [1, 0, 0], "it came last");
    talk.now += SETTLE_MICROSECONDS;
    talk.report(2, cpus(0), busy(LONG, 100, 1));
    talk.pass(LOOK);
    assert_eq!([2, 1].map(|request| talk.placed(request).len()), [1, 0], "it is next on that node");
    talk.want(1, 4, long(3));
    talk.want(1, 5, long(4));
    talk.pass(LOOK);
    assert_eq!(
        [5, 4].map(|request| talk.placed(request).len()),
        [1, 0],
        "one of its like is before the other"
    );
}

#[test]
fn no_more_overtake_what_waits_where_they_are_than_there_are_slots() {
    let mut talk = Talk::with(&[cpus(1)]);
    talk.learn();
    talk.report(1, cpus(0), busy(LONG, 100, 1));
    let placed = talk.want(1, 1, Demand { function: TINY, priority: 1, ..demand(1000) });
    assert_eq!(placed, [(1, 1)], "the others wait for the next one that ends");
}
