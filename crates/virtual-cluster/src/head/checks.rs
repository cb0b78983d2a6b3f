//! What must hold when the faults are over and nothing is pending.

use super::Cluster;
use super::node::Claim;
use aktis_logic::machine::head::{ActorHome, Job, Restored};
use aktis_protocol::admin::{JobState, OnNode, ProgramRow};
use aktis_protocol::control::decode;
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::tables::{Answer, Key, Query, Sender, Table};
use aktis_protocol::{ActorId, NodeId, ProgramId};
use std::collections::{BTreeMap, BTreeSet};

impl Cluster {
    pub(super) fn is_quiet(&mut self) -> bool {
        if !self.store.is_synced() || !self.departed_on_disk().is_empty() {
            return false;
        }
        let Some(process) = &self.process else { return false };
        let all_settled = self.nodes.iter().flatten().all(|node| {
            let is_current = node.client.epoch() == process.head.membership().epoch(node.id);
            let claims_settled = node.claims.values().all(|claim| claim.is_granted);
            node.client.is_member()
                && is_current
                && node.client.is_idle()
                && node.open.is_empty()
                && node.unplaced.is_empty()
                && claims_settled
        });
        let alive = self.nodes.iter().flatten().count();
        all_settled
            && process.head.membership().members().count() == alive
            && process.head.placer().waiting() == 0
    }

    pub(super) fn check_quiet(&mut self) {
        for (number, node) in self.nodes.iter().enumerate().filter_map(|(n, node)| Some((n, node.as_ref()?)))
        {
            assert!(node.client.is_member(), "node {number} is no member");
            assert!(node.open.is_empty(), "node {number} waits for answers to {:?}", node.open);
            assert!(node.client.is_idle(), "node {number} has something pending");
            assert!(node.unplaced.is_empty(), "node {number} waits for places: {:?}", node.unplaced);
            let unsettled: Vec<_> = node.claims.iter().filter(|(_, claim)| !claim.is_granted).collect();
            assert!(unsettled.is_empty(), "node {number} waits for names: {unsettled:?}");
        }
        let head = &self.process.as_ref().expect("the control process is there").head;
        let alive: BTreeSet<NodeId> = self.nodes.iter().flatten().map(|node| node.id).collect();
        let members: BTreeSet<NodeId> = head.membership().members().map(|(node, _)| node).collect();
        assert_eq!(members, alive, "members");
        assert_eq!(head.placer().waiting(), 0, "demands wait for places");
        assert!(self.store.is_synced(), "the disk is behind");
        let departed = self.departed_on_disk();
        assert!(departed.is_empty(), "the records of {departed:?} are kept");
        assert!(self.is_quiet(), "an epoch is not known to its node");
        self.check_members();
        self.check_names();
        self.check_keys_and_records();
        self.check_jobs();
        self.check_programs();
        self.summary.memberships_lost = self.nodes.iter().flatten().map(|node| node.memberships_lost).sum();
    }

    /// The memberships that are over, and whose records are still kept.
    fn departed_on_disk(&mut self) -> Vec<Sender> {
        let mut restored = Restored::default();
        for (key, value) in self.store.rows(self.now, Table::Nodes) {
            restored.on_row(Table::Nodes, &key, &value).expect("a row");
        }
        restored.departed
    }

    fn check_members(&mut self) {
        let alive: BTreeSet<NodeId> = self.nodes.iter().flatten().map(|node| node.id).collect();
        for node in self.nodes.iter().flatten() {
            let known: BTreeSet<NodeId> = node.client.nodes().map(|info| info.node).collect();
            let others: BTreeSet<NodeId> = alive.iter().copied().filter(|other| *other != node.id).collect();
            assert_eq!(known, others, "what {} knows of the members", node.id);
        }
        let rows = self.store.rows(self.now, Table::Nodes);
        let on_disk: BTreeSet<NodeId> = rows
            .iter()
            .filter(|(key, _)| key.0.len() == 16)
            .map(|(_, value)| decode::<NodeInfo>(value).expect("a node").node)
            .collect();
        assert_eq!(on_disk, alive, "members on disk");
    }

