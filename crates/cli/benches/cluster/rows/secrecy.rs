//! What a reader on the wire sees of values, and of the token: nothing.

use super::{HERE, Outcome, check, empty, make};
use crate::Failure;
use crate::arguments::Scale;
use crate::capture::Capture;
use crate::cluster::Cluster;
use crate::echo::Echo;
use crate::figure::{Bound, Figure, Unit};
use crate::network::Network;
use aktis::prelude::*;

/// Fills values, and is what is looked for in the packets.
const SECRET: u8 = 0xA7;
const SECRET_BYTES: usize = 24;
const VALUE_BYTES: usize = 8_000_000;

#[remote]
fn length(value: Vec<u8>) -> usize {
    value.len()
}

pub(super) fn measure(_: Scale) -> Outcome {
    let network = Network::new(2)?;
    let mut cluster = Cluster::begin(&network.machines[0], &["--cpus", "0", "--store-bytes", "256MiB"])?;
    let token = cluster.token.clone();
    // A word may be cut by the end of a packet, but then one half of it is whole.
    let (left, right) = token.as_bytes().split_at(token.len() / 2);
    let secret = [SECRET; SECRET_BYTES];
    let capture = Capture::start(&network, &[&secret, left, right])?;
    let far = ["--cpus", "1", "--resource", "here=1", "--store-bytes", "256MiB"];
    cluster.add(&network.machines[1], &far)?;
    cluster.wait_for_members()?;
    use_both_ways(&cluster)?;
    let seen = capture.end()?;
    if seen.bytes < 2 * VALUE_BYTES as u64 {
        return Err(format!("only {} bytes were seen: most of the wire was not read", seen.bytes).into());
    }
    control(&network)?;
    let detail = format!(
        "{} packets with {:.1} MB read; plain TCP beside it was recognised",
        seen.packets,
        seen.bytes as f64 / 1e6
    );
    Ok(vec![
        Figure::new("packets with plain text in them", seen.hits as f64, Unit::Count)
            .wanted(Bound::AtMost(0.0))
            .detail(detail),
    ])
}

/// Small and large values go there and come back.
fn use_both_ways(cluster: &Cluster) -> Result<(), Failure> {
    let session = cluster.head().session()?;
    let _entered = session.enter();
    check("a task", empty::remote().get()?, 1)?;
    for bytes in [2000, VALUE_BYTES] {
        let found = length::options().resource(HERE, 1).remote(vec![SECRET; bytes]).get()?;
        check("a value that goes", found as u64, bytes as u64)?;
        let found = make::options().resource(HERE, 1).remote(bytes, SECRET).get()?.len();
        check("a value that comes", found as u64, bytes as u64)?;
    }
    Ok(())
}

/// The same reader finds what is not encrypted.
fn control(network: &Network) -> Result<(), Failure> {
    let capture = Capture::start(network, &[&[7; 64]])?;
    Echo::start(&network.machines[1])?.times(&network.machines[0], 1)?;
    let seen = capture.end()?;
    if seen.hits == 0 { Err("the reader does not even find plain text".into()) } else { Ok(()) }
}
