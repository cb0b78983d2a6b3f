//! The client of the control process on a node: its membership, and everything that the node asks of the head.
//!
//! The link to the control process is dialled again for as long as it takes. Meanwhile the node goes on with the nodes that
//! it knows. Then it joins again, and keeps its membership if that has not ended. Its parts, each in a file of its own:
//!
//! - `membership`: the link, joining, being welcomed and expelled, heartbeats and reports;
//! - `questions`: what was asked, until it is answered; it is asked again after the control process was away;
//! - `names`: names of actors that are claimed and looked up;
//! - `places`: what the placer was asked; `stand_in`: a placer of this node's own, while the control process is away;
//! - `records`: what the cluster keeps of this node's tasks and objects; `jobs` and `programs`: its drivers and programs.
//!
//! The client speaks of nodes by their ids. The shell translates between these and the processes that are their proxies.
//!
//! What the caller guarantees:
//! 1. A [`LinkId`] names one link, and is never used again. Messages of one link come in their order, and
//!    [`ControlClientInput::LinkEnded`] is the last word about it. It comes after a message could not be sent.
//! 2. Each [`ControlClientEffect::Dial`] is answered by `Linked` or `DialFailed`, and each `ReachActor` by `ActorReached`.
//!
//! Invariants:
//! 1. Only what the control process says over the present link counts; of the placer and of other members only after it has
//!    welcomed this node over that link.
//! 2. Each question is answered once: by the control process, or with a failure after it has not answered for too long.
//! 3. Questions reach the control process in the order of their numbers, also when they are asked again, and few at a time.
//! 4. One batch of changes at a time is under way.
//! 5. There is a stand-in placer only while the control process is away.

mod jobs;
mod membership;
mod names;
mod places;
mod programs;
mod questions;
mod records;
mod stand_in;
#[cfg(test)]
mod tests;

use crate::machine::node::NodeInput;
use crate::{Effects, LinkId, Machine, Time};
use aktis_protocol::actors::FoundActor;
use aktis_protocol::admin::ProgramRow;
use aktis_protocol::control::RequestId;
use aktis_protocol::keys::KeyQuestion;
use aktis_protocol::member::{FromControl, Question, ToControl};
use aktis_protocol::placement::{Demand, NodeInfo, NodeReport, ToPlacer};
use aktis_protocol::tables::{Answer, Change, Query};
use aktis_protocol::{ActorId, Epoch, NodeId, ObjectId, ProcessSlot, ProgramId, ShapeId};
use jobs::Jobs;
use membership::Membership;
use names::{NAME_PATIENCE_MICROSECONDS, Names};
use places::Places;
use programs::Programs;
use questions::{AskedFor, Asker, Questions};
use records::Records;
use stand_in::StandIn;
use std::collections::BTreeSet;

pub use membership::DIAL_AGAIN_MICROSECONDS;
pub use questions::QUESTION_PATIENCE_MICROSECONDS;

