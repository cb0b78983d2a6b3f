//! The arguments of one call, as the function takes them.

use super::arguments::Item;
use super::decode::{decode_in, decode_plain, is_plain, plain_body};
use super::short::ShortBytes;
use super::value::Value;
use crate::error::Error;
use crate::runtime::Runtime;
use aktis_protocol::{Failure, FailureKind};
use serde::de::DeserializeOwned;

/// An argument as it comes, for who reads it without serde.
pub enum RawArgument<'a> {
    /// The bytes of a value without attachments, after its flags.
    Plain(&'a [u8]),
    /// A value with attachments, or one in the object store.
    Value(Value),
}

/// Reads a call's arguments, one after another.
pub struct ArgumentReader {
    bytes: ShortBytes,
    position: usize,
    /// The session, if any argument needs it: most calls have only plain values, and counting one more
    /// user of the session would have all threads write to one place.
    runtime: Option<Runtime>,
}

impl ArgumentReader {
    /// Reads these arguments, which have no unresolved references.
    #[inline]
    pub fn new(bytes: impl Into<ShortBytes>, runtime: &Runtime) -> Self {
        let bytes = bytes.into();
        let runtime = needs_runtime(bytes.as_slice()).then(|| runtime.clone());
        Self { bytes, position: 0, runtime }
    }

    /// The next argument; `name` is for the message of an error.
    #[inline]
    pub fn next<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Failure> {
        let item = Item::read(self.bytes.as_slice(), &mut self.position);
        let decoded = match item {
            Some(Item::Value(bytes)) if is_plain(bytes) => decode_plain(bytes),
            Some(Item::Value(bytes)) => decode_in(self.runtime.as_ref(), &Value::inline(bytes)),
            Some(Item::Stored(stored)) => {
                let runtime = self.runtime.as_ref().expect("stored arguments keep the runtime");
                let value = runtime.open(stored).map_err(|error| unopened(name, error))?;
                decode_in(self.runtime.as_ref(), &value)
            }
            Some(Item::Handle(..) | Item::Own(..)) => Err("the reference was not resolved".to_owned()),
            None => Err("there are fewer arguments than the function takes".to_owned()),
        };
        decoded.map_err(|problem| refused(name, &problem))
    }
}

impl ArgumentReader {
    /// Whether all arguments were read.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.position >= self.bytes.as_slice().len()
    }

    /// Where the next argument begins.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Goes to what comes `arguments` after `position`.
    pub fn seek(&mut self, position: usize, arguments: u32) {
        self.position = position;
        for _ in 0..arguments {
            if Item::read(self.bytes.as_slice(), &mut self.position).is_none() {
                self.position = self.bytes.as_slice().len();
            }
        }
    }

    /// Whether the next argument is in the object store, so that to read it may be to wait.
    #[inline]
    pub fn is_next_stored(&self) -> bool {
        let mut position = self.position;
        matches!(Item::read(self.bytes.as_slice(), &mut position), Some(Item::Stored(_)))
    }

    /// The next argument as it comes; `None` if there are no more.
    #[inline]
    pub fn next_raw(&mut self) -> Result<Option<RawArgument<'_>>, Failure> {
        match Item::read(self.bytes.as_slice(), &mut self.position) {
            Some(Item::Value(bytes)) if is_plain(bytes) => Ok(Some(RawArgument::Plain(plain_body(bytes)))),
            Some(Item::Value(bytes)) => Ok(Some(RawArgument::Value(Value::inline(bytes)))),
            Some(Item::Stored(stored)) => {
                let runtime = self.runtime.as_ref().expect("stored arguments keep the runtime");
                let value = runtime.open(stored).map_err(|error| unopened("of the call", error))?;
                Ok(Some(RawArgument::Value(value)))
            }
            Some(Item::Handle(..) | Item::Own(..)) => {
                Err(Failure::new(FailureKind::Codec, "a reference among the arguments was not resolved"))
            }
            None => Ok(None),
        }
    }
}

/// Whether arguments mean the same after the object store has changed: none is stored or has references inside.
pub(crate) fn are_self_contained(bytes: &[u8]) -> bool {
    let mut position = 0;
    while let Some(item) = Item::read(bytes, &mut position) {
        let Item::Value(bytes) = item else { return false };
        let has_references = |raw: super::raw::RawValue<'_>| raw.objects() > 0 || raw.actors() > 0;
        if !is_plain(bytes) && Value::inline(bytes).raw().map_or(true, has_references) {
            return false;
        }
    }
    true
}

fn needs_runtime(bytes: &[u8]) -> bool {
    let mut position = 0;
    while let Some(item) = Item::read(bytes, &mut position) {
        if !matches!(item, Item::Value(bytes) if is_plain(bytes)) {
            return true;
        }
    }
    false
}

#[cold]
fn refused(name: &str, problem: &str) -> Failure {
    Failure::new(FailureKind::Codec, format!("argument `{name}`: {problem}"))
}

#[cold]
fn unopened(name: &str, error: Error) -> Failure {
    match error {
        Error::Failed(failure) => (*failure).clone(),
        other => Failure::new(FailureKind::Store, format!("argument `{name}`: {other}")),
    }
}
