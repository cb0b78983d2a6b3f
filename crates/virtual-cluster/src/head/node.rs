//! A virtual node around the real client: what it wants of the cluster, and what it was told.
//!
//! It is as simple as it can be: a name per actor, a value per key, a record per task. It objects to answers that it has not
//! asked for, and knows at the end what the cluster must have kept.

use aktis_logic::LinkId;
use aktis_logic::machine::control_client::{ControlClient, ControlClientInput};
use aktis_logic::machine::node::{NodeInput, Verdict};
use aktis_protocol::actors::FoundActor;
use aktis_protocol::admin::{Language, ProgramRow};
use aktis_protocol::control::RequestId;
use aktis_protocol::placement::{FromPlacer, NodeInfo, NodeReport, ToPlacer};
use aktis_protocol::tables::Change;
use aktis_protocol::{
    ActorId, Amount, GroupId, NodeId, ProcessSlot, ProgramId, Resources, SessionId, TaskId,
};
use std::collections::{BTreeMap, BTreeSet};

/// The process in each node that asks.
pub(super) const ASKER: ProcessSlot = ProcessSlot(3);

/// What a node has been promised of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) actor: ActorId,
    pub(super) is_granted: bool,
}

/// See the module.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) client: ControlClient,
    pub(super) link: Option<LinkId>,
    /// A number that each object, actor and task of it has, and no other.
    things: u64,
    pub(super) claims: BTreeMap<String, Claim>,
    /// Questions without an answer.
    pub(super) open: BTreeSet<RequestId>,
    pub(super) requests: RequestId,
    pub(super) values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    pub(super) records: BTreeMap<TaskId, Vec<u8>>,
    /// Jobs that have begun: whether each runs.
    pub(super) jobs: BTreeMap<ProcessSlot, bool>,
    /// Programs that it serves.
    pub(super) programs: BTreeSet<ProgramId>,
    /// Actors that wait for a place.
    pub(super) unplaced: BTreeSet<ActorId>,
    /// Bundles that are set aside here.
    bundles: BTreeMap<GroupId, BTreeSet<u32>>,
    /// Groups that were made here, and are not to go.
    pub(super) groups: BTreeSet<GroupId>,
    pub(super) memberships_lost: u64,
}

impl Node {
    pub(super) fn new(info: NodeInfo) -> Self {
        Self {
            id: info.node,
            client: ControlClient::new(info, ProcessSlot(1)),
            link: None,
            things: 0,
            claims: BTreeMap::new(),
            open: BTreeSet::new(),
            requests: 0,
            values: BTreeMap::new(),
            records: BTreeMap::new(),
            jobs: BTreeMap::new(),
            programs: BTreeSet::new(),
            unplaced: BTreeSet::new(),
            bundles: BTreeMap::new(),
            groups: BTreeSet::new(),
            memberships_lost: 0,
        }
    }

    pub(super) fn next_task(&mut self) -> TaskId {
        self.things += 1;
        TaskId::root(SessionId(self.id.to_words()[0])).child(self.things)
    }

    pub(super) fn next_actor(&mut self) -> FoundActor {
        let actor = ActorId::created_by(self.next_task());
        FoundActor { actor, type_name: String::new(), details: Vec::new(), abroad: false }
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        self.open.insert(self.requests);
        self.requests
    }

    pub(super) fn report(&self) -> NodeReport {
        let free = Resources::none().with("CPU", Amount::units(4));
        NodeReport { available: free.clone(), usable: free, ..NodeReport::default() }
    }

    fn on_answer(&mut self, to: ProcessSlot, request: RequestId) {
        assert_eq!(to, ASKER);
        assert!(self.open.remove(&request), "{}: question {request} is answered, and was not open", self.id);
    }

    /// The client gives the node something; it asks for this in turn.
    pub(super) fn on_input(&mut self, input: NodeInput) -> Vec<ControlClientInput> {
        match input {
            NodeInput::NameClaimed { name, actor, granted } => {
                let claim = self.claims.get_mut(&name).filter(|claim| claim.actor == actor);
                match (claim, granted) {
                    (Some(claim), true) => claim.is_granted = true,
                    (Some(_), false) => drop(self.claims.remove(&name)),
                    (None, _) => {}
                }
            }
            NodeInput::NameFound { to, request, .. }
            | NodeInput::NamesFound { to, request, .. }
            | NodeInput::KeyAnswered { to, request, .. } => self.on_answer(to, request),
            NodeInput::RecordFound { .. } => {}
            NodeInput::ActorPlaced { actor, verdict } => {
                assert!(self.unplaced.contains(&actor), "{}: {actor} waits for no place", self.id);
                if !matches!(verdict, Verdict::Later { .. }) {
                    self.unplaced.remove(&actor);
                }
            }
            NodeInput::Placed { .. } => {}
            NodeInput::PlacesLost => self.unplaced.clear(),
            NodeInput::GroupTold { message } => return self.on_group(message),
            NodeInput::PlacerCame => return self.tell_groups(),
            NodeInput::MembershipLost => {
                self.memberships_lost += 1;
                self.bundles.clear();
                let told = self.records.iter().map(|(task, record)| record_of(*task, record));
                let change = |change| ControlClientInput::ChangeWanted { change };
                return told.map(change).collect();
            }
            input => panic!("{}: {input:?}", self.id),
        }
        Vec::new()
    }

    fn tell_groups(&self) -> Vec<ControlClientInput> {
        let kept = self.bundles.iter().map(|(group, bundles)| ToPlacer::GroupKept {
            group: *group,
            bundles: bundles.iter().copied().collect(),
        });
        kept.map(|message| ControlClientInput::GroupMessage { message }).collect()
    }

    fn on_group(&mut self, message: FromPlacer) -> Vec<ControlClientInput> {
        let message = match message {
            FromPlacer::Reserve { group, attempt, bundles, .. } => {
                let places = bundles.iter().map(|(place, _)| *place);
                self.bundles.entry(group).or_default().extend(places);
                ToPlacer::Reserved { group, attempt, outcome: Ok(()) }
            }
            FromPlacer::Return { group, bundles } => {
                if let Some(own) = self.bundles.get_mut(&group) {
                    own.retain(|place| !bundles.contains(place));
                    if own.is_empty() {
                        self.bundles.remove(&group);
                    }
                }
                ToPlacer::Returned { group }
            }
            _ => return Vec::new(),
        };
        vec![ControlClientInput::GroupMessage { message }]
    }
}

pub(super) fn record_of(task: TaskId, record: &[u8]) -> Change {
    Change::TaskRecorded { task, returns: 1, record: record.to_vec() }
}

pub(super) fn row_of(program: ProgramId) -> ProgramRow {
    let (language, architecture) = (Language::Rust, String::new());
    ProgramRow { program, language, version: None, bytes: None, architecture, came_unix_milliseconds: 0 }
}