/// What the client is told.
#[derive(Clone, Debug)]
pub enum ControlClientInput {
    /// The control process was dialled, and there is a link to it.
    Linked {
        /// The link.
        link: LinkId,
    },
    /// The control process was dialled in vain.
    DialFailed,
    /// A link is over.
    LinkEnded {
        /// Which.
        link: LinkId,
    },
    /// The control process said something.
    Received {
        /// Over which link.
        link: LinkId,
        /// What.
        message: FromControl,
    },
    /// The answer to [`ControlClientEffect::LookAtLinks`].
    LinksSeen {
        /// The nodes that this node has links to.
        nodes: BTreeSet<NodeId>,
    },
    /// The answer to [`ControlClientEffect::LookAtNode`].
    NodeSeen {
        /// How the node stands.
        report: NodeReport,
    },
    /// It is time to renew the certificate of this node.
    CertificateDue {
        /// The public half of its key.
        public_key: [u8; 32],
    },
    /// A [`ControlClientEffect::Renew`] is carried out.
    CertificateUsed {
        /// Its serial number.
        serial: u64,
    },
    /// Tasks of a shape want places on other nodes; answered by `Placed`.
    PlacesWanted {
        /// The shape.
        shape: ShapeId,
        /// For what, and how many.
        demand: Demand,
    },
    /// An actor wants a place; answered by `ActorPlaced`.
    ActorPlaceWanted {
        /// The actor.
        actor: ActorId,
        /// For what.
        demand: Demand,
    },
    /// Tasks of a shape are done that the placer has sent to a node.
    PlacesDone {
        /// The shape.
        shape: ShapeId,
        /// The node.
        node: NodeId,
        /// How many.
        count: u32,
    },
    /// Tasks of a shape want no places any more.
    PlacesWithdrawn {
        /// The shape.
        shape: ShapeId,
    },
    /// An actor wants no place any more.
    ActorPlaceWithdrawn {
        /// The actor.
        actor: ActorId,
    },
    /// The node has a message about a placement group for the placer.
    GroupMessage {
        /// What.
        message: ToPlacer,
    },
    /// An actor owned by this node is to have a name; answered by `NameClaimed`.
    NameWanted {
        /// The name.
        name: String,
        /// What a lookup returns.
        found: FoundActor,
    },
    /// An actor has no name any more.
    NameFreed {
        /// The name.
        name: String,
        /// The actor that had it.
        actor: ActorId,
    },
    /// A process looks up a name; answered by `NameFound`.
    LookupWanted {
        /// The process.
        to: ProcessSlot,
        /// The number of its question.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// A process wants all names; answered by `NamesFound`.
    NamesWanted {
        /// The process.
        to: ProcessSlot,
        /// The number of its question.
        request: RequestId,
    },
    /// The answer to [`ControlClientEffect::ReachActor`].
    ActorReached {
        /// Which search.
        search: u64,
        /// Whether the actor's node is reached and knows the actor: then the node was given the answer.
        is_reached: bool,
    },
    /// A process asks about a key; answered by `KeyAnswered`.
    KeyWanted {
        /// The process.
        to: ProcessSlot,
        /// The number of its question.
        request: RequestId,
        /// The question.
        question: KeyQuestion,
    },
    /// The cluster is to keep or forget something about tasks and objects.
    ChangeWanted {
        /// What.
        change: Change,
    },
    /// Nothing more has come from the node for now: what it has changed is sent.
    OrdersEnded,
    /// The node wants to know how the task of an object can be run again, or where its copies are; answered by
    /// `RecordFound`.
    RecordWanted {
        /// The object.
        object: ObjectId,
    },
    /// A driver has attached.
    JobBegan {
        /// Its place.
        process: ProcessSlot,
        /// Its process id.
        pid: u32,
        /// What it is.
        program: ProgramId,
        /// How people would start it.
        command: String,
        /// When, in microseconds since 1970.
        unix_microseconds: u64,
    },
    /// A driver has left.
    JobEnded {
        /// Its place.
        process: ProcessSlot,
        /// When, in milliseconds since 1970.
        unix_milliseconds: u64,
    },
    /// The node serves a program from now on.
    ProgramServed {
        /// The program.
        row: ProgramRow,
    },
    /// The node serves a program no more.
    ProgramDropped {
        /// The program.
        program: ProgramId,
    },
    /// A thread of this process asks the tables; answered by [`ControlClientEffect::Answer`].
    QueryWanted {
        /// How the caller names its question.
        asker: u64,
        /// What.
        query: Query,
    },
    /// Time has passed.
    Ticked,
}

/// What the client orders.
#[derive(Clone, Debug)]
pub enum ControlClientEffect {
    /// Dial the control process.
    Dial,
    /// Send a message. If the link has no room, close it.
    Send {
        /// Over which link.
        link: LinkId,
        /// What.
        message: ToControl,
    },
    /// Give something to this node.
    ToNode(NodeInput),
    /// Tell this node that tasks of a shape may run on another node.
    PlaceTasks {
        /// The shape.
        shape: ShapeId,
        /// The other node.
        node: NodeId,
        /// How many.
        count: u32,
        /// How many of them that node can run at a time.
        slots: u32,
    },
    /// Tell this node that an actor may live on another node.
    PlaceActor {
        /// The actor.
        actor: ActorId,
        /// The other node.
        node: NodeId,
    },
    /// Have another node tell this one of an actor, and answer a lookup of its name: give the node `NameFound` while the
    /// proxy of the other node holds the actor. If that node is out of reach, no answer is given.
    ReachActor {
        /// Which search.
        search: u64,
        /// The other node.
        node: NodeId,
        /// The process that looks the name up.
        to: ProcessSlot,
        /// The number of its question.
        request: RequestId,
        /// The actor.
        found: FoundActor,
    },
    /// End this node: it was put out of its cluster.
    End {
        /// Why.
        why: String,
    },
    /// End all links to other nodes: they have given this node up.
    ResetNeighbours,
    /// This node is a member from now on, with these others.
    SetMembers {
        /// Its epoch.
        epoch: Epoch,
        /// The others.
        nodes: Vec<NodeInfo>,
    },
    /// Another node is a member.
    AddMember {
        /// The node.
        info: NodeInfo,
    },
    /// A membership of another node is over.
    RemoveMember {
        /// The node.
        node: NodeId,
        /// Which membership.
        epoch: Epoch,
    },
    /// See which nodes there are links to.
    LookAtLinks,
    /// See how the node stands.
    LookAtNode,
    /// Use another certificate.
    Renew {
        /// The certificate.
        certificate: Vec<u8>,
        /// How long it is good.
        lifetime_milliseconds: u64,
        /// The certificates of the authorities to trust.
        authorities: Vec<Vec<u8>>,
        /// How often these have changed. If it can be used, say [`ControlClientInput::CertificateUsed`].
        serial: u64,
    },
    /// Say [`ControlClientInput::CertificateDue`] now.
    RenewNow,
    /// Answer a thread of this process; `None` if the control process has not answered.
    Answer {
        /// How it named its question.
        asker: u64,
        /// The answer.
        answer: Option<Answer>,
    },
    /// Say something to the operator.
    Log {
        /// What.
        text: String,
    },
}

/// The machine.
#[derive(Debug)]
pub struct ControlClient {
    /// This node; the epoch is that of `membership`.
    own: NodeInfo,
    /// The place of the daemon in its node.
    own_process: ProcessSlot,
    membership: Membership,
    questions: Questions,
    names: Names,
    places: Places,
    records: Records,
    jobs: Jobs,
    programs: Programs,
    /// While the control process is away.
    stand_in: Option<StandIn>,
    /// The nodes that this node has links to, as they were seen last; kept up to date while the control process is away.
    linked_nodes: BTreeSet<NodeId>,
}

impl ControlClient {
    /// The client of a node that is no member yet. The epoch in `own` means nothing.
    pub fn new(own: NodeInfo, own_process: ProcessSlot) -> Self {
        Self {
            own,
            own_process,
            membership: Membership::default(),
            questions: Questions::default(),
            names: Names::default(),
            places: Places::default(),
            records: Records::default(),
            jobs: Jobs::default(),
            programs: Programs::default(),
            stand_in: None,
            linked_nodes: BTreeSet::new(),
        }
    }

