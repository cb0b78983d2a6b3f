//! What lives in each driver and worker: submitting, executing, and getting results, without types.
//!
//! `api` puts types on top of this; nothing here knows what a user's value is, only its bytes.

pub mod codec;
pub mod error;
pub mod handle;
pub mod options;
pub mod registry;
pub mod runtime;

pub use codec::{Arguments, Buffer, Encoded, Value};
pub use error::Error;
pub use handle::{ActorHandle, Handle, Stream};
pub use options::{ActorOptions, Config, TaskOptions};
pub use registry::{Call, Function, FunctionBody};
pub use runtime::Runtime;
