//! Whole Aktis nodes, and a cluster of them, in one thread: the machines of `logic` under faults, with checkers.
//!
//! - [`world`] is another shell around the product's own machines: it imitates processes, shared memory
//!   and a disk, and objects to orders that would do harm;
//! - [`program`] is what runs in a virtual process, and [`town`] a world with programs in it;
//! - [`chaos`] fills a town with [`wanderer`]s, which do random things, and with faults, from a seed;
//! - [`cluster`] is several nodes that know each other's objects, with links that fail and nodes that die, from a seed;
//! - [`submitter`] is one submitting process under faults, from a seed, against a simple book of what must hold;
//! - [`jobs`] is two jobs on one node, one of them hostile, from a seed;
//! - [`leasing`] is workers whose threads run tasks of any length, with late messages, from a seed;
//! - [`placement`] is a cluster around the real placer, with old news, deaths and gangs;
//! - [`head`] is the real head and real clients, with lost links, kills and pauses, from a seed;
//! - [`shard`] is one shard of the control store under faults, from a seed, against a naive model;
//! - [`scale`] is large clusters around the real placer, and [`studies`] what they show;
//! - [`scenario`] runs the stories in `scenarios/*.txt`.

pub mod chaos;
pub mod cluster;
pub mod head;
pub mod index;
pub mod jobs;
pub mod leasing;
pub mod placement;
pub mod plot;
pub mod program;
pub mod random;
pub mod scale;
pub mod scenario;
pub mod shard;
pub mod studies;
pub mod submitter;
pub mod town;
mod trace_hash;
pub mod wanderer;
pub mod world;
