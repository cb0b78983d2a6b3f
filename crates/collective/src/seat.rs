//! How members find each other: each opens a seat, all exchange the cards of their seats, and each joins with all cards.
//!
//! Cards travel through a channel that the members trust, such as calls of actors. They hold no private key, but whoever
//! has them could take a member's place on its machine: they are for the members alone.
//!
//! On each machine the member with the lowest rank makes the board, and gives it to the others through a Unix socket
//! without a name in the file system.

use crate::error::{CollectiveError, Result};
use crate::group::Group;
use crate::local::{Local, has_ended, slot_bytes};
use crate::net::Net;
use aktis_io::PinnedIdentity;
use aktis_store::board::BOARD_MEMBERS_MAX;
use aktis_store::{Board, Presence};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// The most members of a group.
pub const MEMBERS_MAX: usize = 4096;
/// How long a stranger at the Unix socket may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// How often a member that waits for others to join looks after them.
const SLICE: Duration = Duration::from_millis(50);

type Secret = [u8; 16];

/// What the other members need to know of a seat. It can be sent as any other value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    place: String,
    pid: u32,
    socket: String,
    secret: Secret,
    address: Option<SocketAddr>,
    fingerprint: [u8; 32],
}

impl Card {
    /// The card as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("cards are plain values")
    }

    /// The card that [`to_bytes`](Self::to_bytes) has written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = |_| {
            CollectiveError::Setup(
                "a card cannot be read\nhint: all members must have the same version".to_owned(),
            )
        };
        postcard::from_bytes(bytes).map_err(wrong)
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}

/// A place in a group that is not yet made.
pub struct Seat {
    card: Card,
    identity: PinnedIdentity,
    socket: UnixListener,
    listener: Option<TcpListener>,
}

impl Seat {
    /// Opens a seat. Members with the same `place` share memory: it names the machine, as a node's id does. With an `address`
    /// of this machine, the group may span machines.
    ///
    /// ```
    /// let seat = aktis_collective::Seat::open("this machine", None)?;
    /// let cards = [seat.card().clone()];
    /// let group = seat.join(0, &cards, aktis_collective::Options::default())?;
    /// assert_eq!((group.rank(), group.size()), (0, 1));
    /// # Ok::<(), aktis_collective::CollectiveError>(())
    /// ```
    pub fn open(place: &str, address: Option<IpAddr>) -> Result<Self> {
        let refused = |what: &str, error: io::Error| CollectiveError::Setup(format!("{what}: {error}"));
        let identity = PinnedIdentity::new().map_err(|error| CollectiveError::Setup(error.to_string()))?;
        let secret = random()?;
        let name: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("aktis-collective-{name}");
        let socket =
            UnixAddress::from_abstract_name(&name).and_then(|address| UnixListener::bind_addr(&address));
        let socket = socket.map_err(|error| refused("no Unix socket for the group", error))?;
        let listener = match address {
            None => None,
            Some(ip) => {
                let hint =
                    format!("cannot listen on {ip}\nhint: `address` must be an address of this machine");
                Some(TcpListener::bind((ip, 0)).map_err(|error| refused(&hint, error))?)
            }
        };
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let fingerprint = identity.fingerprint();
        let card = Card {
            place: place.to_owned(),
            pid: std::process::id(),
            socket: name,
            secret,
            address,
            fingerprint,
        };
        Ok(Self { card, identity, socket, listener })
    }

    /// What the other members need to know of this seat.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Becomes the member `rank` of the group of all these cards, in the order of ranks. Waits for all others.
    pub fn join(self, rank: usize, cards: &[Card], options: crate::Options) -> Result<Group> {
        let size = cards.len();
        if size == 0 || size > MEMBERS_MAX || cards.get(rank) != Some(&self.card) {
            return Err(CollectiveError::Invalid(format!(
                "card {rank} of {size} is not the card of this seat\nhint: give the cards of all members in the order of ranks, at most {MEMBERS_MAX}"
            )));
        }
        let places = places(cards);
        let own_place = places.iter().position(|ranks| ranks.contains(&rank)).expect("each rank has a place");
        let ranks = places[own_place].clone();
        if ranks.len() > BOARD_MEMBERS_MAX {
            return Err(CollectiveError::Invalid(format!(
                "{} members are on one machine, and {BOARD_MEMBERS_MAX} are the most\nhint: use fewer, larger members",
                ranks.len()
            )));
        }
        let deadline = Instant::now() + options.timeout;
        let board = if ranks[0] == rank {
            self.serve_board(&ranks, cards, deadline, &options)
        } else {
            self.fetch_board(rank, &ranks, cards, deadline)
        }?;
        let local = wait_for_members(board, ranks, cards, deadline, &options)?;
        let net = match (places.len(), self.listener) {
            (1, _) => None,
            (_, None) => {
                return Err(CollectiveError::Invalid(
                    "the group spans machines, but this seat has no address\nhint: open all seats with an address".to_owned(),
                ));
            }
            (_, Some(listener)) => {
                let leaders: Vec<usize> = places.iter().map(|ranks| ranks[0]).collect();
                Some(Net::start(self.identity, listener, rank, cards, &leaders, own_place, &local, deadline)?)
            }
        };
        Ok(Group::new(rank, self.card, places, own_place, local, net, options))
    }

