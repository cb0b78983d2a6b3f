//! This node's certificate, which the control process renews over the link that there is.
//!
//! The key and the id stay. Links and connections that there are go on; new ones show the new certificate.

use crate::control::renewed_after;
use aktis_io::{Identity, Renewer};
use aktis_node::journal;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The pause before a certificate is asked for again that has not come.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// After a certificate that cannot be used.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Renewal {
    /// Where the identity is kept.
    place: PathBuf,
    endpoint: Renewer,
    state: Mutex<State>,
}

struct State {
    identity: Identity,
    due: SystemTime,
}

impl Renewal {
    /// The certificate may be of any age; how long one is good is said with the next. So that is wanted at once.
    pub(crate) fn new(identity: Identity, place: PathBuf, endpoint: Renewer) -> Self {
        let state = Mutex::new(State { identity, due: SystemTime::UNIX_EPOCH });
        Self { place, endpoint, state }
    }

    /// The public half of the key for which a certificate is due, if one is.
    pub(crate) fn wish(&self, now: SystemTime) -> Option<[u8; 32]> {
        let mut state = self.state.lock();
        if now < state.due {
            return None;
        }
        state.due = now + ASK_AGAIN;
        match state.identity.public_key() {
            Ok(public_key) => Some(public_key),
            Err(error) => {
                journal::warn(format_args!("the certificate of this node cannot be renewed: {error}"));
                state.due = now + renewed_after(Duration::from_secs(24 * 60 * 60));
                None
            }
        }
    }

    /// The certificate is to be renewed now: the cluster has other authorities.
    pub(crate) fn want_now(&self) {
        self.state.lock().due = SystemTime::UNIX_EPOCH;
    }

    /// The control process has sent another certificate, which is good for so long, and the authorities to trust. Whether it is
    /// used.
    pub(crate) fn on_certified(
        &self,
        certificate: Vec<u8>,
        authorities: Vec<Vec<u8>>,
        lifetime: Duration,
    ) -> bool {
        let mut state = self.state.lock();
        // One that cannot be used is asked for again, but not at once: the next may be no better.
        state.due = SystemTime::now() + TRY_AGAIN;
        let Some(identity) = state.identity.renewed(certificate, authorities) else {
            journal::warn(format_args!(
                "the control process has sent a certificate that is none of this node's"
            ));
            return false;
        };
        // In use first: a full disk is no reason to let it expire.
        if let Err(error) = self.endpoint.renew(&identity) {
            journal::warn(format_args!("the new certificate of this node cannot be used: {error}"));
            return false;
        }
        if let Err(error) = identity.save(&self.place) {
            journal::warn(format_args!("the new certificate of this node was not kept: {error}"));
        }
        *state = State { identity, due: SystemTime::now() + renewed_after(lifetime) };
        true
    }
}
