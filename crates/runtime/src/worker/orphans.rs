//! Work whose submitter has died: nobody waits for its results.
//!
//! It is cancelled, which user code may look at. An isolated worker that runs nothing else ends at once, because its
//! resources are wanted by others. Light actors end, unless the node knows of others who may call them.

use super::Executor;
use crate::runtime::Inner;
use aktis_protocol::ProcessSlot;
use aktis_protocol::control::ToNode;
use std::sync::Arc;

impl Executor {
    /// A process of this node has died.
    pub(crate) fn on_process_died(&self, runtime: &Arc<Inner>, dead: ProcessSlot) {
        self.forget_lanes();
        let orphaned = self.cancel_all_of(dead);
        if orphaned && !self.is_shared() && self.hosted.is_empty() {
            super::end(0);
        }
        for actor in self.hosted.created_by(dead) {
            runtime.send_to_node(ToNode::ActorOrphaned { actor });
        }
    }
}