    /// Makes the board and gives it to the other members on this machine.
    fn serve_board(
        &self,
        ranks: &[usize],
        cards: &[Card],
        deadline: Instant,
        options: &crate::Options,
    ) -> Result<Board> {
        let setup =
            |error: io::Error| CollectiveError::Setup(format!("no shared memory for the group: {error}"));
        let board = Board::create(ranks.len(), 0, slot_bytes(ranks.len())).map_err(setup)?;
        let mut missing: Vec<usize> = ranks[1..].to_vec();
        self.socket.set_nonblocking(true).map_err(setup)?;
        while !missing.is_empty() {
            if !wait_readable(self.socket.as_fd(), deadline.min(Instant::now() + SLICE)) {
                look_after(ranks[0], &missing, cards, deadline, options)?;
                continue;
            }
            let Ok((stream, _)) = self.socket.accept() else { continue };
            if let Some(rank) = introduction(&stream, &missing, cards)
                && send_fd(&stream, board.fd()).is_ok()
            {
                missing.retain(|other| *other != rank);
            }
        }
        Ok(board)
    }

    /// Gets the board from the member that has made it.
    fn fetch_board(&self, rank: usize, ranks: &[usize], cards: &[Card], deadline: Instant) -> Result<Board> {
        let maker = ranks[0];
        let died = |error: io::Error| CollectiveError::MemberDied {
            rank: maker,
            reason: format!("it was gone before the group was made ({error})"),
        };
        let address = UnixAddress::from_abstract_name(&cards[maker].socket).map_err(died)?;
        let mut stream = UnixStream::connect_addr(&address).map_err(died)?;
        let mut message = self.card.secret.to_vec();
        message.extend((rank as u64).to_le_bytes());
        stream.write_all(&message).map_err(died)?;
        if !wait_readable(stream.as_fd(), deadline) {
            return Err(late(rank, &[maker]));
        }
        let fd = receive_fd(&stream).map_err(died)?;
        let own = ranks.iter().position(|other| *other == rank).expect("it is on this machine");
        Board::open(fd, own)
            .map_err(|error| CollectiveError::Setup(format!("the group's shared memory: {error}")))
    }
}

/// The ranks on each machine, in order; machines in the order of their lowest ranks.
fn places(cards: &[Card]) -> Vec<Vec<usize>> {
    let mut places: Vec<Vec<usize>> = Vec::new();
    for (rank, card) in cards.iter().enumerate() {
        match places.iter_mut().find(|ranks| cards[ranks[0]].place == card.place) {
            Some(ranks) => ranks.push(rank),
            None => places.push(vec![rank]),
        }
    }
    places
}

fn random() -> Result<Secret> {
    let mut bytes = Secret::default();
    let flags = rustix::rand::GetRandomFlags::empty();
    match rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, flags)) {
        Ok(filled) if filled == bytes.len() => Ok(bytes),
        _ => Err(CollectiveError::Setup("the system has no random numbers".to_owned())),
    }
}

/// The rank of a member that shows its secret.
fn introduction(mut stream: &UnixStream, missing: &[usize], cards: &[Card]) -> Option<usize> {
    stream.set_read_timeout(Some(INTRODUCTION)).ok()?;
    let mut message = [0; 24];
    stream.read_exact(&mut message).ok()?;
    let rank = u64::from_le_bytes(message[16..].try_into().ok()?) as usize;
    (missing.contains(&rank) && cards[rank].secret[..] == message[..16]).then_some(rank)
}

fn send_fd(stream: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(stream, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_fd(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"))
}

fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
        match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(1..) => return true,
            Ok(_) if left.is_zero() => return false,
            _ => {}
        }
    }
}

fn late(rank: usize, missing: &[usize]) -> CollectiveError {
    CollectiveError::Setup(format!(
        "rank {rank} waited in vain for {} to join the group\nhint: all members must join; is one of them still waiting to be placed?",
        crate::error::ranks(missing)
    ))
}

/// Whether to go on waiting for members on this machine that have not come yet.
fn look_after(
    rank: usize,
    missing: &[usize],
    cards: &[Card],
    deadline: Instant,
    options: &crate::Options,
) -> Result<()> {
    for other in missing {
        let pid = i32::try_from(cards[*other].pid).ok().and_then(Pid::from_raw);
        let process = pid.ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        if matches!(process, Err(Errno::SRCH)) || process.is_ok_and(|process| has_ended(&process)) {
            let reason =
                format!("its process (pid {}) has ended before the group was made", cards[*other].pid);
            return Err(CollectiveError::MemberDied { rank: *other, reason });
        }
    }
    if (options.interrupted)() {
        return Err(CollectiveError::Interrupted { rank });
    }
    if Instant::now() >= deadline { Err(late(rank, missing)) } else { Ok(()) }
}

fn wait_for_members(
    board: Board,
    ranks: Vec<usize>,
    cards: &[Card],
    deadline: Instant,
    options: &crate::Options,
) -> Result<Local> {
    while !board.wait_for_members() {
        if let Some(bytes) = board.alarm().failure() {
            return Err(CollectiveError::decode(&bytes));
        }
        let absent = |place: &usize| board.presence(*place) == Presence::Absent;
        let missing: Vec<usize> = (0..ranks.len()).filter(absent).map(|place| ranks[place]).collect();
        look_after(ranks[board.own()], &missing, cards, deadline, options)?;
    }
    Local::new(board, ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(place: &str) -> Card {
        Seat::open(place, None).expect("a seat").card().clone()
    }

    #[test]
    fn ranks_are_grouped_by_place() {
        let cards = [card("a"), card("b"), card("a"), card("c"), card("b")];
        assert_eq!(places(&cards), [vec![0, 2], vec![1, 4], vec![3]]);
    }

    #[test]
    fn cards_survive_the_way_to_bytes_and_back() {
        let card = card("a");
        assert_eq!(Card::from_bytes(&card.to_bytes()), Ok(card));
        assert!(Card::from_bytes(&[1, 2, 3]).is_err());
    }
}
