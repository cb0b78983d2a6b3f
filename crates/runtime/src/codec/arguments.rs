//! The arguments of one call, as its submitter keeps them until they are all known.
//!
//! Items follow one another: a value (`0`, u32 length, bytes), a value in the object store (`1`, a
//! [`Stored`]), or a placeholder for one that is not known yet (`2`, u32 position among the handles, the object: by that
//! it is found again, if the call has to be repeated after it has let go of its arguments). A placeholder of a value that
//! was too large to travel, and that nobody else refers to, is marked (`3`).
//! A million calls may be queued, so the rare parts are in a box of their own.

use super::encoded::{Encoded, encode_onto};
use super::mark::ANY_TYPE;
use super::numbers;
use super::table;
use super::value::Value;
use crate::entry::Outcome;
use crate::error::Error;
use crate::handle::{ActorHandle, Handle};
use crate::kept_arguments::Charge;
use crate::runtime::Runtime;
use aktis_protocol::hot::Stored;
use aktis_protocol::peer::Inside;
use aktis_protocol::{ObjectId, limits};
use serde::Serialize;
use zerocopy::{FromBytes, IntoBytes};

const VALUE: u8 = 0;
const STORED: u8 = 1;
const HANDLE: u8 = 2;
const OWN: u8 = 3;
const VALUE_HEAD_BYTES: usize = 5;
/// Room for one number, which most calls have.
const SHORT_ITEM_BYTES: usize = 16;

/// The arguments of a call.
#[derive(Default)]
pub struct Arguments {
    bytes: Vec<u8>,
    references: Option<Box<References>>,
}

const _: () = assert!(size_of::<Arguments>() <= 64);

/// What the arguments refer to; most calls have none of it.
#[derive(Default)]
struct References {
    /// Arguments that are references themselves.
    arguments: Vec<Handle>,
    /// References inside the values of arguments.
    handles: Vec<Handle>,
    /// Actors' handles inside the values of arguments.
    actors: Vec<ActorHandle>,
    /// After the call: its arguments that nobody else refers to, and how much they take.
    own: Option<(Vec<Handle>, Charge)>,
}

/// What the arguments of a call that is done have referred to.
pub struct Released {
    _references: Box<References>,
}

/// How much arguments there are: see [`Arguments::extent`].
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Bytes, without those of references.
    pub bytes: usize,
    references: [usize; 3],
}

/// What took the place of a reference.
pub enum Resolved<'a> {
    /// Its value.
    Inline(&'a Value),
    /// Its place in the object store.
    Stored(Stored),
}