    /// Whether everything that was asked is answered, and everything that was changed is kept.
    pub fn is_idle(&self) -> bool {
        self.questions.is_empty() && self.names.is_idle() && self.records.is_idle()
    }

    fn me(&self) -> NodeId {
        self.own.node
    }

    /// Says something to the control process; false if it is away.
    fn say(&self, message: ToControl, out: &mut Effects<ControlClientEffect>) -> bool {
        let link = self.membership.member_link();
        out.extend(link.map(|link| ControlClientEffect::Send { link, message }));
        link.is_some()
    }

    /// Says something to the placer, or to the stand-in while the control process is away; false if neither answers.
    fn tell_placer(&mut self, now: Time, message: ToPlacer, out: &mut Effects<ControlClientEffect>) -> bool {
        match self.membership.present() {
            Some((link, epoch)) => {
                let message = ToControl::Placer { epoch, message };
                out.push(ControlClientEffect::Send { link, message });
                true
            }
            None => self.tell_stand_in(now, message, out),
        }
    }

    /// The control process is away: the placer will not answer what it was asked.
    fn on_control_away(&mut self, out: &mut Effects<ControlClientEffect>) {
        self.forget_places(out);
        self.questions.close();
    }

    /// The control process is there, and may know nothing of what this node has told it before.
    fn on_control_back(&mut self, out: &mut Effects<ControlClientEffect>) {
        self.stand_in = None;
        self.on_control_away(out);
        self.say_unsaid_names(out);
        self.questions.open();
        self.send_questions(out);
        out.push(ControlClientEffect::ToNode(NodeInput::PlacerCame));
    }

