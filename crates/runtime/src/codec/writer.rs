//! The serialiser: writes a value in postcard's format, and says in words why a value cannot be written.
//!
//! Invariants:
//! 1. The bytes equal those of `postcard::to_stdvec`. After a value with structs or tuples comes the number of their elements,
//!    by which the parser notices a field that was left out without a word (`skip_serializing_if` in a tuple struct).
//! 2. A value that leaves out a named field, or that has a sequence or map of unknown length, is refused: its bytes could be
//!    read as other fields than were written.

use super::short::Sink;
use serde::{Serialize, ser};
use std::fmt::Display;

/// Writes `value` in postcard's format at the end of `sink`; the error is the reason, for people.
#[inline]
pub(super) fn write<T: Serialize + ?Sized, S: Sink>(value: &T, sink: &mut S) -> Result<(), Refusal> {
    let mut writer = Writer { sink, elements: 0 };
    value.serialize(&mut writer)?;
    if writer.elements > 0 {
        writer.varint(writer.elements);
    }
    Ok(())
}

/// Why a value is not written.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Box<str>);

impl Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl ser::Error for Refusal {
    #[cold]
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string().into())
    }
}

#[cold]
fn unknown_length() -> Refusal {
    Refusal(
        "it has a sequence or map of unknown length\n\
         hint: avoid #[serde(flatten)] in remote values; collect an iterator into a Vec first"
            .into(),
    )
}

#[cold]
fn skipped(owner: &str, field: &str) -> Refusal {
    let text = format!(
        "`{owner}` leaves its field `{field}` out (#[serde(skip_serializing_if)]), and the bytes do not tell which \
         fields they hold\n\
         hint: drop `skip_serializing_if` from `{field}`: None or an empty value takes one byte; or keep it for other \
         formats with a second type"
    );
    Refusal(text.into())
}

struct Writer<'a, S> {
    sink: &'a mut S,
    /// Elements of structs and tuples so far.
    elements: u64,
}

impl<S: Sink> Writer<'_, S> {
    #[inline]
    fn varint(&mut self, mut number: u64) {
        let (mut bytes, mut last) = ([0; 10], 0);
        while number >= 0x80 {
            bytes[last] = number as u8 | 0x80;
            number >>= 7;
            last += 1;
        }
        bytes[last] = number as u8;
        self.sink.append(&bytes[..=last]);
    }

    fn long_varint(&mut self, mut number: u128) {
        let (mut bytes, mut last) = ([0; 19], 0);
        while number >= 0x80 {
            bytes[last] = number as u8 | 0x80;
            number >>= 7;
            last += 1;
        }
        bytes[last] = number as u8;
        self.sink.append(&bytes[..=last]);
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.sink.append(bytes);
    }
}

macro_rules! numbers {
    ($($method:ident($type:ty) = |$writer:ident, $number:ident| $write:expr;)*) => {
        $(#[inline]
        fn $method(self, $number: $type) -> Result<(), Refusal> {
            let $writer = self;
            $write;
            Ok(())
        })*
    };
}

impl<'a, 'b, S: Sink> ser::Serializer for &'a mut Writer<'b, S> {
    type Ok = ();
    type Error = Refusal;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Fields<'a, 'b, S>;
    type SerializeStructVariant = Fields<'a, 'b, S>;

