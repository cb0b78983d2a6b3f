//! A virtual cluster under random load and faults, from a seed.
//!
//! Nodes die, come back and join; demands of all strategies come from everywhere; groups are made and removed. At the end:
//! 1. whatever some node could run has run, unless its home died, or its node was away when it was asked for;
//! 2. whatever no node can run is explained;
//! 3. nothing is set aside for groups any more, and the placer has forgotten them.

use super::task::{Fate, Kind, ObjectIndex, Task};
use super::{Cluster, Manner};
use crate::random::Random;
use aktis_logic::machine::placer::PlacerEffect;
use aktis_logic::planted::PlacerBug;
use aktis_logic::{Machine, Time};
use aktis_protocol::placement::{LabelRule, LabelTest, Labels, Strategy, ToPlacer};
use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::{
    Amount, FunctionId, GroupId, GroupPlace, GroupSpec, GroupStrategy, NodeId, Resources, SessionId, TaskId,
};

const SECOND: u64 = 1_000_000;
/// New things happen until then.
const QUIET_AT: u64 = 8 * SECOND;
/// All groups are removed then.
const GROUPS_END_AT: u64 = 15 * SECOND;
/// Everything has come to its end by then.
const OVER_AT: u64 = 90 * SECOND;

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Nodes at the beginning.
    pub nodes: u64,
    /// Tasks in all.
    pub tasks: u64,
    /// Groups in all.
    pub groups: u64,
    /// The placer's invariants are checked after so many of its steps.
    pub check_every: u64,
}

/// Runs a cluster from a seed. Panics if something is wrong. Gives what the placer ordered.
pub fn run(seed: u64, size: Size) -> Vec<(Time, PlacerEffect)> {
    run_with(seed, size, None)
}

/// The same, with a bug in the placer.
pub fn run_with(seed: u64, size: Size, planted: Option<PlacerBug>) -> Vec<(Time, PlacerEffect)> {
    let mut random = Random::new(seed);
    let manner = Manner {
        delay_max: [100, 1_000, 20_000][random.below(3) as usize],
        refusals_percent: [0, 10, 40][random.below(3) as usize],
        ghosts_percent: 50,
        check_every: size.check_every,
        ..Manner::default()
    };
    let mut cluster = Cluster::new(manner, Random::new(seed + 1_000_000));
    cluster.placer.planted.plant(planted);
    let mut trial = Trial { cluster, random, nodes: Vec::new() };
    trial.add_nodes(size.nodes);
    let groups = trial.add_groups(size.groups);
    trial.add_tasks(size.tasks, &groups);
    trial.add_faults(size.nodes / 3);
    trial.cluster.run_until(Time(OVER_AT));
    trial.check();
    trial.cluster.history().to_vec()
}

struct Trial {
    cluster: Cluster,
    random: Random,
    nodes: Vec<NodeId>,
}

impl Trial {
    fn time(&mut self) -> Time {
        Time(self.random.below(QUIET_AT))
    }

    fn add_nodes(&mut self, count: u64) {
        for number in 0..count {
            let cpus = [8, self.random.below(9)][usize::from(number > 0)];
            let gpus = if number == 0 || self.random.chance(20) { 2 } else { 0 };
            let total = Resources::none().with(CPU, Amount::units(cpus)).with(GPU, Amount::units(gpus));
            let zone = ["a", "b", "c"][self.random.below(3) as usize];
            let at = if self.random.chance(80) { Time(0) } else { self.time() };
            let at = if number == 0 { Time(0) } else { at };
            let labels = Labels::from([("zone".to_owned(), zone.to_owned())]);
            self.nodes.push(self.cluster.add_node(at, total, labels));
        }
    }

    fn node(&mut self) -> NodeId {
        self.random.pick(&self.nodes).expect("there are nodes")
    }

    /// Some nodes die; most come back, some of them before anybody has noticed. The first one lives.
    fn add_faults(&mut self, count: u64) {
        for _ in 0..count {
            let node = self.node();
            if node == self.nodes[0] {
                continue;
            }
            let at = self.time();
            self.cluster.crash(at, node);
            if self.random.chance(75) {
                let away = self.random.below(6 * SECOND);
                self.cluster.join(Time(at.0 + away), node);
            }
        }
    }

    fn add_groups(&mut self, count: u64) -> Vec<GroupId> {
        let group = |number| GroupId::created_by(TaskId::root(SessionId(1)).child(number));
        for number in 0..count {
            let bundle =
                |random: &mut Random| Resources::none().with(CPU, Amount::units(1 + random.below(3)));
            let bundles = (0..1 + self.random.below(4)).map(|_| bundle(&mut self.random)).collect();
            let strategies = [
                GroupStrategy::Pack,
                GroupStrategy::Spread,
                GroupStrategy::StrictPack,
                GroupStrategy::StrictSpread,
            ];
            let strategy = strategies[self.random.below(4) as usize];
            let detached = self.random.chance(20);
            let spec =
                GroupSpec { group: group(number), bundles, strategy, detached, ..GroupSpec::default() };
            let (maker, at) = (self.node(), self.time());
            self.cluster.say(at, maker, ToPlacer::GroupWanted { spec });
            if self.random.chance(50) {
                let removed_at = Time(at.0 + self.random.below(4 * SECOND));
                self.cluster.say(removed_at, maker, ToPlacer::GroupRemoved { group: group(number) });
            }
            let first = self.nodes[0];
            self.cluster.say(Time(GROUPS_END_AT), first, ToPlacer::GroupRemoved { group: group(number) });
        }
        (0..count).map(group).collect()
    }

