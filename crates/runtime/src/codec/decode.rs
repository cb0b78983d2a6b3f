//! From an encoded value back to the user's.

use super::context::{Source, decoding};
use super::mark;
use super::numbers;
use super::table::{ATTACHED, Table};
use super::value::Value;
use crate::runtime::Runtime;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::cell::Cell;
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
    match decoding(None, || postcard::take_from_bytes(plain_body(bytes))) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(trailing::<T>(rest.len())),
        Err(error) => Err(failed::<T>(describe(&error))),
    }
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
    let source =
        Rc::new(Source { value: value.clone(), table, runtime: runtime.cloned(), problem: Cell::new(None) });
    let postcard_bytes = &bytes[table.postcard_at()];
    match decoding(Some(source.clone()), || postcard::take_from_bytes(postcard_bytes)) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(trailing::<T>(rest.len())),
        Err(error) => match source.problem.take() {
            Some(problem) => Err(failed::<T>(&problem)),
            None => Err(failed::<T>(describe(&error))),
        },
    }
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
fn failed<T>(problem: &str) -> String {
    format!("cannot decode a value as {}: {problem}", type_name::<T>())
}

#[cold]
fn trailing<T>(bytes: usize) -> String {
    failed::<T>(&format!("{bytes} bytes are left over, so it is a value of another type"))
}

fn describe(error: &postcard::Error) -> &'static str {
    use postcard::Error;
    match error {
        Error::DeserializeUnexpectedEnd => "its bytes end too early, so it is a value of another type",
        Error::DeserializeBadBool => "found neither true nor false where a bool was expected",
        Error::DeserializeBadChar => "found no character where a char was expected",
        Error::DeserializeBadUtf8 => "found text that is not UTF-8",
        Error::DeserializeBadOption => "found neither None nor Some where an Option was expected",
        Error::DeserializeBadEnum => "found a variant that the enum does not have",
        Error::DeserializeBadVarint => "found a number that is too large for its type",
        Error::WontImplement => {
            "its Deserialize asks the bytes for their type, which they do not tell\n\
             hint: avoid #[serde(flatten)], #[serde(untagged)] and self-describing types in remote values"
        }
        _ => "its Deserialize refused the bytes",
    }
}
