//! Collective operations among processes: reduce, gather and broadcast arrays, send and receive them.
//!
//! Members on one machine share memory; between machines, one member of each talks to the others through encrypted
//! streams. When a member dies, each operation that needs it fails at all others, and says which member it was.
//!
//! Members meet in two steps. Each opens a [`Seat`], and its [`Card`] travels to all others, such as through calls of
//! actors. With all cards each one joins, which gives its [`Group`]:
//!
//! ```
//! use aktis::prelude::*;
//! use aktis_collective::{Card, Group, Options, ReduceOp, Seat};
//!
//! #[derive(Default)]
//! struct Member {
//!     seat: Option<Seat>,
//!     group: Option<Group>,
//! }
//!
//! #[actor]
//! impl Member {
//!     fn new() -> Self {
//!         Self::default()
//!     }
//!     fn open(&mut self) -> Card {
//!         let seat = Seat::open(&aktis::node().unwrap().to_string(), None).unwrap();
//!         self.seat.insert(seat).card().clone()
//!     }
//!     fn join(&mut self, rank: usize, cards: Vec<Card>) {
//!         let seat = self.seat.take().unwrap();
//!         self.group = Some(seat.join(rank, &cards, Options::default()).unwrap());
//!     }
//!     fn sum(&mut self, mut array: Vec<f64>) -> Vec<f64> {
//!         self.group.as_mut().unwrap().all_reduce(&mut array, ReduceOp::Sum).unwrap();
//!         array
//!     }
//! }
//!
//! fn main() -> aktis::Result<()> {
//!     let _session = aktis::init()?;
//!     let members = [Member::remote(), Member::remote()];
//!     let cards = members.iter().map(|member| member.open().get()).collect::<aktis::Result<Vec<Card>>>()?;
//!     let joined = [members[0].join(0, cards.clone()), members[1].join(1, cards)];
//!     joined.iter().try_for_each(|joined| joined.get())?;
//!     let sums = [members[0].sum(vec![1.0, 2.0]), members[1].sum(vec![10.0, 20.0])];
//!     assert_eq!(sums[0].get()?, [11.0, 22.0]);
//!     assert_eq!(sums[1].get()?, [11.0, 22.0]);
//!     Ok(())
//! }
//! ```

mod data;
mod element;
mod error;
mod group;
mod guard;
mod local;
mod net;
mod operation;
mod reduce;
mod ring;
mod seat;
mod watch;

pub use element::{Bf16, DataType, Element, F16, ReduceOp};
pub use error::{CollectiveError, Result};
pub use group::{Group, Options, TIMEOUT};
pub use seat::{Card, MEMBERS_MAX, Seat};
