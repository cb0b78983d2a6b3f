//! What lives in each driver and worker: submitting, executing, and getting results, without types.
//!
//! `api` puts types on top of this; nothing here knows what a user's value is, only its bytes.

mod actors;
mod adoption;
mod alarms;
mod attached;
pub mod bridge;
pub mod chunk;
pub mod codec;
mod completions;
mod deferred;
mod entry;
pub mod error;
mod groups;
pub mod handle;
pub mod hooks;
mod inbound;
mod kept_arguments;
mod keys;
mod node;
mod nodes;
mod objects;
pub mod options;
mod owed;
mod payload;
mod pump;
mod rebuild;
mod references;
pub mod registry;
pub mod runtime;
mod shards;
mod standing;
mod stream;
mod submit;
mod wait;
mod worker;

pub use aktis_node::{
    default_directory,
    directory::{LOCAL, find_local},
};
pub use codec::{Arguments, Buffer, Encoded, Value};
pub use completions::Completions;
pub use error::Error;
pub use handle::{ActorHandle, Handle, Stream};
pub use options::{ATTACH_TIMEOUT_DEFAULT, ActorOptions, CallOptions, Config, TaskOptions, Tuning};
pub use references::ReferenceCount;
pub use registry::{Call, Function, FunctionBody};
pub use runtime::{Context, EnterGuard, Runtime};
pub use worker::serve;
