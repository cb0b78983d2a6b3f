//! What the thread is encoding or decoding: how attachments find the value that they belong to.
//!
//! `Serialize` has no room for a context, so it is kept per thread while a value is encoded or decoded.
//! Scopes nest, and end on panics too.

use super::buffer::Buffer;
use super::table::Table;
use super::value::Value;
use crate::handle::{ActorHandle, Handle};
use crate::runtime::Runtime;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What was found in a value while it was encoded; the numbers in its bytes are positions in these.
#[derive(Default)]
pub(super) struct Attachments {
    pub(super) buffers: Vec<Buffer>,
    pub(super) handles: Vec<Handle>,
    pub(super) actors: Vec<ActorHandle>,
}

#[derive(Default)]
enum Encoding {
    #[default]
    Outside,
    Inside(Option<Box<Attachments>>),
}

/// The value that is being decoded.
pub(super) struct Source {
    pub(super) value: Value,
    pub(super) table: Table,
    pub(super) runtime: Option<Runtime>,
}

thread_local! {
    static ENCODING: Cell<Encoding> = const { Cell::new(Encoding::Outside) };
    static DECODING: RefCell<Option<Rc<Source>>> = const { RefCell::new(None) };
}

/// Runs `encode` inside a new encoding scope, and gives what was attached meanwhile.
#[inline]
pub(super) fn encoding<R>(encode: impl FnOnce() -> R) -> (R, Option<Box<Attachments>>) {
    struct Scope(Encoding);
    impl Drop for Scope {
        fn drop(&mut self) {
            ENCODING.set(std::mem::take(&mut self.0));
        }
    }
    let scope = Scope(ENCODING.replace(Encoding::Inside(None)));
    let outcome = encode();
    let attachments = match ENCODING.take() {
        Encoding::Inside(attachments) => attachments,
        Encoding::Outside => None,
    };
    drop(scope);
    (outcome, attachments)
}

/// Runs `decode` inside a new decoding scope.
#[inline]
pub(super) fn decoding<R>(source: Option<Rc<Source>>, decode: impl FnOnce() -> R) -> R {
    struct Scope(Option<Rc<Source>>);
    impl Drop for Scope {
        fn drop(&mut self) {
            let inner = DECODING.replace(self.0.take());
            // Dropped here, not inside `replace`: the last owner of a value may run code of its own.
            drop(inner);
        }
    }
    let _scope = Scope(DECODING.replace(source));
    decode()
}

/// Adds an attachment to the value that is being encoded; `None` outside of one.
fn attach(add: impl FnOnce(&mut Attachments) -> usize) -> Option<u32> {
    let Encoding::Inside(attachments) = ENCODING.take() else {
        return None;
    };
    let mut attachments = attachments.unwrap_or_default();
    let number = add(&mut attachments);
    ENCODING.set(Encoding::Inside(Some(attachments)));
    u32::try_from(number).ok()
}

fn push<T>(list: &mut Vec<T>, item: T) -> usize {
    list.push(item);
    list.len() - 1
}

/// Looks an attachment up in the value that is being decoded.
fn look_up<T>(what: &str, find: impl FnOnce(&Source) -> Option<Result<T, String>>) -> Result<T, String> {
    let source = DECODING.with_borrow(Option::clone).ok_or_else(|| outside(what))?;
    find(&source).unwrap_or_else(|| Err(format!("its bytes name {what} that is not in it")))
}

fn outside(what: &str) -> String {
    format!(
        "{what} only has a meaning inside a value that aktis encodes\n\
         hint: pass it as an argument, return it from a task, or put it, alone or inside another value"
    )
}

impl Source {
    fn runtime(&self) -> Result<Runtime, String> {
        self.runtime.clone().map_or_else(Runtime::current, Ok).map_err(|error| error.to_string())
    }
}

/// Serialises a buffer as an attachment of the value that is being encoded.
pub fn serialize_buffer<S: Serializer>(buffer: &Buffer, serializer: S) -> Result<S::Ok, S::Error> {
    let number = attach(|attachments| push(&mut attachments.buffers, buffer.clone()));
    number.ok_or_else(|| S::Error::custom(outside("an Array")))?.serialize(serializer)
}

/// Serialises a reference to an object as an attachment of the value that is being encoded.
pub fn serialize_handle<S: Serializer>(handle: &Handle, serializer: S) -> Result<S::Ok, S::Error> {
    let number = attach(|attachments| push(&mut attachments.handles, handle.clone()));
    number.ok_or_else(|| S::Error::custom(outside("an ObjectRef")))?.serialize(serializer)
}

/// Serialises an actor's handle as an attachment of the value that is being encoded.
pub fn serialize_actor<S: Serializer>(actor: &ActorHandle, serializer: S) -> Result<S::Ok, S::Error> {
    let number = attach(|attachments| push(&mut attachments.actors, actor.clone()));
    number.ok_or_else(|| S::Error::custom(outside("an actor's handle")))?.serialize(serializer)
}

/// A buffer of the value that is being decoded, without a copy.
pub fn deserialize_buffer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Buffer, D::Error> {
    let number = u32::deserialize(deserializer)?;
    look_up("an Array", |source| {
        let range = source.table.buffer(source.value.bytes(), number)?;
        Buffer::part_of(source.value.clone(), range).map(Ok)
    })
    .map_err(D::Error::custom)
}

/// A reference to an object that was found in the value that is being decoded.
pub fn deserialize_handle<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Handle, D::Error> {
    let number = u32::deserialize(deserializer)?;
    look_up("an ObjectRef", |source| {
        let object = source.table.object(source.value.bytes(), number)?;
        Some(source.runtime().map(|runtime| runtime.adopt_object(object)))
    })
    .map_err(D::Error::custom)
}

/// An actor's handle that was found in the value that is being decoded.
pub fn deserialize_actor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ActorHandle, D::Error> {
    let number = u32::deserialize(deserializer)?;
    look_up("an actor's handle", |source| {
        let actor = source.table.actor(source.value.bytes(), number)?;
        Some(source.runtime().map(|runtime| runtime.adopt_actor(actor)))
    })
    .map_err(D::Error::custom)
}
