//! Groups whose members are threads; places make them machines.

#![allow(dead_code, reason = "each test uses a part of it")]

use aktis_collective::{Card, Group, Options, Seat};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs `member` on a thread for each place; what they give, in the order of ranks.
pub(crate) fn run<R: Send>(places: &[&str], member: impl Fn(&mut Group) -> R + Sync) -> Vec<R> {
    run_with(places, Duration::from_secs(40), member)
}

/// The same with a timeout.
pub(crate) fn run_with<R: Send>(
    places: &[&str],
    timeout: Duration,
    member: impl Fn(&mut Group) -> R + Sync,
) -> Vec<R> {
    let seats: Vec<Seat> =
        places.iter().map(|place| Seat::open(place, Some(LOOPBACK)).expect("a seat")).collect();
    let cards: Vec<Card> = seats.iter().map(|seat| seat.card().clone()).collect();
    std::thread::scope(|scope| {
        let (cards, member) = (&cards, &member);
        let run = |(rank, seat): (usize, Seat)| {
            scope.spawn(move || {
                // Joining has time; the operations have what the test says.
                let mut group = seat.join(rank, cards, Options::default()).expect("all join");
                group.set_timeout(timeout);
                member(&mut group)
            })
        };
        let threads: Vec<_> = seats.into_iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}
