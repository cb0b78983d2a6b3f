//! The connections through which objects are served at present, so that there is an end to them.

use aktis_protocol::limits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// Counts them, and can close them all.
#[derive(Default)]
pub(super) struct Servings(Mutex<State>);

#[derive(Default)]
struct State {
    sockets: HashMap<u64, Arc<TcpStream>>,
    next: u64,
    closed: bool,
}

/// One of them, until it is dropped.
pub(super) struct Serving<'a> {
    servings: &'a Servings,
    number: u64,
}

impl Servings {
    /// Takes one more on the list, if there is room.
    pub(super) fn begin(&self, socket: &Arc<TcpStream>) -> Option<Serving<'_>> {
        let mut state = self.0.lock();
        if state.closed || state.sockets.len() >= limits::BULK_CONNECTIONS_MAX {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.sockets.insert(number, Arc::clone(socket));
        Some(Serving { servings: self, number })
    }

    /// Closes all, for ever.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        for socket in state.sockets.values() {
            // It may be closed from the other side already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.servings.0.lock().sockets.remove(&self.number);
    }
}