    /// The cluster has given this node up, and it has joined anew.
    fn on_membership_lost(&mut self, now: Time, out: &mut Effects<ControlClientEffect>) {
        self.put_jobs_again();
        self.put_programs_again();
        self.flush_records(now, out);
        out.push(ControlClientEffect::ToNode(NodeInput::MembershipLost));
    }
}

impl Machine for ControlClient {
    type Input = ControlClientInput;
    type Effect = ControlClientEffect;

    fn step(&mut self, now: Time, input: ControlClientInput, out: &mut Effects<ControlClientEffect>) {
        use ControlClientInput as Input;
        match input {
            Input::Linked { link } => self.on_linked(now, link, out),
            Input::DialFailed => self.membership.on_dial_failed(now),
            Input::LinkEnded { link } => self.on_link_ended(now, link, out),
            Input::Received { link, message } => self.on_received(now, link, message, out),
            Input::LinksSeen { nodes } => self.on_links_seen(now, nodes, out),
            Input::NodeSeen { report } => self.on_node_seen(report, out),
            Input::CertificateDue { public_key } => {
                self.say(ToControl::CertificateWanted { public_key }, out);
            }
            Input::CertificateUsed { serial } => {
                self.say(ToControl::CertificateUsed { serial }, out);
            }
            Input::PlacesWanted { shape, demand } => self.on_places_wanted(now, shape, demand, out),
            Input::ActorPlaceWanted { actor, demand } => {
                self.on_actor_place_wanted(now, actor, demand, out);
            }
            Input::PlacesDone { shape, node, count } => {
                // If that cannot be said, the placer has forgotten it anyway.
                self.tell_placer(now, ToPlacer::PlaceUnused { request: shape.0, node, count }, out);
            }
            Input::PlacesWithdrawn { shape } => {
                self.tell_placer(now, ToPlacer::PlaceWithdrawn { request: shape.0 }, out);
            }
            Input::ActorPlaceWithdrawn { actor } => self.on_actor_place_withdrawn(now, actor, out),
            Input::GroupMessage { message } => {
                self.tell_placer(now, message, out);
            }
            Input::NameWanted { name, found } => self.on_name_wanted(name, found, out),
            Input::NameFreed { name, actor } => self.on_name_freed(name, actor, out),
            Input::LookupWanted { to, request, name } => {
                let about = AskedFor::Name(Time(now.0 + NAME_PATIENCE_MICROSECONDS));
                self.ask(now, Asker::new(about, to, request), Question::Name(name), out);
            }
            Input::NamesWanted { to, request } => {
                self.ask(now, Asker::new(AskedFor::Names, to, request), Question::Names, out);
            }
            Input::ActorReached { search, is_reached } => {
                self.on_actor_reached(now, search, is_reached, out);
            }
            Input::KeyWanted { to, request, question } => {
                self.ask(now, Asker::new(AskedFor::Key, to, request), Question::Key(question), out);
            }
            Input::ChangeWanted { change } => self.records.add(change),
            Input::OrdersEnded => self.flush_records(now, out),
            Input::RecordWanted { object } => self.on_record_wanted(now, object, out),
            Input::JobBegan { process, pid, program, command, unix_microseconds } => {
                self.on_job_began(process, (pid, program, command), unix_microseconds);
            }
            Input::JobEnded { process, unix_milliseconds } => self.on_job_ended(process, unix_milliseconds),
            Input::ProgramServed { row } => self.on_program_served(row),
            Input::ProgramDropped { program } => self.on_program_dropped(program),
            Input::QueryWanted { asker, query } => {
                self.ask(now, Asker::of(AskedFor::Thread(asker)), Question::Query(query), out);
            }
            Input::Ticked => self.on_time(now, out),
        }
    }

    fn next_wakeup(&self) -> Option<Time> {
        Some(self.membership.next_tick())
    }

    fn check(&self) {
        self.questions.check(self.membership.member_link().is_some());
        self.names.check();
        self.records.check();
        assert!(self.stand_in.is_none() || self.membership.present().is_none(), "control client invariant 5");
    }
}
