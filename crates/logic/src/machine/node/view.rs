//! What can be seen of a node from outside, for `explain`, dashboards and checkers.

use super::Node;
use super::copies::CopyState;
use super::process_table::Stage;
use crate::directory::Value;
use aktis_protocol::actors::ActorPlace;
use aktis_protocol::{
    ActorId, EntryRef, GroupId, GroupState, ObjectId, ProcessSlot, ProgramId, Resources, ShapeId,
};

/// What the node knows of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessView {
    /// Ordered, not ready yet.
    Starting,
    /// Takes work.
    Alive,
    /// Told to end.
    Leaving,
    /// Dead; its place is not free yet.
    Dead,
}

impl Node {
    /// Resources that are free.
    pub fn resources_available(&self) -> &Resources {
        self.resources.node().available()
    }

    /// Resources in use beyond what the node has.
    pub fn resources_debt(&self) -> &Resources {
        self.resources.node().debt()
    }

    /// Bytes of the arena that are free.
    pub fn store_bytes_available(&self) -> u64 {
        self.memory.available_bytes()
    }

    /// The end of the arena that has ever been in use: pages below it are there already.
    pub fn store_high_water(&self) -> u64 {
        self.memory.high_water()
    }

    /// Bytes in use on disk.
    pub fn spilled_bytes(&self) -> u64 {
        self.memory.spilled_bytes()
    }

    /// How many copies of objects the store has, in memory and on disk.
    pub fn copies(&self) -> usize {
        self.memory.copies.len()
    }

    /// How many objects the node knows.
    pub fn objects(&self) -> usize {
        self.directory.len()
    }

    /// Whether the node knows the object.
    pub fn knows_object(&self, object: ObjectId) -> bool {
        self.directory.knows(object)
    }

    /// What the node knows of the object's value.
    pub fn object_value(&self, object: ObjectId) -> Option<&Value> {
        self.directory.value(object)
    }

    /// Whether every readable copy of the object is in memory.
    pub fn is_resident(&self, object: ObjectId) -> bool {
        let copies = self.memory.copies.readable(object);
        let sealed = |entry| matches!(self.memory.copies.get(entry).state, CopyState::Sealed { .. });
        !copies.is_empty() && copies.into_iter().all(sealed)
    }

    /// Whether the store has a copy of the object, here or in another node.
    pub fn is_stored(&self, object: ObjectId) -> bool {
        !self.memory.copies.readable(object).is_empty()
    }

    /// The copy of an object that is served to other nodes, in memory or on disk, or the process that stands for the node
    /// which has one.
    pub fn copy_of(&self, object: ObjectId) -> Option<(EntryRef, Option<ProcessSlot>)> {
        self.memory.copy_of(object)
    }

    /// How many actors the node knows.
    pub fn actors(&self) -> usize {
        self.actors.table.len()
    }

    /// Where an actor is, if the node knows it.
    pub fn actor_place(&self, actor: ActorId) -> Option<ActorPlace> {
        self.actors.table.get(&actor).map(|known| known.place())
    }

    /// What the node knows of a process.
    pub fn process(&self, slot: ProcessSlot) -> Option<ProcessView> {
        self.process_table.get(slot).map(|process| match process.stage {
            Stage::Starting => ProcessView::Starting,
            Stage::Alive => ProcessView::Alive,
            Stage::Leaving { .. } => ProcessView::Leaving,
            Stage::Dead { .. } => ProcessView::Dead,
        })
    }

    /// All processes.
    pub fn processes(&self) -> Vec<(ProcessSlot, ProcessView)> {
        let slots = self.process_table.iter().map(|(slot, _)| slot);
        slots.filter_map(|slot| Some((slot, self.process(slot)?))).collect()
    }

    /// How far a placement group is, if the node knows it.
    pub fn group_state(&self, group: GroupId) -> Option<GroupState> {
        self.groups.table.get(&group).map(|known| known.state())
    }

    /// How many placement groups there are, those included that are being removed.
    pub fn groups(&self) -> usize {
        self.groups.table.len()
    }

    /// How many programs the node knows.
    pub fn programs(&self) -> usize {
        self.programs.len()
    }

    /// Whether the node knows the program.
    pub fn knows_program(&self, program: ProgramId) -> bool {
        self.programs.shares(program).is_some()
    }

    /// How many shapes have a number.
    pub fn shapes(&self) -> usize {
        self.leases.shapes()
    }

    /// How many leases of a shape are held.
    pub fn leases(&self, shape: ShapeId) -> usize {
        self.leases.count(shape)
    }
}
