//! The control process's own certificate. It has the authority's key, and signs for itself: at each start, and in good time
//! before the certificate expires.

use super::ControlError;
use aktis_daemon::journal;
use aktis_io::{Authority, Renewer, Role};
use aktis_protocol::NodeId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The pause before a renewal that has failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// How far the clocks of machines may be apart.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module.
pub(super) struct Renewal {
    authority: Arc<Authority>,
    node: NodeId,
    /// Where the identity is kept.
    place: PathBuf,
    endpoint: Renewer,
    due: SystemTime,
}

impl Renewal {
    /// For a certificate that was signed just now.
    pub(super) fn new(authority: Arc<Authority>, node: NodeId, place: PathBuf, endpoint: Renewer) -> Self {
        let due = SystemTime::now() + renewed_after(authority.lifetime());
        Self { authority, node, place, endpoint, due }
    }

    /// Renews the certificate if it is time.
    pub(super) fn on_time(&mut self, now: SystemTime) {
        if now < self.due {
            return;
        }
        self.due = now
            + match self.renew() {
                Ok(()) => renewed_after(self.authority.lifetime()),
                Err(error) => {
                    journal::warn(format_args!(
                        "the certificate of the control process was not renewed: {error}"
                    ));
                    TRY_AGAIN
                }
            };
    }

    fn renew(&self) -> Result<(), ControlError> {
        let identity = self.authority.issue(self.node, Role::Node)?;
        // In use first: a full disk is no reason to let it expire.
        self.endpoint.renew(&identity)?;
        Ok(identity.save(&self.place)?)
    }
}

/// How long after this moment all certificates have expired that were signed before, also by clocks that differ a little.
pub(super) fn expired_after(lifetime: Duration) -> Duration {
    lifetime + CLOCK_DIFFERENCE
}

/// How long after it was signed a certificate is renewed.
pub(crate) fn renewed_after(lifetime: Duration) -> Duration {
    lifetime / 3
}
