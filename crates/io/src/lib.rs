//! Between machines and disks: who they are, how they join, links of frames that survive reconnects, bulk transfers, and
//! the durable control store.
//!
//! Plain threads that poll; nothing here knows what the frames mean. Everything between two machines is TLS 1.3,
//! and both sides show a certificate that the cluster's authority has signed.

mod authority;
mod bell;
mod bulk;
pub mod durable;
mod endpoint;
mod files;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod hello;
mod identity;
mod join;
mod link;
mod pinned;
mod timing;
mod tls;
mod token;
mod wire;

pub use authority::{Authority, Certified, PUBLIC_KEY_BYTES};
pub use bulk::{Destination, Opened, PullError, STREAMS_MAX, Serve, Source};
pub use endpoint::{Endpoint, EndpointError, EndpointEvents, EndpointOptions, Log, Renewer};
pub use frame::FrameError;
pub use hello::Refusal;
pub use identity::{Fingerprint, Identity, IdentityError, Role, random_node_id};
pub use join::{Admission, AdmitAll, Door, JoinError, Joined, Newcomer, join};
pub use link::{DialError, Frames, Link, LinkEnd, LinkEvents, Peer, SendError};
pub use pinned::{PinnedIdentity, PinnedStream};
pub use timing::Timing;
pub use token::{ParseTokenError, Token, TokenRefused};
pub use wire::WireError;
