//! Users' values as bytes: encoding, decoding, and the arguments of a call.
//!
//! A value is one byte of flags, the mark of its type and then, in the common case, just its postcard encoding and the number
//! of elements of its structs and tuples. A value
//! with attachments (buffers, references to objects, handles of actors) has a table in between:
//!
//! ```text
//! plain      flags | mark | postcard
//! attached   flags | mark | 0 | u32 buffers | u32 objects | u32 actors | u64 postcard bytes
//!            | objects, 16 bytes each | actors, 16 bytes each | buffers (u64 offset, u64 bytes) each
//!            | postcard | buffers, each at a multiple of 64 from the start of the value
//! ```
//!
//! The lower seven bits of the flags and the two bytes of the mark are a hash of the name of the value's type, so that an
//! attempt to decode it as another type is found out. They are 0, and no mark follows, for a value that serde has not made.
//!
//! Invariants:
//! 1. Encoding writes each attachment's number into the postcard bytes, never its content or identity.
//! 2. Attachments cannot be serialised or deserialised outside a value: that is an error, not a panic.
//! 3. A panic in a user's `Serialize` or `Deserialize` leaves the thread able to encode and decode.
//! 4. A plain value of up to [`SHORT_BYTES_MAX`] bytes is encoded, kept and decoded without the heap.
//! 5. Decoding never trusts its bytes: whatever they are, the outcome is a value or an error.

mod arguments;
mod buffer;
mod context;
mod decode;
mod encoded;
mod mark;
mod numbers;
mod parser;
mod raw;
mod reader;
mod short;
mod table;
mod value;
mod writer;

pub use arguments::{Arguments, Released, Resolved};
pub(crate) use arguments::{ForeignItem, ToldItem, foreign_items, told_items};
pub use buffer::Buffer;
pub use context::{
    deserialize_actor, deserialize_buffer, deserialize_handle, serialize_actor, serialize_buffer,
    serialize_handle,
};
pub use decode::{decode, decode_in};
pub use encoded::Encoded;
pub use mark::note_cast_from;
pub use raw::RawValue;
pub(crate) use reader::are_self_contained;
pub use reader::{ArgumentReader, RawArgument};
pub use short::{SHORT_BYTES_MAX, ShortBytes};
pub(crate) use table::inside;
pub use value::Value;
