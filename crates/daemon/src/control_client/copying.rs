//! Copying objects from other nodes.

use super::ControlClient;
use super::fetchers::Fetch;
use aktis_io::{Destination, PullError};
use aktis_logic::machine::node::NodeInput;
use aktis_node::journal;
use aktis_protocol::{ObjectId, ProcessSlot};
use aktis_store::StoreError;
use std::time::{Duration, Instant};

/// Connections over which one object is copied.
const STREAMS: usize = 2;

/// The pause before an object is copied again over other connections.
const PULL_AGAIN: Duration = Duration::from_millis(50);

/// How long nothing of an object may come from the node that has it before it is given up.
const PULL_PATIENCE: Duration = Duration::from_secs(30);

/// How many nodes may send an object's reader to the next, one after the other.
const HOPS_MAX: usize = 4;

impl ControlClient {
    pub(super) fn fetch(&self, Fetch { entry, object, peer, offset }: Fetch) {
        let filled = self
            .host
            .arena()
            .refill(entry, offset, |place| self.pull(object, peer, place).map_err(StoreError::Elsewhere));
        let outcome = filled.map_err(|error| error.to_string());
        self.host.feed(NodeInput::Restored { entry, outcome });
    }

    /// Copies an object. Connections come and go: the node has it for as long as there is a link to that. But one that
    /// sends nothing for long is as good as gone.
    fn pull(&self, object: ObjectId, peer: ProcessSlot, place: &mut [u8]) -> Result<(), String> {
        let mut destination = Destination::new(place);
        let mut progress = Instant::now();
        loop {
            let left = destination.parts_left();
            let why = match self.pull_from(object, peer, &mut destination) {
                Ok(()) => return Ok(()),
                Err(Failed::ForGood(why)) => return Err(why),
                Err(Failed::ForNow(why)) => why,
            };
            if destination.parts_left() < left {
                progress = Instant::now();
            }
            if progress.elapsed() >= PULL_PATIENCE {
                let text = format!("nothing of it has come for {} s: {why}", PULL_PATIENCE.as_secs());
                journal::warn(format_args!("object {object} could not be copied from another node: {text}"));
                return Err(text);
            }
            std::thread::sleep(PULL_AGAIN);
        }
    }

    /// Copies what is missing of an object from the node that a process stands for, or from whoever that says has it.
    fn pull_from(
        &self,
        object: ObjectId,
        peer: ProcessSlot,
        destination: &mut Destination<'_>,
    ) -> Result<(), Failed> {
        let gone = || Failed::ForGood("the node that had it is gone".to_owned());
        let (first, mut address) = self.neighbours.node_of(peer).ok_or_else(gone)?;
        let mut node = first;
        for _ in 0..HOPS_MAX {
            let endpoint = self.endpoint.upgrade();
            let endpoint = endpoint.ok_or_else(|| Failed::ForGood("this node ends".to_owned()))?;
            let (began, bytes) = (Instant::now(), destination.bytes_left());
            match endpoint.pull_rest(node, address, object, destination, STREAMS) {
                Ok(()) => {
                    self.speeds.lock().note(node, bytes, began.elapsed());
                    return Ok(());
                }
                Err(PullError::Elsewhere(next)) if next != self.me => {
                    match self.neighbours.address_of(next) {
                        Some(there) => (node, address) = (next, there),
                        None => return Err(insist(destination, format!("node {next} is not known here"))),
                    }
                }
                // The first knows how to get it, or will find out that nobody can.
                Err(error) if node != first => return Err(insist(destination, error.to_string())),
                Err(error) if error.passes() => return Err(Failed::ForNow(error.to_string())),
                Err(error) => return Err(Failed::ForGood(error.to_string())),
            }
        }
        Err(insist(destination, "each node says that the next has it".to_owned()))
    }
}

/// Why an object was not copied.
enum Failed {
    /// It may be otherwise in a moment.
    ForNow(String),
    /// It will not.
    ForGood(String),
}

/// Whoever was said to have an object cannot give it: the one who said so shall get it from there.
fn insist(destination: &mut Destination<'_>, why: String) -> Failed {
    destination.insist();
    Failed::ForNow(why)
}
