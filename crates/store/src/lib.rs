//! The shared memory of a node: queues of tasks, channels between processes, doorbells; and the arena
//! of objects with its index, pins and spill file.
//!
//! This crate is the only home of `unsafe`. It is built in layers: [`map`] maps memory and hands out
//! references to atomics; everything above it is written with those.
//!
//! Invariants:
//! 1. Whatever instant a process is killed at, the others can go on: nothing shared is ever locked.
//! 2. Memory between processes is only touched through atomics, or is owned by exactly one side, as
//!    an atomic says.

pub mod arena;
pub mod board;
pub mod channel;
pub mod control;
pub mod copy;
pub mod doorbell;
pub mod error;
pub mod fork;
mod hidden;
pub mod index;
pub mod lane;
pub mod map;
mod memory;
pub mod numbers;
pub mod populate;
pub mod private;
pub mod samples;
pub mod signals;
pub mod spill;
pub mod spilled;
pub mod timeline;
mod title;
mod touched;
mod view;

pub use arena::{Anchor, Arena, EXTENT_ALIGNMENT, ExtentWriter, Pin};
pub use board::{Alarm, Board, Presence};
pub use channel::{Receiver, Sender};
pub use control::{Control, Running, WakeUp};
pub use doorbell::Doorbell;
pub use error::{PinError, StoreError};
pub use fork::ForkMark;
pub use hidden::Hidden;
pub use index::EntryState;
pub use lane::{LaneConsumer, LaneProducer};
pub use map::Mapping;
pub use memory::memory_bytes;
pub use populate::Populator;
pub use private::PrivateView;
pub use samples::Sample;
pub use signals::{ignore_broken_pipes, interrupt_this_process};
pub use spill::{SpillFile, SpillRefused};
pub use spilled::{SpilledObject, SpilledObjects};
pub use timeline::{Run, RunKind};
pub use title::set_title;