    fn check_names(&mut self) {
        let mut owners: BTreeMap<String, (NodeId, ActorId)> = BTreeMap::new();
        for node in self.nodes.iter().flatten() {
            for (name, Claim { actor, .. }) in &node.claims {
                let before = owners.insert(name.clone(), (node.id, *actor));
                assert_eq!(before, None, "{name} has two owners");
            }
            let held: BTreeMap<&String, ActorId> = node.client.held_names().collect();
            let claimed = node.claims.iter().map(|(name, claim)| (name, claim.actor)).collect();
            assert_eq!(held, claimed, "the names of {}", node.id);
        }
        let head = &self.process.as_ref().expect("it is quiet").head;
        let known: BTreeMap<String, (NodeId, ActorId)> = head
            .names()
            .into_iter()
            .map(|name| {
                let (node, found) = head.find_name(&name).expect("it is listed");
                (name, (node, found.actor))
            })
            .collect();
        assert_eq!(known, owners, "the names that the head knows");
        let rows = self.store.rows(self.now, Table::Actors);
        let on_disk: BTreeMap<String, (NodeId, ActorId)> = rows
            .into_iter()
            .map(|(key, value)| {
                let (node, found): ActorHome = decode(&value).expect("a home");
                let name = String::from_utf8(key.0["name/".len()..].to_vec()).expect("a name");
                (name, (node, found.actor))
            })
            .collect();
        assert_eq!(on_disk, owners, "names on disk");
    }

    fn check_keys_and_records(&mut self) {
        let on_disk: BTreeMap<Key, Vec<u8>> = self.store.rows(self.now, Table::Keys).into_iter().collect();
        for node in self.nodes.iter().flatten() {
            for (key, value) in &node.values {
                let found = on_disk.get(&Key(key.clone()));
                assert_eq!(found, value.as_ref(), "the value of {key:?} of {}", node.id);
            }
            for (task, record) in &node.records {
                let answer = self.store.answer_now(self.now, Query::Task(*task));
                assert_eq!(answer, Answer::Task(Some(record.clone())), "the record of {task} of {}", node.id);
            }
        }
        let expected: usize = self.nodes.iter().flatten().map(|node| node.records.len()).sum();
        let on_record = self.store.tasks_on_record(self.now);
        assert_eq!(on_record, expected as u64, "tasks on record, also of memberships that are over");
    }

    fn check_jobs(&mut self) {
        let rows = self.store.rows(self.now, Table::Jobs);
        let jobs: Vec<Job> = rows.iter().map(|(_, value)| decode(value).expect("a job")).collect();
        for node in self.nodes.iter().flatten() {
            for (process, runs) in &node.jobs {
                let told = jobs.iter().filter(|job| job.node == node.id && job.row.pid == process.0);
                let states: Vec<JobState> = told.map(|job| job.row.state).collect();
                let expected = if *runs { JobState::Running } else { JobState::Ended };
                assert_eq!(states, [expected], "job {process} of {}", node.id);
            }
        }
        let lost = jobs.iter().filter(|job| self.departed.contains(&job.node));
        let running: Vec<&Job> = lost.filter(|job| job.row.state == JobState::Running).collect();
        assert!(running.is_empty(), "jobs of departed nodes run: {running:?}");
    }

    fn check_programs(&mut self) {
        let served = self.nodes.iter().flatten().flat_map(|node| {
            let of_node = |program: &ProgramId| (node.id, *program);
            node.programs.iter().map(of_node)
        });
        let served: BTreeSet<(NodeId, ProgramId)> = served.collect();
        let rows = self.store.rows(self.now, Table::Programs);
        let on_disk: BTreeSet<(NodeId, ProgramId)> = rows
            .iter()
            .map(|(_, value)| decode::<OnNode<ProgramRow>>(value).expect("a program"))
            .map(|OnNode { node, row }| (node, row.program))
            .collect();
        assert_eq!(on_disk, served, "programs on disk");
    }
}
