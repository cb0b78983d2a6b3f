//! How long things may take between machines.

use std::time::Duration;

/// The times of an endpoint; the defaults are those of a cluster, tests have shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A link without contact for so long is dead.
    pub grace: Duration,
    /// Who has said nothing for so long says that he lives.
    pub heartbeat: Duration,
    /// What has arrived is acknowledged within this time, if nothing is said anyway.
    pub acknowledgement: Duration,
    /// A connection that has not shown who it is within this time is closed.
    pub handshake: Duration,
    /// The wait before a failed connection is dialled again; it doubles with each failure.
    pub redial_first: Duration,
    /// The longest such wait.
    pub redial_max: Duration,
    /// One attempt to dial for a link takes no longer.
    pub redial_attempt: Duration,
    /// A bulk transfer that does not move for so long has failed.
    pub bulk_stall: Duration,
    /// A connection for bulk transfers that nobody has used for so long is closed.
    pub bulk_idle: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            grace: Duration::from_millis(2500),
            heartbeat: Duration::from_millis(500),
            acknowledgement: Duration::from_millis(20),
            handshake: Duration::from_secs(5),
            redial_first: Duration::from_millis(10),
            redial_max: Duration::from_millis(200),
            redial_attempt: Duration::from_secs(1),
            bulk_stall: Duration::from_secs(5),
            bulk_idle: Duration::from_secs(20),
        }
    }
}
