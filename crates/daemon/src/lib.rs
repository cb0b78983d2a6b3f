//! The daemon of Aktis: one machine's node of a cluster, and what the command line asks of it.

pub mod admin;
pub mod control;
mod control_client;
pub mod daemon;
pub mod directory;
mod files;
mod gpus;
mod host;
mod inquiries;
mod log;
mod member;
mod neighbours;
mod peer;
mod printing;
mod renewal;
mod returning;
pub mod testing;

/// The lines that daemons and control processes say about themselves.
pub use aktis_node::journal;
/// The signals that ask a program to end, as an event that can be waited for.
pub use aktis_store::signals::Termination;
pub use control::{Control, ControlConfig, ControlError, ControlStopper};
pub use daemon::{Daemon, DaemonConfig, DaemonError, HideControl, Role, Stopper, can_return};
pub use directory::{Directory, DirectoryError};
