//! Connections for bulk transfers that nobody uses at present, for the next pull.

use super::STREAMS_MAX;
use crate::frame::{self, Kind};
use crate::hello::Hello;
use crate::identity::{Name, Role};
use crate::timing::Timing;
use crate::tls;
use crate::wire::{Wire, WireError};
use aktis_protocol::NodeId;
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Somebody to pull from.
pub(super) type Place = (NodeId, SocketAddr);

/// Keeps connections, no more than [`STREAMS_MAX`] to a place.
#[derive(Default)]
pub(crate) struct Pool(Mutex<HashMap<Place, Vec<(Wire, Instant)>>>);

impl Pool {
    /// One that was used before.
    pub(super) fn take(&self, place: Place) -> Option<Wire> {
        let mut idle = self.0.lock();
        Some(idle.get_mut(&place)?.pop()?.0)
    }

    /// Keeps one for the next pull, and gives up those that have been here for so long that the other side may have.
    pub(super) fn put(&self, place: Place, wire: Wire, timing: &Timing) {
        let now = Instant::now();
        let mut idle = self.0.lock();
        idle.retain(|_, wires| {
            wires.retain(|(_, since)| now < *since + timing.bulk_idle / 2);
            !wires.is_empty()
        });
        let wires = idle.entry(place).or_default();
        if wires.len() < STREAMS_MAX {
            wires.push((wire, now));
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// Dials for bulk transfers. The hello leaves with the first request.
pub(super) fn connect(
    (node, address): Place,
    configuration: &Arc<ClientConfig>,
    timing: &Timing,
) -> Result<Wire, WireError> {
    let name = tls::server_name(Name { node, role: Role::Node });
    let mut wire = Wire::connect(address, configuration, name, Instant::now() + timing.handshake)?;
    let mut hello = Vec::new();
    frame::append(Kind::Hello, &Hello::Bulk.encode(), &mut hello);
    wire.write(&hello)?;
    Ok(wire)
}
