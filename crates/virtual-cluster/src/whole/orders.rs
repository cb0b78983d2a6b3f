//! What a node orders of the cluster, as inputs of its client. The node knows other nodes as the processes that are their
//! proxies; the client knows them by their ids.

use super::Machines;
use super::host::Host;
use crate::head::{Cluster, row_of};
use aktis_logic::machine::control_client::ControlClientInput;
use aktis_logic::machine::node::NodeEffect;
use aktis_protocol::placement::{Demand, Input};
use aktis_protocol::{FunctionId, Near, NodeId, ProcessSlot, Shape, ShapeId};

impl Cluster<Machines> {
    /// Gives what the client of a node is told by it.
    pub(super) fn take_orders(&mut self, number: usize) -> Vec<ControlClientInput> {
        let now = self.now;
        let Some(host) = &mut self.nodes[number] else { return Vec::new() };
        let orders = host.world().take_orders();
        let mut inputs: Vec<_> =
            orders.into_iter().filter_map(|order| host.input_for(order, now.0)).collect();
        if !inputs.is_empty() {
            // The shell says so after all that the node has ordered.
            inputs.push(ControlClientInput::OrdersEnded);
        }
        inputs
    }
}

impl Host {
    fn input_for(&self, order: NodeEffect, microseconds: u64) -> Option<ControlClientInput> {
        use ControlClientInput as To;
        Some(match order {
            NodeEffect::Place { shape, definition, count, .. } => {
                let Shape { resources: needs, group, strategy, near, priority, .. } = definition;
                let (inputs, function) = (self.inputs(near), self.usual(shape));
                let demand = Demand { needs, group, strategy, count, priority, function, inputs };
                To::PlacesWanted { shape, demand }
            }
            NodeEffect::PlaceActor { actor, needs, group, strategy, near, priority } => {
                let (inputs, function) = (self.inputs(near), FunctionId::default());
                let demand = Demand { needs, group, strategy, count: 1, priority, function, inputs };
                To::ActorPlaceWanted { actor, demand }
            }
            NodeEffect::PlacesDone { shape, peer, count } => {
                To::PlacesDone { shape, node: self.node_at(peer)?, count }
            }
            NodeEffect::Withdraw { shape } => To::PlacesWithdrawn { shape },
            NodeEffect::WithdrawActor { actor } => To::ActorPlaceWithdrawn { actor },
            NodeEffect::TellPlacer { message } => To::GroupMessage { message },
            NodeEffect::ClaimName { name, found } => To::NameWanted { name, found },
            NodeEffect::FreeName { name, actor } => To::NameFreed { name, actor },
            NodeEffect::SeekName { to, request, name } => To::LookupWanted { to, request, name },
            NodeEffect::SeekNames { to, request } => To::NamesWanted { to, request },
            NodeEffect::JobBegan { process, pid, program } => {
                let (command, unix_microseconds) = (String::new(), microseconds);
                To::JobBegan { process, pid, program, command, unix_microseconds }
            }
            NodeEffect::JobEnded { process } => {
                To::JobEnded { process, unix_milliseconds: microseconds / 1_000 }
            }
            NodeEffect::ProgramCame { program } => To::ProgramServed { row: row_of(program) },
            NodeEffect::ProgramWent { program } => To::ProgramDropped { program },
            NodeEffect::ChangeTables { change } => To::ChangeWanted { change },
            NodeEffect::SeekRecord { object } => To::RecordWanted { object },
            NodeEffect::AskKey { to, request, question } => To::KeyWanted { to, request, question },
            other => unreachable!("the virtual node carries it out itself: {other:?}"),
        })
    }

    /// What most tasks of a shape run that wait.
    fn usual(&self, shape: ShapeId) -> FunctionId {
        let mut waiting = self.memory.borrow().waiting(shape);
        waiting.sort_unstable();
        waiting.get(waiting.len() / 2).copied().unwrap_or_default()
    }

    /// The node that a proxy stands for, or this one.
    fn node_at(&self, proxy: Option<ProcessSlot>) -> Option<NodeId> {
        match proxy {
            Some(proxy) => self.node_of(proxy),
            None => Some(self.id),
        }
    }

    /// What is read, as the placer knows it.
    fn inputs(&self, near: Option<Near>) -> Vec<Input> {
        let Some(Near { peer, bytes }) = near else { return Vec::new() };
        let input = |holder: NodeId| Input { bytes, holders: vec![holder] };
        self.node_at(peer).map(input).into_iter().collect()
    }
}