impl Arguments {
    /// No arguments.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), references: None }
    }

    /// No arguments yet, with room for so many bytes of them.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), references: None }
    }

    /// How much there is, for [`truncate`](Self::truncate).
    #[inline]
    pub fn extent(&self) -> Extent {
        let lengths = |references: &References| {
            [references.arguments.len(), references.handles.len(), references.actors.len()]
        };
        Extent { bytes: self.bytes.len(), references: self.references.as_deref().map_or([0; 3], lengths) }
    }

    /// Takes back what was added since.
    pub fn truncate(&mut self, extent: Extent) {
        self.bytes.truncate(extent.bytes);
        if let Some(references) = &mut self.references {
            let [arguments, handles, actors] = extent.references;
            references.arguments.truncate(arguments);
            references.handles.truncate(handles);
            references.actors.truncate(actors);
        }
    }

    /// Takes out what was added since. Nothing before that may be a reference.
    pub fn split_off(&mut self, extent: Extent) -> Self {
        let [arguments, handles, actors] = extent.references;
        debug_assert_eq!(arguments, 0, "placeholders count the references from the first one");
        let references = self.references.as_deref_mut().map(|references| {
            Box::new(References {
                arguments: references.arguments.split_off(arguments),
                handles: references.handles.split_off(handles),
                actors: references.actors.split_off(actors),
                own: None,
            })
        });
        Self { bytes: self.bytes.split_off(extent.bytes), references }
    }

    /// Adds a value. A large one goes into the object store, and a reference to it takes its place.
    #[inline]
    pub fn push<T: Serialize>(&mut self, runtime: &Runtime, value: &T) -> Result<(), Error> {
        let start = self.bytes.len();
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(SHORT_ITEM_BYTES);
        }
        self.bytes.extend_from_slice(&[VALUE, 0, 0, 0, 0]);
        let content = start + VALUE_HEAD_BYTES;
        let attachments = match encode_onto(value, &mut self.bytes) {
            Ok(attachments) => attachments,
            Err(problem) => {
                self.bytes.truncate(start);
                return Err(Error::Codec(problem));
            }
        };
        let len = self.bytes.len() - content;
        if attachments.is_none() && len <= runtime.0.tuning.inline_bytes_max {
            self.bytes[start + 1..content].copy_from_slice(&(len as u32).to_le_bytes());
            return Ok(());
        }
        let bytes = self.bytes.split_off(content);
        self.bytes.truncate(start);
        self.push_encoded(runtime, Encoded::from_parts(bytes.into(), attachments))
    }

    /// Adds a value like [`push`](Self::push); a vector of numbers is written into the object store without another copy.
    #[inline]
    pub fn push_owned<T: Serialize>(&mut self, runtime: &Runtime, value: T) -> Result<(), Error> {
        match numbers::into_buffer(value) {
            Ok(buffer) => self.push_encoded(runtime, Encoded::of_numbers::<T>(buffer)),
            Err(value) => self.push(runtime, &value),
        }
    }

    /// Adds a value without attachments that was made by somebody else than serde, written by `write`.
    ///
    /// False, with nothing added, if `write` says so or the value is longer than `bytes_max`, or too large to travel.
    #[inline]
    pub fn push_raw(&mut self, bytes_max: usize, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[VALUE, 0, 0, 0, 0, ANY_TYPE]);
        let written = write(&mut self.bytes);
        let len = self.bytes.len() - start - VALUE_HEAD_BYTES;
        if !written || len > bytes_max || self.bytes.len() > limits::ARGUMENTS_BYTES_MAX {
            self.bytes.truncate(start);
            return false;
        }
        self.bytes[start + 1..start + VALUE_HEAD_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
        true
    }

    /// Adds an encoded value. A large one goes into the object store, and a reference to it takes its place.
    pub fn push_encoded(&mut self, runtime: &Runtime, encoded: Encoded) -> Result<(), Error> {
        runtime.0.check_own(encoded.handles())?;
        runtime.0.check_own_actors(encoded.actors())?;
        let sum = self.bytes.len() + encoded.len();
        if encoded.len() > runtime.0.tuning.inline_bytes_max || sum > limits::ARGUMENTS_BYTES_MAX {
            self.push_reference(OWN, runtime.0.put_stored(encoded)?);
            return Ok(());
        }
        push_value_head(&mut self.bytes, encoded.len());
        let start = self.bytes.len();
        self.bytes.resize(start + encoded.len(), 0);
        encoded.write_to(&mut self.bytes[start..]);
        if let Some(attachments) = encoded.into_attachments()
            && !(attachments.handles.is_empty() && attachments.actors.is_empty())
        {
            let references = self.references.get_or_insert_default();
            references.handles.extend(attachments.handles);
            references.actors.extend(attachments.actors);
        }
        Ok(())
    }

    /// Adds a reference: the function gets its value.
    pub fn push_handle(&mut self, handle: Handle) {
        self.push_reference(HANDLE, handle);
    }

    fn push_reference(&mut self, tag: u8, handle: Handle) {
        let references = self.references.get_or_insert_default();
        push_placeholder(&mut self.bytes, tag, references.arguments.len() as u32, handle.id());
        references.arguments.push(handle);
    }

    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let mut position = 0;
        std::iter::from_fn(move || Item::read(&self.bytes, &mut position))
    }

    /// The objects whose values are arguments, by their positions.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        let object = |item| match item {
            Item::Handle(_, object) | Item::Own(_, object) => Some(object),
            Item::Value(_) | Item::Stored(_) => None,
        };
        self.items().filter_map(object).collect()
    }

    /// What the values of arguments refer to.
    pub(crate) fn inside(&self) -> Inside {
        let mut all = Inside::default();
        for item in self.items() {
            if let Item::Value(bytes) = item
                && let Ok(inside) = table::inside(bytes)
            {
                all.objects.extend(inside.objects);
                all.actors.extend(inside.actors);
            }
        }
        all
    }

    /// Whether an argument went with the references that were released: the call cannot be repeated.
    pub(crate) fn lacks_value(&self) -> bool {
        self.references.is_none() && self.items().any(|item| matches!(item, Item::Own(..)))
    }

    /// Keeps arguments that were passed by value and lie in the store, after [`Self::release`]. `charge` counts their bytes.
    pub(crate) fn keep_own(&mut self, own: Vec<Handle>, charge: Charge) {
        self.references = Some(Box::new(References { own: Some((own, charge)), ..References::default() }));
    }

    /// Gives up what [`Self::keep_own`] has kept: the call cannot be repeated any more.
    pub(crate) fn release_own(&mut self) -> Option<Released> {
        let mut references = self.references.take_if(|references| references.own.is_some())?;
        // The bytes are free for others at once, and the references go when no lock is held.
        let (own, charge) = references.own.take()?;
        drop(charge);
        references.arguments = own;
        Some(Released { _references: references })
    }

    /// The arguments that were passed by value and lie in the store, if there are some.
    pub(crate) fn own(&self) -> Vec<Handle> {
        let Some(references) = &self.references else { return Vec::new() };
        let own = self.items().filter_map(|item| match item {
            Item::Own(position, _) => references.arguments.get(position as usize).cloned(),
            Item::Value(_) | Item::Stored(_) | Item::Handle(..) => None,
        });
        own.collect()
    }

    /// Takes references to [`Self::objects`], in their order, and to what is [inside](Self::inside), after they were
    /// released: the call is repeated.
    pub(crate) fn hold_again(
        &mut self,
        arguments: Vec<Handle>,
        handles: Vec<Handle>,
        actors: Vec<ActorHandle>,
    ) {
        if !(arguments.is_empty() && handles.is_empty() && actors.is_empty()) {
            self.references = Some(Box::new(References { arguments, handles, actors, own: None }));
        }
    }

    /// Adds a value that was encoded by another process, with what is inside it.
    pub(crate) fn push_foreign(&mut self, bytes: &[u8], handles: Vec<Handle>, actors: Vec<ActorHandle>) {
        push_value(&mut self.bytes, bytes);
        if !(handles.is_empty() && actors.is_empty()) {
            let references = self.references.get_or_insert_default();
            references.handles.extend(handles);
            references.actors.extend(actors);
        }
    }

    /// The arguments that are references, by their positions.
    #[inline]
    pub fn handles(&self) -> &[Handle] {
        self.references.as_ref().map_or(&[], |references| &references.arguments)
    }

    /// References inside the values of arguments, which must live until the call is done.
    pub fn kept(&self) -> (&[Handle], &[ActorHandle]) {
        self.references.as_ref().map_or((&[], &[]), |references| (&references.handles, &references.actors))
    }

    /// Gives up what the arguments refer to: the call is done. What is given lets go of it when it is dropped. Small values
    /// take the places of their references, so that the call can be repeated without these.
    pub fn release(&mut self) -> Option<Released> {
        let references = self.references.take()?;
        let value = |position: u32| match references.arguments[position as usize].entry.outcome() {
            Some(Outcome::Inline(value)) => Some(value),
            _ => None,
        };
        if (0..references.arguments.len() as u32).any(|position| value(position).is_some()) {
            let (mut bytes, mut kept) = (Vec::with_capacity(self.bytes.len()), 0);
            for item in self.items() {
                let (tag, position, object) = match item {
                    Item::Value(value) => {
                        push_value(&mut bytes, value);
                        continue;
                    }
                    Item::Stored(stored) => {
                        push_stored(&mut bytes, stored);
                        continue;
                    }
                    Item::Handle(position, object) => (HANDLE, position, object),
                    Item::Own(position, object) => (OWN, position, object),
                };
                if let Some(value) = value(position) {
                    push_value(&mut bytes, value.bytes());
                } else {
                    push_placeholder(&mut bytes, tag, kept, object);
                    kept += 1;
                }
            }
            self.bytes = bytes;
        }
        Some(Released { _references: references })
    }

    /// The arguments as the function gets them, if no reference has to be replaced.
    #[inline]
    pub fn as_final(&self) -> Option<&[u8]> {
        self.handles().is_empty().then_some(&self.bytes)
    }

    /// The arguments as the function gets them, with each reference replaced by what `resolved` gives
    /// for its position; nothing if that gives nothing.
    pub fn resolve<'v>(&self, mut resolved: impl FnMut(usize) -> Option<Resolved<'v>>) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.bytes.len() + 32);
        for item in self.items() {
            match item {
                Item::Value(bytes) => push_value(&mut out, bytes),
                Item::Stored(stored) => push_stored(&mut out, stored),
                Item::Handle(index, _) | Item::Own(index, _) => match resolved(index as usize)? {
                    Resolved::Inline(value) => push_value(&mut out, value.bytes()),
                    Resolved::Stored(stored) => push_stored(&mut out, stored),
                },
            }
        }
        Some(out)
    }

    /// The arguments as another process can use them: values that travel are in their place, and all else by its id.
    pub(crate) fn told(&self) -> Vec<u8> {
        let (mut out, handles) = (Vec::with_capacity(self.bytes.len()), self.handles());
        for item in self.items() {
            match item {
                Item::Value(bytes) => push_value(&mut out, bytes),
                Item::Stored(stored) => push_placeholder(&mut out, HANDLE, 0, stored.object),
                Item::Handle(index, object) | Item::Own(index, object) => {
                    match handles.get(index as usize).and_then(|handle| handle.entry.outcome()) {
                        Some(Outcome::Inline(value)) => push_value(&mut out, value.bytes()),
                        _ => push_placeholder(&mut out, HANDLE, index, object),
                    }
                }
            }
        }
        out
    }

    /// How many bytes the arguments keep, references aside.
    pub fn size_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arguments({} bytes, {} references)", self.bytes.len(), self.handles().len())
    }
}

