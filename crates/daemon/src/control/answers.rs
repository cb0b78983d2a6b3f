//! What the control process answers the command line: nearly all is the business of nodes.

use super::clock::Clock;
use super::renewal::OwnCertificate;
use super::{Shared, trust};
use crate::admin::{Admin, LogPage, LogPosition, Refusal};
use crate::log::Log;
use aktis_protocol::NodeId;
use aktis_protocol::admin::{
    ClusterStatus, DrainOrder, IdPrefix, KeyReply, KeyRequest, KillOrder, Killed, ListQuery, Listing,
    LogPart, LogQuery, StopScope,
};
use aktis_protocol::trust::{TrustReply, TrustRequest};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Answers of a control process.
pub(super) struct Answers {
    pub(super) clock: Arc<Clock>,
    pub(super) shared: Weak<Shared>,
    pub(super) own: Arc<OwnCertificate>,
    /// Where its keys are.
    pub(super) authority_directory: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) log: Arc<Log>,
}

impl Admin for Answers {
    fn status(&self) -> Result<ClusterStatus, Refusal> {
        Err(elsewhere())
    }

    fn stop(&self, _scope: StopScope) -> Result<(), Refusal> {
        self.clock.stop();
        Ok(())
    }

    fn list(&self, _: &ListQuery) -> Result<Listing, Refusal> {
        Err(elsewhere())
    }

    fn explain(&self, _: &IdPrefix) -> Result<String, Refusal> {
        Err(elsewhere())
    }

    fn keys(&self, _: KeyRequest) -> Result<KeyReply, Refusal> {
        Err(elsewhere())
    }

    fn kill(&self, _: &KillOrder) -> Result<Killed, Refusal> {
        Err(elsewhere())
    }

    fn drain(&self, _: &DrainOrder) -> Result<NodeId, Refusal> {
        Err(elsewhere())
    }

    fn logs(
        &self,
        query: &LogQuery,
        position: Option<LogPosition>,
        patience: Duration,
    ) -> Result<LogPage, Refusal> {
        let position = position.and_then(|position| position.0.get(&self.log.node()).copied());
        if let Some(position) = position {
            self.log.wait(position, patience);
        }
        let LogPart { lines, missed, next, is_last } =
            self.log.read(position, query.tail, |line| query.is_since(line));
        Ok(LogPage { lines, missed, next: LogPosition([(self.log.node(), next)].into()), is_last })
    }

    fn trust(&self, request: TrustRequest) -> Result<TrustReply, Refusal> {
        let ending = || Refusal::new("the control process ends");
        let shared = self.shared.upgrade().ok_or_else(ending)?;
        trust::answer(&shared, (&self.own, &self.authority_directory), self.address, request)
    }
}

fn elsewhere() -> Refusal {
    Refusal::new("the control process answers that to nodes only").with_hint("ask the node of this machine")
}
