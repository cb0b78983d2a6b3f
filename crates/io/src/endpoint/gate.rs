//! How many may stand at the door: connections that have not shown who they are.

use aktis_protocol::limits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Counts them, in all and by address.
#[derive(Default)]
pub(super) struct Gate(Mutex<HashMap<IpAddr, usize>>);

/// The right to stand there; given back when dropped.
pub(super) struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Lets one more in, if there is room.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Pass> {
        let mut standing = self.0.lock();
        if standing.values().sum::<usize>() >= limits::HANDSHAKES_MAX {
            return None;
        }
        let here = standing.entry(address).or_default();
        if *here >= limits::HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        *here += 1;
        Some(Pass { gate: Arc::clone(self), address })
    }

    /// How many stand there.
    #[cfg(test)]
    fn standing(&self) -> usize {
        self.0.lock().values().sum()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut standing = self.gate.0.lock();
        if let Some(here) = standing.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                standing.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_address_cannot_take_all_the_room() {
        let gate = Gate::new();
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let crowd: Vec<_> = std::iter::from_fn(|| gate.enter(address(1))).collect();
        assert_eq!(crowd.len(), limits::HANDSHAKES_PER_ADDRESS_MAX);
        let other = gate.enter(address(2));
        assert!(other.is_some());
        drop(crowd);
        assert_eq!(gate.standing(), 1);
        assert!(gate.enter(address(1)).is_some());
    }

    #[test]
    fn there_is_an_end_to_all_of_them_and_nothing_is_left() {
        let gate = Gate::new();
        let address = |number: usize| IpAddr::V4(Ipv4Addr::from(number as u32));
        let passes: Vec<_> = (0..10_000).filter_map(|number| gate.enter(address(number))).collect();
        assert_eq!(passes.len(), limits::HANDSHAKES_MAX);
        drop(passes);
        assert!(gate.0.lock().is_empty());
    }
}