fn push_value_head(out: &mut Vec<u8>, len: usize) {
    out.push(VALUE);
    out.extend_from_slice(&(len as u32).to_le_bytes());
}

fn push_value(out: &mut Vec<u8>, bytes: &[u8]) {
    push_value_head(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn push_placeholder(out: &mut Vec<u8>, tag: u8, position: u32, object: ObjectId) {
    out.push(tag);
    out.extend_from_slice(&position.to_le_bytes());
    out.extend_from_slice(object.as_bytes());
}

fn push_stored(out: &mut Vec<u8>, stored: Stored) {
    out.push(STORED);
    out.extend_from_slice(stored.as_bytes());
}

/// One argument of a call, for who passes it on.
pub(crate) enum ForeignItem<'a> {
    /// Its encoded value.
    Value(&'a [u8]),
    /// Its value is in the object store of this node.
    Stored(Stored),
}

/// The arguments of a call that has no unresolved references.
pub(crate) fn foreign_items(bytes: &[u8]) -> Result<Vec<ForeignItem<'_>>, String> {
    let (mut items, mut position) = (Vec::new(), 0);
    while let Some(item) = Item::read(bytes, &mut position) {
        items.push(match item {
            Item::Value(value) => ForeignItem::Value(value),
            Item::Stored(stored) => ForeignItem::Stored(stored),
            Item::Handle(..) | Item::Own(..) => return Err("a reference was not resolved".to_owned()),
        });
    }
    match position == bytes.len() {
        true => Ok(items),
        false => Err("the arguments are cut off".to_owned()),
    }
}

/// One argument of a call that another process has told of.
pub(crate) enum ToldItem<'a> {
    /// Its encoded value.
    Value(&'a [u8]),
    /// It is the value of this object.
    Object(ObjectId),
}

/// What [`Arguments::told`] has given.
pub(crate) fn told_items(bytes: &[u8]) -> Result<Vec<ToldItem<'_>>, String> {
    let (mut items, mut position) = (Vec::new(), 0);
    while let Some(item) = Item::read(bytes, &mut position) {
        items.push(match item {
            Item::Value(value) => ToldItem::Value(value),
            Item::Handle(_, object) | Item::Own(_, object) => ToldItem::Object(object),
            Item::Stored(_) => return Err("an argument lies where only its own node finds it".to_owned()),
        });
    }
    match position == bytes.len() {
        true => Ok(items),
        false => Err("the arguments are cut off".to_owned()),
    }
}