    numbers! {
        serialize_bool(bool) = |writer, n| writer.sink.append(&[u8::from(n)]);
        serialize_u8(u8) = |writer, n| writer.sink.append(&[n]);
        serialize_i8(i8) = |writer, n| writer.sink.append(&n.to_le_bytes());
        serialize_u16(u16) = |writer, n| writer.varint(n.into());
        serialize_u32(u32) = |writer, n| writer.varint(n.into());
        serialize_u64(u64) = |writer, n| writer.varint(n);
        serialize_u128(u128) = |writer, n| writer.long_varint(n);
        serialize_i16(i16) = |writer, n| writer.varint(zigzag(n.into()));
        serialize_i32(i32) = |writer, n| writer.varint(zigzag(n.into()));
        serialize_i64(i64) = |writer, n| writer.varint(zigzag(n));
        serialize_i128(i128) = |writer, n| writer.long_varint(((n << 1) ^ (n >> 127)) as u128);
        serialize_f32(f32) = |writer, n| writer.sink.append(&n.to_le_bytes());
        serialize_f64(f64) = |writer, n| writer.sink.append(&n.to_le_bytes());
        serialize_char(char) = |writer, n| writer.bytes(n.encode_utf8(&mut [0; 4]).as_bytes());
        serialize_str(&str) = |writer, text| writer.bytes(text.as_bytes());
        serialize_bytes(&[u8]) = |writer, bytes| writer.bytes(bytes);
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
    #[inline]
    fn serialize_none(self) -> Result<(), Refusal> {
        self.sink.append(&[0]);
        Ok(())
    }
    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refusal> {
        self.sink.append(&[1]);
        value.serialize(self)
    }
    #[inline]
    fn serialize_unit(self) -> Result<(), Refusal> {
        Ok(())
    }
    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Refusal> {
        Ok(())
    }
    #[inline]
    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), Refusal> {
        self.varint(index.into());
        Ok(())
    }
    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refusal> {
        value.serialize(self)
    }
    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refusal> {
        self.varint(index.into());
        value.serialize(self)
    }
    #[inline]
    fn serialize_seq(self, length: Option<usize>) -> Result<Self, Refusal> {
        self.varint(length.ok_or_else(unknown_length)? as u64);
        Ok(self)
    }
    #[inline]
    fn serialize_tuple(self, count: usize) -> Result<Self, Refusal> {
        self.elements += count as u64;
        Ok(self)
    }
    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Refusal> {
        Ok(self)
    }
    #[inline]
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Refusal> {
        self.varint(index.into());
        Ok(self)
    }
    #[inline]
    fn serialize_map(self, length: Option<usize>) -> Result<Self, Refusal> {
        self.serialize_seq(length)
    }
    #[inline]
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'a, 'b, S>, Refusal> {
        Ok(Fields { writer: self, name, variant: "" })
    }
    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'a, 'b, S>, Refusal> {
        self.varint(index.into());
        Ok(Fields { writer: self, name, variant })
    }
}

/// Small numbers of both signs as small numbers.
#[inline]
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// The fields of a struct, or of an enum's variant.
struct Fields<'a, 'b, S> {
    writer: &'a mut Writer<'b, S>,
    name: &'static str,
    /// Empty for a struct.
    variant: &'static str,
}

// The elements of a tuple are counted when it begins.
macro_rules! elements {
    ($($trait:ident counts $counts:literal { $($method:ident),* })*) => {
        $(impl<S: Sink> ser::$trait for &mut Writer<'_, S> {
            type Ok = ();
            type Error = Refusal;
            $(#[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refusal> {
                self.elements += $counts;
                value.serialize(&mut **self)
            })*
            #[inline]
            fn end(self) -> Result<(), Refusal> {
                Ok(())
            }
        })*
    };
}

elements! {
    SerializeSeq counts 0 { serialize_element }
    SerializeTuple counts 0 { serialize_element }
    SerializeTupleStruct counts 1 { serialize_field }
    SerializeTupleVariant counts 1 { serialize_field }
    SerializeMap counts 0 { serialize_key, serialize_value }
}

macro_rules! fields {
    ($($trait:ident)*) => {
        $(impl<S: Sink> ser::$trait for Fields<'_, '_, S> {
            type Ok = ();
            type Error = Refusal;
            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), Refusal> {
                self.writer.elements += 1;
                value.serialize(&mut *self.writer)
            }
            #[cold]
            fn skip_field(&mut self, field: &'static str) -> Result<(), Refusal> {
                match self.variant {
                    "" => Err(skipped(self.name, field)),
                    variant => Err(skipped(&format!("{}::{variant}", self.name), field)),
                }
            }
            #[inline]
            fn end(self) -> Result<(), Refusal> {
                Ok(())
            }
        })*
    };
}

fields! { SerializeStruct SerializeStructVariant }

