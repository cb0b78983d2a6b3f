//! Why a value's `Serialize` refuses: serialises into nothing and keeps the message.

use serde::ser::{self, Serialize};
use std::fmt::Display;

/// The message of the error that serialising `value` gives, if it gives one.
pub(super) fn reason<T: Serialize + ?Sized>(value: &T) -> Option<String> {
    value.serialize(Nowhere).err().map(|Reason(message)| message)
}

/// An error that keeps its message.
#[derive(Debug)]
struct Reason(String);

impl Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Reason {}

impl ser::Error for Reason {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// A serialiser without output.
struct Nowhere;

macro_rules! ignore {
    ($($method:ident($type:ty))*) => {
        $(fn $method(self, _: $type) -> Result<(), Reason> {
            Ok(())
        })*
    };
}

impl ser::Serializer for Nowhere {
    type Ok = ();
    type Error = Reason;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    ignore! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_i128(i128) serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_u128(u128) serialize_f32(f32) serialize_f64(f64) serialize_char(char)
        serialize_str(&str) serialize_bytes(&[u8]) serialize_unit_struct(&'static str)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
    fn serialize_none(self) -> Result<(), Reason> {
        Ok(())
    }
    fn serialize_unit(self) -> Result<(), Reason> {
        Ok(())
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Reason> {
        value.serialize(self)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Reason> {
        Ok(())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Reason> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Reason> {
        value.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Reason> {
        Ok(self)
    }
    fn serialize_tuple(self, _: usize) -> Result<Self, Reason> {
        Ok(self)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Reason> {
        Ok(self)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Reason> {
        Ok(self)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self, Reason> {
        Ok(self)
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Reason> {
        Ok(self)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Reason> {
        Ok(self)
    }
}

macro_rules! visit {
    ($($trait:ident { $($method:ident $(($key:ty))?),* })*) => {
        $(impl ser::$trait for Nowhere {
            type Ok = ();
            type Error = Reason;
            $(fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), Reason> {
                value.serialize(Nowhere)
            })*
            fn end(self) -> Result<(), Reason> {
                Ok(())
            }
        })*
    };
}

visit! {
    SerializeSeq { serialize_element }
    SerializeTuple { serialize_element }
    SerializeTupleStruct { serialize_field }
    SerializeTupleVariant { serialize_field }
    SerializeMap { serialize_key, serialize_value }
    SerializeStruct { serialize_field(&'static str) }
    SerializeStructVariant { serialize_field(&'static str) }
}
