//! A program that does random things with objects, actors and leases, and keeps to the rules that real
//! processes keep to: a reference is announced before it travels, and kept until it has arrived.

mod belongings;
mod hosting;

use crate::program::{Deed, Program, Surroundings};
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{EntryRef, ObjectId, ProcessSlot, ProgramId};
pub use belongings::Belongings;
pub use hosting::Hosting;
use std::collections::BTreeSet;

/// What wanderers write to each other.
#[derive(Clone, Debug)]
pub enum Letter {
    /// A reference inside a value; with the entry, if the object is in the store.
    Reference(ObjectId, Option<EntryRef>),
    /// The reference has arrived.
    Arrived(ObjectId),
    /// The receiver's result, in the store: it holds it already.
    Result(ObjectId, EntryRef),
}

/// The programs that wanderers run: the first is the one of a driver that a node is embedded in.
pub const PROGRAMS: [ProgramId; 3] =
    [ProgramId::from_words([0, 0]), ProgramId::from_words([0, 1]), ProgramId::from_words([0, 2])];

/// The surroundings of a wanderer.
pub type Around<'a> = Surroundings<'a, Letter>;

/// A program that does random things.
pub struct Wanderer {
    /// Its references and what it writes and reads.
    pub belongings: Belongings,
    /// Its leases and actors.
    pub hosting: Hosting,
    /// It only tidies up.
    pub closing: bool,
    deaths: BTreeSet<ProcessSlot>,
}

impl Program for Wanderer {
    type Letter = Letter;

    fn begin(kind: Option<WorkerKind>, program: Option<ProgramId>) -> Self {
        Self {
            belongings: Belongings::default(),
            hosting: Hosting::new(kind, program),
            closing: false,
            deaths: BTreeSet::new(),
        }
    }

    fn on_message(&mut self, around: &mut Around<'_>, message: FromNode) {
        match message {
            FromNode::ProcessDied { process, .. } => {
                self.belongings.on_peer_died(around, process);
                self.deaths.insert(process);
            }
            FromNode::Shutdown => around.deeds.push(Deed::Exit),
            message => {
                if let Some(message) = self.belongings.on_message(around, message) {
                    self.hosting.on_message(around, message);
                }
            }
        }
    }

    fn on_letter(&mut self, around: &mut Around<'_>, from: ProcessSlot, letter: Letter) {
        self.belongings.on_letter(around, from, letter);
    }

    fn act(&mut self, around: &mut Around<'_>) {
        if let Some(process) = self.deaths.pop_first() {
            around.tell(ToNode::DeathHandled { process });
        }
        if self.closing {
            self.belongings.close(around);
            self.hosting.close(around);
        } else if around.random.chance(70) {
            self.belongings.act(around);
        } else {
            self.hosting.act(around);
        }
    }
}