#[cfg(test)]
mod tests {
    use super::super::parser::{Problem, read};
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Serialize, Deserialize)]
    enum Shape {
        Unit,
        Newtype(i128),
        Pair(u16, i16),
        Named { bytes: Vec<u8>, text: Option<String> },
    }

    #[derive(Serialize, Deserialize)]
    struct Wrapped(char);

    #[derive(Serialize, Deserialize)]
    struct Everything {
        flags: (bool, bool, ()),
        small: (u8, i8, u16, i16),
        long: (Vec<u32>, Vec<i32>, Vec<u64>, Vec<i64>),
        large: (u128, usize, isize),
        real: (f32, f64),
        shapes: Vec<Shape>,
        map: BTreeMap<String, Option<Wrapped>>,
        array: [i8; 3],
    }

    fn everything() -> Everything {
        Everything {
            flags: (true, false, ()),
            small: (200, -3, u16::MAX, i16::MIN),
            long: (
                vec![0, 127, 128, u32::MAX],
                vec![0, -1, 1, i32::MIN, i32::MAX],
                (0..64).map(|shift| 1 << shift).collect(),
                vec![i64::MIN, -65, -64, 63, 64, i64::MAX],
            ),
            large: (u128::MAX, usize::MAX, isize::MIN),
            real: (-1.5, f64::NAN),
            shapes: vec![
                Shape::Unit,
                Shape::Newtype(i128::MIN),
                Shape::Pair(300, -300),
                Shape::Named { bytes: vec![1; 200], text: Some("ä".to_owned()) },
                Shape::Named { bytes: Vec::new(), text: None },
            ],
            map: [("one".to_owned(), Some(Wrapped('€'))), (String::new(), None)].into(),
            array: [1, -1, i8::MIN],
        }
    }

    fn written<T: Serialize>(value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(value, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn bytes_are_those_of_postcard_and_a_count() {
        let bytes = written(&everything());
        // 8 fields; 3 + 4 + 4 + 3 + 2 + 3 elements of tuples and of the array; 2 of the pair, and 2 of each named shape.
        let elements = 8 + 19 + 2 + 4;
        assert_eq!(bytes, [postcard::to_stdvec(&everything()).unwrap(), vec![elements]].concat());
        assert_eq!(written(&vec![300_u16]), postcard::to_stdvec(&vec![300_u16]).unwrap());
    }

    #[test]
    fn the_parser_reads_what_is_written_and_nothing_less() {
        let bytes = written(&everything());
        assert_eq!(written(&read::<Everything>(&bytes).unwrap()), bytes);
        for cut in 0..bytes.len() {
            assert!(read::<Everything>(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert!(matches!(read::<Everything>(&[&bytes[..], &[0]].concat()), Err(Problem::Left(1))));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                // Either way; nothing may panic.
                let _ = read::<Everything>(&changed);
            }
        }
    }

    #[test]
    fn numbers_beyond_their_type_are_refused() {
        assert!(matches!(read::<u16>(&[0xff, 0xff, 0x04]), Err(Problem::Number)));
        assert!(matches!(read::<u64>(&[0xff; 10]), Err(Problem::Number)));
        assert!(matches!(read::<u128>(&[0xff; 19]), Err(Problem::Number)));
        assert_eq!(read::<u16>(&[0xff, 0xff, 0x03]).unwrap(), u16::MAX);
    }

    #[test]
    fn another_number_of_elements_is_refused() {
        let bytes = written(&(1_u8, (2_u8, 3_u8)));
        assert_eq!(bytes, [1, 2, 3, 4]);
        assert!(matches!(read::<(u8, u8, u8)>(&bytes), Err(Problem::Elements { written: 4, read: 3 })));
        assert!(matches!(read::<(u8, u8, u8, u8)>(&bytes), Err(Problem::End)));
    }

    #[derive(Serialize)]
    struct Request {
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<u8>,
        page: u8,
    }

    #[derive(Serialize)]
    enum Message {
        Ask {
            #[serde(skip_serializing_if = "Vec::is_empty")]
            words: Vec<String>,
        },
    }

    #[test]
    fn a_field_that_is_left_out_is_refused_with_its_name() {
        let mut sink = Vec::new();
        write(&Request { limit: Some(1), page: 2 }, &mut sink).unwrap();
        let refusal = write(&vec![Request { limit: None, page: 2 }], &mut sink).unwrap_err().to_string();
        assert!(refusal.contains("`Request` leaves its field `limit` out"), "{refusal}");
        assert!(refusal.contains("hint: drop `skip_serializing_if`"), "{refusal}");
        let refusal = write(&Message::Ask { words: Vec::new() }, &mut sink).unwrap_err().to_string();
        assert!(refusal.contains("`Message::Ask` leaves its field `words` out"), "{refusal}");
    }
}
