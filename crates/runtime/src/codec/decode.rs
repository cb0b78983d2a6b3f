//! From an encoded value back to the user's.

use super::context::{Source, decoding};
use super::mark;
use super::numbers;
use super::parser::read;
use super::table::{ATTACHED, Table};
use super::value::Value;
use crate::runtime::Runtime;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::fmt::Display;
use std::rc::Rc;

/// Decodes a value; references inside belong to the current session.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    decode_in(None, value)
}

/// Decodes a value; references inside belong to the session of `runtime`.
#[inline]
pub fn decode_in<T: DeserializeOwned>(runtime: Option<&Runtime>, value: &Value) -> Result<T, String> {
    if is_plain(value.bytes()) { decode_plain(value.bytes()) } else { decode_attached(runtime, value) }
}

/// Whether the value has no attachments, so that its bytes are all there is to it.
#[inline]
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|flags| flags & ATTACHED == 0)
}

/// Decodes a value without attachments from its bytes.
#[inline]
pub(super) fn decode_plain<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    check_type::<T>(bytes)?;
    decoding(None, || read(plain_body(bytes))).map_err(|problem| failed::<T>(&problem))
}

fn decode_attached<T: DeserializeOwned>(runtime: Option<&Runtime>, value: &Value) -> Result<T, String> {
    let bytes = value.bytes();
    let Some(table) = Table::of(bytes).map_err(|problem| failed::<T>(&problem))? else {
        return decode_plain(bytes);
    };
    check_type::<T>(bytes)?;
    if let Some(numbers) = numbers::from_encoded(bytes, &table) {
        return Ok(numbers);
    }
    let source = Rc::new(Source { value: value.clone(), table, runtime: runtime.cloned() });
    decoding(Some(source), || read(&bytes[table.postcard_at()])).map_err(|problem| failed::<T>(&problem))
}

/// The bytes of a value without attachments, after flags and mark; none if they are cut off.
#[inline]
pub(super) fn plain_body(bytes: &[u8]) -> &[u8] {
    bytes.get(mark::body_start(bytes[0])..).unwrap_or(&[])
}

#[inline]
fn check_type<T>(bytes: &[u8]) -> Result<(), String> {
    mark::check::<T>(bytes).map_err(another_type::<T>)
}

#[cold]
fn another_type<T>(found: Option<&str>) -> String {
    let problem = match found {
        Some(found) => format!("it was made as {found}"),
        None => "it is a value of another type".to_owned(),
    };
    failed::<T>(
        &(problem + "\nhint: read it as the type that it was made as; `ObjectRef::cast` changes no value"),
    )
}

#[cold]
fn failed<T>(problem: &dyn Display) -> String {
    format!("cannot decode a value as {}: {problem}", type_name::<T>())
}
