//! What runs in a virtual process: anything that reads messages, does something, and sends messages.
//!
//! The programs of [`wanderer`](crate::wanderer) do random things; a machine of `logic` that lives in
//! driver and worker processes can be run the same way, by a program that hands messages on to it.

use crate::index::Index;
use crate::random::Random;
use aktis_logic::Time;
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{ProcessSlot, ProgramId};

/// What a program does.
#[derive(Clone, Debug)]
pub enum Deed<Letter> {
    /// Sends a message to the node.
    Tell(ToNode),
    /// Writes to another process, past the node.
    Write(ProcessSlot, Letter),
    /// Ends its process.
    Exit,
}

/// What a program sees and can touch.
pub struct Surroundings<'a, Letter> {
    /// Its own place.
    pub me: ProcessSlot,
    /// The time.
    pub now: Time,
    /// Shared memory.
    pub index: &'a mut Index,
    /// The other processes that run and have started.
    pub peers: &'a [ProcessSlot],
    /// Chance.
    pub random: &'a mut Random,
    /// What it does, in order.
    pub deeds: Vec<Deed<Letter>>,
}

impl<Letter> Surroundings<'_, Letter> {
    /// Sends a message to the node.
    pub fn tell(&mut self, message: ToNode) {
        self.deeds.push(Deed::Tell(message));
    }

    /// Writes to another process.
    pub fn write(&mut self, to: ProcessSlot, letter: Letter) {
        self.deeds.push(Deed::Write(to, letter));
    }
}

/// Something that runs in a process.
pub trait Program {
    /// What programs write to each other, past the node.
    type Letter;

    /// A program for a process that begins: what kind of worker it is, if one, and which program it runs or is.
    fn begin(kind: Option<WorkerKind>, program: Option<ProgramId>) -> Self;

    /// The node sent something.
    fn on_message(&mut self, around: &mut Surroundings<'_, Self::Letter>, message: FromNode);

    /// Another process wrote something. Letters of one process come in order.
    fn on_letter(
        &mut self,
        around: &mut Surroundings<'_, Self::Letter>,
        from: ProcessSlot,
        letter: Self::Letter,
    );

    /// It may do something by itself.
    fn act(&mut self, around: &mut Surroundings<'_, Self::Letter>);
}
