//! The control process's own certificate. It has the authority's key, and signs for itself: at each start, and in good time
//! before the certificate expires.

use super::ControlError;
use aktis_io::{Authority, Renewer, Role};
use aktis_node::journal;
use aktis_protocol::NodeId;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The pause before a renewal that has failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// How far the clocks of machines may be apart.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module.
pub(super) struct Renewal {
    own: Arc<OwnCertificate>,
    due: SystemTime,
}

/// What the control process shows others.
pub(super) struct OwnCertificate {
    pub(super) authority: Arc<Authority>,
    pub(super) node: NodeId,
    /// Where the identity is kept.
    pub(super) place: PathBuf,
    pub(super) endpoint: Renewer,
    /// Held while it is renewed: what was signed last is used last.
    pub(super) renewing: Mutex<()>,
    /// Held while the authority gets another key.
    pub(super) rotating: Mutex<()>,
}

impl Renewal {
    /// For a certificate that was signed just now.
    pub(super) fn new(own: Arc<OwnCertificate>) -> Self {
        let due = SystemTime::now() + renewed_after(own.authority.lifetime());
        Self { own, due }
    }

    /// Renews the certificate if it is time.
    pub(super) fn on_time(&mut self, now: SystemTime) {
        if now < self.due {
            return;
        }
        self.due = now
            + match self.own.renew() {
                Ok(()) => renewed_after(self.own.authority.lifetime()),
                Err(error) => {
                    journal::warn(format_args!(
                        "the certificate of the control process was not renewed: {error}"
                    ));
                    TRY_AGAIN
                }
            };
    }
}

impl OwnCertificate {
    /// Signs another one, and uses it, with the authorities that are trusted now.
    pub(super) fn renew(&self) -> Result<(), ControlError> {
        let _alone = self.renewing.lock();
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
