//! The nodes below the clients, as the virtual control process and its network see them.

use super::Cluster;
use aktis_logic::LinkId;
use aktis_logic::machine::control_client::{ControlClient, ControlClientEffect, ControlClientInput};
use aktis_protocol::NodeId;
use std::fmt::Debug;

/// One node.
pub(crate) trait Member {
    /// Its id.
    fn id(&self) -> NodeId;
    /// Its client.
    fn client(&mut self) -> &mut ControlClient;
    /// Its link to the control process, as far as it knows.
    fn link(&mut self) -> &mut Option<LinkId>;
}

/// All nodes, with what is between them.
pub(crate) trait Members: Sized {
    /// One of them.
    type Node: Member;
    /// What happens to them, beside their clients.
    type Event: Clone + Debug;

    /// A node with this number starts.
    fn start_node(cluster: &mut Cluster<Self>, number: usize) -> Self::Node;

    /// The client of a node that is there orders something else than messages; gives what it is told at once.
    fn carry_out(
        cluster: &mut Cluster<Self>,
        number: usize,
        effect: ControlClientEffect,
    ) -> Vec<ControlClientInput>;

    /// Something has happened.
    fn on_event(cluster: &mut Cluster<Self>, event: Self::Event);

    /// The node that does not notice it while it is paused.
    fn node_of(event: &Self::Event) -> Option<usize>;
}

/// The id of the node with this number.
pub(crate) fn node_id(number: usize) -> NodeId {
    NodeId::from_words([number as u64 + 1, 0])
}