/// One argument, as it lies in the bytes.
#[derive(Debug, PartialEq)]
pub(super) enum Item<'a> {
    Value(&'a [u8]),
    Stored(Stored),
    Handle(u32, ObjectId),
    /// Of a value that nobody else refers to.
    Own(u32, ObjectId),
}

impl<'a> Item<'a> {
    /// The item at `position`, which moves behind it; `None` if there is none.
    #[inline]
    pub(super) fn read(bytes: &'a [u8], position: &mut usize) -> Option<Self> {
        let (tag, rest) = bytes.get(*position..)?.split_first()?;
        let (item, len) = match *tag {
            VALUE => {
                let (len, rest) = rest.split_first_chunk()?;
                let len = u32::from_le_bytes(*len) as usize;
                (Self::Value(rest.get(..len)?), 4 + len)
            }
            STORED => {
                let (stored, _) = Stored::read_from_prefix(rest).ok()?;
                (Self::Stored(stored), size_of::<Stored>())
            }
            HANDLE | OWN => {
                let (position, rest) = rest.split_first_chunk()?;
                let (object, _) = ObjectId::read_from_prefix(rest).ok()?;
                let position = u32::from_le_bytes(*position);
                let item =
                    if *tag == OWN { Self::Own(position, object) } else { Self::Handle(position, object) };
                (item, 4 + size_of::<ObjectId>())
            }
            _ => return None,
        };
        *position += 1 + len;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{EntryRef, SessionId, TaskId};
    use std::io::Write;

    fn stored() -> Stored {
        let object = TaskId::root(SessionId(7)).child(1).returns(3);
        Stored { object, entry: EntryRef { index: 5, generation: 6 } }
    }

    #[test]
    fn split_off_takes_what_was_added_since() {
        let mut arguments = Arguments::new();
        assert!(arguments.push_raw(16, |bytes| bytes.write_all(b"small").is_ok()));
        let (before, bytes) = (arguments.extent(), arguments.bytes.clone());
        assert!(arguments.push_raw(16, |bytes| bytes.write_all(b"beside").is_ok()));
        arguments.push_handle(Handle::failed(Error::Closed));
        let rest = arguments.split_off(before);
        assert_eq!(arguments.as_final(), Some(&bytes[..]));
        assert_eq!((rest.items().count(), rest.handles().len()), (2, 1));
        let resolved = rest.resolve(|position| (position == 0).then_some(Resolved::Stored(stored())));
        assert!(resolved.is_some_and(|bytes| foreign_items(&bytes).is_ok_and(|items| items.len() == 2)));
    }

    #[test]
    fn items_come_back_in_order() {
        let mut bytes = Vec::new();
        push_value(&mut bytes, b"abc");
        push_stored(&mut bytes, stored());
        push_value(&mut bytes, b"");
        let mut position = 0;
        assert_eq!(Item::read(&bytes, &mut position), Some(Item::Value(b"abc")));
        assert_eq!(Item::read(&bytes, &mut position), Some(Item::Stored(stored())));
        assert_eq!(Item::read(&bytes, &mut position), Some(Item::Value(b"")));
        assert_eq!(Item::read(&bytes, &mut position), None);
        assert_eq!(position, bytes.len());
    }

    #[test]
    fn cut_off_items_are_no_items() {
        let mut bytes = Vec::new();
        push_value(&mut bytes, b"abc");
        let value_end = bytes.len();
        push_stored(&mut bytes, stored());
        for cut in 0..bytes.len() {
            let mut position = 0;
            let first = Item::read(&bytes[..cut], &mut position);
            assert_eq!(first.is_some(), cut >= value_end);
            assert_eq!(Item::read(&bytes[..cut], &mut position), None);
        }
        assert_eq!(Item::read(&[9, 0, 0, 0, 0], &mut 0), None);
    }
}
