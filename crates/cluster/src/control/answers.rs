//! What the control process answers the command line: nearly all is the business of nodes.

use super::clock::Clock;
use crate::admin::{Admin, LogPage, LogPosition, Refusal};
use aktis_io::Authority;
use aktis_protocol::admin::{ClusterStatus, IdPrefix, JoinToken, ListQuery, Listing, LogQuery, StopScope};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Answers of a control process.
pub(super) struct Answers {
    pub(super) clock: Arc<Clock>,
    pub(super) authority: Arc<Authority>,
    pub(super) address: SocketAddr,
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

    fn logs(&self, _: &LogQuery, _: Option<LogPosition>, _: Duration) -> Result<LogPage, Refusal> {
        Err(elsewhere())
    }

    fn token(&self, lifetime: Duration) -> Result<JoinToken, Refusal> {
        let token = self.authority.token(lifetime);
        let expires = token.expires().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(JoinToken {
            token: token.to_string(),
            address: self.address.to_string(),
            expires_unix_seconds: expires.as_secs(),
        })
    }
}

fn elsewhere() -> Refusal {
    Refusal::new("the control process answers that to nodes only").with_hint("ask the node of this machine")
}
