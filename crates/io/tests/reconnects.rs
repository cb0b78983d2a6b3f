//! Links whose connections are cut, stalled and refused: every frame arrives once and in order, or both ends hear that
//! the link is over.

mod support;

use aktis_io::{LinkEnd, Role, Timing};
use std::time::{Duration, Instant};
use support::proxy::{Proxy, Random};
use support::{Cluster, End, Station};

const FRAMES: usize = 1500;

/// Short, but long enough that a busy machine does not look like a dead one.
fn short() -> Timing {
    Timing { grace: Duration::from_secs(1), heartbeat: Duration::from_millis(100), ..Timing::default() }
}

fn long() -> Timing {
    Timing { grace: Duration::from_secs(60), redial_max: Duration::from_millis(20), ..Timing::default() }
}

fn frames(seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let length = |random: &mut Random| match random.below(100) {
        0 => random.below(30_000),
        1..20 => random.below(3000),
        _ => random.below(100),
    };
    let frame = |index: usize| {
        let mut frame = vec![index as u8; length(&mut random)];
        frame.extend_from_slice(&index.to_le_bytes());
        frame
    };
    (0..FRAMES).map(frame).collect()
}

/// Sends from a thread of its own, since nothing is said about how fast it goes.
fn send_all(end: &End, frames: Vec<Vec<u8>>, seed: u64) -> std::thread::JoinHandle<()> {
    let link = end.link.clone();
    std::thread::spawn(move || {
        let mut random = Random(seed);
        for frame in frames {
            match random.below(3) {
                0 => link.send(frame).expect("room"),
                1 => link.queue(frame).expect("room"),
                _ => {
                    link.queue(frame).expect("room");
                    link.flush();
                }
            }
        }
        link.flush();
    })
}

#[test]
fn every_frame_arrives_once_and_in_order_however_connections_are_cut() {
    let cluster = Cluster::new();
    let seeds = std::env::var("AKTIS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .map_or(1..6, |seed| seed..seed + 1);
    for seed in seeds {
        println!("seed {seed}");
        let (a, b) = cluster.pair(long());
        let mut random = Random(seed * 7919);
        let mut is_first = true;
        let proxy = Proxy::new(b.endpoint.address(), move || {
            // The first has to be good for a hello, since `dial` does not dial again.
            let least = if std::mem::take(&mut is_first) { 10_000 } else { 1 };
            // Some carry the longest frame in both directions, or it would never arrive.
            let most = if random.below(4) == 0 { 200_000 } else { 20_000 };
            least + random.below(most)
        });
        let near = a.dial_at(&b, proxy.address, b"");
        let far = b.next_incoming().end;
        let (there, back) = (frames(seed), frames(seed + 1000));
        let senders = [send_all(&near, there.clone(), seed), send_all(&far, back.clone(), seed + 5)];
        assert!(far.frames(FRAMES) == there, "seed {seed}");
        assert!(near.frames(FRAMES) == back, "seed {seed}");
        senders.into_iter().for_each(|sender| sender.join().expect("it sends"));
        assert!(proxy.connections() > 5, "{} connections are not a test", proxy.connections());
    }
}

#[test]
fn a_link_survives_an_outage_that_is_shorter_than_the_grace_time() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair(short());
    let proxy = Proxy::transparent(b.endpoint.address());
    let near = a.dial_at(&b, proxy.address, b"");
    let far = b.next_incoming().end;
    proxy.refuse(true);
    proxy.cut();
    near.link.send(vec![1]).expect("room");
    far.link.send(vec![2]).expect("room");
    let quiet = far.events.recv_timeout(short().grace / 3);
    assert!(quiet.is_err(), "{quiet:?}");
    proxy.refuse(false);
    assert_eq!((far.frames(1), near.frames(1)), (vec![vec![1]], vec![vec![2]]));
    assert!(proxy.connections() >= 2);
}

#[test]
fn both_ends_hear_of_the_death_of_a_link_within_the_grace_time() {
    let cluster = Cluster::new();
    for cut in [false, true] {
        let (a, b) = cluster.pair(short());
        let proxy = Proxy::transparent(b.endpoint.address());
        let near = a.dial_at(&b, proxy.address, b"");
        let far = b.next_incoming().end;
        let start = Instant::now();
        proxy.stall();
        if cut {
            proxy.refuse(true);
            proxy.cut();
        }
        for end in [&near, &far] {
            assert_eq!(end.end(), LinkEnd::Silent(short().grace), "cut: {cut}");
            let took = start.elapsed();
            let heard_at = short().grace - short().heartbeat * 2;
            assert!(took > heard_at && took < short().grace * 3, "{took:?}");
        }
        assert_eq!((a.endpoint.links(), b.endpoint.links()), (0, 0));
    }
}

#[test]
fn a_node_that_was_restarted_does_not_know_the_links_it_had() {
    let cluster = Cluster::new();
    let (a, first) = cluster.pair(long());
    let identity = cluster.authority.issue(first.endpoint.node(), Role::Node).expect("an identity");
    let second = Station::new(identity, aktis_io::EndpointOptions { timing: long(), ..Default::default() });
    // The proxy stands for the address, which the second life takes over.
    let target = std::sync::Arc::new(std::sync::Mutex::new(first.endpoint.address()));
    let proxy = Proxy::to(std::sync::Arc::clone(&target), || usize::MAX);
    let near = a.dial_at(&first, proxy.address, b"");
    drop(first.next_incoming());
    *target.lock().expect("no panic") = second.endpoint.address();
    proxy.cut();
    let end = near.end();
    assert!(matches!(end, LinkEnd::Forgotten(_)), "{end:?}");
    first.endpoint.close("");
}

#[test]
fn the_reason_of_a_close_arrives_also_after_a_cut() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair(short());
    let proxy = Proxy::transparent(b.endpoint.address());
    let near = a.dial_at(&b, proxy.address, b"");
    let far = b.next_incoming().end;
    proxy.cut();
    // This arrives over the second connection.
    near.link.send(vec![1]).expect("room");
    assert_eq!(far.frames(1), [[1]]);
    near.link.close("done");
    assert_eq!(far.end(), LinkEnd::ClosedByPeer("done".to_owned()));
    assert_eq!(near.end(), LinkEnd::ClosedHere("done".to_owned()));
}
