//! Connections for bulk transfers: those that nobody uses at present, and how many are in use.

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

/// Connections to one place with which pulls go faster. Each pull has one beside them; so many pulls at once do not
/// look like an attack there, which lets in no more than `HANDSHAKES_PER_ADDRESS_MAX` at the same time.
const FURTHER_STREAMS_MAX: usize = 2 * STREAMS_MAX;

/// Somebody to pull from.
pub(super) type Place = (NodeId, SocketAddr);

/// Keeps connections, no more than [`STREAMS_MAX`] to a place.
#[derive(Default)]
pub(crate) struct Pool(Mutex<HashMap<Place, Lot>>);

/// The connections to one place.
#[derive(Default)]
struct Lot {
    idle: Vec<(Wire, Instant)>,
    used: usize,
}

/// What a stream may use.
pub(super) enum Taken {
    /// One that was used before.
    Kept(Box<Wire>),
    /// A new one.
    New,
}

impl Pool {
    /// A connection for a stream; it is [given back](Self::give) afterwards. Further streams of a pull may get none.
    pub(super) fn take(&self, place: Place, is_further: bool) -> Option<Taken> {
        let mut lots = self.0.lock();
        let lot = lots.entry(place).or_default();
        if is_further && lot.used >= FURTHER_STREAMS_MAX {
            return None;
        }
        lot.used += 1;
        Some(lot.idle.pop().map_or(Taken::New, |(wire, _)| Taken::Kept(wire.into())))
    }

    /// Takes a connection back, if it still works, and gives up those that have been here for so long that the other
    /// side may have.
    pub(super) fn give(&self, place: Place, wire: Option<Wire>, timing: &Timing) {
        let now = Instant::now();
        let mut lots = self.0.lock();
        let lot = lots.entry(place).or_default();
        lot.used = lot.used.saturating_sub(1);
        if lot.idle.len() < STREAMS_MAX {
            lot.idle.extend(wire.map(|wire| (wire, now)));
        }
        lots.retain(|_, lot| {
            lot.idle.retain(|(_, since)| now < *since + timing.bulk_idle / 2);
            lot.used > 0 || !lot.idle.is_empty()
        });
    }

    /// Closes those that nobody uses.
    pub(crate) fn clear(&self) {
        self.0.lock().values_mut().for_each(|lot| lot.idle.clear());
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