    fn add_tasks(&mut self, count: u64, groups: &[GroupId]) {
        for _ in 0..20 {
            let (bytes, holder) = (1 << self.random.below(28), self.node());
            self.cluster.put(bytes, [holder]);
        }
        for _ in 0..count {
            let (at, home, kind) = (self.time(), self.node(), self.kind(groups));
            let base = [500, 2_000, 10_000, 50_000, 200_000, 1_000_000][kind.function.0 as usize];
            let run = base / 2 + self.random.below(base);
            // They come in bunches, so that demands are for more than one.
            for _ in 0..1 + self.random.below(4) {
                self.cluster.submit(at, home, kind.clone(), run);
            }
        }
    }

    fn kind(&mut self, groups: &[GroupId]) -> Kind {
        let random = &mut self.random;
        let cpus = if random.chance(1) { 64 } else { [1, 1, 1, 1, 2, 4, 8][random.below(7) as usize] };
        let mut needs = Resources::none().with(CPU, Amount::units(cpus));
        if random.chance(8) {
            needs.set(GPU, Amount::units(1 + random.below(2)));
        }
        let function = FunctionId(random.below(6));
        let inputs =
            if random.chance(20) { vec![ObjectIndex(random.below(20) as usize)] } else { Vec::new() };
        let group = random.pick(groups).filter(|_| random.chance(8));
        let group = group.map(|group| GroupPlace { group, bundle: random.chance(50).then_some(0) });
        let strategy = self.strategy();
        Kind { function, needs, group, strategy, inputs }
    }

    fn strategy(&mut self) -> Strategy {
        let zone = |random: &mut Random| {
            let value = ["a", "b", "c", "d"][random.below(4) as usize].to_owned();
            vec![LabelRule { name: "zone".to_owned(), test: LabelTest::In(vec![value]) }]
        };
        match self.random.below(20) {
            0..2 => Strategy::Spread,
            2 => Strategy::Node { node: self.node(), soft: false },
            3 => Strategy::Node { node: self.node(), soft: true },
            4 => Strategy::Labels { hard: zone(&mut self.random), soft: Vec::new() },
            5 => Strategy::Labels { hard: Vec::new(), soft: zone(&mut self.random) },
            _ => Strategy::Default,
        }
    }

    fn check(&self) {
        let cluster = &self.cluster;
        cluster.placer.check();
        for task in &cluster.tasks {
            match task.fate {
                // Whether its node was away was checked when it was said.
                Fate::Done(_) | Fate::Impossible => {}
                Fate::Lost => {
                    assert!(task.home != self.nodes[0], "the first node lives, and {task:?} is lost")
                }
                Fate::Queued | Fate::Sent(_) => self.check_unfinished(task),
            }
        }
        let explained = cluster.hosts.values().flat_map(|host| host.lanes.values());
        let explained = explained.filter(|lane| lane.told.is_some() && !lane.tasks.is_empty()).count();
        assert_eq!(cluster.placer.waiting(), explained, "all who wait know why");
        assert_eq!(cluster.placer.groups(), 0, "the placer remembers groups");
        for host in cluster.hosts.values() {
            assert!(
                host.bundles.is_empty() && host.wishes.is_empty(),
                "{} has something set aside",
                host.node
            );
        }
    }

    /// A task that has not run waits at home for what nobody has, and its home was told.
    fn check_unfinished(&self, task: &Task) {
        let Task { kind, home, .. } = task;
        let fits = self.cluster.hosts.values().any(|host| {
            let eligible = match &kind.strategy {
                Strategy::Node { node, soft: false } => host.node == *node,
                Strategy::Labels { hard, .. } => hard.iter().all(|rule| rule.holds(&host.labels)),
                _ => true,
            };
            host.epoch.is_some() && eligible && host.total.covers(&kind.needs)
        });
        if let (Strategy::Node { node, soft: false }, None) = (&kind.strategy, kind.group) {
            let is_member = self.cluster.membership.epoch(*node).is_some();
            assert!(is_member, "{task:?} waits for a node that is gone");
        }
        let lane = &self.cluster.hosts[home].lanes[kind];
        assert!(kind.group.is_some() || !fits, "{task:?} could run; {:?}", lane.told);
        assert_eq!(task.fate, Fate::Queued, "{task:?}");
        assert!(lane.told.is_some(), "nobody knows why {task:?} waits");
    }
}
