//! What the node orders of the cluster, as inputs of the client's machine.
//!
//! The node knows other nodes as the processes that are their proxies; the machine knows them by their ids.

use super::fetchers::Fetch;
use super::{ControlClient, Order};
use crate::peer::Programs;
use aktis_logic::machine::control_client::ControlClientInput;
use aktis_logic::machine::node::{NodeEffect, NodeInput};
use aktis_protocol::admin::{Language, ProgramRow};
use aktis_protocol::placement::{Demand, Input};
use aktis_protocol::{FunctionId, Near, NodeId, ProcessSlot, ProgramKind, ProgramSpec, Shape};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a command that are kept.
const COMMAND_BYTES_MAX: usize = 200;

impl ControlClient {
    pub(super) fn on_order(self: &Arc<Self>, order: Order) {
        let input = match order {
            Order::Input(input) => Some(input),
            Order::Node(NodeEffect::Fetch { entry, object, peer, offset, .. }) => {
                return self.order_fetch(Fetch { entry, object, peer, offset });
            }
            Order::Node(effect) => self.input_for(effect),
        };
        input.into_iter().for_each(|input| self.step(input));
    }

    fn order_fetch(self: &Arc<Self>, fetch: Fetch) {
        let (entry, client) = (fetch.entry, self.clone());
        if self.fetchers.order(fetch, move |fetch| client.fetch(fetch)).is_err() {
            let why = "the node ends, or has no thread for it".to_owned();
            self.host.feed(NodeInput::Restored { entry, outcome: Err(why) });
        }
    }

    fn input_for(&self, effect: NodeEffect) -> Option<ControlClientInput> {
        use ControlClientInput as To;
        Some(match effect {
            NodeEffect::Place { shape, definition, count, function } => {
                let Shape { resources: needs, group, strategy, near, priority, .. } = definition;
                let inputs = self.inputs(near);
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
                let (command, unix_microseconds) = (command_of(pid), since_1970().as_micros() as u64);
                To::JobBegan { process, pid, program, command, unix_microseconds }
            }
            NodeEffect::JobEnded { process } => {
                To::JobEnded { process, unix_milliseconds: since_1970().as_millis() as u64 }
            }
            // It may be gone again.
            NodeEffect::ProgramCame { program } => {
                To::ProgramServed { row: row_of(self.host.find(program).ok()?.0) }
            }
            NodeEffect::ProgramWent { program } => To::ProgramDropped { program },
            NodeEffect::ChangeTables { change } => To::ChangeWanted { change },
            NodeEffect::SeekRecord { object } => To::RecordWanted { object },
            NodeEffect::AskKey { to, request, question } => To::KeyWanted { to, request, question },
            NodeEffect::Fetch { .. }
            | NodeEffect::Send { .. }
            | NodeEffect::StartWorker { .. }
            | NodeEffect::Admit { .. }
            | NodeEffect::TurnAway { .. }
            | NodeEffect::SeeOff { .. }
            | NodeEffect::EndTemplate { .. }
            | NodeEffect::ForgetProgram { .. }
            | NodeEffect::KillWorker { .. }
            | NodeEffect::FreeProcess { .. }
            | NodeEffect::OpenLane { .. }
            | NodeEffect::CloseLane { .. }
            | NodeEffect::FreeShape { .. }
            | NodeEffect::OpenChannel { .. }
            | NodeEffect::WriteEntry { .. }
            | NodeEffect::Spill { .. }
            | NodeEffect::Reserve { .. }
            | NodeEffect::Restore { .. }
            | NodeEffect::ForgetCheckpoint { .. }
            | NodeEffect::GiveBack { .. }
            | NodeEffect::FreeSpilled { .. } => unreachable!("the node carries it out itself"),
        })
    }

    /// The node that a proxy stands for, or this one.
    fn node_at(&self, proxy: Option<ProcessSlot>) -> Option<NodeId> {
        match proxy {
            Some(proxy) => self.neighbours.known_node_of(proxy),
            None => Some(self.me),
        }
    }

    /// What is read, as the placer knows it.
    fn inputs(&self, near: Option<Near>) -> Vec<Input> {
        let Some(Near { peer, bytes }) = near else { return Vec::new() };
        let input = |holder: NodeId| Input { bytes, holders: vec![holder] };
        self.node_at(peer).map(input).into_iter().collect()
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How people would start the program of a process.
fn command_of(pid: u32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let mut text = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    text.truncate(text.floor_char_boundary(COMMAND_BYTES_MAX));
    text
}

fn row_of(spec: ProgramSpec) -> ProgramRow {
    let (language, version, bytes) = match spec.kind {
        ProgramKind::Rust { bytes } => (Language::Rust, None, Some(bytes)),
        ProgramKind::Python { version, .. } => (Language::Python, Some(version), None),
    };
    ProgramRow {
        program: spec.id,
        language,
        version,
        bytes,
        architecture: spec.architecture,
        came_unix_milliseconds: since_1970().as_millis() as u64,
    }
}
