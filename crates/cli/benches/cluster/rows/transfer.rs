//! One large object from one node to another, next to one stream of `iperf3` between the same machines.

use super::{HERE, Outcome, check, make};
use crate::arguments::Scale;
use crate::cluster::{Cluster, PATIENCE};
use crate::figure::{Bound, Figure, Unit};
use crate::network::Network;
use crate::samples::{Samples, timed};
use crate::{Failure, iperf, progress};
use aktis::Session;

const BYTES: usize = 1_000_000_000;
/// Of what `iperf3` does.
const SHARE_WANTED: f64 = 0.8;

/// As fast as many networks are.
pub(super) fn one_gigabit(scale: Scale) -> Outcome {
    measure("1 Gbit/s", Some(1_000_000_000), scale, scale.pick(1, 3))
}

/// As fast as those of data centres are.
pub(super) fn ten_gigabit(scale: Scale) -> Outcome {
    measure("10 Gbit/s", Some(10_000_000_000), scale, scale.pick(3, 9))
}

/// As fast as memory is: two cores do all the work, of both machines, of both programs.
pub(super) fn unlimited(scale: Scale) -> Outcome {
    measure("unlimited", None, scale, scale.pick(3, 9))
}

fn measure(network_name: &str, bits_per_second: Option<u64>, scale: Scale, rounds: u32) -> Outcome {
    iperf::install()?;
    let network = Network::new(2)?;
    bits_per_second.map_or(Ok(()), |limit| network.limit(limit))?;
    let near = ["--cpus", "0", "--store-bytes", "3GiB"];
    let far = ["--cpus", "1", "--resource", "here=1", "--store-bytes", "3GiB"];
    let cluster = Cluster::on(&network, &[&near, &far])?;
    let session = cluster.head().session()?;
    let first = copy(&session)?;
    let (mut speeds, mut streams) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        progress::say(format_args!("  {round} of {rounds}"));
        streams.push(iperf::stream(&network.machines[1], &network.machines[0], scale.pick(2, 4))? / 1e9);
        speeds.push(copy(&session)?);
    }
    let shares = speeds.iter().zip(&streams).map(|(speed, stream)| speed / stream).collect();
    let (speeds, streams, shares) = (Samples::new(speeds), Samples::new(streams), Samples::new(shares));
    let detail = format!(
        "median of {rounds}; by rounds {:.2} x ({:.2} to {:.2}); into fresh memory {first:.2}",
        shares.median(),
        shares.least(),
        shares.most()
    );
    let name = format!("1 GB between nodes, {network_name}, TLS");
    Ok(vec![
        Figure::new(name, speeds.median(), Unit::GigabytesPerSecond)
            .wanted(Bound::AtLeast(SHARE_WANTED * streams.median()))
            .limit("iperf3", streams.median())
            .detail(detail),
    ])
}

/// Has an object made on the other node, and copies it here; gives the billions of bytes per second.
fn copy(session: &Session) -> Result<f64, Failure> {
    let _entered = session.enter();
    let object = make::options().resource(HERE, 1).remote(BYTES, 7);
    let (ready, _) = aktis::wait(vec![object.clone()], 1, Some(PATIENCE))?;
    check("making an object", ready.len() as u64, 1)?;
    let (time, array) = timed(|| object.get())?;
    check("the bytes of an object", array.iter().step_by(4096).map(|byte| u64::from(*byte)).sum(), SUM)?;
    Ok(BYTES as f64 / time.as_secs_f64() / 1e9)
}

/// Of one byte in each page.
const SUM: u64 = 7 * (BYTES as u64).div_ceil(4096);
