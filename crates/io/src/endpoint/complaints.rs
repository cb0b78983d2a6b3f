//! Says once a minute what it would say a thousand times: who was refused, and why.

use super::Log;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The same is said again after this time.
const INTERVAL: Duration = Duration::from_secs(60);
/// Addresses and kinds that are remembered; while there are so many, no new one is complained about.
const REMEMBERED_MAX: usize = 1024;

/// What is complained about. Each kind is said for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// There are too many connections.
    Crowd,
    /// The TLS handshake failed.
    Tls,
    /// No known protocol was offered.
    Protocol,
    /// It took too long.
    Late,
    /// It went away before it said anything.
    Gone,
    /// The certificate has a strange name.
    Name,
    /// What it said makes no sense.
    Hello,
    /// It is another version.
    Version,
    /// The join token is no good.
    Token,
    /// The node did not want it.
    Unwanted,
    /// Connections cannot be accepted at all.
    System,
}

/// Remembers what was said.
pub(super) struct Complaints {
    said: Mutex<HashMap<(IpAddr, Kind), Instant>>,
    log: Log,
}

impl Complaints {
    pub(super) fn new(log: Option<Log>) -> Self {
        Self { said: Mutex::default(), log: log.unwrap_or_else(|| Arc::new(|line| eprintln!("{line}"))) }
    }

    /// Says that `address` was refused, unless that was said of late.
    pub(super) fn say(&self, address: IpAddr, kind: Kind, why: &dyn Display) {
        if self.is_new(address, kind, Instant::now()) {
            (self.log)(&format!("aktis: refused a connection from {address}: {why}"));
        }
    }

    fn is_new(&self, address: IpAddr, kind: Kind, now: Instant) -> bool {
        let mut said = self.said.lock();
        if said.get(&(address, kind)).is_some_and(|at| now < *at + INTERVAL) {
            return false;
        }
        if said.len() >= REMEMBERED_MAX {
            said.retain(|_, at| now < *at + INTERVAL);
        }
        if said.len() >= REMEMBERED_MAX {
            return false;
        }
        said.insert((address, kind), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_same_is_said_once_a_minute_and_the_memory_is_bounded() {
        let complaints = Complaints::new(Some(Arc::new(|_| {})));
        let start = Instant::now();
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        assert!(complaints.is_new(address(1), Kind::Tls, start));
        assert!(!complaints.is_new(address(1), Kind::Tls, start + INTERVAL / 2));
        assert!(complaints.is_new(address(1), Kind::Late, start));
        assert!(complaints.is_new(address(2), Kind::Tls, start));
        assert!(complaints.is_new(address(1), Kind::Tls, start + INTERVAL));
        let later = start + INTERVAL * 2;
        let said =
            (0..100_000).filter(|number| complaints.is_new(address(*number), Kind::Tls, later)).count();
        assert!((REMEMBERED_MAX - 3..=REMEMBERED_MAX).contains(&said), "{said}");
        assert!(complaints.said.lock().len() <= REMEMBERED_MAX);
    }
}
