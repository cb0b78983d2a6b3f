//! A value that has just been encoded, before it is put where it will live.

use super::buffer::Buffer;
use super::context::{Attachments, encoding};
use super::mark::{ANY_TYPE, body_start, mark};
use super::numbers;
use super::short::{ShortBytes, Sink};
use super::table::{ALIGNMENT, Table, write_words};
use super::value::Value;
use super::writer::{Refusal, write};
use crate::handle::{ActorHandle, Handle};
use aktis_store::copy::copy;
use serde::Serialize;
use std::any::type_name;

/// The encoded form of one value: its bytes, and what was found inside it. It keeps references alive.
pub struct Encoded {
    /// Flags, the mark of the type, and postcard bytes.
    bytes: ShortBytes,
    attachments: Option<Box<Attachments>>,
}

/// Encodes `value` at the end of `sink`: flags, mark and postcard bytes. Gives its attachments.
///
/// References that were found are announced to others, so that they may ask for them from now on.
#[inline]
pub(super) fn encode_onto<T: Serialize + ?Sized, S: Sink>(
    value: &T,
    sink: &mut S,
) -> Result<Option<Box<Attachments>>, String> {
    sink.append(&mark::<T>());
    let (outcome, attachments) = encoding(|| write(value, sink));
    outcome.map_err(|refusal| failed::<T>(&refusal))?;
    if let Some(attachments) = &attachments {
        Handle::escape_all(&attachments.handles);
        attachments.actors.iter().for_each(ActorHandle::escape);
    }
    Ok(attachments)
}

#[cold]
fn failed<T: ?Sized>(refusal: &Refusal) -> String {
    format!("cannot encode a value of type {}: {refusal}", type_name::<T>())
}

impl Encoded {
    /// Encodes a value. The type matters: what is encoded as `&T` cannot be decoded as `T`.
    #[inline]
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, String> {
        let mut bytes = ShortBytes::new();
        let attachments = encode_onto(value, &mut bytes)?;
        Ok(Self { bytes, attachments })
    }

    /// Encodes a value like [`of`](Self::of); a vector of numbers is not copied.
    #[inline]
    pub fn of_owned<T: Serialize>(value: T) -> Result<Self, String> {
        match numbers::into_buffer(value) {
            Ok(buffer) => Ok(Self::of_numbers::<T>(buffer)),
            Err(value) => Self::of(&value),
        }
    }

    /// A value of type `T` that is one buffer and nothing else.
    pub(super) fn of_numbers<T>(buffer: Buffer) -> Self {
        let mut bytes = ShortBytes::new();
        bytes.extend(&mark::<T>());
        let attachments = Attachments { buffers: vec![buffer], ..Attachments::default() };
        Self { bytes, attachments: Some(Box::new(attachments)) }
    }

    /// A value whose bytes were made by somebody else than serde, with what is inside it. Its type is not checked
    /// when it is read.
    pub fn from_raw(
        body: &[u8],
        buffers: Vec<Buffer>,
        handles: Vec<Handle>,
        actors: Vec<ActorHandle>,
    ) -> Self {
        let mut bytes = ShortBytes::new();
        bytes.extend(&[ANY_TYPE]);
        bytes.extend(body);
        if buffers.is_empty() && handles.is_empty() && actors.is_empty() {
            return Self { bytes, attachments: None };
        }
        Handle::escape_all(&handles);
        actors.iter().for_each(ActorHandle::escape);
        Self { bytes, attachments: Some(Box::new(Attachments { buffers, handles, actors })) }
    }

    /// A value that was encoded before, and holds no references.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), attachments: None }
    }

    pub(super) fn from_parts(bytes: ShortBytes, attachments: Option<Box<Attachments>>) -> Self {
        Self { bytes, attachments }
    }

    /// How many bytes [`write_to`](Self::write_to) writes.
    #[expect(clippy::len_without_is_empty, reason = "an encoded value is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        let Some(attachments) = &self.attachments else {
            return self.bytes.as_slice().len();
        };
        let start = self.table(attachments).postcard_at().end;
        attachments
            .buffers
            .iter()
            .fold(start, |end, buffer| end.next_multiple_of(ALIGNMENT) + buffer.as_slice().len())
    }

    /// Writes the encoded value; `target` must be of [`len`](Self::len) bytes.
    pub fn write_to(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.len(), "an encoded value is written into its own length");
        let bytes = self.bytes.as_slice();
        let Some(attachments) = &self.attachments else {
            return target.copy_from_slice(bytes);
        };
        let table = self.table(attachments);
        let (head, body) = bytes.split_at(body_start(bytes[0]));
        table.write(head, target);
        for (number, handle) in (0..).zip(&attachments.handles) {
            write_words(target, table.object_at(number), handle.id().to_words());
        }
        for (number, actor) in (0..).zip(&attachments.actors) {
            write_words(target, table.actor_at(number), actor.id().to_words());
        }
        target[table.postcard_at()].copy_from_slice(body);
        let mut end = table.postcard_at().end;
        for (number, buffer) in (0..).zip(&attachments.buffers) {
            let (content, start) = (buffer.as_slice(), end.next_multiple_of(ALIGNMENT));
            // The arena's memory is recycled: nothing of its past may show between the buffers.
            target[end..start].fill(0);
            end = start + content.len();
            copy(&mut target[start..end], content);
            write_words(target, table.buffer_at(number), [start as u64, content.len() as u64]);
        }
    }

    /// Whether references to objects or actors are inside.
    pub fn contains(&self) -> bool {
        !self.handles().is_empty() || !self.actors().is_empty()
    }

    /// The references to objects inside.
    pub fn handles(&self) -> &[Handle] {
        self.attachments.as_ref().map_or(&[], |attachments| &attachments.handles)
    }

    /// The handles of actors inside.
    pub fn actors(&self) -> &[ActorHandle] {
        self.attachments.as_ref().map_or(&[], |attachments| &attachments.actors)
    }

    /// The encoded bytes, where they lie in one piece: a value without attachments.
    #[inline]
    pub fn as_plain(&self) -> Option<&[u8]> {
        self.attachments.is_none().then(|| self.bytes.as_slice())
    }

    /// The encoded bytes, in a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.write_to(&mut bytes);
        bytes
    }

    /// The value in this process's memory: for small ones.
    #[inline]
    pub fn into_value(self) -> Value {
        match self.attachments {
            None => Value::from_short(self.bytes),
            Some(_) => Value::inline(&self.to_vec()),
        }
    }

    /// What was found inside, to be kept alive as long as the value is.
    pub(super) fn into_attachments(self) -> Option<Box<Attachments>> {
        self.attachments
    }

    fn table(&self, attachments: &Attachments) -> Table {
        let bytes = self.bytes.as_slice();
        Table {
            buffers: attachments.buffers.len() as u32,
            objects: attachments.handles.len() as u32,
            actors: attachments.actors.len() as u32,
            postcard_bytes: (bytes.len() - body_start(bytes[0])) as u64,
        }
    }
}

impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoded({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests;
